import { HoldfastError } from '../../protocol/errors.ts';
import { HANDOFF_LIMITS, type HandoffEntry, type HandoffSide } from '../../protocol/handoff.ts';
import { formatPath, parsePath } from '../../protocol/paths.ts';
import { TimeSlice } from '../../protocol/time-slice.ts';
import { readContent } from '../../snapshot-format/content.ts';
import { parseRoot, type TreeEntry } from '../../snapshot-format/entries.ts';
import { type Hash, OBJECT_KINDS, type ObjectReader, parseHash } from '../../snapshot-format/objects.ts';
import { differences } from '../snapshots/compare/differences.ts';
import { haveSameContent } from '../snapshots/compare/entry-equality.ts';
import type { LineageStores } from '../snapshots/store/lineage-stores.ts';

const EXECUTABLE = 0o100;
/** Characters of one page, so that the answer fits into one line of at most 1 MiB. */
const PAGE_CHARACTERS = 256 * 1024;

export interface TreePair {
  readonly before: Hash;
  readonly after: Hash;
}

interface ChangedFile {
  readonly path: readonly Buffer[];
  readonly before: TreeEntry | null;
  readonly after: TreeEntry | null;
}

export interface ChangesPage {
  readonly files: readonly ChangedFile[];
  /** Null at the end. */
  readonly nextCursor: string | null;
}

/**
 * The files that differ as git sees it, after the path `cursor`: type, content or executable bit. Deterministic for the same
 * trees and cursor. Errors: `snapshot_damaged`, `invalid_params` (cursor).
 */
export async function changesPage(
  reader: ObjectReader,
  { before, after }: TreePair,
  cursor: string | undefined,
  signal?: AbortSignal,
): Promise<ChangesPage> {
  const top = {
    path: [],
    before: parseRoot(await reader.read(before, OBJECT_KINDS.root)),
    after: parseRoot(await reader.read(after, OBJECT_KINDS.root)),
  };
  const resumeAfter = cursor === undefined ? null : parsePath(cursor);
  const files: ChangedFile[] = [];
  let characters = 0;
  for await (const difference of differences(reader, top, new TimeSlice(signal), resumeAfter)) {
    const file = { ...difference, before: leaf(difference.before), after: leaf(difference.after) };
    if (isEqualForGit(file.before, file.after)) continue;
    const last = files.at(-1);
    if (last !== undefined && (files.length === HANDOFF_LIMITS.entries || characters > PAGE_CHARACTERS))
      return { files, nextCursor: formatPath(last.path) };
    files.push(file);
    characters += 200 + 3 * file.path.reduce((sum, name) => sum + name.length + 1, 0);
  }
  return { files, nextCursor: null };
}

/** How many pages are kept. */
const MOST_RECENT = 8;

/** Pages that were listed a moment ago: a client asks for the contents of each of them next, side by side. */
export class RecentPages {
  readonly #pages = new Map<string, ChangesPage>();

