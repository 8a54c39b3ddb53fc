import { createHash, type Hash } from 'node:crypto';
import { constants, type Stats } from 'node:fs';
import {
  type FileHandle,
  lstat,
  mkdir,
  open,
  readdir,
  readFile,
  readlink,
  realpath,
  stat,
  symlink,
} from 'node:fs/promises';
import { posix } from 'node:path';
import type { IgnoredFiles } from '../../protocol/deploy-result.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { IGNORE_FILES, IgnoreRules, isGitEntry } from './ignore-rules.ts';
import { IgnoredEntries } from './ignored-entries.ts';
import { PROFILE_FILE } from './profile-file.ts';

export interface CopyLimits {
  readonly bytes: number;
  readonly files: number;
}
export const COPY_LIMITS: CopyLimits = { bytes: 2 ** 30, files: 200_000 };
export interface CopyOptions {
  /** A folder to exclude although it may be inside the project: the home itself. */
  readonly excludedFolder?: string;
  readonly limits?: CopyLimits;
  readonly signal?: AbortSignal | undefined;
  readonly progress?: (files: number) => void;
}
const DEEPEST = 200;
const LARGEST_IGNORE_FILE = 2 ** 20;
const CHUNK = 256 * 1024;

export interface CopiedProject {
  /** Number of regular files and symbolic links. */
  readonly files: number;
  readonly bytes: number;
  /** Equal for equal paths, kinds, executable bits and contents. */
  readonly hash: string;
  /** What ignore files exclude. */
  readonly ignored: IgnoredFiles;
  /** Whether the relative path (UTF-8) is a regular file of the copy. */
  hasFile(path: string): boolean;
}

/** A path as bytes, one character each: names need not be UTF-8. */
type RawPath = string;
const onDisk = (path: RawPath): Buffer => Buffer.from(path, 'latin1');
const raw = (text: string): RawPath => Buffer.from(text, 'utf8').toString('latin1');
const readable = (path: RawPath): string => Buffer.from(path, 'latin1').toString('utf8');

/**
 * Copies a project to `target` (which must not exist) without its ignored files: folders 0755, files 0644 or 0755,
 * all bytes on disk when it returns. Errors: `profile_invalid` (a link out of the project, a special file, too large;
 * `details.path` names the entry), `no_space`, `permission_denied`.
 */
export async function copyProject(
  source: string,
  target: string,
  options: CopyOptions = {},
): Promise<CopiedProject> {
  return await new ProjectCopy(raw(source), raw(target), options).run();
}

class ProjectCopy {
  readonly #source: RawPath;
  readonly #target: RawPath;
  readonly #options: CopyOptions;
  readonly #limits: CopyLimits;
  readonly #hash = createHash('sha256');
  readonly #regular = new Set<string>();
  readonly #leftOut = new IgnoredEntries();
  readonly #buffer = Buffer.alloc(CHUNK);
  #root: RawPath = '';
  #except: Stats | undefined;
  #files = 0;
  #bytes = 0;

  constructor(source: RawPath, target: RawPath, options: CopyOptions) {
    this.#source = source;
    this.#target = target;
    this.#options = options;
    this.#limits = options.limits ?? COPY_LIMITS;
  }

