import { createHash, type Hash } from 'node:crypto';
import { constants } from 'node:fs';
import { type FileHandle, mkdir, open, realpath, symlink } from 'node:fs/promises';
import { posix } from 'node:path';
import {
  parseProjectPath,
  PROJECT_LIMITS,
  type ProjectEntry,
  type ProjectTree,
  type SourceFile,
} from '../../protocol/deploy.ts';
import { HomePathSchema } from '../../protocol/agent-home.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { explainFileError, hasErrorCode } from '../../project/file-error.ts';
import { isSignInFile } from '../../project/configuration/sign-in-files.ts';
import { isGitEntry } from '../../project/ignore-rules.ts';
import { PROFILE_FILE } from '../../project/profile-file.ts';
import { entryError, limitError } from '../../project/project-error.ts';
import {
  encodedLength,
  fromBytes,
  fromText,
  joinRaw,
  type RawPath,
  readable,
  toBytes,
} from '../../project/raw-path.ts';
import { type ProjectLimits, requireInside } from '../../project/read-project.ts';

/** Bytes, files and paths of both trees of an upload together. A writer keeps all paths until the end. */
export class UploadTotals {
  readonly #limits: Required<ProjectLimits>;
  files = 0;
  bytes = 0;
  /** Folders have no content, but each of them is an inode. */
  #folders = 0;
  #pathBytes = 0;

  constructor(limits: ProjectLimits = PROJECT_LIMITS) {
    this.#limits = { pathBytes: PROJECT_LIMITS.pathBytes, ...limits };
  }

