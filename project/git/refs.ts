import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { hasErrorCode } from '../file-error.ts';
import { lstatOrNull } from './location.ts';
import { irregularFileError, readSmallFile } from './read-file.ts';
import { gitHistoryError } from './error.ts';

export interface Refs {
  /** Object id by name of the ref. */
  readonly direct: ReadonlyMap<string, string>;
  /** Target ref by name of the symbolic ref. */
  readonly symbolic: ReadonlyMap<string, string>;
}

/** Excludes stashes, notes and refs that tools keep for themselves. */
const KINDS = ['heads', 'tags', 'remotes'] as const;
const OBJECT = /^[0-9a-f]{40}$/;
const NAME = /^refs\/(?:heads|tags|remotes)\/[^\0-\x20\x7f~^:?*[\\]+$/;
const MOST_REFS = 200_000;
const DEEPEST = 50;
const LARGEST_PACKED = 64 * 2 ** 20;
const LARGEST_REF = 4096;

/** Reads the branches, tags and remote branches of a repository. Errors: `profile_invalid`. */
export async function readRefs(commonDirectory: string, signal?: AbortSignal): Promise<Refs> {
  const loose = new Map<string, string>();
  const symbolic = new Map<string, string>();

  const readFolder = async (name: string, depth: number): Promise<void> => {
    signal?.throwIfAborted();
    if (depth > DEEPEST)
      throw gitHistoryError(`${name} is more than ${DEEPEST} folders deep`, 'rename the branch');
    for (const part of await namesIn(join(commonDirectory, name))) {
      // Git never gives a ref such a name: locks, and leftovers of file managers.
      if (part.startsWith('.') || part.endsWith('.lock')) continue;
      const below = `${name}/${part}`;
      const path = join(commonDirectory, below);
      const status = await lstatOrNull(path);
      if (status === null) continue;
      if (status.isDirectory()) {
        await readFolder(below, depth + 1);
        continue;
      }
      if (!status.isFile()) throw irregularFileError(path);
      const text = (await readSmallFile(path, LARGEST_REF))?.toString('utf8').trim();
      if (text === undefined) continue;
      const target = /^ref: (.+)$/.exec(text)?.[1];
      if (!isName(below)) throw gitHistoryError(`${below} is not the name of a ref`, 'rename or delete it');
      if (target !== undefined && isName(target)) symbolic.set(below, target);
      else if (OBJECT.test(text)) loose.set(below, text);
      else
        throw gitHistoryError(`${below} holds neither a commit nor the name of a ref`, 'delete or repair it');
      if (loose.size + symbolic.size > MOST_REFS) throw tooMany();
    }
  };
  await requireFolder(join(commonDirectory, 'refs'));
  for (const kind of KINDS) await readFolder(`refs/${kind}`, 0);

  // Refs are written loose first and packed later, so this order misses none.
  const direct = new Map<string, string>();
  const packed = await readSmallFile(join(commonDirectory, 'packed-refs'), LARGEST_PACKED);
  for (const line of (packed?.toString('utf8') ?? '').split('\n')) {
    if (line === '' || line.startsWith('#') || line.startsWith('^')) continue;
    const name = line.slice(41);
    if (!OBJECT.test(line.slice(0, 40)) || line.charAt(40) !== ' ')
      throw gitHistoryError('the file `packed-refs` is damaged', 'repair it, or deploy a plain clone');
    if (isName(name)) direct.set(name, line.slice(0, 40));
    if (direct.size > MOST_REFS) throw tooMany();
  }
  for (const [name, id] of loose) direct.set(name, id);
  for (const name of symbolic.keys()) direct.delete(name);
  return { direct, symbolic };
}

/** All refs as one packed-refs file, in the order that git searches. */
export function packedRefs({ direct }: Refs): Buffer {
  const names = [...direct.keys()].sort((one, other) => Buffer.compare(Buffer.from(one), Buffer.from(other)));
  const lines = names.map((name) => `${direct.get(name) ?? ''} ${name}\n`);
  return Buffer.from(`# pack-refs with: sorted \n${lines.join('')}`);
}

/** The content of HEAD: a branch or a commit. Errors: `profile_invalid`. */
export async function readHead(gitDirectory: string): Promise<string> {
  const text = (await readSmallFile(join(gitDirectory, 'HEAD'), LARGEST_REF))?.toString('utf8').trim() ?? '';
  const target = /^ref: (.+)$/.exec(text)?.[1];
  if ((target !== undefined && isName(target)) || OBJECT.test(text)) return `${text}\n`;
  throw gitHistoryError('HEAD is neither a branch nor a commit', 'check out a branch');
}

function isName(name: string): boolean {
  return (
    NAME.test(name) &&
    name.length < 1000 &&
    !name.includes('\uFFFD') &&
    name.split('/').every((part) => part !== '' && !part.startsWith('.') && !part.endsWith('.lock')) &&
    !name.includes('..')
  );
}

/** Whether the folder exists. Errors: `profile_invalid` (a link or a file of that name). */
export async function requireFolder(folder: string): Promise<boolean> {
  const status = await lstatOrNull(folder);
  if (status === null) return false;
  if (!status.isDirectory()) throw irregularFileError(folder);
  return true;
}

/** Entry names, sorted; empty if the folder does not exist. */
export async function namesIn(folder: string): Promise<string[]> {
  if (!(await requireFolder(folder))) return [];
  try {
    return (await readdir(folder)).sort();
  } catch (error) {
    if (hasErrorCode(error, 'ENOENT')) return [];
    throw error;
  }
}

function tooMany(): Error {
  return gitHistoryError(`it has more than ${MOST_REFS} refs`, 'deploy a clone with fewer branches');
}
