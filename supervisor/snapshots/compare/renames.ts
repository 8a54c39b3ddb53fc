import { createHash } from 'node:crypto';
import type { TimeSlice } from '../../../protocol/time-slice.ts';
import { ByteWriter } from '../../../snapshot-format/bytes.ts';
import type { FileEntry, TreeEntry } from '../../../snapshot-format/entries.ts';
import { writeContentRef } from '../../../snapshot-format/content-ref.ts';
import type { Difference, PathSegments } from './differences.ts';
import { pairSimilar, type SimilarCandidate } from './similar-files.ts';

/** What the candidates of one comparison may take. Above it nothing is called renamed. */
const BUDGET_BYTES = 64 * 2 ** 20;
/** Beside its path, which is there twice in part. */
const CANDIDATE_BYTES = 200;

/** Where a renamed file was, and what it was there: the content may have been edited. */
export interface RenameSource {
  readonly path: PathSegments;
  readonly executable: boolean;
  readonly mode: number;
  readonly size: number;
  readonly isEdited: boolean;
}

/** A file that is at one path before, and not after, or the other way round. */
interface Candidate extends SimilarCandidate {
  readonly mode: number;
  /** A file with holes is long, and may hold nothing. */
  readonly sparse: boolean;
}
/** Which candidates there are on each side without a partner. */
interface Unpaired {
  readonly gone: readonly Candidate[];
  readonly come: readonly Candidate[];
}

function namesOf(key: string): PathSegments {
  return key.split('\0').map((name) => Buffer.from(name, 'latin1'));
}

/** A path as the key of a map. Keys sort as paths do: name by name. */
export function pathKey(path: PathSegments): string {
  return path.map((name) => name.toString('latin1')).join('\0');
}

/**
 * Files that went and files that came with the same content, or with much of it. An empty file is nobody's: it would be like any other. Of
 * several with the same content those with the same name belong together, then the first ones in the order of their paths.
 */
export class Renames {
  #gone = new Map<string, Candidate[]>();
  #come = new Map<string, Candidate[]>();
  #budget: number;
  readonly #origins = new Map<string, Candidate & { readonly isEdited: boolean }>();
  readonly #left = new Set<string>();

  constructor(budgetBytes: number = BUDGET_BYTES) {
    this.#budget = budgetBytes;
  }

  /** Looks at one difference. */
  add({ path, before, after }: Difference): void {
    if (this.#budget < 0) return;
    const one = before ?? after;
    if ((before !== null && after !== null) || !canMove(one)) return;
    const key = pathKey(path);
    this.#budget -= key.length + CANDIDATE_BYTES;
    if (this.#budget < 0) {
      this.#gone.clear();
      this.#come.clear();
      return;
    }
    const { mode, size, sparse } = one;
    const candidate = { key, name: nameIn(key), mode, size, sparse };
    push(before === null ? this.#come : this.#gone, contentKey(one), candidate);
  }

  /** When all have been looked at: pairs files with equal content. Gives how many bytes moved. */
  pairIdentical(): number {
    let bytes = 0;
    const join = (from: Candidate, to: Candidate): void => {
      this.#join(from, to, false);
      bytes += from.size;
    };
    for (const [content, come] of this.#come) {
      const gone = this.#gone.get(content);
      if (gone === undefined) continue;
      const byName = new Map<string, typeof gone>();
      for (const from of gone) push(byName, from.name, from);
      const others = come.filter((to) => {
        const from = byName.get(to.name)?.shift();
        if (from !== undefined) join(from, to);
        return from === undefined;
      });
      const free = gone.filter(({ key }) => !this.#left.has(key));
      others.slice(0, free.length).forEach((to, index) => {
        const from = free[index];
        if (from !== undefined) join(from, to);
      });
    }
    return bytes;
  }

  /** After `pair`: pairs files whose content was edited as well. Reads what a few of them hold, by the path before or after. */
  async pairEdited(
    read: (side: 'before' | 'after', path: PathSegments) => Promise<Uint8Array | null>,
    slices: TimeSlice,
  ): Promise<void> {
    const { gone, come } = this.#unpaired();
    const isGone = new Set(gone);
    const contentOf = (one: Candidate): Promise<Uint8Array | null> =>
      read(isGone.has(one) ? 'before' : 'after', namesOf(one.key));
    if (gone.length === 0 || come.length === 0) return;
    for (const { gone: from, come: to } of await pairSimilar(gone, come, contentOf, slices)) {
      this.#join(from, to, true);
    }
  }

  /** After the last pair was made. */
  freeCandidates(): void {
    this.#gone = new Map();
    this.#come = new Map();
  }

  #join(from: Candidate, to: Candidate, isEdited: boolean): void {
    this.#origins.set(to.key, { ...from, isEdited });
    this.#left.add(from.key);
  }

  #unpaired(): Unpaired {
    const rest = (all: ReadonlyMap<string, Candidate[]>, isPaired: (key: string) => boolean): Candidate[] =>
      [...all.values()].flat().filter(({ key, sparse }) => !sparse && !isPaired(key));
    return {
      gone: rest(this.#gone, (key) => this.#left.has(key)),
      come: rest(this.#come, (key) => this.#origins.has(key)),
    };
  }

  get count(): number {
    return this.#origins.size;
  }

  /** Where what came to this path was before; null for what is new. */
  sourceOf(path: PathSegments): RenameSource | null {
    if (this.#origins.size === 0) return null;
    const origin = this.#origins.get(pathKey(path));
    if (origin === undefined) return null;
    const { key, mode, size, isEdited } = origin;
    return { path: namesOf(key), executable: isExecutable(origin), mode, size, isEdited };
  }

  /** Whether what was at this path is elsewhere now. */
  isRenamedAway(path: PathSegments): boolean {
    return this.#left.size > 0 && this.#left.has(pathKey(path));
  }
}

export function isExecutable({ mode }: Pick<TreeEntry, 'mode'>): boolean {
  return (mode & 0o100) !== 0;
}

/** Equal for files with equal content, different for all others. 16 bytes. */
export function contentKey({ size, sparse, content }: FileEntry): string {
  const out = new ByteWriter(512);
  out.varint(size);
  out.byte(sparse ? 1 : 0);
  writeContentRef(out, content);
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
