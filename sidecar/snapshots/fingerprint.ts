import { constants } from 'node:fs';
import { STAT } from './system-calls.ts';

/**
 * The stat fields that detect a change: while all of them are equal, the file has the same content and attributes. The
 * ctime alone would do, because only privileged processes can set it; the other fields cost nothing.
 */
export const FINGERPRINT_WORDS = 12;
const MODE = 0;
const NLINK = 1;
const INODE = 2;
const SIZE = 4;
const CTIME = 6;
const MTIME = 9;
const NO_NANOSECONDS = 0xffffffff;
const TWO_TO_32 = 2 ** 32;
const SECOND = 1_000_000_000n;

/** Copies the relevant fields of `stat` (struct statx). */
export function writeFingerprint(stat: Uint32Array, fingerprint: Uint32Array, at: number): void {
  fingerprint[at] = word(stat, STAT.mode) & 0xffff;
  fingerprint[at + NLINK] = word(stat, STAT.nlink);
  fingerprint[at + INODE] = word(stat, STAT.inode);
  fingerprint[at + INODE + 1] = word(stat, STAT.inode + 1);
  fingerprint[at + SIZE] = word(stat, STAT.size);
  fingerprint[at + SIZE + 1] = word(stat, STAT.size + 1);
  for (let index = 0; index < 3; index += 1) {
    fingerprint[at + CTIME + index] = word(stat, STAT.ctime + index);
    fingerprint[at + MTIME + index] = word(stat, STAT.mtime + index);
  }
}

/** Whether `stat` equals the stored fingerprint. */
export function matchesFingerprint(stat: Uint32Array, fingerprint: Uint32Array, at: number): boolean {
  return (
    fingerprint[at + CTIME + 2] === stat[STAT.ctime + 2] &&
    fingerprint[at + CTIME] === stat[STAT.ctime] &&
    fingerprint[at + INODE] === stat[STAT.inode] &&
    fingerprint[at + SIZE] === stat[STAT.size] &&
    fingerprint[at] === (word(stat, STAT.mode) & 0xffff) &&
    fingerprint[at + NLINK] === stat[STAT.nlink] &&
    fingerprint[at + MTIME + 2] === stat[STAT.mtime + 2] &&
    fingerprint[at + MTIME] === stat[STAT.mtime] &&
    fingerprint[at + MTIME + 1] === stat[STAT.mtime + 1] &&
    fingerprint[at + CTIME + 1] === stat[STAT.ctime + 1] &&
    fingerprint[at + INODE + 1] === stat[STAT.inode + 1] &&
    fingerprint[at + SIZE + 1] === stat[STAT.size + 1]
  );
}

export function areEqualFingerprints(one: Uint32Array, other: Uint32Array): boolean {
  for (let at = 0; at < FINGERPRINT_WORDS; at += 1) if (one[at] !== other[at]) return false;
  return true;
}

/** Whether both are of one file, changed or not. */
export function isSameFile(one: Uint32Array, other: Uint32Array): boolean {
  return (
    one[INODE] === other[INODE] &&
    one[INODE + 1] === other[INODE + 1] &&
    (word(one, MODE) & constants.S_IFMT) === (word(other, MODE) & constants.S_IFMT)
  );
}

/** Sets mode and ctime back to those before a temporary chmod. */
export function keepModeAndCtime(fingerprint: Uint32Array, before: Uint32Array): void {
  fingerprint[MODE] = word(before, MODE);
  fingerprint.set(before.subarray(CTIME, CTIME + 3), CTIME);
}

/** Makes the next scan read the file again: no file has such a ctime. The other fields stay. */
export function invalidateFingerprint(fingerprint: Uint32Array, at: number): void {
  fingerprint[at + CTIME + 2] = NO_NANOSECONDS;
}

/** Whether `invalidateFingerprint` was called last. */
export function isInvalidated(fingerprint: Uint32Array, at: number): boolean {
  return fingerprint[at + CTIME + 2] === NO_NANOSECONDS;
}

/** Type and permissions. */
export function modeOf(fingerprint: Uint32Array, at = 0): number {
  return word(fingerprint, at);
}

export function linksOf(fingerprint: Uint32Array, at = 0): number {
  return word(fingerprint, at + NLINK);
}

export function sizeOf(fingerprint: Uint32Array, at = 0): number {
  return word(fingerprint, at + SIZE) + word(fingerprint, at + SIZE + 1) * TWO_TO_32;
}

/** Identifies a file: all files of a workspace are on one device. */
export function inodeOf(fingerprint: Uint32Array, at = 0): bigint {
  return BigInt(word(fingerprint, at + INODE)) + (BigInt(word(fingerprint, at + INODE + 1)) << 32n);
}

export function mtimeOf(fingerprint: Uint32Array, at = 0): bigint {
  return timeOf(fingerprint, at + MTIME);
}

/** Time of the last change to the file or its attributes. */
export function ctimeOf(fingerprint: Uint32Array, at = 0): bigint {
  return timeOf(fingerprint, at + CTIME);
}

function timeOf(words: Uint32Array, at: number): bigint {
  const seconds = BigInt(word(words, at)) + (BigInt(word(words, at + 1) | 0) << 32n);
  return seconds * SECOND + BigInt(word(words, at + 2));
}

function word(words: Uint32Array, at: number): number {
  return words[at] ?? 0;
}
