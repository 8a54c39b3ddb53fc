import { lstat, opendir } from 'node:fs/promises';
import type { IgnoredFiles } from '../../protocol/deploy-result.ts';

/** Entries that are looked at, and the time for it: a deploy does not wait for what it does not take. */
const MOST_ENTRIES = 100_000;
const MOST_MS = 2000;
/** Names that are remembered to be measured. */
const MOST_NAMES = 10_000;
const BIGGEST = 5;

export interface MeasureLimits {
  readonly entries: number;
  readonly ms: number;
}

/** Files and folders that a copy of a project passes over, and how much that is. */
export class IgnoredEntries {
  readonly #entries: { readonly shown: string; readonly onDisk: Buffer }[] = [];
  #isWhole = true;

  add(shown: string, onDisk: Buffer): void {
    if (this.#entries.length < MOST_NAMES) this.#entries.push({ shown, onDisk });
    else this.#isWhole = false;
  }

  /** Links are not followed, and what cannot be read does not count. */
  async measure(
    signal?: AbortSignal,
    limits: MeasureLimits = { entries: MOST_ENTRIES, ms: MOST_MS },
  ): Promise<IgnoredFiles> {
    const until = performance.now() + limits.ms;
    let seen = 0;
    const goesOn = (): boolean => {
      signal?.throwIfAborted();
      seen += 1;
      return seen <= limits.entries && performance.now() < until;
    };
    let complete = this.#isWhole;
    const measured: IgnoredFiles['largest'] = [];
    for (const { shown, onDisk } of this.#entries) {
      const sum = { path: shown, files: 0, bytes: 0 };
      if (!(await addUp(onDisk, sum, goesOn))) complete = false;
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

/** False where it was ended early. */
async function addUp(
  top: Buffer,
  sum: { files: number; bytes: number },
  goesOn: () => boolean,
): Promise<boolean> {
  const waiting = [top];
  for (let path = waiting.pop(); path !== undefined; path = waiting.pop()) {
    if (!goesOn()) return false;
    try {
      const status = await lstat(path);
      if (!status.isDirectory()) {
        sum.files += 1;
        sum.bytes += status.isFile() ? status.size : 0;
        continue;
      }
      // Names come as text of one character a byte: they need not be UTF-8.
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
