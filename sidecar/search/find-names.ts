import { HoldfastError } from '../../protocol/errors.ts';
import { encodeName } from '../../protocol/paths.ts';
import { SEARCH_LIMITS, type FindParams } from '../../protocol/search.ts';
import type { Directory } from '../files/directory.ts';
import { TimeSlice } from '../../protocol/time-slice.ts';
import { nameArguments } from './arguments.ts';
import { parseRelativePath, openBeneath } from './open-beneath.ts';
import { LineSplitter } from './lines.ts';
import { BestNames, scoreOf } from './name-score.ts';
import { Ripgrep } from './ripgrep.ts';
import { searchRejected } from './text-search.ts';

const LONGEST_PATH = 64 * 1024;
const TIME_MS = 60_000;

/**
 * The files whose paths match best. Each is verified in the workspace before it is reported, because a path may have
 * led ripgrep elsewhere.
 */
export async function findNames(
  program: string,
  folder: Directory,
  base: string,
  params: FindParams,
  signal: AbortSignal,
): Promise<{ paths: string[]; more: boolean }> {
  const limit = params.limit ?? SEARCH_LIMITS.names.default;
  const query = params.query.toLowerCase();
  const best = new BestNames(limit + 1);
  const slices = new TimeSlice(signal);
  const ripgrep = new Ripgrep(program, nameArguments(params), folder);
  const timer = setTimeout(() => ripgrep.kill(), TIME_MS);
  const abort = (): void => ripgrep.kill();
  signal.addEventListener('abort', abort);
  try {
    const cutter = new LineSplitter(LONGEST_PATH, 0);
    for await (const chunk of ripgrep.stdout) {
      for (const line of cutter.push(chunk)) {
        const names = parseRelativePath(line);
        if (names === null) continue;
        const text = names.map(encodeName).join('/');
        const score = scoreOf(text, query);
        if (score !== null) best.add({ text, score, names });
        if (slices.isUsedUp) await slices.yieldToEventLoop();
      }
    }
    const { code, signal: killed, stderr } = await ripgrep.exited;
    signal.throwIfAborted();
    if (killed !== null) {
      throw new HoldfastError('timeout', 'The search for file names took too long', {
        why: `it was stopped after ${String(TIME_MS / 1000)} s`,
        next: 'search in a subfolder, or exclude some folders',
      });
    }
    if (code === 2 && stderr !== '') throw searchRejected(stderr);
    const paths = [];
    const found = best.sorted();
    for (const { text, names } of found.slice(0, limit)) {
      using file = openBeneath(folder, names);
      if (file !== null) paths.push(`${base}/${text}`);
      if (slices.isUsedUp) await slices.yieldToEventLoop();
    }
    return { paths, more: found.length > limit };
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', abort);
    ripgrep.kill();
  }
}
