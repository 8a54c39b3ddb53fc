import type { ByteReader } from './bytes.ts';
import { ByteReader as Reader, ByteWriter } from './bytes.ts';
import {
  snapshotDamaged,
  type Hash,
  OBJECT_KINDS,
  type ObjectKind,
  type ObjectReader,
  SNAPSHOT_LIMITS,
} from './objects.ts';

const { hashBytes, inlinePieces, listItems, depth: maxDepth } = SNAPSHOT_LIMITS;

/** One piece: the `index`-th block of a file (offset = index × pieceBytes), or the `index`-th part of a directory. */
export interface Piece {
  readonly index: number;
  readonly hash: Hash;
}

/**
 * References to the pieces of a file or directory, by ascending index. With `depth` 0 the items are the pieces.
 * Otherwise they are `list` objects of level `depth`, each with the index of its first piece.
 */
export interface ContentRef {
  readonly depth: number;
  readonly items: readonly Piece[];
}

export const EMPTY_CONTENT_REF: ContentRef = { depth: 0, items: [] };

/** Stores an object and returns its hash. */
export type ObjectSink = (kind: ObjectKind, body: Buffer) => Hash;

/** Builds the smallest reference to these pieces; the lists that it needs go to the sink. */
export function buildContentRef(pieces: readonly Piece[], sink: ObjectSink): ContentRef {
  let items = pieces;
  let depth = 0;
  while (items.length > inlinePieces) {
    depth += 1;
    if (depth > maxDepth) throw new RangeError('more pieces than a snapshot can hold');
    const lists: Piece[] = [];
    for (let from = 0; from < items.length; from += listItems) {
      const part = items.slice(from, from + listItems);
      const out = new ByteWriter(part.length * (hashBytes + 1) + 16);
      out.varint(depth);
      out.varint(part.length);
      writePieces(out, part);
      lists.push({ index: part[0]?.index ?? 0, hash: sink(OBJECT_KINDS.list, out.toBuffer()) });
    }
    items = lists;
  }
  return { depth, items };
}

export function writeContentRef(out: ByteWriter, { depth, items }: ContentRef): void {
  out.varint(depth);
  out.varint(items.length);
  writePieces(out, items);
}

/** The items of a `list` object of this level. */
export function parseList(body: Buffer, level: number): Piece[] {
  const input = new Reader(body);
  if (input.varint(maxDepth) !== level) throw snapshotDamaged('a list is of another level');
  const count = input.varint(listItems);
  if (count === 0) throw snapshotDamaged('a list is empty');
  const items = readPieces(input, count);
  if (!input.isAtEnd) throw snapshotDamaged('a list has bytes after its items');
  return items;
}

/** All pieces in order. Holds one list per level at a time. */
export async function* piecesOf(
  reader: ObjectReader,
  ref: ContentRef,
): AsyncGenerator<Piece, void, undefined> {
  if (ref.depth === 0) {
    yield* ref.items;
    return;
  }
  let last = -1;
  for (const { index, hash } of ref.items) {
    const items = parseList(await reader.read(hash, OBJECT_KINDS.list), ref.depth);
    if (items[0]?.index !== index || index <= last) throw snapshotDamaged('pieces are out of order');
    for await (const piece of piecesOf(reader, { depth: ref.depth - 1, items })) {
      if (piece.index <= last) throw snapshotDamaged('pieces are out of order');
      last = piece.index;
      yield piece;
    }
  }
}

/** Each index is written as the distance from the expected one. */
function writePieces(out: ByteWriter, pieces: readonly Piece[]): void {
  let expected = 0;
  for (const { index, hash } of pieces) {
    out.varint(index - expected);
    out.bytes(hash);
    expected = index + 1;
  }
}

function readPieces(input: ByteReader, count: number): Piece[] {
  const pieces: Piece[] = [];
  let expected = 0;
  for (let at = 0; at < count; at += 1) {
    const index = expected + input.varint(Number.MAX_SAFE_INTEGER - expected - 1);
    pieces.push({ index, hash: input.bytes(hashBytes) });
    expected = index + 1;
  }
  return pieces;
}
