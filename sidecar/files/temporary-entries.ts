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
/** A removal moves folders to names of its own with a number behind; one note stands for all of them. */
const NAME = /^(\.holdfast-(?:write|restore|removing)-[0-9a-f]{16})(?:-\d+)?$/;
/** A note that is being written: the one that it replaces, if any, holds until it has its name. */
const UNFINISHED = '.new';
/** Names of finished operations that are remembered, for events about them that come late. */
const MOST_RECENT = 1000;

/** What every note says, whatever else its owner notes. */
const BaseNoteSchema = z.object({
  /** Inode of the folder that the entry is in. */
  within: z.string(),
  /** Inode of the entry itself, where only that one is ours. */
  inode: z.string().optional(),
});

/**
 * The temporary entries that this sidecar has in the workspace, by notes in a folder that the agent cannot reach. An entry is ours
 * because it is noted, never because of its name: anybody can give a file any name. A note is written before its entry is made
 * and removed after the entry is gone, so that what a sidecar that was killed has left is known to the next one.
 *
 * Several threads look at the same notes; each kind is written and settled by one of them.
 */
export class TemporaryEntries {
  readonly #folder: string;
  readonly #recent = new Set<string>();

  /** `control`: the sidecar's own folder, in which one for the notes is made. */
  constructor(control: string) {
    this.#folder = join(control, IN_SANDBOX.temporaryEntriesName);
    mkdirSync(this.#folder, { recursive: true, mode: 0o700 });
  }

  /** Nobody can foresee it: what has that name already is somebody's, and the next name is another one. */
  newName(kind: TemporaryKind): Buffer {
    return Buffer.from(`.holdfast-${kind}-${randomBytes(8).toString('hex')}`);
  }

  /** In one step, also where it replaces an earlier note. `within`: the folder of the entry. */
  register(name: Buffer, within: { readonly fd: number }, more: object = {}): void {
    const path = this.#path(name);
    const note = { within: inodeOf(within.fd), ...more };
    writeFileSync(path + UNFINISHED, JSON.stringify(note), { mode: 0o600 });
    renameSync(path + UNFINISHED, path);
  }

  /** The entry is gone, or is not ours any more. */
  unregister(name: Buffer): void {
    const noted = name.toString('latin1');
    this.#recent.delete(noted);
    this.#recent.add(noted);
    for (const oldest of this.#recent) {
      if (this.#recent.size <= MOST_RECENT) break;
      this.#recent.delete(oldest);
    }
    try {
      unlinkSync(this.#path(name));
    } catch (error) {
      if (errnoOf(error) !== 'ENOENT') throw error;
    }
  }

  /** Whether this entry of a folder is one of ours now. `directory` may only name the folder (O_PATH). A name as text is latin1. */
  isTemporary(directory: number, name: Uint8Array | string): boolean {
    const noted = notedName(name);
    if (noted === null) return false;
    const note = BaseNoteSchema.safeParse(this.#read(noted));
    if (!note.success || note.data.within !== inodeOf(directory)) return false;
    const { inode } = note.data;
    return inode === undefined || inode === inodeAt(Directory.fromFd(directory), bytesOf(name));
  }

  /** Whether an entry of that name was one of ours a moment ago, in this thread. */
  wasRecentlyTemporary(name: Uint8Array | string): boolean {
    const noted = notedName(name);
    return noted !== null && this.#recent.has(noted);
  }

  /** Names of this kind that an earlier sidecar left notes of, with what they say; null where a note is none. */
  leftovers(kind: TemporaryKind): { readonly name: Buffer; readonly note: unknown }[] {
    const left = [];
    for (const file of readdirSync(this.#folder)) {
      if (!file.startsWith(`.holdfast-${kind}-`)) continue;
      // Its entry was not made yet, or the note before this one holds.
      if (file.endsWith(UNFINISHED)) unlinkSync(join(this.#folder, file));
      else left.push({ name: Buffer.from(file, 'latin1'), note: this.#read(file) });
    }
    return left;
  }

  /** Whether an earlier sidecar left notes of that kind. */
  hasLeftovers(kind: TemporaryKind): boolean {
    return readdirSync(this.#folder).some((file) => file.startsWith(`.holdfast-${kind}-`));
  }

  #path(name: Buffer): string {
    return join(this.#folder, name.toString('latin1'));
  }

  /** Null where there is no note of that name, or one that says nothing. */
  #read(file: string): unknown {
    try {
      return JSON.parse(readFileSync(join(this.#folder, file), 'utf8'));
    } catch (error) {
      if (error instanceof SyntaxError || errnoOf(error) === 'ENOENT') return null;
      throw error;
    }
  }
}

/** Whether a listing can have names of the form of ours in it: found out in one go, so that most folders cost nothing. */
export function mayContainTemporaryNames(listing: Buffer): boolean {
  return listing.includes(PREFIX_BYTES);
}

/** Whether a name has the form of our names, which says nothing of whose it is. */
export function hasTemporaryForm(name: Uint8Array | string): boolean {
  return notedName(name) !== null;
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

/** The name of the note that would be about this entry; null where there can be none. */
function notedName(name: Uint8Array | string): string | null {
  const isLikeOurs =
    typeof name === 'string'
      ? name.startsWith(PREFIX)
      : PREFIX_BYTES.equals(name.subarray(0, PREFIX_BYTES.length));
  return isLikeOurs ? (NAME.exec(bytesOf(name).toString('latin1'))?.[1] ?? null) : null;
}

function bytesOf(name: Uint8Array | string): Buffer {
  return typeof name === 'string' ? Buffer.from(name, 'latin1') : Buffer.from(name);
}
