import { createHash } from 'node:crypto';
import { type BigIntStats, fstatSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { FILE_CHUNK_BYTES } from '../../protocol/files.ts';
import { readFully } from './open-file.ts';
import { TimeSlice } from '../../protocol/time-slice.ts';

/** Up to this size a version is a hash of the content. */
export const MAX_HASHED_BYTES = FILE_CHUNK_BYTES;
/** Upper bound of the kernel's timestamp granularity: two changes closer than this may have the same time. */
const TICK_NS = 20_000_000n;
const NS_PER_MS = 1_000_000n;
const PIECE_BYTES = 256 * 1024;

interface Descriptor {
  readonly fd: number;
}
const statOf = ({ fd }: Descriptor): BigIntStats => fstatSync(fd, { bigint: true });

/** The version of known content, equal to what `versionOf` returns for a file with it. */
export function contentVersion(content: Uint8Array): string {
  return `c-${createHash('sha256').update(content).digest('hex').slice(0, 40)}`;
}

/** The version of a file that is too large to hash each time. It changes with every change that its stat shows. */
export function statVersion({ dev, ino, size, mtimeNs, ctimeNs }: BigIntStats): string {
  const facts = [dev, ino, size, mtimeNs, ctimeNs].join(' ');
  return `s-${createHash('sha256').update(facts).digest('hex').slice(0, 40)}`;
}

/**
 * The version of an open regular file, and the stat that belongs to it. Content up to 4 MiB is hashed, because
 * different contents can have equal sizes and times.
 */
export async function versionOf(
  file: Descriptor,
  signal?: AbortSignal,
): Promise<{ version: string; stat: BigIntStats }> {
  const stat = statOf(file);
  if (stat.size > BigInt(MAX_HASHED_BYTES)) return settledVersion(file, stat);
  const hash = createHash('sha256');
  const buffer = Buffer.allocUnsafe(Math.min(PIECE_BYTES, Number(stat.size) + 1));
  const slices = new TimeSlice(signal);
  let total = 0;
  for (;;) {
    const count = readFully(file.fd, buffer, total);
    total += count;
    if (total > MAX_HASHED_BYTES) return settledVersion(file, statOf(file)); // It grew meanwhile.
    hash.update(buffer.subarray(0, count));
    if (count < buffer.length) break;
    if (slices.isUsedUp) await slices.yieldToEventLoop();
  }
  return { version: `c-${hash.digest('hex').slice(0, 40)}`, stat };
}

/** Waits until a later change cannot have the same time as the last one. */
async function settledVersion(
  file: Descriptor,
  first: BigIntStats,
): Promise<{ version: string; stat: BigIntStats }> {
  let stat = first;
  const age = BigInt(Date.now()) * NS_PER_MS - stat.ctimeNs;
  if (age < TICK_NS) {
    // The wait is bounded even if the file's time is in the future.
    const rest = age < 0n ? TICK_NS : TICK_NS - age;
    await sleep(Math.ceil(Number(rest) / Number(NS_PER_MS)));
    stat = statOf(file);
  }
  return { version: statVersion(stat), stat };
}
