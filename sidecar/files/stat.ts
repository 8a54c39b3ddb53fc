import { type BigIntStats, closeSync, constants, lstatSync } from 'node:fs';
import type { FileStat, FileType } from '../../protocol/files.ts';
import { encodeLink } from '../../protocol/paths.ts';
import { type Directory, isPathError } from './directory.ts';
import type { EntryStat, Native } from './native.ts';
import { OpenFile, openRegular } from './open-file.ts';
import { linkText, type Resolver } from './resolver.ts';
import { versionOf } from './version.ts';

const NS_PER_MS = 1_000_000n;
const PERMISSIONS = 0o7777n;

const TYPES: ReadonlyMap<number, FileType> = new Map([
  [constants.S_IFREG, 'file'],
  [constants.S_IFDIR, 'directory'],
  [constants.S_IFLNK, 'symlink'],
  [constants.S_IFIFO, 'fifo'],
  [constants.S_IFSOCK, 'socket'],
]);

export interface StatOptions {
  readonly follow: boolean;
  readonly version: boolean;
  readonly signal: AbortSignal;
}

/** With `follow`, the stat of what a link leads to. */
export async function statPath(
  resolver: Resolver,
  path: readonly Buffer[],
  text: string,
  { follow, version, signal }: StatOptions,
): Promise<FileStat & { version: string | null }> {
  using named = new OpenFile(resolver.open(path, follow));
  const stat = named.stat();
  if (stat.isSymbolicLink()) {
    using place = resolver.parent(path, false);
    const link = place.name === null ? null : linkText(place.directory, place.name);
    return { ...toFileStat(stat), ...linked(resolver, path, link), version: null };
  }
  if (!version || !stat.isFile()) return { ...toFileStat(stat), version: null };
  using file = openRegular(named, text);
  const now = await versionOf(file, signal);
  return { ...toFileStat(now.stat), version: now.version };
}

/** The stat of one entry of an open folder. Null if it was removed meanwhile. `path` is that of the folder. */
export function statEntry(
  { resolver, native }: { readonly resolver: Resolver; readonly native: Native | null },
  path: readonly Buffer[],
  directory: Directory,
  name: Buffer,
): FileStat | null {
  const stat = native === null ? lstatEntry(directory, name) : entryView(native.statAt(directory.fd, name));
  if (stat?.type !== 'symlink') return stat;
  return { ...stat, ...linked(resolver, [...path, name], linkText(directory, name)) };
}

function lstatEntry(directory: Directory, name: Buffer): FileStat | null {
  try {
    return toFileStat(lstatSync(directory.pathOf(name), { bigint: true }));
  } catch (error) {
    if (isGone(error)) return null;
    throw error;
  }
}

function entryView(facts: EntryStat | null): FileStat | null {
  if (facts === null) return null;
  const { mode, size, mtimeSeconds, mtimeNanoseconds } = facts;
  return {
    type: TYPES.get(mode & constants.S_IFMT) ?? 'device',
    size,
    mtimeMs: mtimeSeconds * 1000 + Math.floor(mtimeNanoseconds / 1_000_000),
    // Before 1970 the seconds are negative and the nanoseconds positive.
    mtimeNs:
      mtimeSeconds > 0
        ? `${mtimeSeconds}${String(mtimeNanoseconds).padStart(9, '0')}`
        : String(BigInt(mtimeSeconds) * 1_000_000_000n + BigInt(mtimeNanoseconds)),
    mode: mode & 0o7777,
    link: null,
    linkType: null,
  };
}

export function toFileStat(stat: BigIntStats): FileStat {
  return {
    type: typeOf(stat),
    size: Number(stat.size),
    mtimeMs: Number(stat.mtimeNs / NS_PER_MS),
    mtimeNs: String(stat.mtimeNs),
    mode: Number(stat.mode & PERMISSIONS),
    link: null,
    linkType: null,
  };
}

function typeOf(stat: BigIntStats): FileType {
  if (stat.isFile()) return 'file';
  if (stat.isDirectory()) return 'directory';
  if (stat.isSymbolicLink()) return 'symlink';
  if (stat.isFIFO()) return 'fifo';
  return stat.isSocket() ? 'socket' : 'device';
}

function linked(
  resolver: Resolver,
  path: readonly Buffer[],
  text: Buffer | null,
): Pick<FileStat, 'link' | 'linkType'> {
  return { link: text === null ? null : encodeLink(text), linkType: targetType(resolver, path) };
}

function targetType(resolver: Resolver, path: readonly Buffer[]): FileType | null {
  let fd: number;
  try {
    fd = resolver.open(path, true);
  } catch (error) {
    if (isGone(error) || isPathError(error)) return null;
    throw error;
  }
  try {
    return typeOf(new OpenFile(fd).stat());
  } finally {
    closeSync(fd);
  }
}

function isGone(error: unknown): boolean {
  if (!(error instanceof Error) || !('code' in error)) return false;
  return error.code === 'ENOENT' || error.code === 'EXDEV' || error.code === 'EAGAIN';
}
