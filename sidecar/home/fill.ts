import {
  closeSync,
  constants,
  linkSync,
  lstatSync,
  mkdirSync,
  openSync,
  readFileSync,
  unlinkSync,
  writeSync,
} from 'node:fs';
import type { z } from 'zod';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Directory } from '../files/directory.ts';
import { errnoOf } from '../files/directory.ts';
import type { HomeFileSchema } from '../wire.ts';
import { openOwned } from './prepare.ts';
import { START_FILES } from './start-files.ts';

const { O_CREAT, O_EXCL, O_NOFOLLOW, O_WRONLY } = constants;
const FOLDER_MODE = 0o755;
/** A file is written here and then linked to its place, so that it appears complete or not at all. `home/prepare` removes it. */
const PART = '.holdfast-part';

type HomeFile = z.output<typeof HomeFileSchema>;

/**
 * Creates files in HOME whose names are free, with their folders; what is there stays, except start files of ours. Works by
 * descriptors and follows no link: a file whose folder is a link or a file is not created. `content` holds the bytes of all files,
 * one after the other. Nothing of the agent runs meanwhile. Can be repeated.
 */
export function fillHome(
  path: string,
  files: readonly HomeFile[],
  content: Buffer,
): { made: number; kept: number } {
  using home = openOwned(path);
  let offset = 0;
  let made = 0;
  for (const file of files) {
    if (offset + file.size > content.length)
      throw new HoldfastError('invalid_params', 'The files need more bytes than were sent');
    const bytes = content.subarray(offset, offset + file.size);
    offset += file.size;
    if (create(home, file, bytes)) made += 1;
  }
  return { made, kept: files.length - made };
}

/** False if its name, or one on the way, is taken, or if the disk is full, which must not keep a session from starting. */
function create(home: Directory, { path, executable }: HomeFile, bytes: Buffer): boolean {
  const names = path.split('/');
  const name = names.pop() ?? '';
  const opened: Directory[] = [];
  try {
    let folder = home;
    for (const one of names) {
      makeFolder(folder, one);
      folder = folder.openDirectory(one);
      opened.push(folder);
    }
    if (names.length === 0) removeStartFile(home, name);
    writePart(home, bytes, executable ? 0o755 : 0o644);
    linkSync(home.path(PART), folder.path(name));
    return true;
  } catch (error) {
    if (isTakenOrFull(error)) return false;
    throw error;
  } finally {
    for (const folder of opened) folder.close();
    remove(home, PART);
  }
}

function makeFolder(parent: Directory, name: string): void {
  try {
    mkdirSync(parent.path(name), FOLDER_MODE);
  } catch (error) {
    if (errnoOf(error) !== 'EEXIST') throw error;
  }
}

function writePart(home: Directory, bytes: Buffer, mode: number): void {
  remove(home, PART);
  const fd = openSync(home.path(PART), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
  try {
    for (let written = 0; written < bytes.length;)
      written += writeSync(fd, bytes, written, bytes.length - written);
  } finally {
    closeSync(fd);
  }
}

/** A start file that we have just written; one that the profile keeps differs, or may as well be replaced. */
function removeStartFile(home: Directory, name: string): void {
  const text = Object.entries(START_FILES).find(([one]) => one === name)?.[1];
  if (text === undefined || lstatSync(home.path(name), { throwIfNoEntry: false })?.isFile() !== true) return;
  const fd = home.openRegularFile(name);
  if (fd === null) return;
  try {
    if (readFileSync(fd, 'utf8') !== text) return;
  } finally {
    closeSync(fd);
  }
  unlinkSync(home.path(name));
}

function remove(home: Directory, name: string): void {
  try {
    unlinkSync(home.path(name));
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') throw error;
  }
}

function isTakenOrFull(error: unknown): boolean {
  return ['EEXIST', 'ENOTDIR', 'ELOOP', 'EACCES', 'ENOSPC', 'EDQUOT'].includes(errnoOf(error) ?? '');
}
