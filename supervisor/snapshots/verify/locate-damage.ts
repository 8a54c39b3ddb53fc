import { formatPath } from '../../../protocol/paths.ts';
import type { Damage } from '../../../protocol/snapshots.ts';
import { contentPieces, extentsOfPiece, pieceCount } from '../../../snapshot-format/content.ts';
import { type FileEntry, parseRoot, parseTree } from '../../../snapshot-format/entries.ts';
import {
  snapshotDamaged,
  type Hash,
  OBJECT_KINDS,
  SNAPSHOT_LIMITS,
} from '../../../snapshot-format/objects.ts';
import { parseList, type ContentRef } from '../../../snapshot-format/content-ref.ts';
import type { PathSegments } from '../compare/differences.ts';
import { Marks, locateObject } from '../gc/marks.ts';
import type { TimeSlice } from '../../../protocol/time-slice.ts';
import type { LineageStore } from '../store/lineage-store.ts';
import { damageReason } from './damage-reason.ts';

const { tree, list, root: rootKind, block } = OBJECT_KINDS;
const { pieceBytes } = SNAPSHOT_LIMITS;

/**
 * Locates the damage of a tree: each lost object (`lost`, by hexadecimal hash) with the first path that needs it, and
 * intact objects that do not fit together. File contents are not read again.
 */
export async function locateDamage(
  store: LineageStore,
  root: Hash,
  lost: ReadonlyMap<string, Damage>,
  slices: TimeSlice,
): Promise<Damage[]> {
  const found: Damage[] = [];
  const reportedObjects = new Set<string>();
  const seen = new Marks();
  const report = (error: unknown, hash: Hash, path: PathSegments): void => {
    const object = hash.toString('hex');
    if (reportedObjects.has(object)) return;
    reportedObjects.add(object);
    const pack = locateObject(store.packs, hash)?.pack.name ?? null;
    found.push({
      ...(lost.get(object) ?? { what: damageReason(error), pack, object }),
      path: formatPath(path),
    });
  };
  const isLost = (hash: Hash, path: PathSegments): boolean => {
    const isKnown = lost.has(hash.toString('hex'));
    if (isKnown) report(null, hash, path);
    return isKnown;
  };
  /** Parses an object; null if it is damaged, after reporting that. */
  const parsed = async <T>(
    hash: Hash,
    kind: typeof tree | typeof list | typeof rootKind,
    path: PathSegments,
    parse: (body: Buffer) => T,
  ): Promise<T | null> => {
    if (isLost(hash, path)) return null;
    try {
      return parse(await store.read(hash, kind));
    } catch (error) {
      report(error, hash, path);
      return null;
    }
  };

  /** Reports every lost object on the way to the pieces; false if there was one. */
  const checkReferences = async ({ depth, items }: ContentRef, path: PathSegments): Promise<boolean> => {
    let isWhole = true;
    for (const { hash } of items) {
      if (depth === 0) isWhole = !isLost(hash, path) && isWhole;
      else {
        const below = await parsed(hash, list, path, (body) => parseList(body, depth));
        isWhole =
          below !== null && (await checkReferences({ depth: depth - 1, items: below }, path)) && isWhole;
      }
    }
    return isWhole;
  };

  const checkFile = async (entry: FileEntry, path: PathSegments): Promise<void> => {
    if (!(await checkReferences(entry.content, path))) return;
    let current: Hash | null = null;
    try {
      for await (const piece of contentPieces(store, entry)) {
        const { hash, index } = piece;
        current = hash;
        const place = locateObject(store.packs, hash);
        const object = place?.pack.index.object(place.index);
        const isRight = object?.kind === (entry.sparse ? OBJECT_KINDS.block : OBJECT_KINDS.blob);
        if (!isRight) throw snapshotDamaged('an object is of another kind');
        if (!entry.sparse && object.length !== Math.min(pieceBytes, entry.size - index * pieceBytes)) {
          throw snapshotDamaged('a piece is not as long as its place');
        }
        // Only the last block can extend beyond the end of its file.
        if (entry.sparse && index === pieceCount(entry.size) - 1) {
          extentsOfPiece(entry, piece, await store.read(hash, block));
        }
      }
    } catch (error) {
      if (current !== null) report(error, current, path);
      else found.push({ what: damageReason(error), pack: null, object: null, path: formatPath(path) });
    }
  };

  const top = await parsed(root, rootKind, [], parseRoot);
  const open: { path: PathSegments; content: ContentRef }[] =
    top === null ? [] : [{ path: [], content: top.content }];
  const checkPiece = async (hash: Hash, path: PathSegments): Promise<void> => {
    if (slices.isUsedUp) await slices.yieldToEventLoop();
    const place = locateObject(store.packs, hash);
    if (place !== null && !seen.add(place.pack, place.index)) return;
    for (const entry of (await parsed(hash, tree, path, parseTree)) ?? []) {
      const below = [...path, entry.name];
      if (entry.type === 'directory') open.push({ path: below, content: entry.content });
      else if (entry.type === 'file') await checkFile(entry, below);
    }
  };
  const checkDirectory = async ({ depth, items }: ContentRef, path: PathSegments): Promise<void> => {
    for (const { hash } of items) {
      if (depth === 0) await checkPiece(hash, path);
      else {
        const below = await parsed(hash, list, path, (body) => parseList(body, depth));
        if (below !== null) await checkDirectory({ depth: depth - 1, items: below }, path);
      }
    }
  };
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    await checkDirectory(next.content, next.path);
  }
  return found;
}
