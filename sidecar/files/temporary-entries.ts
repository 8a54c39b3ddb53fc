import { randomBytes } from 'node:crypto';
import {
  fstatSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { IN_SANDBOX } from '../wire.ts';
import { Directory, errnoOf, isPathError } from './directory.ts';

/** What a temporary entry is for. */
export type TemporaryKind = 'write' | 'restore' | 'removing';

const PREFIX = '.holdfast-';
const PREFIX_BYTES = Buffer.from(PREFIX);
/** A removal renames directories to its name with a number appended. One record covers all of them. */
const NAME = /^(\.holdfast-(?:write|restore|removing)-[0-9a-f]{16})(?:-\d+)?$/;
/** Suffix of a record that is being written. An earlier record stays valid until the rename. */
const UNFINISHED_SUFFIX = '.new';
/** Names of finished operations that are retained, for late events about them. */
const MAX_RECENT = 1000;

/** The fields that every record has. */
const BaseRecordSchema = z.object({
  /** Inode of the directory that contains the entry. */
  within: z.string(),
  /** Inode of the entry itself, once it is known. */
  inode: z.string().optional(),
});

/**
 * The sidecar's temporary entries in the workspace. Each has a record in a directory that the agent cannot reach. An
 * entry is ours because it has a record, never because of its name: anybody can use any name. A record is written
 * before its entry is created and removed after the entry is gone, so the next sidecar finds what a killed one left.
 *
 * Several threads read the same records; each kind is written by one of them.
 */
export class TemporaryEntries {
  readonly #folder: string;
  readonly #recent = new Set<string>();

  /** `control`: the sidecar's own directory, where the directory of records is created. */
  constructor(control: string) {
    this.#folder = join(control, IN_SANDBOX.temporaryEntriesName);
    mkdirSync(this.#folder, { recursive: true, mode: 0o700 });
  }

  /** The name is random. If it is taken, another process owns that entry, and the next name differs. */
  newName(kind: TemporaryKind): Buffer {
    return Buffer.from(`.holdfast-${kind}-${randomBytes(8).toString('hex')}`);
  }

  /** Writes or replaces a record atomically. `within`: the directory that contains the entry. */
  register(name: Buffer, within: { readonly fd: number }, more: object = {}): void {
    const path = this.#path(name);
    const note = { within: inodeOf(within.fd), ...more };
    writeFileSync(path + UNFINISHED_SUFFIX, JSON.stringify(note), { mode: 0o600 });
    renameSync(path + UNFINISHED_SUFFIX, path);
  }

  /** Removes the record: the entry is gone, or no longer ours. */
  unregister(name: Buffer): void {
    const record = name.toString('latin1');
    this.#recent.delete(record);
    this.#recent.add(record);
    for (const oldest of this.#recent) {
      if (this.#recent.size <= MAX_RECENT) break;
      this.#recent.delete(oldest);
    }
    try {
      unlinkSync(this.#path(name));
    } catch (error) {
      if (errnoOf(error) !== 'ENOENT') throw error;
    }
  }

  /**
   * Whether this entry of a directory is ours now. `directory` may be an O_PATH descriptor. A name given as string is
   * latin1.
   */
  isTemporary(directory: number, name: Uint8Array | string): boolean {
    const record = recordName(name);
    if (record === null) return false;
    const note = BaseRecordSchema.safeParse(this.#read(record));
    if (!note.success || note.data.within !== inodeOf(directory)) return false;
    const { inode } = note.data;
    return inode === undefined || inode === inodeAt(Directory.fromFd(directory), bytesOf(name));
  }

  /** Whether this thread has recently removed a temporary entry of this name. */
  wasRecentlyTemporary(name: Uint8Array | string): boolean {
    const record = recordName(name);
    return record !== null && this.#recent.has(record);
  }

  /** Names of this kind that an earlier sidecar left, with their records; null for a record that cannot be parsed. */
  leftovers(kind: TemporaryKind): { readonly name: Buffer; readonly note: unknown }[] {
    const leftovers = [];
    for (const file of readdirSync(this.#folder)) {
      if (!file.startsWith(`.holdfast-${kind}-`)) continue;
      // Its entry was not created, or an earlier record is still valid.
      if (file.endsWith(UNFINISHED_SUFFIX)) unlinkSync(join(this.#folder, file));
      else leftovers.push({ name: Buffer.from(file, 'latin1'), note: this.#read(file) });
    }
    return leftovers;
  }

  /** Whether an earlier sidecar left records of this kind. */
  hasLeftovers(kind: TemporaryKind): boolean {
    return readdirSync(this.#folder).some((file) => file.startsWith(`.holdfast-${kind}-`));
  }

  #path(name: Buffer): string {
    return join(this.#folder, name.toString('latin1'));
  }

  /** Null if there is no such record, or if it cannot be parsed. */
  #read(file: string): unknown {
    try {
      return JSON.parse(readFileSync(join(this.#folder, file), 'utf8'));
    } catch (error) {
      if (error instanceof SyntaxError || errnoOf(error) === 'ENOENT') return null;
      throw error;
    }
  }
}

/** Whether a listing may contain temporary names. This one check makes most directories cost nothing. */
export function mayContainTemporaryNames(listing: Buffer): boolean {
  return listing.includes(PREFIX_BYTES);
}

/** Whether a name has the form of a temporary name. Anybody can create such a name. */
export function hasTemporaryForm(name: Uint8Array | string): boolean {
  return recordName(name) !== null;
}

export function inodeOf(fd: number): string {
  return String(fstatSync(fd, { bigint: true }).ino);
}

function inodeAt(directory: Directory, name: Buffer): string | null {
  try {
    return String(lstatSync(directory.pathOf(name), { bigint: true }).ino);
  } catch (error) {
    if (isPathError(error)) return null;
    throw error;
  }
}

/** The name of the record for an entry. Null if the name does not have the form. */
function recordName(name: Uint8Array | string): string | null {
  const isLikeOurs =
    typeof name === 'string'
      ? name.startsWith(PREFIX)
      : PREFIX_BYTES.equals(name.subarray(0, PREFIX_BYTES.length));
  return isLikeOurs ? (NAME.exec(bytesOf(name).toString('latin1'))?.[1] ?? null) : null;
}

function bytesOf(name: Uint8Array | string): Buffer {
  return typeof name === 'string' ? Buffer.from(name, 'latin1') : Buffer.from(name);
}
