import { readSync } from 'node:fs';
import { encodeBlock, type Extent } from '../../snapshot-format/content.ts';
import { OBJECT_KINDS, SNAPSHOT_LIMITS } from '../../snapshot-format/objects.ts';
import {
  buildContentRef,
  EMPTY_CONTENT_REF,
  type Piece,
  type ContentRef,
} from '../../snapshot-format/content-ref.ts';
import type { ObjectSink } from './upload-queue.ts';
import type { SystemCalls } from './system-calls.ts';

const { pieceBytes } = SNAPSHOT_LIMITS;
const BLOCK_BYTES = 512;
/** Above this size the list of a file's extents may take blocks too. */
const PLAIN_BYTES = 16 * 1024;

export interface Content {
  /** Size of what was read. The file may have changed since. */
  readonly size: number;
  readonly sparse: boolean;
  readonly content: ContentRef;
}

/** State of a file before it is read: `size` and `blocks` of its stat, and whether it has extended attributes. */
export interface StatBeforeRead {
  readonly size: number;
  readonly blocks: number;
  readonly hasXattrs: boolean;
}

/**
 * Cuts an open file into objects. A file that becomes shorter meanwhile is read to its new end. `rest` is awaited
 * between pieces.
 */
export async function readContent(
  system: SystemCalls,
  fd: number,
  outside: StatBeforeRead,
  sink: ObjectSink,
  rest: () => Promise<void>,
): Promise<Content> {
  const small = readSmall(system, fd, outside, sink);
  if (small !== null) return small;
  const { size } = outside;
  return hasHole(system, fd, outside)
    ? await readSparse(system, fd, size, sink, rest)
    : await readWhole(fd, size, sink, rest);
}

/** The same without waiting, for a file of one piece without a hole, as most files are. Null for any other file. */
export function readSmall(
  system: SystemCalls,
  fd: number,
  outside: StatBeforeRead,
  sink: ObjectSink,
): Content | null {
  const { size } = outside;
  if (size === 0) return { size, sparse: false, content: EMPTY_CONTENT_REF };
  if (size > pieceBytes || hasHole(system, fd, outside)) return null;
  const body = readUpTo(fd, sink.allocate(size), 0);
  const pieces = body.length === 0 ? [] : [{ index: 0, hash: sink.add(OBJECT_KINDS.blob, body) }];
  return { size: body.length, sparse: false, content: { depth: 0, items: pieces } };
}

/** The number of blocks is not enough: it includes extended attributes and the list of extents. */
function hasHole(system: SystemCalls, fd: number, { size, blocks, hasXattrs }: StatBeforeRead): boolean {
  if (size <= PLAIN_BYTES && !hasXattrs && blocks * BLOCK_BYTES >= size) return false;
  return (system.seekHole(fd, 0) ?? size) < size;
}

async function readWhole(
  fd: number,
  size: number,
  sink: ObjectSink,
  rest: () => Promise<void>,
): Promise<Content> {
  const pieces: Piece[] = [];
  let at = 0;
  while (at < size) {
    const wanted = Math.min(pieceBytes, size - at);
    const body = readUpTo(fd, sink.allocate(wanted), at);
    if (body.length > 0) pieces.push({ index: pieces.length, hash: sink.add(OBJECT_KINDS.blob, body) });
    at += body.length;
    if (body.length < wanted) break; // The file became shorter.
    if (sink.isFull || at < size) await rest();
  }
  return { size: at, sparse: false, content: buildContentRef(pieces, (kind, body) => sink.add(kind, body)) };
}

async function readSparse(
  system: SystemCalls,
  fd: number,
  size: number,
  sink: ObjectSink,
  rest: () => Promise<void>,
): Promise<Content> {
  const pieces: Piece[] = [];
  let extents: Extent[] = [];
  let index = 0;
  const flush = (): void => {
    if (extents.length > 0) {
      pieces.push({ index, hash: sink.add(OBJECT_KINDS.block, encodeBlock(extents)) });
    }
    extents = [];
  };
  for (let at = 0; at < size;) {
    const start = system.seekData(fd, at);
    if (start === null || start >= size) break;
    const stop = Math.min(system.seekHole(fd, start) ?? size, size);
    for (at = start; at < stop;) {
      const piece = Math.floor(at / pieceBytes);
      if (piece !== index) {
        flush();
        index = piece;
      }
      const wanted = Math.min(stop, (piece + 1) * pieceBytes) - at;
      const bytes = readUpTo(fd, Buffer.allocUnsafe(wanted), at);
      const offset = at - piece * pieceBytes;
      const last = extents.at(-1);
      // A hole may have been filled meanwhile: adjacent extents are merged.
      if (last !== undefined && last.offset + last.bytes.length === offset) {
        extents[extents.length - 1] = { offset: last.offset, bytes: Buffer.concat([last.bytes, bytes]) };
      } else if (bytes.length > 0) extents.push({ offset, bytes });
      at += wanted;
      await rest();
    }
  }
  flush();
  return { size, sparse: true, content: buildContentRef(pieces, (kind, body) => sink.add(kind, body)) };
}

/** Returns fewer bytes only at the end of the file. */
function readUpTo(fd: number, bytes: Buffer, position: number): Buffer {
  let filled = 0;
  while (filled < bytes.length) {
    const count = readSync(fd, bytes, filled, bytes.length - filled, position + filled);
    if (count === 0) break;
    filled += count;
  }
  return filled === bytes.length ? bytes : bytes.subarray(0, filled);
}
