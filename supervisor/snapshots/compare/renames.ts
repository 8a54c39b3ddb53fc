import { createHash } from 'node:crypto';
import type { TimeSlice } from '../../../protocol/time-slice.ts';
import { ByteWriter } from '../../../snapshot-format/bytes.ts';
import type { FileEntry, TreeEntry } from '../../../snapshot-format/entries.ts';
import { writeContentRef } from '../../../snapshot-format/content-ref.ts';
import type { Difference, PathSegments } from './differences.ts';
import { pairSimilar, type SimilarCandidate } from './similar-files.ts';

/** Memory limit for the candidates of one comparison. Above it no renames are reported. */
const BUDGET_BYTES = 64 * 2 ** 20;
/** Estimated size of a candidate besides its path. */
const CANDIDATE_BYTES = 200;

/** The source of a renamed file: its path and attributes before. The content may have been edited since. */
export interface RenameSource {
  readonly path: PathSegments;
  readonly executable: boolean;
  readonly mode: number;
  readonly size: number;
  readonly isEdited: boolean;
}

/** A file that exists at its path on one side only. */
interface Candidate extends SimilarCandidate {
  readonly mode: number;
  /** The size of a sparse file says little about its content. */
  readonly sparse: boolean;
}
/** The candidates of each side that are not paired. */
interface Unpaired {
  readonly deleted: readonly Candidate[];
  readonly added: readonly Candidate[];
}

function namesOf(key: string): PathSegments {
  return key.split('\0').map((name) => Buffer.from(name, 'latin1'));
}

/** A path as a map key. Keys sort in path order. */
export function pathKey(path: PathSegments): string {
  return path.map((name) => name.toString('latin1')).join('\0');
}

/**
 * Pairs deleted files with added files of equal or similar content. Empty files are never paired, because they are all
 * alike. Among several files with the same content, those with the same name are paired first, then the others in path
 * order.
 */
export class Renames {
  #deleted = new Map<string, Candidate[]>();
  #added = new Map<string, Candidate[]>();
  #budget: number;
  readonly #sources = new Map<string, Candidate & { readonly isEdited: boolean }>();
  readonly #renamedAway = new Set<string>();

  constructor(budgetBytes: number = BUDGET_BYTES) {
    this.#budget = budgetBytes;
  }

  /** Records one difference as a candidate. */
  add({ path, before, after }: Difference): void {
    if (this.#budget < 0) return;
    const one = before ?? after;
    if ((before !== null && after !== null) || !canMove(one)) return;
    const key = pathKey(path);
    this.#budget -= key.length + CANDIDATE_BYTES;
    if (this.#budget < 0) {
      this.#deleted.clear();
      this.#added.clear();
      return;
    }
    const { mode, size, sparse } = one;
    const candidate = { key, name: nameIn(key), mode, size, sparse };
    push(before === null ? this.#added : this.#deleted, contentKey(one), candidate);
  }

  /** Called after the last `add`: pairs files with equal content. Returns the bytes of the renamed files. */
  pairIdentical(): number {
    let bytes = 0;
    const join = (from: Candidate, to: Candidate): void => {
      this.#join(from, to, false);
      bytes += from.size;
    };
    for (const [content, added] of this.#added) {
      const deleted = this.#deleted.get(content);
      if (deleted === undefined) continue;
      const byName = new Map<string, typeof deleted>();
      for (const from of deleted) push(byName, from.name, from);
      const others = added.filter((to) => {
        const from = byName.get(to.name)?.shift();
        if (from !== undefined) join(from, to);
        return from === undefined;
      });
      const free = deleted.filter(({ key }) => !this.#renamedAway.has(key));
      others.slice(0, free.length).forEach((to, index) => {
        const from = free[index];
        if (from !== undefined) join(from, to);
      });
    }
    return bytes;
  }

  /**
   * Called after `pairIdentical`: pairs files with similar content. Reads the content of a limited number of
   * candidates.
   */
  async pairEdited(
    read: (side: 'before' | 'after', path: PathSegments) => Promise<Uint8Array | null>,
    slices: TimeSlice,
  ): Promise<void> {
    const { deleted, added } = this.#unpaired();
    const isDeleted = new Set(deleted);
    const contentOf = (one: Candidate): Promise<Uint8Array | null> =>
      read(isDeleted.has(one) ? 'before' : 'after', namesOf(one.key));
    if (deleted.length === 0 || added.length === 0) return;
    for (const { deleted: from, added: to } of await pairSimilar(deleted, added, contentOf, slices)) {
      this.#join(from, to, true);
    }
  }

  /** Frees the candidates after the last pairing. */
  freeCandidates(): void {
    this.#deleted = new Map();
    this.#added = new Map();
  }

  #join(from: Candidate, to: Candidate, isEdited: boolean): void {
    this.#sources.set(to.key, { ...from, isEdited });
    this.#renamedAway.add(from.key);
  }

  #unpaired(): Unpaired {
    const rest = (all: ReadonlyMap<string, Candidate[]>, isPaired: (key: string) => boolean): Candidate[] =>
      [...all.values()].flat().filter(({ key, sparse }) => !sparse && !isPaired(key));
    return {
      deleted: rest(this.#deleted, (key) => this.#renamedAway.has(key)),
      added: rest(this.#added, (key) => this.#sources.has(key)),
    };
  }

  get count(): number {
    return this.#sources.size;
  }

  /** The source of the file renamed to this path; null for a new file. */
  sourceOf(path: PathSegments): RenameSource | null {
    if (this.#sources.size === 0) return null;
    const source = this.#sources.get(pathKey(path));
    if (source === undefined) return null;
    const { key, mode, size, isEdited } = source;
    return { path: namesOf(key), executable: isExecutable(source), mode, size, isEdited };
  }

  /** Whether the file at this path was renamed to another one. */
  isRenamedAway(path: PathSegments): boolean {
    return this.#renamedAway.size > 0 && this.#renamedAway.has(pathKey(path));
  }
}

export function isExecutable({ mode }: Pick<TreeEntry, 'mode'>): boolean {
  return (mode & 0o100) !== 0;
}

/** A 16-byte key, equal exactly for files with equal content. */
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
