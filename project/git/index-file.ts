import { createHash } from 'node:crypto';
import { gitHistoryError } from './error.ts';

/** gitformat-index(5): the file starts with a signature, its version and the number of entries. */
const HEADER = 12;
const HASH = 20;
const STAT_DATA = 40;
const FIXED = STAT_DATA + HASH + 2;
const MODE_AT = 24;
const LONGEST_NAME = 0xfff;
/** Maximum size of the index to read; the written one may have twice that. */
export const LARGEST_INDEX = 128 * 2 ** 20;
/** PATH_MAX: no path in a work tree is longer. */
const LONGEST_PATH = 4096;
const EXTENDED = 0x4000;
const STAGE = 0x3000;
const SKIP_WORKTREE = 0x4000;
const DIRECTORY = 0o040000;

/**
 * The index without this machine's data about files (times, owners, inodes, caches); git compares contents at its
 * next refresh. Files that a workspace does not start with are marked skip-worktree, as in a sparse checkout, so they
 * do not count as deleted. Paths are bytes, one character each. Errors: `profile_invalid`.
 */
export function portableIndex(index: Buffer, isSeeded: (path: string) => boolean): Buffer {
  if (index.length < HEADER + HASH || index.toString('latin1', 0, 4) !== 'DIRC') throw unreadable();
  const version = index.readUInt32BE(4);
  const count = index.readUInt32BE(8);
  if (version < 2 || version > 4) throw unreadable();
  const body = index.subarray(0, index.length - HASH);
  const checksum = index.subarray(index.length - HASH);
  // With `index.skipHash` the checksum is zero.
  if (!checksum.equals(Buffer.alloc(HASH)) && !checksum.equals(sha1(body))) throw unreadable();

  const entries: Buffer[] = [];
  let isExtended = false;
  let at = HEADER;
  let name = '';
  let bytes = 0;
  for (let number = 0; number < count; number += 1) {
    const start = at;
    if (at + FIXED > body.length) throw unreadable();
    const mode = body.readUInt32BE(at + MODE_AT);
    const id = body.subarray(at + STAT_DATA, at + STAT_DATA + HASH);
    const flags = body.readUInt16BE(at + STAT_DATA + HASH);
    at += FIXED;
    let extended = 0;
    if ((flags & EXTENDED) !== 0) {
      if (version < 3 || at + 2 > body.length) throw unreadable();
      extended = body.readUInt16BE(at);
      at += 2;
    }
    if (version === 4) {
      const prefix = offsetAt(body, at);
      at = prefix.end;
      if (prefix.value > name.length) throw unreadable();
      name = name.slice(0, name.length - prefix.value);
    } else name = '';
    const end = body.indexOf(0, at);
    if (end === -1 || name.length + (end - at) > LONGEST_PATH) throw unreadable();
    name += body.toString('latin1', at, end);
    at = version === 4 ? end + 1 : start + Math.ceil((end + 1 - start) / 8) * 8;
    if (name === '' || at > body.length) throw unreadable();
    if (mode === DIRECTORY)
      throw gitHistoryError(
        'the repository has a sparse index',
        'run `git sparse-checkout reapply --no-sparse-index`',
      );
    if (isSeeded(name)) extended &= ~SKIP_WORKTREE;
    else if ((flags & STAGE) === 0) extended |= SKIP_WORKTREE;
    if (extended !== 0) isExtended = true;
    const entry = encoded(mode, id, flags, extended, name);
    // Version 4 compresses common prefixes, which we write in full.
    bytes += entry.length;
    if (bytes > 2 * LARGEST_INDEX)
      throw gitHistoryError('the index of the repository is too large', 'deploy a smaller clone');
    entries.push(entry);
  }
  requireKnownExtensions(body, at);

  const header = Buffer.alloc(HEADER);
  header.write('DIRC', 'latin1');
  header.writeUInt32BE(isExtended ? 3 : 2, 4);
  header.writeUInt32BE(count, 8);
  const written = Buffer.concat([header, ...entries]);
  return Buffer.concat([written, sha1(written)]);
}

function encoded(mode: number, id: Buffer, flags: number, extended: number, name: string): Buffer {
  const fixed = FIXED + (extended === 0 ? 0 : 2);
  const length = Math.ceil((fixed + name.length + 1) / 8) * 8;
  const entry = Buffer.alloc(length);
  entry.writeUInt32BE(mode, MODE_AT);
  id.copy(entry, STAT_DATA);
  const kept = (flags & STAGE) | Math.min(name.length, LONGEST_NAME) | (extended === 0 ? 0 : EXTENDED);
  entry.writeUInt16BE(kept, STAT_DATA + HASH);
  if (extended !== 0) entry.writeUInt16BE(extended, FIXED);
  entry.write(name, fixed, 'latin1');
  return entry;
}

/** Extensions whose name begins with a capital letter are optional caches. */
function requireKnownExtensions(body: Buffer, start: number): void {
  let at = start;
  while (at < body.length) {
    if (at + 8 > body.length) throw unreadable();
    const name = body.toString('latin1', at, at + 4);
    if (name === 'link')
      throw gitHistoryError('the repository has a split index', 'run `git update-index --no-split-index`');
    if (name === 'sdir')
      throw gitHistoryError(
        'the repository has a sparse index',
        'run `git sparse-checkout reapply --no-sparse-index`',
      );
    if (!/^[A-Z]/.test(name)) throw unreadable();
    at += 8 + body.readUInt32BE(at + 4);
  }
  if (at !== body.length) throw unreadable();
}

/** The varint format of offsets in packs: seven bits per byte, plus one for each further byte. */
function offsetAt(body: Buffer, start: number): { readonly value: number; readonly end: number } {
  let value = 0;
  for (let at = start; at < start + 4 && at < body.length; at += 1) {
    const byte = body.readUInt8(at);
    value = value * 128 + (byte & 0x7f);
    if ((byte & 0x80) === 0) return { value, end: at + 1 };
    value += 1;
  }
  throw unreadable();
}

function sha1(bytes: Buffer): Buffer {
  return createHash('sha1').update(bytes).digest();
}

function unreadable(): Error {
  return gitHistoryError(
    'the index of the repository has an unknown format',
    'rewrite it with `git read-tree HEAD`',
  );
}
