import { parseRoot, parseTree, type TreeEntry } from '../../../protocol/snapshots/entries.ts';
import { ByteReader } from '../../../protocol/snapshots/bytes.ts';
import {
  type Hash,
  OBJECT_KINDS,
  type ObjectKind,
  SNAPSHOT_LIMITS,
} from '../../../protocol/snapshots/objects.ts';
import { parseList, type Ref } from '../../../protocol/snapshots/refs.ts';

/** An object that another one needs, and what it may be. */
export interface Reference {
  readonly hash: Hash;
  readonly kinds: readonly ObjectKind[];
}

const { blob, tree, list, root, block } = OBJECT_KINDS;
const LISTS: readonly ObjectKind[] = [list];
/** A list does not say whose pieces it has. */
const ANY_PIECE: readonly ObjectKind[] = [blob, tree, block];

/** What this object names directly. Throws `snapshot_damaged` where it is not in order. */
export function* referencesOf(kind: ObjectKind, body: Buffer): Generator<Reference, void, undefined> {
  switch (kind) {
    case blob:
    case block:
      return;
    case tree:
      for (const entry of parseTree(body)) yield* ofEntry(entry);
      return;
    case root:
      yield* ofEntry(parseRoot(body));
      return;
    case list: {
      const level = new ByteReader(body).varint(SNAPSHOT_LIMITS.depth);
      const kinds = level > 1 ? LISTS : ANY_PIECE;
      for (const { hash } of parseList(body, level)) yield { hash, kinds };
      return;
    }
  }
}

function* ofEntry(entry: TreeEntry): Generator<Reference, void, undefined> {
  if (entry.type === 'directory') yield* ofRef(entry.content, tree);
  if (entry.type === 'file') yield* ofRef(entry.content, entry.sparse ? block : blob);
}

function* ofRef({ depth, items }: Ref, piece: ObjectKind): Generator<Reference, void, undefined> {
  const kinds = depth > 0 ? LISTS : [piece];
  for (const { hash } of items) yield { hash, kinds };
}
