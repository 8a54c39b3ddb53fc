import { randomBytes } from 'node:crypto';
import { constants } from 'node:fs';
import { lstat, mkdir, open, realpath, rename, symlink, unlink } from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import { HoldfastError } from '../../protocol/errors.ts';
import type { FileEntry, FileStat } from '../../protocol/files.ts';
import { baseName, decodeName } from '../../protocol/paths.ts';
import { foldedName, linkProblem, localNameProblem } from './local-names.ts';
import { TaskPool } from './task-pool.ts';
import { FILES_TOGETHER, TransferReport, askOnce, errorCodeOf, joinPath } from './transfer.ts';
import type { TransferOptions } from './transfer.ts';

const { O_CREAT, O_EXCL, O_NOFOLLOW, O_WRONLY } = constants;
const EXECUTABLE = 0o111;
const TRIES = 3;
/** Links are held in memory, because they are created last. */
const MAX_LINKS = 100_000;

export interface ReadPiece {
  readonly bytes: Buffer;
  readonly size: number;
  readonly version: string;
}

/** The workspace that an export reads. */
export interface ExportSource {
  stat(path: string): Promise<FileStat>;
  list(path: string): AsyncIterable<FileEntry>;
  /** Errors: `conflict` where the file no longer has this version. */
  read(path: string, offset: number, ifVersion: string | undefined): Promise<ReadPiece>;
}

interface Link {
  readonly path: string;
  readonly local: Buffer;
  readonly depth: number;
  readonly target: string;
}

/**
 * Copies files and folders of a workspace into a folder of this machine. An agent chose all names, contents and links.
 * So an export writes nothing through a link or outside the folder, creates no link that points outside it, and
 * replaces nothing unless the person says so.
 */
export async function exportTree(
  source: ExportSource,
  paths: readonly string[],
  folder: string,
  options: TransferOptions & { readonly platform?: NodeJS.Platform },
): Promise<TransferReport> {
  const run = new Export(source, options);
  const root = Buffer.from(await realpath(folder));
  const created = new Map<string, string>();
  try {
    for (const path of paths) await run.entry(path, await source.stat(path), root, 0, created);
  } finally {
    // Nothing is written any more when an export has ended, however it did.
    await run.drain();
  }
  await run.makeLinks();
  return run.report;
}

class Export {
  readonly report = new TransferReport();
  readonly #source: ExportSource;
  readonly #options: TransferOptions;
  readonly #platform: NodeJS.Platform;
  readonly #onExisting: TransferOptions['onExisting'];
  readonly #links: Link[] = [];
  readonly #files = new TaskPool(FILES_TOGETHER);

  constructor(source: ExportSource, options: TransferOptions & { readonly platform?: NodeJS.Platform }) {
    this.#source = source;
    this.#options = options;
    this.#platform = options.platform ?? process.platform;
    this.#onExisting = askOnce(options.onExisting);
  }

  /**
   * `depth`: how far `parent` is below the chosen folder. `created`: the names that this export has created in
   * `parent`, with the paths that they came from.
   */
  async entry(
    path: string,
    stat: FileStat,
    parent: Buffer,
    depth: number,
    created: Map<string, string>,
  ): Promise<void> {
    this.#options.signal.throwIfAborted();
    const name = decodeName(baseName(path));
    const problem = localNameProblem(name, this.#platform);
    if (problem !== undefined) {
      this.report.leaveOut(path, problem);
      return;
    }
    const local = joinPath(parent, name);
    const folded = foldedName(name);
    const earlier = created.get(folded);
    // The earlier one may still be on its way.
    if (earlier !== undefined) await this.#files.drain();
    if (earlier !== undefined && (await exists(local))) {
      const isSame = baseName(earlier) === baseName(path);
      this.report.leaveOut(
        path,
        isSame ? `${earlier} has the same name` : 'another file has a name that differs only in case',
      );
      return;
    }
    created.set(folded, path);
    const { type, mode } = stat;
    if (type === 'file')
      await this.#files.begin(() => this.#guarded(path, () => this.#file(path, mode, local)));
    else await this.#guarded(path, () => this.#other(path, stat, local, depth));
  }

  /** Resolves once no file is on its way. */
  drain(): Promise<void> {
    return this.#files.drain();
  }

  async #other(path: string, stat: FileStat, local: Buffer, depth: number): Promise<void> {
    if (stat.type === 'directory') await this.#folder(path, local, depth);
    else if (stat.type === 'symlink') this.#rememberLink(path, local, depth, stat.link ?? '');
    else this.report.leaveOut(path, 'it is not a file, folder or link');
  }