  /** As `changesPage`. */
  async page(
    reader: ObjectReader,
    trees: TreePair,
    cursor: string | undefined,
    signal: AbortSignal,
  ): Promise<ChangesPage> {
    // The hashes name all that a page depends on.
    const key = `${trees.before.toString('hex')} ${trees.after.toString('hex')} ${cursor ?? ''}`;
    const page = this.#pages.get(key) ?? (await changesPage(reader, trees, cursor, signal));
    this.#pages.delete(key);
    this.#pages.set(key, page);
    for (const oldest of this.#pages.keys()) {
      if (this.#pages.size <= MOST_RECENT) break;
      this.#pages.delete(oldest);
    }
    return page;
  }

  clear(): void {
    this.#pages.clear();
  }
}

/**
 * The files that differ, by path and as far as one page has them. Null if one of the trees is not stored or damaged.
 */
export async function changedPaths(
  stores: Pick<LineageStores, 'use'>,
  lineage: string,
  { before, after }: { readonly before: string; readonly after: string },
): Promise<{ readonly paths: string[]; readonly complete: boolean } | null> {
  try {
    return await stores.use(lineage, async (store) => {
      const trees = { before: parseHash(before), after: parseHash(after) };
      if (store.find(trees.before) === null || store.find(trees.after) === null) return null;
      const { files, nextCursor } = await changesPage(store, trees, undefined);
      return { paths: files.map(({ path }) => formatPath(path)), complete: nextCursor === null };
    });
  } catch (error) {
    if (error instanceof HoldfastError) return null;
    throw error;
  }
}

export function entryOf({ path, before, after }: ChangedFile): HandoffEntry {
  return { path: formatPath(path), before: sideOf(before), after: sideOf(after) };
}

export interface WantedContents {
  readonly side: 'before' | 'after';
  /** Indices of the page's files, ascending. */
  readonly wanted: readonly number[];
  /** Offset in the first of them. */
  readonly offset: number;
}

/** As many bytes of these contents, in order, as one answer holds, and how many of each. Errors: `snapshot_damaged`. */
export async function readContents(
  reader: ObjectReader,
  { files }: ChangesPage,
  { side, wanted, offset }: WantedContents,
): Promise<{ readonly sizes: number[]; readonly bytes: Buffer }> {
  const sizes: number[] = [];
  const pieces: Buffer[] = [];
  let free: number = HANDOFF_LIMITS.answerBytes;
  for (const [at, index] of wanted.entries()) {
    const file = files[index];
    if (file === undefined) {
      throw new HoldfastError('invalid_params', `The page has no entry ${index}`, {
        why: `it has ${files.length} entries`,
      });
    }
    const read = await readPart(reader, file[side], at === 0 ? offset : 0, free);
    pieces.push(...read.pieces);
    sizes.push(read.bytes);
    free -= read.bytes;
    if (!read.isWhole) break;
  }
  return { sizes, bytes: Buffer.concat(pieces) };
}

/** Up to `limit` bytes from `offset` on, with holes as zeros. */
async function readPart(
  reader: ObjectReader,
  entry: TreeEntry | null,
  offset: number,
  limit: number,
): Promise<{ readonly pieces: Buffer[]; readonly bytes: number; readonly isWhole: boolean }> {
  if (entry?.type === 'symlink') {
    const rest = entry.target.subarray(offset, offset + limit);
    return { pieces: [rest], bytes: rest.length, isWhole: offset + rest.length >= entry.target.length };
  }
  if (entry?.type !== 'file') return { pieces: [], bytes: 0, isWhole: true };
  const end = Math.min(entry.size, offset + limit);
  const length = Math.max(0, end - offset);
  const isWhole = end === entry.size;
  if (length === 0) return { pieces: [], bytes: 0, isWhole };
  const pieces: Buffer[] = [];
  let at = offset;
  for await (const extent of readContent(reader, entry, { from: offset, until: end })) {
    const from = Math.max(extent.offset, at);
    const until = Math.min(extent.offset + extent.bytes.length, end);
    if (from >= until) continue;
    if (from > at) pieces.push(Buffer.alloc(from - at));
    pieces.push(extent.bytes.subarray(from - extent.offset, until - extent.offset));
    at = until;
  }
  if (at < end) pieces.push(Buffer.alloc(end - at));
  return { pieces, bytes: length, isWhole };
}

/** The entry, unless it is a folder: git has none. */
function leaf(entry: TreeEntry | null): TreeEntry | null {
  return entry?.type === 'directory' ? null : entry;
}

function isEqualForGit(before: TreeEntry | null, after: TreeEntry | null): boolean {
  if (before === null || after === null) return before === after;
  if (before.type !== after.type || !haveSameContent(before, after)) return false;
  return before.type !== 'file' || isExecutable(before) === isExecutable(after);
}

function sideOf(entry: TreeEntry | null): HandoffSide | null {
  switch (entry?.type) {
    case undefined:
    case 'directory':
      return null;
    case 'file':
      return { type: 'file', executable: isExecutable(entry), size: entry.size };
    case 'symlink':
      return { type: 'symlink', executable: false, size: entry.target.length };
    case 'fifo':
    case 'socket':
      return { type: 'other', executable: false, size: 0 };
  }
}

function isExecutable({ mode }: TreeEntry): boolean {
  return (mode & EXECUTABLE) !== 0;
}
