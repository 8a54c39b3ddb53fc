import { HoldfastError } from '../../protocol/errors.ts';
import { encodeName } from '../../protocol/paths.ts';
import { SEARCH_LIMITS, type FindParams } from '../../protocol/search.ts';
import type { Directory } from '../files/directory.ts';
import { Slices } from '../../protocol/slices.ts';
import { nameArguments } from './arguments.ts';
import { namesBelow, openBelow } from './beneath.ts';
import { LineCutter } from './lines.ts';
import { BestNames, scoreOf } from './name-score.ts';
import { Ripgrep } from './ripgrep.ts';
import { refused } from './text-search.ts';

const LONGEST_PATH = 64 * 1024;
const TIME_MS = 60_000;

/** Files whose paths match best, each looked up in the workspace before it is named: a path may have led ripgrep elsewhere. */
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
  const slices = new Slices(signal);
  const ripgrep = new Ripgrep(program, nameArguments(params), folder);
  const timer = setTimeout(() => ripgrep.kill(), TIME_MS);
  const abort = (): void => ripgrep.kill();
  signal.addEventListener('abort', abort);
  try {
    const cutter = new LineCutter(LONGEST_PATH, 0);
    for await (const chunk of ripgrep.stdout) {
      for (const line of cutter.push(chunk)) {
        const names = namesBelow(line);
        if (names === null) continue;
        const text = names.map(encodeName).join('/');
        const score = scoreOf(text, query);
        if (score !== null) best.add({ text, score, names });
        if (slices.isLong) await slices.rest();
      }
    }
    const { code, signal: killed, complaint } = await ripgrep.ended;
    signal.throwIfAborted();
    if (killed !== null) {
      throw new HoldfastError('timeout', 'The search for names took too long', {
        why: `it was ended after ${String(TIME_MS / 1000)} s`,
        next: 'search in a folder below, or exclude some',
      });
    }
    if (code === 2 && complaint !== '') throw refused(complaint);
    const paths = [];
    const found = best.sorted();
    for (const { text, names } of found.slice(0, limit)) {
      using file = openBelow(folder, names);
      if (file !== null) paths.push(`${base}/${text}`);
      if (slices.isLong) await slices.rest();
    }
    return { paths, more: found.length > limit };
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', abort);
    ripgrep.kill();
  }
}
