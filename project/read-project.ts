import { constants, type Stats } from 'node:fs';
import { type FileHandle, lstat, open, readdir, readFile, readlink, realpath, stat } from 'node:fs/promises';
import { posix } from 'node:path';
import { PROJECT_LIMITS } from '../protocol/deploy.ts';
import type { IgnoredFiles } from '../protocol/deploy-result.ts';
import { HoldfastError } from '../protocol/errors.ts';
import { explainFileError } from './file-error.ts';
import { IGNORE_FILES, IgnoreRules, isGitEntry } from './ignore-rules.ts';
import { IgnoredEntries } from './ignored-entries.ts';
import { PROFILE_FILE } from './profile-file.ts';
import { describeKind, entryError, limitError } from './project-error.ts';
import { encodedLength, fromBytes, fromText, joinRaw, type RawPath, readable, toBytes } from './raw-path.ts';

export interface ProjectLimits {
  readonly bytes: number;
  readonly files: number;
  /** Of the paths of all entries together. */
  readonly pathBytes?: number;
}

export interface ReadProjectOptions {
  /** A folder to exclude although it may be inside the project: the home itself. */
  readonly excludedFolder?: string;
  /** Paths of the project, each with all below it, that are not part of its code. */
  readonly isExcluded?: (path: string) => boolean;
  readonly limits?: ProjectLimits;
  readonly signal?: AbortSignal | undefined;
}

export type ProjectItem =
  | { readonly kind: 'folder'; readonly path: RawPath }
  | { readonly kind: 'link'; readonly path: RawPath; readonly target: RawPath }
  | {
      readonly kind: 'file';
      readonly path: RawPath;
      readonly size: number;
      readonly executable: boolean;
      /** Exactly `size` bytes, before the next item is requested. A chunk is valid until the next one. */
      content(): AsyncGenerator<Buffer>;
    };

const LARGEST_IGNORE_FILE = 2 ** 20;
const CHUNK = 256 * 1024;

/**
 * Reads a project without its ignored files, a folder before its entries, in the order of their names. Errors: `profile_invalid` (a link
 * out of the project, a special file, too large; `details.path` names the entry), `permission_denied`, `conflict` (changed meanwhile).
 */
export class ProjectReader {
  readonly #source: RawPath;
  readonly #options: ReadProjectOptions;
  readonly #limits: Required<ProjectLimits>;
  readonly #ignored = new IgnoredEntries();
  readonly #buffer = Buffer.alloc(CHUNK);
  #root: RawPath = '';
  #excluded: Stats | undefined;
  #files = 0;
  #bytes = 0;
  #pathBytes = 0;

  constructor(source: string, options: ReadProjectOptions = {}) {
    this.#source = fromText(source);
    this.#options = options;
    this.#limits = { ...PROJECT_LIMITS, ...options.limits };
  }

  async *items(): AsyncGenerator<ProjectItem> {
    this.#root = fromBytes(await realpath(toBytes(this.#source), { encoding: 'buffer' }));
    if (this.#options.excludedFolder !== undefined) {
      this.#excluded = await stat(this.#options.excludedFolder).catch(() => undefined);
    }
    yield* this.#inside('', IgnoreRules.none(), 0);
  }

  /** What ignore files exclude; after all items. */
  measureIgnored(): Promise<IgnoredFiles> {
    return this.#ignored.measure(this.#options.signal);
  }