  async run(): Promise<CopiedProject> {
    this.#root = (await realpath(onDisk(this.#source), { encoding: 'buffer' })).toString('latin1');
    if (this.#options.excludedFolder !== undefined) this.#except = await stat(this.#options.excludedFolder);
    await this.#folder('', IgnoreRules.none(), 0);
    this.#options.progress?.(this.#files);
    const regular = this.#regular;
    const leftOut = await this.#leftOut.measure(this.#options.signal);
    return {
      files: this.#files,
      bytes: this.#bytes,
      hash: this.#hash.digest('hex'),
      ignored: leftOut,
      hasFile: (path) => regular.has(posix.normalize(raw(path))),
    };
  }

  async #folder(relative: RawPath, above: IgnoreRules, depth: number): Promise<void> {
    this.#options.signal?.throwIfAborted();
    if (depth > DEEPEST)
      throw refused(relative, `it is more than ${DEEPEST} folders deep`, 'move it up, or ignore it');
    const from = join(this.#source, relative);
    if (relative !== '' && (await this.#isExcepted(relative, from))) return;
    const to = join(this.#target, relative);
    const names = (await this.#reading(relative, readdir(onDisk(from), { encoding: 'buffer' }))).map((name) =>
      name.toString('latin1'),
    );
    names.sort();
    await this.#writing(relative, mkdir(onDisk(to), { mode: 0o700 }));
    const ignores = await this.#ignoresOf(relative, names, above);
    for (const name of names) {
      const path = relative === '' ? name : `${relative}/${name}`;
      const status = await this.#reading(path, lstat(onDisk(join(this.#source, path))));
      const isProfile = path === PROFILE_FILE;
      if (!isProfile && ignores.ignores(readable(path), status.isDirectory())) {
        if (!isGitEntry(readable(path))) this.#leftOut.add(readable(path), onDisk(join(this.#source, path)));
        continue;
      }
      if (status.isDirectory()) {
        await this.#folder(path, ignores, depth + 1);
      } else {
        this.#count(path);
        if (status.isFile()) await this.#file(path);
        else if (status.isSymbolicLink() && !isProfile) await this.#link(path);
        else throw refused(path, `it is ${kindOf(status)}`, 'remove it, or list it in .holdfastignore');
      }
    }
    await this.#writing(relative, this.#seal(to));
  }

  /** Compares inodes, not names: a bind mount of the home is the home. */
  async #isExcepted(relative: RawPath, folder: RawPath): Promise<boolean> {
    if (this.#except === undefined) return false;
    const { dev, ino } = await this.#reading(relative, stat(onDisk(folder)));
    return dev === this.#except.dev && ino === this.#except.ino;
  }

  /** Sets the mode last: others can read a folder only once its content is complete. */
  async #seal(folder: RawPath): Promise<void> {
    const handle = await open(
      onDisk(folder),
      constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW,
    );
    try {
      await handle.chmod(0o755);
      await handle.sync();
    } finally {
      await handle.close();
    }
  }

  async #ignoresOf(relative: RawPath, names: readonly string[], above: IgnoreRules): Promise<IgnoreRules> {
    const texts: string[] = [];
    for (const name of IGNORE_FILES) {
      if (!names.includes(name)) continue;
      const path = relative === '' ? name : `${relative}/${name}`;
      const file = onDisk(join(this.#source, path));
      const status = await this.#reading(path, lstat(file));
      if (!status.isFile()) continue;
      if (status.size > LARGEST_IGNORE_FILE)
        throw refused(path, 'an ignore file has at most 1 MiB', 'shorten it');
      texts.push(await this.#reading(path, readFile(file, 'utf8')));
    }
    return above.within(readable(relative), texts);
  }

  #count(path: RawPath): void {
    this.#options.signal?.throwIfAborted();
    this.#files += 1;
    if (this.#files > this.#limits.files) {
      throw refused(
        path,
        `the project has more than ${this.#limits.files} files`,
        'list what is not code in .holdfastignore',
      );
    }
    if (this.#files % 200 === 0) this.#options.progress?.(this.#files);
  }

  async #file(path: RawPath): Promise<void> {
    const { O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_WRONLY, O_CREAT, O_EXCL } = constants;
    const from = await this.#reading(
      path,
      open(onDisk(join(this.#source, path)), O_RDONLY | O_NOFOLLOW | O_NONBLOCK),
    );
    try {
      const status = await from.stat();
      // It was a regular file a moment ago; a swapped path must not make us read a device.
      if (!status.isFile())
        throw refused(path, `it is ${kindOf(status)}`, 'deploy again while nothing changes the folder');
      const executable = (status.mode & 0o111) !== 0;
      describe(this.#hash, path, executable ? 'executable' : 'file');
      const to = await this.#writing(
        path,
        open(onDisk(join(this.#target, path)), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600),
      );
      try {
        const content = await this.#content(path, from, to);
        describe(this.#hash, content);
        await this.#writing(path, to.chmod(executable ? 0o755 : 0o644));
        await this.#writing(path, to.datasync());
      } finally {
        await to.close();
      }
    } finally {
      await from.close();
    }
    this.#regular.add(path);
  }

  async #content(path: RawPath, from: FileHandle, to: FileHandle): Promise<string> {
    const hash = createHash('sha256');
    for (;;) {
      const { bytesRead } = await this.#reading(path, from.read(this.#buffer, 0, CHUNK, null));
      if (bytesRead === 0) return hash.digest('hex');
      this.#options.signal?.throwIfAborted();
      this.#bytes += bytesRead;
      if (this.#bytes > this.#limits.bytes) {
        throw refused(
          path,
          `the project has more than ${this.#limits.bytes} bytes`,
          'list what is not code in .holdfastignore',
        );
      }
      const bytes = this.#buffer.subarray(0, bytesRead);
      hash.update(bytes);
      await this.#writing(path, writeFully(to, bytes));
    }
  }

  async #link(path: RawPath): Promise<void> {
    const from = onDisk(join(this.#source, path));
    const target = (await this.#reading(path, readlink(from, { encoding: 'buffer' }))).toString('latin1');
    const next = 'replace it with its target, or list it in .holdfastignore';
    if (posix.isAbsolute(target))
      throw refused(path, `it is a link to ${readable(target)}, outside the project`, next);
    const normalized = posix.normalize(posix.join(posix.dirname(path), target));
    if (normalized === '..' || normalized.startsWith('../'))
      throw refused(path, `it is a link out of the project`, next);
    // Through other links the text may stay inside the project while the path leaves it.
    const real = await realpath(from, { encoding: 'buffer' }).catch(() => undefined);
    const resolved = real?.toString('latin1');
    if (resolved !== undefined && resolved !== this.#root && !resolved.startsWith(join(this.#root, ''))) {
      throw refused(path, `it is a link to ${readable(resolved)}, outside the project`, next);
    }
    await this.#writing(path, symlink(onDisk(target), onDisk(join(this.#target, path))));
    describe(this.#hash, path, 'link', target);
  }

  #reading<T>(path: RawPath, work: Promise<T>): Promise<T> {
    return work.catch((error: unknown) => {
      throw explainFileError(error, `${readable(path) || 'The project'} cannot be read`, readable(path));
    });
  }

  #writing<T>(path: RawPath, work: Promise<T>): Promise<T> {
    return work.catch((error: unknown) => {
      throw explainFileError(error, `${readable(path) || 'The project'} cannot be copied`, readable(path));
    });
  }
}

async function writeFully(to: FileHandle, bytes: Buffer): Promise<void> {
  for (let offset = 0; offset < bytes.length;) {
    const { bytesWritten } = await to.write(bytes, offset, bytes.length - offset, null);
    offset += bytesWritten;
  }
}

/** Adds lengths first, so that different lists of parts never feed the hash the same bytes. */
function describe(hash: Hash, ...parts: RawPath[]): void {
  for (const part of parts) hash.update(`${part.length}:`).update(onDisk(part));
}

function join(folder: RawPath, relative: RawPath): RawPath {
  return relative === '' && folder === '' ? '' : `${folder === '/' ? '' : folder}/${relative}`;
}

function refused(path: RawPath, why: string, next: string): HoldfastError {
  return new HoldfastError('profile_invalid', `${readable(path)} cannot be deployed`, {
    why,
    next,
    details: { path: readable(path) },
  });
}

function kindOf(status: Stats): string {
  if (status.isFIFO()) return 'a named pipe';
  if (status.isSocket()) return 'a socket';
  if (status.isCharacterDevice() || status.isBlockDevice()) return 'a device';
  if (status.isSymbolicLink()) return 'a link';
  return 'not a regular file';
}

export function explainFileError(error: unknown, what: string, path: string): unknown {
  if (!(error instanceof Error) || !('code' in error)) return error;
  const details = { path };
  switch (error.code) {
    case 'ENOSPC':
    case 'EDQUOT':
      return new HoldfastError('no_space', what, {
        why: 'the disk is full',
        next: 'free some space and deploy again',
        details,
        cause: error,
      });
    case 'EACCES':
    case 'EPERM':
      return new HoldfastError('permission_denied', what, { why: error.message, details, cause: error });
    case 'ENOENT':
    case 'ELOOP':
    case 'ENOTDIR':
      return new HoldfastError('conflict', what, {
        why: 'the folder changed while it was being copied',
        next: 'deploy again',
        details,
        cause: error,
      });
    default:
      return error;
  }
}
