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
/** Larger files may have so many stretches that the list of these takes blocks, too. */
const PLAIN_BYTES = 16 * 1024;

export interface Content {
  /** What was there; the file may have changed meanwhile. */
  readonly size: number;
  readonly sparse: boolean;
  readonly content: ContentRef;
}

/** What is known of a file before it is read: `size` and `blocks` as its stat said, and whether it has extended attributes. */
export interface StatBeforeRead {
  readonly size: number;
  readonly blocks: number;
  readonly hasXattrs: boolean;
}

/**
 * Cuts an open file into objects; a file that becomes shorter while it is read is taken
 * as far as it goes. `rest` is awaited between pieces.
 */
export async function readContent(
  system: SystemCalls,
  fd: number,
  outside: StatBeforeRead,
  outlet: ObjectSink,
  rest: () => Promise<void>,
): Promise<Content> {
  const small = readSmall(system, fd, outside, outlet);
  if (small !== null) return small;
  const { size } = outside;
  return hasHole(system, fd, outside)
    ? await readSparse(system, fd, size, outlet, rest)
    : await readWhole(fd, size, outlet, rest);
}

/** The same for a file of one piece without a hole, at once: most files are. Null for another one. */
export function readSmall(
  system: SystemCalls,
  fd: number,
  outside: StatBeforeRead,
  outlet: ObjectSink,
): Content | null {
  const { size } = outside;
  if (size === 0) return { size, sparse: false, content: EMPTY_CONTENT_REF };
  if (size > pieceBytes || hasHole(system, fd, outside)) return null;
  const body = readUpTo(fd, outlet.allocate(size), 0);
  const pieces = body.length === 0 ? [] : [{ index: 0, hash: outlet.add(OBJECT_KINDS.blob, body) }];
  return { size: body.length, sparse: false, content: { depth: 0, items: pieces } };
}

/** The blocks alone do not say it: among them are those of extended attributes and of the list of a file's stretches. */
function hasHole(system: SystemCalls, fd: number, { size, blocks, hasXattrs }: StatBeforeRead): boolean {
  if (size <= PLAIN_BYTES && !hasXattrs && blocks * BLOCK_BYTES >= size) return false;
  return (system.seekHole(fd, 0) ?? size) < size;
}

async function readWhole(
  fd: number,
  size: number,
  outlet: ObjectSink,
  rest: () => Promise<void>,
): Promise<Content> {
  const pieces: Piece[] = [];
  let at = 0;
  while (at < size) {
    const wanted = Math.min(pieceBytes, size - at);
    const body = readUpTo(fd, outlet.allocate(wanted), at);
    if (body.length > 0) pieces.push({ index: pieces.length, hash: outlet.add(OBJECT_KINDS.blob, body) });
    at += body.length;
    if (body.length < wanted) break; // it became shorter
    if (outlet.isFull || at < size) await rest();
  }
  return {
    size: at,
    sparse: false,
    content: buildContentRef(pieces, (kind, body) => outlet.add(kind, body)),
  };
}

async function readSparse(
  system: SystemCalls,
  fd: number,
  size: number,
  outlet: ObjectSink,
  rest: () => Promise<void>,
): Promise<Content> {
  const pieces: Piece[] = [];
  let extents: Extent[] = [];
  let index = 0;
  const flush = (): void => {
    if (extents.length > 0) {
      pieces.push({ index, hash: outlet.add(OBJECT_KINDS.block, encodeBlock(extents)) });
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
      // Between the two looks a hole may have been filled: stretches that touch are one.
      if (last !== undefined && last.offset + last.bytes.length === offset) {
        extents[extents.length - 1] = { offset: last.offset, bytes: Buffer.concat([last.bytes, bytes]) };
      } else if (bytes.length > 0) extents.push({ offset, bytes });
      at += wanted;
      await rest();
    }
  }
  flush();
  return { size, sparse: true, content: buildContentRef(pieces, (kind, body) => outlet.add(kind, body)) };
}

/** Fewer bytes only at the end of the file. */
function readUpTo(fd: number, bytes: Buffer, position: number): Buffer {
  let filled = 0;
  while (filled < bytes.length) {
    const count = readSync(fd, bytes, filled, bytes.length - filled, position + filled);
    if (count === 0) break;
    filled += count;
  }
  return filled === bytes.length ? bytes : bytes.subarray(0, filled);
}
