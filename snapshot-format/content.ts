import { ByteReader, ByteWriter } from './bytes.ts';
import type { FileEntry } from './entries.ts';
import { snapshotDamaged, OBJECT_KINDS, type ObjectReader, SNAPSHOT_LIMITS } from './objects.ts';
import { type Piece, piecesOf } from './content-ref.ts';

const { pieceBytes } = SNAPSHOT_LIMITS;

/** Contiguous data of a file; holes lie between extents. */
export interface Extent {
  readonly offset: number;
  readonly bytes: Buffer;
}

/** Body of a `block` object: the data of one block of a sparse file. Offsets are relative to the block. */
export function encodeBlock(extents: readonly Extent[]): Buffer {
  const out = new ByteWriter(extents.reduce((sum, { bytes }) => sum + bytes.length + 8, 8));
  out.varint(extents.length);
  let end = 0;
  for (const { offset, bytes } of extents) {
    out.varint(offset - end);
    out.varint(bytes.length);
    end = offset + bytes.length;
  }
  for (const { bytes } of extents) out.bytes(bytes);
  return out.toBuffer();
}

export function parseBlock(body: Buffer): Extent[] {
  const input = new ByteReader(body);
  const count = input.varint(pieceBytes);
  if (count === 0) throw snapshotDamaged('a block is empty');
  const places: { offset: number; length: number }[] = [];
  let end = 0;
  for (let at = 0; at < count; at += 1) {
    const offset = end + input.varint(pieceBytes);
    const length = input.varint(pieceBytes);
    // Adjacent extents must be merged into one.
    if (length === 0 || (at > 0 && offset === end)) throw snapshotDamaged('a block has an invalid extent');
    end = offset + length;
    if (end > pieceBytes) throw snapshotDamaged('a block is too long');
    places.push({ offset, length });
  }
  const extents = places.map(({ offset, length }) => ({ offset, bytes: input.bytes(length) }));
  if (!input.isAtEnd) throw snapshotDamaged('a block has bytes after its extents');
  return extents;
}

/** The number of pieces of a file without holes. */
export function pieceCount(size: number): number {
  return Math.ceil(size / pieceBytes);
}

/** The data of one piece; offsets are relative to the file. Throws `snapshot_damaged` if it does not fit the file. */
export function extentsOfPiece({ size, sparse }: FileEntry, { index }: Piece, body: Buffer): Extent[] {
  const start = index * pieceBytes;
  const capacity = Math.min(pieceBytes, size - start);
  if (capacity <= 0) throw snapshotDamaged('a piece lies beyond the end of its file');
  if (!sparse) {
    if (body.length !== capacity) throw snapshotDamaged('a piece has the wrong length');
    return [{ offset: start, bytes: body }];
  }
  return parseBlock(body).map(({ offset, bytes }) => {
    if (offset + bytes.length > capacity) throw snapshotDamaged('a block extends beyond the end of its file');
    return { offset: start + offset, bytes };
  });
}

/** The pieces of a file in order, checked for completeness. */
export async function* contentPieces(
  reader: ObjectReader,
  file: FileEntry,
): AsyncGenerator<Piece, void, undefined> {
  let expected = 0;
  for await (const piece of piecesOf(reader, file.content)) {
    if (!file.sparse && piece.index !== expected) throw snapshotDamaged('a piece of a file is missing');
    expected = piece.index + 1;
    if (piece.index >= pieceCount(file.size))
      throw snapshotDamaged('a piece lies beyond the end of its file');
    yield piece;
  }
  if (!file.sparse && expected !== pieceCount(file.size))
    throw snapshotDamaged('a piece of a file is missing');
}

/**
 * The data of a file in order, without its holes. Holds at most one piece in memory. `from` and `until`: offsets, the end excluded;
 * pieces outside them are not read, and of those at the edges the whole is returned.
 */
export async function* readContent(
  reader: ObjectReader,
  file: FileEntry,
  { from = 0, until = Infinity }: { readonly from?: number; readonly until?: number } = {},
): AsyncGenerator<Extent, void, undefined> {
  for await (const piece of contentPieces(reader, file)) {
    const start = piece.index * pieceBytes;
    if (start >= until) return;
    if (start + pieceBytes <= from) continue;
    const kind = file.sparse ? OBJECT_KINDS.block : OBJECT_KINDS.blob;
    yield* extentsOfPiece(file, piece, await reader.read(piece.hash, kind));
  }
}
