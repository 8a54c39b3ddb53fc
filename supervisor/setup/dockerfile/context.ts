import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { lstat, readdir, readFile, readlink } from 'node:fs/promises';
import { join, posix } from 'node:path';
import { pipeline } from 'node:stream/promises';
import type { Readable } from 'node:stream';
import createIgnore, { type Ignore } from 'ignore';
import { type Pack, pack } from 'tar-stream';
import { HoldfastError } from '../../../protocol/errors.ts';
import type { Dockerfile } from './parse.ts';

interface Entry {
  readonly path: string;
  readonly kind: 'folder' | 'file' | 'link';
  readonly executable: boolean;
  readonly size: number;
  /** Of a link. */
  readonly target: string;
}

/** What the engine gets with a Dockerfile. */
export interface BuildContext {
  readonly files: number;
  /** Equal for equal paths, kinds, executable bits and contents. */
  readonly hash: string;
  /** With the text as this file, which is not part of what `COPY .` takes. */
  tar(dockerfile: { readonly name: string; readonly text: string }): Readable;
}

const IGNORE_FILE = '.dockerignore';
const LARGEST_IGNORE_FILE = 2 ** 20;
const WILDCARD = /[*?[\\$]/;

/** The paths of the context that the instructions name; null: all of it. */
export function wantedPaths({ stages }: Dockerfile): readonly string[] | null {
  const found = new Set<string>();
  for (const { instructions } of stages) {
    for (const instruction of instructions) {
      if (instruction.kind !== 'copy' || instruction.from !== null) continue;
      for (const source of instruction.sources) {
        // What is above the context is the context.
        const names = posix
          .normalize(`/${source}`)
          .split('/')
          .filter((name) => name !== '');
        const wild = names.findIndex((name) => WILDCARD.test(name));
        const plain = wild < 0 ? names : names.slice(0, wild);
        if (plain.length === 0) return null;
        found.add(plain.join('/'));
      }
    }
  }
  return [...found].sort();
}

/**
 * The files of a folder that the Dockerfile names, without those that .dockerignore excludes. The folder is one that a deploy has
 * written: its links stay inside, and it has neither devices nor pipes. No link is followed. Errors: `profile_invalid`.
 */
export async function readContext(
  folder: string,
  wanted: readonly string[] | null,
  signal: AbortSignal,
): Promise<BuildContext> {
  const ignores = await readIgnores(folder);
  const entries: Entry[] = [];
  const isWhole = wanted === null || (await someLink(folder, wanted));
  await walk('', isWhole ? null : wanted);
  const hash = createHash('sha256');
  for (const entry of entries) {
    const { path, kind, executable, size, target } = entry;
    hash.update(JSON.stringify([path, kind, executable, size, target]));
    if (kind === 'file')
      for await (const chunk of createReadStream(join(folder, path))) hash.update(chunk as Buffer);
    signal.throwIfAborted();
  }
  return {
    files: entries.filter(({ kind }) => kind !== 'folder').length,
    hash: hash.digest('hex'),
    tar: ({ name, text }) => {
      const archive = pack();
      const own = { [name]: text, [IGNORE_FILE]: `${IGNORE_FILE}\n${name}\n` };
      writeTar(archive, folder, entries, own).then(
        () => archive.finalize(),
        (error: unknown) => archive.destroy(error instanceof Error ? error : new Error(String(error))),
      );
      return archive as unknown as Readable;
    },
  };

  /** `paths`: relative to the folder; null: all of it. */
  async function walk(relative: string, paths: readonly string[] | null): Promise<void> {
    signal.throwIfAborted();
    const found = await readdir(join(folder, relative), { withFileTypes: true, encoding: 'buffer' });
    const names = found.map(({ name }) => nameOf(name, relative)).sort();
    const byName = paths === null ? null : byFirstName(paths);
    for (const name of names) {
      const below = byName === null ? null : byName.get(name);
      if (below === undefined) continue;
      const path = relative === '' ? name : `${relative}/${name}`;
      const status = await lstat(join(folder, path));
      if (status.isDirectory()) {
        // What is ignored may have exceptions below it.
        if (!ignores.hasExceptions && ignores.rules.ignores(`${path}/`)) continue;
        entries.push({ path, kind: 'folder', executable: true, size: 0, target: '' });
        await walk(path, below);
        continue;
      }
      if (ignores.rules.ignores(path)) continue;
      if (status.isSymbolicLink())
        entries.push({
          path,
          kind: 'link',
          executable: false,
          size: 0,
          target: await readlink(join(folder, path)),
        });
      else if (status.isFile())
        entries.push({
          path,
          kind: 'file',
          executable: (status.mode & 0o111) !== 0,
          size: status.size,
          target: '',
        });
      else throw contextError(path, 'it is neither a file, a folder nor a link');
    }
  }
}

/** What of each name is wanted, relative to it; null: all of it. */
function byFirstName(paths: readonly string[]): ReadonlyMap<string, readonly string[] | null> {
  const found = new Map<string, string[] | null>();
  for (const path of paths) {
    const slash = path.indexOf('/');
    const name = slash < 0 ? path : path.slice(0, slash);
    const others = found.get(name);
    if (slash < 0) found.set(name, null);
    else if (others === undefined) found.set(name, [path.slice(slash + 1)]);
    else others?.push(path.slice(slash + 1));
  }
  return found;
}

async function writeTar(
  archive: Pack,
  folder: string,
  entries: readonly Entry[],
  own: Readonly<Record<string, string>>,
): Promise<void> {
  const mtime = new Date(0);
  for (const [name, text] of Object.entries(own)) archive.entry({ name, mode: 0o644, mtime }, text);
  for (const { path, kind, executable, size, target } of entries) {
    if (Object.hasOwn(own, path)) continue;
    if (kind === 'folder') archive.entry({ name: path, type: 'directory', mode: 0o755, mtime });
    else if (kind === 'link') archive.entry({ name: path, type: 'symlink', linkname: target, mtime });
    else {
      const sink = archive.entry({ name: path, size, mode: executable ? 0o755 : 0o644, mtime });
      await pipeline(createReadStream(join(folder, path)), sink);
    }
  }
}

/** Whether one of the paths is a link, or leads through one: what it leads to is needed too. */
async function someLink(folder: string, paths: readonly string[]): Promise<boolean> {
  for (const path of paths) {
    const names = path.split('/');
    for (let depth = 1; depth <= names.length; depth += 1) {
      const status = await lstat(join(folder, names.slice(0, depth).join('/'))).catch(() => null);
      if (status === null) break;
      if (status.isSymbolicLink()) return true;
    }
  }
  return false;
}

/** The rules of .dockerignore, which are relative to the context. */
async function readIgnores(
  folder: string,
): Promise<{ readonly rules: Ignore; readonly hasExceptions: boolean }> {
  const rules = createIgnore({ ignorecase: false, allowRelativePaths: true });
  const status = await lstat(join(folder, IGNORE_FILE)).catch(() => null);
  if (status?.isFile() !== true) return { rules, hasExceptions: false };
  if (status.size > LARGEST_IGNORE_FILE) throw contextError(IGNORE_FILE, 'it has more than 1 MiB');
  const lines = (await readFile(join(folder, IGNORE_FILE), 'utf8')).split(/\r?\n/).map((line) => line.trim());
  const patterns = lines.filter((line) => line !== '' && !line.startsWith('#'));
  rules.add(patterns.map(anchored));
  return { rules, hasExceptions: patterns.some((line) => line.startsWith('!')) };
}

/** A pattern of .dockerignore begins at the context; one of .gitignore without a slash is for every folder. */
function anchored(pattern: string): string {
  const [sign, rest] = pattern.startsWith('!') ? ['!', pattern.slice(1).trim()] : ['', pattern];
  return `${sign}/${posix.normalize(`/${rest}`).slice(1).replace(/\/$/, '')}`;
}

function nameOf(name: Buffer, relative: string): string {
  const text = name.toString('utf8');
  if (Buffer.from(text).equals(name)) return text;
  throw contextError(relative === '' ? text : `${relative}/${text}`, 'its name is not UTF-8');
}

function contextError(path: string, why: string): HoldfastError {
  return new HoldfastError('profile_invalid', 'The Dockerfile cannot be built', {
    why: `${path} is part of its context, and ${why}`,
    next: 'list it in .dockerignore or .holdfastignore',
    details: { path },
  });
}