  addFolder(path: RawPath): void {
    this.#folders += 1;
    if (this.#folders > this.#limits.files) throw limitError(path, this.#limits.files, 'folders');
    this.#addPath(path);
  }

  /** `target`: the text of a link. */
  addFile(path: RawPath, size: number, target: RawPath = ''): void {
    this.files += 1;
    this.bytes += size;
    if (this.files > this.#limits.files) throw limitError(path, this.#limits.files, 'files');
    if (this.bytes > this.#limits.bytes) throw limitError(path, this.#limits.bytes, 'bytes');
    this.#addPath(path, target);
  }

  #addPath(path: RawPath, target: RawPath = ''): void {
    this.#pathBytes += encodedLength(path) + target.length;
    if (this.#pathBytes > this.#limits.pathBytes)
      throw limitError(path, this.#limits.pathBytes, 'bytes in the paths of its files');
  }
}

export interface WrittenTree {
  /** Number of regular files and symbolic links. */
  readonly files: number;
  readonly bytes: number;
  /** Equal for equal paths, kinds, executable bits and contents. */
  readonly hash: string;
  /** Sorted by path. Empty for a history. */
  readonly sources: readonly SourceFile[];
  /** Whether the relative path (UTF-8) is a regular file of the tree. */
  hasFile(path: string): boolean;
}

interface OpenFile {
  readonly path: RawPath;
  readonly entry: ProjectEntry & { readonly kind: 'file' };
  readonly handle: FileHandle;
  readonly content: Hash;
  readonly blob: Hash;
  left: number;
}

interface Written {
  readonly path: RawPath;
  /** What the hash of the tree covers. */
  readonly parts: readonly RawPath[];
  readonly isFile: boolean;
  readonly source: SourceFile | null;
}

/**
 * Writes an uploaded tree to `root`, which must not exist. Nothing of the client is trusted: a path names one new entry in a folder that
 * was uploaded before, so that no link is ever followed, and all links stay inside. Folders get mode 0755 at the end, files 0644 or 0755;
 * every byte is on disk after `finish`. Errors: `profile_invalid`, `invalid_params`, `no_space`.
 */
export class TreeWriter {
  readonly #root: RawPath;
  readonly #tree: ProjectTree;
  readonly #isCode: boolean;
  readonly #totals: UploadTotals;
  readonly #folders = new Set<RawPath>(['']);
  readonly #links: RawPath[] = [];
  readonly #written: Written[] = [];
  #open: OpenFile | null = null;
  #isCreated = false;
  #files = 0;
  #bytes = 0;

  constructor(root: string, tree: ProjectTree, totals: UploadTotals) {
    this.#root = fromText(root);
    this.#tree = tree;
    this.#isCode = tree === 'code';
    this.#totals = totals;
  }

  /** One call at a time. `bytes` are the contents of the files in order; the last file may continue in the next call. */
  async append(entries: readonly ProjectEntry[], bytes: Buffer): Promise<void> {
    await this.#create();
    let rest = await this.#fill(bytes);
    for (const entry of entries) {
      if (this.#open !== null) throw malformed('an entry follows a file that is not complete');
      await this.#add(entry);
      rest = await this.#fill(rest);
    }
    if (rest.length > 0) throw malformed('it has more bytes than its files');
  }

  async finish(): Promise<WrittenTree> {
    await this.#create();
    if (this.#open !== null) throw malformed('its last file is not complete');
    await this.#checkLinks();
    for (const folder of this.#folders) await writing(folder, this.#seal(folder));
    const written = this.#written.sort((one, other) => compareDepthFirst(one.path, other.path));
    const hash = createHash('sha256');
    for (const { parts } of written) describe(hash, ...parts);
    const regular = new Set(written.flatMap(({ path, isFile }) => (isFile ? [path] : [])));
    return {
      files: this.#files,
      bytes: this.#bytes,
      hash: hash.digest('hex'),
      sources: written.flatMap(({ source }) => (source === null ? [] : [source])),
      hasFile: (path) => regular.has(posix.normalize(fromText(path))),
    };
  }

  async close(): Promise<void> {
    const { handle } = this.#open ?? {};
    this.#open = null;
    await handle?.close();
  }

  async #create(): Promise<void> {
    if (this.#isCreated) return;
    await writing('', mkdir(toBytes(this.#root), { mode: 0o700 }));
    this.#isCreated = true;
  }

  async #add(entry: ProjectEntry): Promise<void> {
    const path = this.#pathOf(entry);
    const at = this.#at(path);
    switch (entry.kind) {
      case 'folder':
        this.#totals.addFolder(path);
        await writing(path, mkdir(at, { mode: 0o700 }));
        this.#folders.add(path);
        return;
      case 'link': {
        const target = fromBytes(Buffer.from(entry.target, 'base64'));
        if (!this.#isCode)
          throw entryError(path, `a ${this.#tree} has no links`, 'deploy with a program of this version');
        if (target === '' || target.includes('\0')) throw malformed(`the link ${readable(path)} has no text`);
        requireInside(path, target);
        this.#countFile(path, 0, target);
        await writing(path, symlink(toBytes(target), at));
        this.#links.push(path);
        this.#written.push({
          path,
          parts: [path, 'link', target],
          isFile: false,
          source: this.#sourceOf(entry, blobHash(target.length).update(toBytes(target))),
        });
        return;
      }
      case 'file': {
        this.#countFile(path, entry.size);
        const { O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;
        const handle = await writing(path, open(at, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600));
        this.#open = {
          path,
          entry,
          handle,
          content: createHash('sha256'),
          blob: blobHash(entry.size),
          left: entry.size,
        };
      }
    }
  }

  /** The rest of `bytes` after the open file is complete. */
  async #fill(bytes: Buffer): Promise<Buffer> {
    const file = this.#open;
    if (file === null) return bytes;
    const part = bytes.subarray(0, file.left);
    if (part.length > 0) {
      file.content.update(part);
      file.blob.update(part);
      await writing(file.path, writeFully(file.handle, part));
      file.left -= part.length;
    }
    if (file.left === 0) {
      const { handle, path, entry, content, blob } = file;
      await writing(path, handle.chmod(entry.executable ? 0o755 : 0o644));
      await writing(path, handle.datasync());
      await this.close();
      this.#written.push({
        path,
        parts: [path, entry.executable ? 'executable' : 'file', content.digest('hex')],
        isFile: true,
        source: this.#sourceOf(entry, blob),
      });
    }
    return bytes.subarray(part.length);
  }

  #sourceOf({ path, head = null }: ProjectEntry & { readonly head?: string | null | undefined }, blob: Hash) {
    return this.#isCode ? { path, blob: blob.digest('hex'), head } : null;
  }

  #countFile(path: RawPath, size: number, target: RawPath = ''): void {
    this.#files += 1;
    this.#bytes += size;
    this.#totals.addFile(path, size, target);
  }

  #pathOf(entry: ProjectEntry): RawPath {
    const names = parseProjectPath(entry.path).map(fromBytes);
    const path = names.join('/');
    if (names.length === 0) throw malformed('an entry has no path');
    // A link is never in the set, so no entry can be created through one.
    if (!this.#folders.has(names.slice(0, -1).join('/')))
      throw malformed(`the folder of ${readable(path)} was not sent before it`);
    if (this.#tree === 'configuration') requireCopyable(path);
    if (this.#isCode && names.some((name) => isGitEntry(name)))
      throw entryError(path, 'git data is never part of the code', 'list it in .holdfastignore');
    if (this.#isCode && path === PROFILE_FILE && entry.kind !== 'file')
      throw entryError(path, 'it is not a regular file', 'replace it with a file');
    return path;
  }

  async #checkLinks(): Promise<void> {
    if (this.#links.length === 0) return;
    const root = fromBytes(await realpath(toBytes(this.#root), { encoding: 'buffer' }));
    for (const path of this.#links) {
      const real = await realpath(this.#at(path), { encoding: 'buffer' }).then(fromBytes, () => undefined);
      if (real === undefined || real === root || real.startsWith(joinRaw(root, ''))) continue;
      throw entryError(path, 'it is a link out of the project', 'replace it with its target');
    }
  }

  /** Sets the mode last: others can read a folder only once its content is complete. */
  async #seal(folder: RawPath): Promise<void> {
    const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW } = constants;
    const handle = await open(
      folder === '' ? toBytes(this.#root) : this.#at(folder),
      O_RDONLY | O_DIRECTORY | O_NOFOLLOW,
    );
    try {
      await handle.chmod(0o755);
      await handle.sync();
    } finally {
      await handle.close();
    }
  }

  #at(path: RawPath): Buffer {
    return toBytes(joinRaw(this.#root, path));
  }
}

/** The client has left such files out. */
function requireCopyable(path: RawPath): void {
  if (!HomePathSchema.safeParse(readable(path)).success)
    throw entryError(path, 'its path is too long or too deep for HOME', 'shorten it');
  if (isSignInFile(readable(path)))
    throw entryError(path, 'an agent signs in with it', 'deploy with a program of this version');
}

function malformed(why: string): HoldfastError {
  return new HoldfastError('invalid_params', 'The upload cannot be used', { why, next: 'deploy again' });
}

/** By names, so that the entries of a folder follow it. */
function compareDepthFirst(one: RawPath, other: RawPath): number {
  const [a, b] = [one.split('/'), other.split('/')];
  for (let at = 0; at < Math.min(a.length, b.length); at += 1) {
    const [left = '', right = ''] = [a[at], b[at]];
    if (left !== right) return left < right ? -1 : 1;
  }
  return a.length - b.length;
}

/** Adds lengths first, so that different lists of parts never feed the hash the same bytes. */
function describe(hash: Hash, ...parts: readonly RawPath[]): void {
  for (const part of parts) hash.update(`${part.length}:`).update(toBytes(part));
}

function blobHash(size: number): Hash {
  return createHash('sha1').update(`blob ${size}\0`);
}

async function writeFully(to: FileHandle, bytes: Buffer): Promise<void> {
  for (let offset = 0; offset < bytes.length;)
    offset += (await to.write(bytes, offset, bytes.length - offset, null)).bytesWritten;
}

function writing<T>(path: RawPath, work: Promise<T>): Promise<T> {
  return work.catch((error: unknown) => {
    if (hasErrorCode(error, 'EEXIST')) throw malformed(`${readable(path)} was sent twice`);
    throw explainFileError(error, `${readable(path) || 'The project'} cannot be stored`, readable(path));
  });
}
