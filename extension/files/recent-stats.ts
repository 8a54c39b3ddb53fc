import type { FileStat, WriteResult } from '../../protocol/files.ts';

const MAX_FILES = 1_000;
/** VS Code looks at a file a few milliseconds after our own request for it. A stat that comes later is a new request. */
const RECENT_MS = 1_000;
/** A write of ours is reported as a change, by each watch of it, a moment after it was acknowledged. */
const ECHO_MS = 2_000;

/**
 * Stats that VS Code is about to ask for and that are known already. When a document is saved, our merger looks at the
 * file, VS Code looks before it writes, and again after that. On another machine each takes a round trip. The look after
 * the write is answered from the write's own answer. The two before it are answered from what was last known, unless a
 * change was reported since: the write names the version that it replaces, so a change that nobody has reported yet makes
 * it fail, and nothing is shown as saved. Each answer serves one look; a change of the file ends it.
 */
export class RecentStats {
  /** Regular files that are no links, as the last real stat had them. */
  readonly #files = new Map<string, FileStat>();
  readonly #answers = new Map<string, { readonly stat: FileStat; readonly until: number }>();
  /** Files that were read or written for a document, and of which no change was reported since. */
  readonly #unchanged = new Set<string>();
  /** Until when a reported change is taken for our own write. A save over another one fails, and is merged then. */
  readonly #echoes = new Map<string, number>();
  readonly #now: () => number;

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** A stat of the path itself, which was asked for. */
  recordStat(key: string, stat: FileStat, isLink: boolean): void {
    const before = this.#files.get(key);
    this.#answers.delete(key);
    this.#files.delete(key);
    if (before?.mtimeNs !== stat.mtimeNs || before.size !== stat.size) this.#unchanged.delete(key);
    if (isLink || stat.type !== 'file') {
      this.#unchanged.delete(key);
      return;
    }
    this.#files.set(key, stat);
    const [oldest] = this.#files.keys();
    if (this.#files.size > MAX_FILES && oldest !== undefined) this.#remove(oldest);
  }

  /** A stat that followed links: of a file that was no link. */
  recordChecked(key: string, stat: FileStat): void {
    if (this.#files.has(key) && stat.type === 'file') this.#answer(key, stat);
  }

  /** A document has the content of the file. */
  recordRead(key: string): void {
    if (this.#files.has(key)) this.#unchanged.add(key);
  }

  /** A write that has just been acknowledged. */
  recordWritten(key: string, { size, mtimeMs, mtimeNs }: WriteResult): void {
    const before = this.#files.get(key);
    if (before === undefined) return;
    this.#unchanged.add(key);
    this.#echoes.set(key, this.#now() + ECHO_MS);
    this.#answer(key, { ...before, size, mtimeMs, mtimeNs });
  }

  /** A write failed because the file has another version. */
  recordConflict(key: string): void {
    this.#remove(key);
  }

  /** Before a save. True: no change of the file is known, and the look before the write is answered from what is. */
  recordSaving(key: string): boolean {
    const known = this.#files.get(key);
    if (known === undefined || !this.#unchanged.has(key)) return false;
    this.#answer(key, known);
    return true;
  }

  /** The answer for one look. Undefined: ask. */
  take(key: string): FileStat | undefined {
    const answer = this.#answers.get(key);
    this.#answers.delete(key);
    return answer !== undefined && this.#now() < answer.until ? answer.stat : undefined;
  }

  /** A change of the file is reported. */
  forget(key: string): void {
    this.#answers.delete(key);
    if (this.#now() < (this.#echoes.get(key) ?? 0)) return;
    this.#echoes.delete(key);
    this.#unchanged.delete(key);
  }

  /** Anything may have changed. */
  clear(): void {
    this.#answers.clear();
    this.#unchanged.clear();
    this.#echoes.clear();
  }

  #answer(key: string, stat: FileStat): void {
    this.#files.set(key, stat);
    this.#answers.set(key, { stat, until: this.#now() + RECENT_MS });
  }

  #remove(key: string): void {
    this.#files.delete(key);
    this.#answers.delete(key);
    this.#unchanged.delete(key);
    this.#echoes.delete(key);
  }
}
