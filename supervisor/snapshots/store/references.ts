import { emptyPiece, parseRoot } from '../../../protocol/snapshots/entries.ts';
import { ENTRY_FLAGS, ENTRY_TYPES, EntryCursor } from '../../../protocol/snapshots/entry-cursor.ts';
import { ByteReader } from '../../../protocol/snapshots/bytes.ts';
import {
  type Hash,
  OBJECT_KINDS,
  type ObjectKind,
  SNAPSHOT_LIMITS,
} from '../../../protocol/snapshots/objects.ts';
import { parseList } from '../../../protocol/snapshots/refs.ts';

/** An object that another one needs, and what it may be. */
export interface Reference {
  readonly hash: Hash;
  readonly kinds: readonly ObjectKind[];
}

const { blob, tree, list, root, block } = OBJECT_KINDS;
const LISTS: readonly ObjectKind[] = [list];
const TREE_PIECE: readonly ObjectKind[] = [tree];
const BLOB_PIECE: readonly ObjectKind[] = [blob];
const BLOCK_PIECE: readonly ObjectKind[] = [block];
/** A list does not say whose pieces it has. */
const ANY_PIECE: readonly ObjectKind[] = [blob, tree, block];

/** What this object names directly. Throws `snapshot_damaged` where it is not in order. */
export function* referencesOf(kind: ObjectKind, body: Buffer): Generator<Reference, void, undefined> {
  switch (kind) {
    case blob:
    case block:
      return;
    case tree: {
      const cursor = new EntryCursor(body);
      while (cursor.next()) yield* ofEntry(body, cursor);
      if (body.length === 0) throw emptyPiece();
      return;
    }
    case root: {
      const { depth, items } = parseRoot(body).content;
      for (const { hash } of items) yield { hash, kinds: depth > 0 ? LISTS : TREE_PIECE };
      return;
    }
    case list: {
      const level = new ByteReader(body).varint(SNAPSHOT_LIMITS.depth);
      const kinds = level > 1 ? LISTS : ANY_PIECE;
      for (const { hash } of parseList(body, level)) yield { hash, kinds };
      return;
    }
  }
}

function* ofEntry(body: Buffer, cursor: EntryCursor): Generator<Reference, void, undefined> {
  const { type, flags, depth, pieces } = cursor;
  const isSparse = (flags & ENTRY_FLAGS.sparse) !== 0;
  const piece = type === ENTRY_TYPES.directory ? TREE_PIECE : isSparse ? BLOCK_PIECE : BLOB_PIECE;
  const kinds = depth > 0 ? LISTS : piece;
  for (let each = 0; each < pieces; each += 1) {
    const at = cursor.hashAt(each);
    yield { hash: body.subarray(at, at + SNAPSHOT_LIMITS.hashBytes), kinds };
  }
}
