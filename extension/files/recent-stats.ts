import type { FileStat, WriteResult } from '../../protocol/files.ts';

const MAX_FILES = 1_000;
/** VS Code looks at a file a few milliseconds after our own request for it. A look that comes later asks anew. */
const RECENT_MS = 1_000;

/**
 * Stats that VS Code is about to ask for and that are known already. When a document is saved, our merger asks for the
 * stat, VS Code asks for it before it writes, and again after that. On another machine each takes a round trip, so VS
 * Code's two are answered from the answer just before them. Each answer serves one look; a change of the file ends it.
 */
export class RecentStats {
  /** Regular files that are no links, as the last real stat had them. */
  readonly #files = new Map<string, FileStat>();
  readonly #answers = new Map<string, { readonly stat: FileStat; readonly until: number }>();
  readonly #now: () => number;

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** A stat of the path itself, which was asked for. */
  recordStat(key: string, stat: FileStat, isLink: boolean): void {
    this.forget(key);
    this.#files.delete(key);
    if (isLink || stat.type !== 'file') return;
    this.#files.set(key, stat);
    const [oldest] = this.#files.keys();
    if (this.#files.size > MAX_FILES && oldest !== undefined) this.#remove(oldest);
  }

  /** A stat that followed links: of a file that was no link. */
  recordChecked(key: string, stat: FileStat): void {
    if (this.#files.has(key) && stat.type === 'file') this.#answer(key, stat);
  }

  /** A write that has just been acknowledged. */
  recordWritten(key: string, { size, mtimeMs, mtimeNs }: WriteResult): void {
    const before = this.#files.get(key);
    if (before !== undefined) this.#answer(key, { ...before, size, mtimeMs, mtimeNs });
  }

  /** The answer for one look. Undefined: ask. */
  take(key: string): FileStat | undefined {
    const answer = this.#answers.get(key);
    this.#answers.delete(key);
    return answer !== undefined && this.#now() < answer.until ? answer.stat : undefined;
  }

  /** Something changed the file. */
  forget(key: string): void {
    this.#answers.delete(key);
  }

  /** Anything may have changed. */
  clear(): void {
    this.#answers.clear();
  }

  #answer(key: string, stat: FileStat): void {
    this.#files.set(key, stat);
    this.#answers.set(key, { stat, until: this.#now() + RECENT_MS });
  }

  #remove(key: string): void {
    this.#files.delete(key);
    this.#answers.delete(key);
  }
}
