import { formatPath, parsePath } from '../../../protocol/paths.ts';
import type { TimeSlice } from '../../../protocol/time-slice.ts';
import { buildContentRef, type Piece } from '../../../snapshot-format/content-ref.ts';
import type { FileEntry } from '../../../snapshot-format/entries.ts';
import {
  hashOf,
  OBJECT_KINDS,
  type ObjectReader,
  parseHash,
  SNAPSHOT_LIMITS,
} from '../../../snapshot-format/objects.ts';
import { differences } from '../../snapshots/compare/differences.ts';
import { findEntry } from '../../snapshots/compare/find-entry.ts';
import { contentKey, Renames } from '../../snapshots/compare/renames.ts';
import { pairSimilar } from '../../snapshots/compare/similar-files.ts';
import { filesOf } from '../head-files.ts';
import { fileBytes } from '../../snapshots/patch/text-comparison.ts';

/** Paths that are looked at between two states. With more of them a file counts as new. */
const MAX_PATHS = 200_000;
/** Files of the earlier state that are tried for one that is in the workspace alone. */
const MAX_TRIED = 20;

/** A file of the workspace that no stored state has. */
export interface NewestText {
  readonly bytes: Buffer;
  /** Whether the workspace has a file there now. */
  readonly isThere: (path: string) => Promise<boolean>;
}

/**
 * Where the file at `path` was in the tree `from`, if what happened until the tree `to` renamed it, with or without an edit.
 * `to` null: until now. Null: it is a new file, or nobody can tell.
 */
export async function renamedFrom(
  reader: ObjectReader,
  { from, to, path }: { readonly from: string; readonly to: string | null; readonly path: string },
  newest: NewestText,
  slices: TimeSlice,
): Promise<string | null> {
  return to === null
    ? await inWorkspace(reader, from, path, newest, slices)
    : await betweenTrees(reader, { from, to, path }, slices);
}

async function betweenTrees(
  reader: ObjectReader,
  trees: { readonly from: string; readonly to: string; readonly path: string },
  slices: TimeSlice,
): Promise<string | null> {
  const [before, after] = [parseHash(trees.from), parseHash(trees.to)];
  const top = {
    path: [],
    before: await findEntry(reader, before, []),
    after: await findEntry(reader, after, []),
  };
  const renames = new Renames();
  let paths = 0;
  for await (const difference of differences(reader, top, slices)) {
    paths += 1;
    if (paths > MAX_PATHS) return null;
    renames.add(difference);
  }
  renames.pairIdentical();
  const path = parsePath(trees.path);
  if (renames.sourceOf(path) === null) {
    await renames.pairEdited(async (side, at) => {
      const entry = await findEntry(reader, side === 'before' ? before : after, at);
      return entry?.type === 'file' ? await fileBytes(reader, entry) : null;
    }, slices);
  }
  const source = renames.sourceOf(path);
  renames.freeCandidates();
  return source === null ? null : formatPath(source.path);
}

/** Nothing says which files are gone now, so that a few likely ones are asked for. */
async function inWorkspace(
  reader: ObjectReader,
  from: string,
  path: string,
  { bytes, isThere }: NewestText,
  slices: TimeSlice,
): Promise<string | null> {
  if (bytes.length === 0) return null;
  const wanted = contentKey(entryOf(bytes));
  const [folder, name] = split(path);
  const exact: string[] = [];
  const likely: { readonly path: string; readonly entry: FileEntry; readonly rank: number }[] = [];
  let paths = 0;
  for await (const { path: at, entry } of filesOf(reader, parseHash(from), slices)) {
    paths += 1;
    if (paths > MAX_PATHS) return null;
    if (entry.type !== 'file' || entry.sparse || entry.size === 0) continue;
    const text = formatPath(at);
    if (entry.size === bytes.length && contentKey(entry) === wanted) exact.push(text);
    const [otherFolder, otherName] = split(text);
    const isSimilarSize = entry.size <= 2 * bytes.length && bytes.length <= 2 * entry.size;
    if (isSimilarSize && (otherName === name || otherFolder === folder))
      likely.push({ path: text, entry, rank: otherName === name ? 0 : 1 });
  }
  const byName = exact.toSorted(
    (one, other) => Number(split(other)[1] === name) - Number(split(one)[1] === name),
  );
  for (const one of byName.slice(0, MAX_TRIED)) if (!(await isThere(one))) return one;
  const gone: typeof likely = [];
  for (const one of likely.toSorted((a, b) => a.rank - b.rank).slice(0, MAX_TRIED))
    if (!(await isThere(one.path))) gone.push(one);
  const added = { key: path, name, size: bytes.length };
  const deleted = gone.map((one) => ({ key: one.path, name: split(one.path)[1], size: one.entry.size }));
  const contentOf = async ({ key }: { readonly key: string }): Promise<Uint8Array | null> => {
    const found = gone.find((one) => one.path === key);
    return found === undefined ? bytes : await fileBytes(reader, found.entry);
  };
  const [pair] = await pairSimilar(deleted, [added], contentOf, slices);
  return pair?.deleted.key ?? null;
}

function split(path: string): readonly [string, string] {
  const slash = path.lastIndexOf('/');
  return [path.slice(0, slash), path.slice(slash + 1)];
}

/** What a snapshot would store of these bytes. */
function entryOf(bytes: Buffer): FileEntry {
  const pieces: Piece[] = [];
  for (let at = 0; at < bytes.length; at += SNAPSHOT_LIMITS.pieceBytes) {
    const piece = bytes.subarray(at, at + SNAPSHOT_LIMITS.pieceBytes);
    pieces.push({ index: pieces.length, hash: hashOf(OBJECT_KINDS.blob, piece) });
  }
  const content = buildContentRef(pieces, hashOf);
  const basics = { name: Buffer.alloc(0), mode: 0, mtimeNs: 0n, xattrs: [], linkGroup: null };
  return { ...basics, type: 'file', size: bytes.length, sparse: false, content };
}