  async *#inside(relative: RawPath, above: IgnoreRules, depth: number): AsyncGenerator<ProjectItem> {
    this.#options.signal?.throwIfAborted();
    if (depth > PROJECT_LIMITS.depth)
      throw entryError(
        relative,
        `it is more than ${PROJECT_LIMITS.depth} folders deep`,
        'move it up, or ignore it',
      );
    const from = joinRaw(this.#source, relative);
    if (relative !== '') {
      if (await this.#isExcluded(relative, from)) return;
      this.#countPath(relative);
      yield { kind: 'folder', path: relative };
    }
    const names = (await reading(relative, readdir(toBytes(from), { encoding: 'buffer' }))).map(fromBytes);
    names.sort();
    const ignores = await this.#ignoresOf(relative, names, above);
    for (const name of names) {
      const path = relative === '' ? name : `${relative}/${name}`;
      if (this.#options.isExcluded?.(readable(path)) === true) continue;
      const status = await reading(path, lstat(this.#at(path)));
      const isProfile = path === PROFILE_FILE;
      if (!isProfile && ignores.ignores(readable(path), status.isDirectory())) {
        if (!isGitEntry(readable(path))) this.#ignored.add(readable(path), this.#at(path));
        continue;
      }
      if (status.isDirectory()) {
        yield* this.#inside(path, ignores, depth + 1);
        continue;
      }
      this.#count(path);
      if (status.isFile()) yield* this.#file(path);
      else if (status.isSymbolicLink() && !isProfile) yield await this.#link(path);
      else
        throw entryError(path, `it is ${describeKind(status)}`, 'remove it, or list it in .holdfastignore');
    }
  }

  /** Compares inodes, not names: a bind mount of the home is the home. */
  async #isExcluded(relative: RawPath, folder: RawPath): Promise<boolean> {
    if (this.#excluded === undefined) return false;
    const { dev, ino } = await reading(relative, stat(toBytes(folder)));
    return dev === this.#excluded.dev && ino === this.#excluded.ino;
  }

  async #ignoresOf(relative: RawPath, names: readonly string[], above: IgnoreRules): Promise<IgnoreRules> {
    const texts: string[] = [];
    for (const name of IGNORE_FILES) {
      if (!names.includes(name)) continue;
      const path = relative === '' ? name : `${relative}/${name}`;
      const status = await reading(path, lstat(this.#at(path)));
      if (!status.isFile()) continue;
      if (status.size > LARGEST_IGNORE_FILE)
        throw entryError(path, 'an ignore file has at most 1 MiB', 'shorten it');
      texts.push(await reading(path, readFile(this.#at(path), 'utf8')));
    }
    return above.within(readable(relative), texts);
  }

  #count(path: RawPath): void {
    this.#options.signal?.throwIfAborted();
    this.#files += 1;
    if (this.#files > this.#limits.files) throw limitError(path, this.#limits.files, 'files');
    this.#countPath(path);
  }

  #countPath(path: RawPath, bytes = encodedLength(path)): void {
    this.#pathBytes += bytes;
    if (this.#pathBytes > this.#limits.pathBytes)
      throw limitError(path, this.#limits.pathBytes, 'bytes in the paths of its files');
  }

  async *#file(path: RawPath): AsyncGenerator<ProjectItem> {
    const { O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants;
    const file = await reading(path, open(this.#at(path), O_RDONLY | O_NOFOLLOW | O_NONBLOCK));
    try {
      const status = await file.stat();
      // It was a regular file a moment ago; a swapped path must not make us read a device.
      if (!status.isFile())
        throw entryError(
          path,
          `it is ${describeKind(status)}`,
          'deploy again while nothing changes the folder',
        );
      const { size, mode } = status;
      this.#bytes += size;
      if (this.#bytes > this.#limits.bytes) throw limitError(path, this.#limits.bytes, 'bytes');
      yield {
        kind: 'file',
        path,
        size,
        executable: (mode & 0o111) !== 0,
        content: () => this.#content(path, file, size),
      };
    } finally {
      await file.close();
    }
  }

  async *#content(path: RawPath, file: FileHandle, size: number): AsyncGenerator<Buffer> {
    let left = size;
    while (left > 0) {
      this.#options.signal?.throwIfAborted();
      const { bytesRead } = await reading(path, file.read(this.#buffer, 0, Math.min(CHUNK, left), null));
      if (bytesRead === 0) throw changed(path);
      left -= bytesRead;
      yield this.#buffer.subarray(0, bytesRead);
    }
    if ((await file.read(this.#buffer, 0, 1, null)).bytesRead > 0) throw changed(path);
  }

  async #link(path: RawPath): Promise<ProjectItem> {
    const from = this.#at(path);
    const target = fromBytes(await reading(path, readlink(from, { encoding: 'buffer' })));
    this.#countPath(path, target.length);
    requireInside(path, target);
    // Through other links the text may stay inside the project while the path leaves it.
    const resolved = await realpath(from, { encoding: 'buffer' }).then(fromBytes, () => undefined);
    if (resolved !== undefined && resolved !== this.#root && !resolved.startsWith(joinRaw(this.#root, '')))
      throw entryError(path, `it is a link to ${readable(resolved)}, outside the project`, LINK_NEXT);
    return { kind: 'link', path, target };
  }

  #at(path: RawPath): Buffer {
    return toBytes(joinRaw(this.#source, path));
  }
}

const LINK_NEXT = 'replace it with its target, or list it in .holdfastignore';

/** Errors: `profile_invalid` for a link whose text leaves the project. */
export function requireInside(path: RawPath, target: RawPath): void {
  if (posix.isAbsolute(target))
    throw entryError(path, `it is a link to ${readable(target)}, outside the project`, LINK_NEXT);
  const normalized = posix.normalize(posix.join(posix.dirname(path), target));
  if (normalized === '..' || normalized.startsWith('../'))
    throw entryError(path, `it is a link out of the project`, LINK_NEXT);
}

function changed(path: RawPath): HoldfastError {
  return new HoldfastError('conflict', `${readable(path)} cannot be deployed`, {
    why: 'the file changed while it was being read',
    next: 'deploy again',
    details: { path: readable(path) },
  });
}

function reading<T>(path: RawPath, work: Promise<T>): Promise<T> {
  return work.catch((error: unknown) => {
    throw explainFileError(error, `${readable(path) || 'The project'} cannot be read`, readable(path));
  });
}
