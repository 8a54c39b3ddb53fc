import { read as readCallback } from 'node:fs';
import { promisify } from 'node:util';
import { HoldfastError } from '../../protocol/errors.ts';
import { FILE_CHUNK_BYTES } from '../../protocol/files.ts';
import type { BufferPool } from '../../protocol/wire/buffer-pool.ts';
import { OpenFile, openRegular, readFully } from './open-file.ts';
import type { Resolver } from './resolver.ts';
import { MAX_HASHED_BYTES, contentVersion, statVersion, versionOf } from './version.ts';

/** Up to this size, reading at once is cheaper than on another thread. */
const SYNC_BYTES = 64 * 1024;
const readAsync = promisify(readCallback);
const NS_PER_MS = 1_000_000n;

export interface ReadOptions {
  readonly offset: number;
  readonly length: number;
  readonly ifVersion: string | undefined;
  readonly signal: AbortSignal;
  /** Buffers for the bytes. */
  readonly payloads: BufferPool;
}

export interface ReadPiece {
  readonly bytes: Buffer;
  /** Size of the whole file. */
  readonly size: number;
  /**
   * Never newer than the bytes. Up to 4 MiB it is the version of exactly this content. For larger files it was taken
   * before the read, so a write with this version fails if something changed meanwhile.
   */
  readonly version: string;
  readonly mtimeMs: number;
  readonly mode: number;
}

/** Reads a part of a regular file. Errors: `conflict` if the version is not `ifVersion`. */
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
  return new HoldfastError('conflict', `${path} is not the version that was read`, {
    why: version === null ? 'it has been removed' : 'it has been changed since it was read',
    next: 'read it again',
    details: { version },
  });
}

/** Null if the file is too large for a content version. */
async function smallFile(
  file: OpenFile,
  { offset, length, payloads }: ReadOptions,
): Promise<ReadPiece | null> {
  const stat = file.stat();
  if (stat.size > BigInt(MAX_HASHED_BYTES)) return null;
  // One extra byte shows where the file ends. If the file grows meanwhile, the buffer grows too.
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
  if (room.length <= SYNC_BYTES) return readFully(file.fd, room, position);
  let filled = 0;
  while (filled < room.length) {
    const { bytesRead } = await readAsync(file.fd, room, filled, room.length - filled, position + filled);
    if (bytesRead === 0) break;
    filled += bytesRead;
  }
  return filled;
}
