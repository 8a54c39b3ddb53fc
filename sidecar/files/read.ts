import { read as readCallback } from 'node:fs';
import { promisify } from 'node:util';
import { HoldfastError } from '../../protocol/errors.ts';
import { FILE_CHUNK_BYTES } from '../../protocol/files.ts';
import type { BufferPool } from '../../protocol/wire/buffer-pool.ts';
import { OpenFile, openRegular, readFully } from './open-file.ts';
import type { Resolver } from './resolver.ts';
import { MAX_HASHED_BYTES, contentVersion, statVersion, versionOf } from './version.ts';

/** Up to this size reading costs less than handing it to another thread. */
const AT_ONCE_BYTES = 64 * 1024;
const readAsync = promisify(readCallback);
const NS_PER_MS = 1_000_000n;

export interface ReadOptions {
  readonly offset: number;
  readonly length: number;
  readonly ifVersion: string | undefined;
  readonly signal: AbortSignal;
  /** What the bytes of a piece are taken from. */
  readonly payloads: BufferPool;
}

export interface ReadPiece {
  readonly bytes: Buffer;
  /** Of the whole file. */
  readonly size: number;
  /**
   * Never newer than the bytes: for up to 4 MiB of exactly the content that they are part of, for more of before they were
   * read, so that a write by this version fails when something changed meanwhile.
   */
  readonly version: string;
  readonly mtimeMs: number;
  readonly mode: number;
}

/** A piece of a regular file. Errors: `conflict` where `ifVersion` is not what is there. */
export async function readPath(
  resolver: Resolver,
  path: readonly Buffer[],
  text: string,
  options: ReadOptions,
): Promise<ReadPiece> {
  using named = new OpenFile(resolver.open(path, true));
  using file = openRegular(named, text);
  const piece = (await smallFile(file, options)) ?? (await partOf(file, options));
  const { ifVersion } = options;
  if (ifVersion !== undefined && piece.version !== ifVersion) throw versionConflict(text, piece.version);
  return piece;
}

export function versionConflict(path: string, version: string | null): HoldfastError {
  return new HoldfastError('conflict', `${path} is not what it was`, {
    why: version === null ? 'it has been removed' : 'it has been changed since it was read',
    next: 'read it again',
    details: { version },
  });
}

/** Null when it is larger than what a content version is made for. */
async function smallFile(
  file: OpenFile,
  { offset, length, payloads }: ReadOptions,
): Promise<ReadPiece | null> {
  const stat = file.stat();
  if (stat.size > BigInt(MAX_HASHED_BYTES)) return null;
  // One byte more than there should be shows the end; a file that grows meanwhile is read again with room for it.
  let buffer = payloads.acquire(Number(stat.size) + 1);
  let filled = 0;
  for (;;) {
    filled += await readInto(file, buffer, filled);
    if (filled < buffer.length) break;
    if (filled > MAX_HASHED_BYTES) return null;
    const larger = Buffer.allocUnsafeSlow(Math.min(MAX_HASHED_BYTES + 1, buffer.length * 2));
    buffer.copy(larger);
    buffer = larger;
  }
  const content = buffer.subarray(0, filled);
  return {
    bytes: content.subarray(Math.min(offset, filled), Math.min(offset + length, filled)),
    size: filled,
    version: contentVersion(content),
    mtimeMs: Number(stat.mtimeNs / NS_PER_MS),
    mode: Number(stat.mode & 0o7777n),
  };
}

async function partOf(
  file: OpenFile,
  { offset, length, ifVersion, signal, payloads }: ReadOptions,
): Promise<ReadPiece> {
  const { version, stat } = await versionOf(file, signal);
  const size = Number(stat.size);
  const wanted = Math.max(0, Math.min(length, FILE_CHUNK_BYTES, size - offset));
  const buffer = payloads.acquire(wanted);
  const count = await readInto(file, buffer, 0, offset);
  const after = ifVersion === undefined ? version : statVersion(file.stat());
  return {
    bytes: buffer.subarray(0, count),
    size,
    version: after === version ? version : after,
    mtimeMs: Number(stat.mtimeNs / NS_PER_MS),
    mode: Number(stat.mode & 0o7777n),
  };
}

async function readInto(file: OpenFile, buffer: Buffer, from: number, position = from): Promise<number> {
  const room = buffer.subarray(from);
  if (room.length <= AT_ONCE_BYTES) return readFully(file.fd, room, position);
  let filled = 0;
  while (filled < room.length) {
    const { bytesRead } = await readAsync(file.fd, room, filled, room.length - filled, position + filled);
    if (bytesRead === 0) break;
    filled += bytesRead;
  }
  return filled;
}
