import { emptyPieceError, parseRoot } from '../../../snapshot-format/entries.ts';
import { ENTRY_FLAGS, ENTRY_TYPES, EntryCursor } from '../../../snapshot-format/entry-cursor.ts';
import { ByteReader } from '../../../snapshot-format/bytes.ts';
import {
  type Hash,
  OBJECT_KINDS,
  type ObjectKind,
  SNAPSHOT_LIMITS,
} from '../../../snapshot-format/objects.ts';
import { parseList } from '../../../snapshot-format/content-ref.ts';

/** An object that another object references. */
export interface Reference {
  readonly hash: Hash;
  /** Its possible kinds: see `kindBit`. */
  readonly kinds: number;
}

const { blob, tree, list, root, block } = OBJECT_KINDS;
const LISTS = kindBit(list);
/** A list does not say whether its pieces belong to a file or a directory. */
const ANY_PIECE = kindBit(blob) | kindBit(tree) | kindBit(block);

/** The bit of one kind in a set of kinds. */
export function kindBit(kind: ObjectKind): number {
  return 1 << kind;
}

export function isKindIn(kind: number, kinds: number): boolean {
  return (kinds & (1 << kind)) !== 0;
}

/** The objects that this object references directly. Throws `snapshot_damaged` for an invalid body. */
export function referencesOf(kind: ObjectKind, body: Buffer): Reference[] {
  const references: Reference[] = [];
  forEachReference(kind, body, (hash, kinds) => references.push({ hash, kinds }));
  return references;
}

/**
 * As `referencesOf`, without an array: each hash is a view of the body, because trees reference most objects of a
 * store.
 */
export function forEachReference(
  kind: ObjectKind,
  body: Buffer,
  act: (hash: Hash, kinds: number) => void,
): void {
  switch (kind) {
    case blob:
    case block:
      return;
    case tree: {
      const cursor = new EntryCursor(body);
      while (cursor.next()) forEachOfEntry(body, cursor, act);
      if (body.length === 0) throw emptyPieceError();
      return;
    }
    case root: {
      const { depth, items } = parseRoot(body).content;
      for (const { hash } of items) act(hash, depth > 0 ? LISTS : kindBit(tree));
      return;
    }
    case list: {
      const level = new ByteReader(body).varint(SNAPSHOT_LIMITS.depth);
      const kinds = level > 1 ? LISTS : ANY_PIECE;
      for (const { hash } of parseList(body, level)) act(hash, kinds);
      return;
    }
  }
}

function forEachOfEntry(body: Buffer, cursor: EntryCursor, act: (hash: Hash, kinds: number) => void): void {
  const { type, flags, depth, pieces } = cursor;
  const isSparse = (flags & ENTRY_FLAGS.sparse) !== 0;
  const piece = type === ENTRY_TYPES.directory ? tree : isSparse ? block : blob;
  const kinds = depth > 0 ? LISTS : kindBit(piece);
  for (let each = 0; each < pieces; each += 1) {
    const at = cursor.hashAt(each);
    act(body.subarray(at, at + SNAPSHOT_LIMITS.hashBytes), kinds);
  }
}