  /** A failure that concerns only this entry is reported, and the export goes on. */
  async #guarded(path: string, work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      const why = whyLeftOut(error);
      if (why === undefined) throw error;
      this.report.leaveOut(path, why);
    }
    this.#options.onProgress(this.report, path);
  }

  async #folder(path: string, local: Buffer, depth: number): Promise<void> {
    try {
      await mkdir(local);
      this.report.folders += 1;
    } catch (error) {
      if (errorCodeOf(error) !== 'EEXIST') throw error;
      if (!(await lstat(local)).isDirectory()) {
        this.report.leaveOut(path, 'something other than a folder already exists there');
        return;
      }
    }
    const created = new Map<string, string>();
    for await (const entry of this.#source.list(path)) {
      await this.entry(`${path}/${entry.name}`, entry, local, depth + 1, created);
    }
  }

  async #file(path: string, mode: number, local: Buffer): Promise<void> {
    const isExecutable = (mode & EXECUTABLE) !== 0;
    const permissions = isExecutable ? 0o777 : 0o666;
    if (!(await this.#mayWrite(path, local))) return;
    // Writes a temporary file and renames it, because an existing file may be a link to another one.
    const written = joinPath(local.subarray(0, local.lastIndexOf('/')), temporaryName());
    const file = await open(written, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, permissions);
    try {
      try {
        await this.#copyInto(file, path);
      } finally {
        await file.close();
      }
      await rename(written, local);
    } catch (error) {
      await unlink(written).catch(() => undefined);
      throw error;
    }
    this.report.files += 1;
    if (isExecutable) this.report.executables += 1;
  }

  async #copyInto(file: FileHandle, path: string): Promise<void> {
    for (let tries = 1; ; tries += 1) {
      let copied = 0;
      try {
        let version: string | undefined;
        for (let offset = 0, size = 1; offset < size;) {
          this.#options.signal.throwIfAborted();
          const piece = await this.#source.read(path, offset, version);
          ({ size, version } = piece);
          if (piece.bytes.length === 0) break;
          await writeAll(file, piece.bytes, offset);
          offset += piece.bytes.length;
          copied += piece.bytes.length;
          this.report.bytes += piece.bytes.length;
          this.#options.onProgress(this.report, path);
        }
        return;
      } catch (error) {
        if (!(error instanceof HoldfastError && error.code === 'conflict') || tries === TRIES) throw error;
        await file.truncate(0);
        this.report.bytes -= copied;
      }
    }
  }

  #rememberLink(path: string, local: Buffer, depth: number, target: string): void {
    const problem = linkProblem(target, depth, this.#platform);
    if (problem !== undefined) this.report.leaveOut(path, problem);
    else if (this.#links.length === MAX_LINKS) this.report.leaveOut(path, 'there are too many links');
    else this.#links.push({ path, local, depth, target });
  }

  /** Runs after everything else, so that nothing is written through one of the links. */
  async makeLinks(): Promise<void> {
    for (const { path, local, target } of this.#links) {
      this.#options.signal.throwIfAborted();
      try {
        if (!(await this.#mayWrite(path, local))) continue;
        const written = joinPath(local.subarray(0, local.lastIndexOf('/')), temporaryName());
        await symlink(decodeName(target), written);
        try {
          await rename(written, local);
        } catch (error) {
          await unlink(written).catch(() => undefined);
          throw error;
        }
        this.report.links += 1;
      } catch (error) {
        const why = whyLeftOut(error);
        if (why === undefined) throw error;
        this.report.leaveOut(path, why);
      }
    }
  }

  /** Whether a file may be written under this name: nothing exists there, or the person wants to replace it. */
  async #mayWrite(path: string, local: Buffer): Promise<boolean> {
    let existing;
    try {
      existing = await lstat(local);
    } catch (error) {
      if (errorCodeOf(error) === 'ENOENT') return true;
      throw error;
    }
    if (existing.isDirectory()) {
      this.report.leaveOut(path, 'a folder already exists there');
      return false;
    }
    if ((await this.#onExisting(path)) === 'overwrite') return true;
    this.report.existing += 1;
    return false;
  }
}

/** The reason for a failure that concerns only this file; undefined where the whole export must fail. */
function whyLeftOut(error: unknown): string | undefined {
  switch (errorCodeOf(error)) {
    case 'ENAMETOOLONG':
      return 'its path is too long for this machine';
    case 'EILSEQ':
    case 'EINVAL':
      return 'this machine does not allow the name';
    case 'EPERM':
    case 'EACCES':
    case 'permission_denied':
      return 'permission denied';
    case 'ENOTDIR':
    case 'EISDIR':
      return 'something else already exists there';
    case 'file_not_found':
    case 'file_not_regular':
    case 'file_is_a_directory':
    case 'file_not_a_directory':
    case 'conflict':
      return 'it changed while it was being read';
    default:
      return undefined;
  }
}

async function writeAll(file: FileHandle, bytes: Buffer, offset: number): Promise<void> {
  for (let at = 0; at < bytes.length;) {
    const { bytesWritten } = await file.write(bytes, at, bytes.length - at, offset + at);
    at += bytesWritten;
  }
}

async function exists(local: Buffer): Promise<boolean> {
  return lstat(local).then(
    () => true,
    () => false,
  );
}

function temporaryName(): Buffer {
  return Buffer.from(`.holdfast-export-${randomBytes(8).toString('hex')}`);
}
