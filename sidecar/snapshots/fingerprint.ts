import { constants } from 'node:fs';
import { STAT } from './system-calls.ts';

/**
 * What a name is known again by: as long as all of this is the same, the file has the same content and attributes. The change
 * time alone would do, since nobody without privileges can set it; the rest costs nothing.
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

/** The parts of `stat` (struct statx) that count. */
export function writeFingerprint(stat: Uint32Array, facts: Uint32Array, at: number): void {
  facts[at] = word(stat, STAT.mode) & 0xffff;
  facts[at + NLINK] = word(stat, STAT.nlink);
  facts[at + INODE] = word(stat, STAT.inode);
  facts[at + INODE + 1] = word(stat, STAT.inode + 1);
  facts[at + SIZE] = word(stat, STAT.size);
  facts[at + SIZE + 1] = word(stat, STAT.size + 1);
  for (let index = 0; index < 3; index += 1) {
    facts[at + CTIME + index] = word(stat, STAT.ctime + index);
    facts[at + MTIME + index] = word(stat, STAT.mtime + index);
  }
}

/** Whether `stat` is what was noted. */
export function matchesFingerprint(stat: Uint32Array, facts: Uint32Array, at: number): boolean {
  return (
    facts[at + CTIME + 2] === stat[STAT.ctime + 2] &&
    facts[at + CTIME] === stat[STAT.ctime] &&
    facts[at + INODE] === stat[STAT.inode] &&
    facts[at + SIZE] === stat[STAT.size] &&
    facts[at] === (word(stat, STAT.mode) & 0xffff) &&
    facts[at + NLINK] === stat[STAT.nlink] &&
    facts[at + MTIME + 2] === stat[STAT.mtime + 2] &&
    facts[at + MTIME] === stat[STAT.mtime] &&
    facts[at + MTIME + 1] === stat[STAT.mtime + 1] &&
    facts[at + CTIME + 1] === stat[STAT.ctime + 1] &&
    facts[at + INODE + 1] === stat[STAT.inode + 1] &&
    facts[at + SIZE + 1] === stat[STAT.size + 1]
  );
}

export function areEqualFingerprints(one: Uint32Array, other: Uint32Array): boolean {
  for (let at = 0; at < FINGERPRINT_WORDS; at += 1) if (one[at] !== other[at]) return false;
  return true;
}

/** Whether it is one file by another look, whatever became of it in between. */
export function isSameFile(one: Uint32Array, other: Uint32Array): boolean {
  return (
    one[INODE] === other[INODE] &&
    one[INODE + 1] === other[INODE + 1] &&
    (word(one, MODE) & constants.S_IFMT) === (word(other, MODE) & constants.S_IFMT)
  );
}

/** Mode and change time as they were before a mode was lent. */
export function keepModeAndCtime(facts: Uint32Array, before: Uint32Array): void {
  facts[MODE] = word(before, MODE);
  facts.set(before.subarray(CTIME, CTIME + 3), CTIME);
}

/** It will be looked at again: no file has such a time. What else is known of it stays. */
export function invalidateFingerprint(facts: Uint32Array, at: number): void {
  facts[at + CTIME + 2] = NO_NANOSECONDS;
}

/** `forgetFacts` was the last that was said of it. */
export function isInvalidated(facts: Uint32Array, at: number): boolean {
  return facts[at + CTIME + 2] === NO_NANOSECONDS;
}

/** Type and permissions. */
export function modeOf(facts: Uint32Array, at = 0): number {
  return word(facts, at);
}

export function linksOf(facts: Uint32Array, at = 0): number {
  return word(facts, at + NLINK);
}

export function sizeOf(facts: Uint32Array, at = 0): number {
  return word(facts, at + SIZE) + word(facts, at + SIZE + 1) * TWO_TO_32;
}

/** As a key: device numbers are the same throughout a workspace. */
export function inodeOf(facts: Uint32Array, at = 0): bigint {
  return BigInt(word(facts, at + INODE)) + (BigInt(word(facts, at + INODE + 1)) << 32n);
}

export function mtimeOf(facts: Uint32Array, at = 0): bigint {
  return timeOf(facts, at + MTIME);
}

/** When anything of the file was changed last. */
export function ctimeOf(facts: Uint32Array, at = 0): bigint {
  return timeOf(facts, at + CTIME);
}

function timeOf(words: Uint32Array, at: number): bigint {
  const seconds = BigInt(word(words, at)) + (BigInt(word(words, at + 1) | 0) << 32n);
  return seconds * SECOND + BigInt(word(words, at + 2));
}

function word(words: Uint32Array, at: number): number {
  return words[at] ?? 0;
}
