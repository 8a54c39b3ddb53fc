import { lstat, opendir } from 'node:fs/promises';
import type { IgnoredFiles } from '../protocol/deploy-result.ts';

/** Limits of entries and time: a deploy does not wait for files that it ignores. */
const MOST_ENTRIES = 100_000;
const MOST_MS = 2000;
/** Maximum number of names to measure. */
const MOST_NAMES = 10_000;
const BIGGEST = 5;

export interface MeasureLimits {
  readonly entries: number;
  readonly ms: number;
}

/** Files and folders that a copy of a project ignores, and their size. */
export class IgnoredEntries {
  readonly #entries: { readonly shown: string; readonly onDisk: Buffer }[] = [];
  #isComplete = true;

  add(shown: string, onDisk: Buffer): void {
    if (this.#entries.length < MOST_NAMES) this.#entries.push({ shown, onDisk });
    else this.#isComplete = false;
  }

  /** Does not follow links; unreadable entries do not count. */
  async measure(
    signal?: AbortSignal,
    limits: MeasureLimits = { entries: MOST_ENTRIES, ms: MOST_MS },
  ): Promise<IgnoredFiles> {
    const until = performance.now() + limits.ms;
    let seen = 0;
    const mayContinue = (): boolean => {
      signal?.throwIfAborted();
      seen += 1;
      return seen <= limits.entries && performance.now() < until;
    };
    let complete = this.#isComplete;
    const measured: IgnoredFiles['largest'] = [];
    for (const { shown, onDisk } of this.#entries) {
      const sum = { path: shown, files: 0, bytes: 0 };
      if (!(await addUp(onDisk, sum, mayContinue))) complete = false;
      measured.push(sum);
    }
    const total = (part: 'files' | 'bytes'): number => measured.reduce((sum, one) => sum + one[part], 0);
    const biggest = measured
      .filter(({ files }) => files > 0)
      .sort((one, other) => other.bytes - one.bytes || (one.path < other.path ? -1 : 1))
      .slice(0, BIGGEST);
    return { files: total('files'), bytes: total('bytes'), complete, largest: biggest };
  }
}

/** False if it stopped early. */
async function addUp(
  top: Buffer,
  sum: { files: number; bytes: number },
  mayContinue: () => boolean,
): Promise<boolean> {
  const waiting = [top];
  for (let path = waiting.pop(); path !== undefined; path = waiting.pop()) {
    if (!mayContinue()) return false;
    try {
      const status = await lstat(path);
      if (!status.isDirectory()) {
        sum.files += 1;
        sum.bytes += status.isFile() ? status.size : 0;
        continue;
      }
      // Names are read as one character per byte: they need not be UTF-8.
      const folder = await opendir(path, { encoding: 'latin1' as BufferEncoding });
      for await (const { name } of folder) {
        if (waiting.length > MOST_ENTRIES) return false;
        waiting.push(Buffer.concat([path, SLASH, Buffer.from(name, 'latin1')]));
      }
    } catch (error) {
      if (!(error instanceof Error && 'code' in error)) throw error;
    }
  }
  return true;
}
const SLASH = Buffer.from('/');
