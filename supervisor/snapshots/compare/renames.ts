import { createHash } from 'node:crypto';
import { ByteWriter } from '../../../protocol/snapshots/bytes.ts';
import type { FileEntry, TreeEntry } from '../../../protocol/snapshots/entries.ts';
import { writeRef } from '../../../protocol/snapshots/refs.ts';
import type { Difference, Names } from './differences.ts';

/** What the candidates of one comparison may take. Above it nothing is called renamed. */
const BUDGET_BYTES = 64 * 2 ** 20;
/** Beside its path. */
const CANDIDATE_BYTES = 150;

/** Where a renamed file was. */
export interface Origin {
  readonly path: Names;
  readonly executable: boolean;
}

/** A file that is not where it was. */
interface Gone {
  readonly key: string;
  readonly executable: boolean;
  readonly size: number;
}

/** A path as the key of a map. Keys sort as paths do: name by name. */
export function keyOf(path: Names): string {
  return path.map((name) => name.toString('latin1')).join('\0');
}

/**
 * Files that went and files that came with the same content. An empty file is nobody's: it would be like any other. Of
 * several with the same content those with the same name belong together, then the first ones in the order of their paths.
 */
export class Renames {
  #gone = new Map<string, Gone[]>();
  #come = new Map<string, string[]>();
  #budget: number;
  readonly #origins = new Map<string, Gone>();
  readonly #left = new Set<string>();

  constructor(budgetBytes: number = BUDGET_BYTES) {
    this.#budget = budgetBytes;
  }

  /** Looks at one difference. */
  add({ path, before, after }: Difference): void {
    if (this.#budget < 0) return;
    const one = before ?? after;
    if ((before !== null && after !== null) || !canMove(one)) return;
    const key = keyOf(path);
    this.#budget -= key.length + CANDIDATE_BYTES;
    if (this.#budget < 0) {
      this.#gone.clear();
      this.#come.clear();
      return;
    }
    const content = contentKey(one);
    if (before === null) push(this.#come, content, key);
    else push(this.#gone, content, { key, executable: isExecutable(one), size: one.size });
  }

  /** When all have been looked at. Gives how many bytes moved. */
  pair(): number {
    let bytes = 0;
    const join = (from: Gone, to: string): void => {
      this.#origins.set(to, from);
      this.#left.add(from.key);
      bytes += from.size;
    };
    for (const [content, come] of this.#come) {
      const gone = this.#gone.get(content);
      if (gone === undefined) continue;
      const byName = new Map<string, typeof gone>();
      for (const from of gone) push(byName, nameIn(from.key), from);
      const others = come.filter((key) => {
        const from = byName.get(nameIn(key))?.shift();
        if (from !== undefined) join(from, key);
        return from === undefined;
      });
      const free = gone.filter(({ key }) => !this.#left.has(key));
      others.slice(0, free.length).forEach((key, index) => {
        const from = free[index];
        if (from !== undefined) join(from, key);
      });
    }
    this.#gone = new Map();
    this.#come = new Map();
    return bytes;
  }

  get count(): number {
    return this.#origins.size;
  }

  /** Where what came to this path was before; null for what is new. */
  originOf(path: Names): Origin | null {
    if (this.#origins.size === 0) return null;
    const origin = this.#origins.get(keyOf(path));
    if (origin === undefined) return null;
    const names = origin.key.split('\0').map((name) => Buffer.from(name, 'latin1'));
    return { path: names, executable: origin.executable };
  }

  /** Whether what was at this path is elsewhere now. */
  hasLeft(path: Names): boolean {
    return this.#left.size > 0 && this.#left.has(keyOf(path));
  }
}

export function isExecutable({ mode }: TreeEntry): boolean {
  return (mode & 0o100) !== 0;
}

/** Equal for files with equal content, different for all others. 16 bytes. */
export function contentKey({ size, sparse, content }: FileEntry): string {
  const out = new ByteWriter(512);
  out.varint(size);
  out.byte(sparse ? 1 : 0);
  writeRef(out, content);
  return createHash('sha256').update(out.view()).digest().toString('latin1', 0, 16);
}

function canMove(entry: TreeEntry | null): entry is FileEntry {
  return entry?.type === 'file' && entry.size > 0;
}

function nameIn(key: string): string {
  return key.slice(key.lastIndexOf('\0') + 1);
}

function push<T>(map: Map<string, T[]>, key: string, value: T): void {
  const list = map.get(key);
  if (list === undefined) map.set(key, [value]);
  else list.push(value);
}
