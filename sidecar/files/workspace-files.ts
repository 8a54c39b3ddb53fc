import { openSync, constants } from 'node:fs';
import { HoldfastError } from '../../protocol/errors.ts';
import type { FileStat, WriteResult } from '../../protocol/files.ts';
import { decodeLink, parsePath } from '../../protocol/paths.ts';
import { copyContent, copyTree, type CopyTotals } from './copy.ts';
import { Directory } from './directory.ts';
import { withFileErrors } from './file-errors.ts';
import { deletePath, makeFolder, makeLink, namedPlace, renamePath } from './folders.ts';
import { Semaphore } from './semaphore.ts';
import { type ListOptions, listPath } from './list.ts';
import { loadNative, type Native } from './native.ts';
import { readPath, type ReadOptions, type ReadPiece } from './read.ts';
import { TemporaryEntries } from './temporary-entries.ts';
import type { RemovalTotals } from './remove-tree.ts';
import { O_PATH, placeAt, Resolver } from './resolver.ts';
import { statPath, type StatOptions } from './stat.ts';
import { reopenDirectory } from './staged-file.ts';
import { Uploads } from './uploads.ts';
import { restoreWorkspaceAccess } from './workspace-access.ts';
import { type WritePrecondition, type WriteTarget, FileWriter } from './file-writer.ts';
import { WriteIntents } from './write-intents.ts';

/** Reads and writes of whole chunks at a time, which bounds their memory. */
const BULK_PLACES = 4;
/** Walks through trees at a time. */
const TREE_PLACES = 2;
/** Writes of small contents: more at a time, because most of their time is that of the disk. */
const SMALL_PLACES = 16;
/** Up to this size reads do not wait for a place, and writes count as small. */
const SMALL_BYTES = 64 * 1024;

export interface WorkspaceFilesOptions {
  /** Path of the workspace in this process. No untrusted process can replace it. */
  readonly workspace: string;
  /** A directory for records of operations. The agent cannot reach it. */
  readonly control: string;
  /** Use only Node's calls: for tests, and for machines without koffi. */
  readonly withoutNative?: boolean;
}

interface Ready {
  readonly native: Native | null;
  readonly temporaryEntries: TemporaryEntries;
  readonly resolver: Resolver;
  readonly writer: FileWriter;
}

export interface TreeOptions<P> {
  readonly signal: AbortSignal;
  readonly onProgress: (sofar: Readonly<P>) => void;
}

/** The files of one workspace, by protocol paths. Every failure is a HoldfastError of the `file_*` kind, or a bug. */
export class WorkspaceFiles {
  /** Temporary entries of this sidecar in the workspace. */
  readonly temporaryEntries: TemporaryEntries;
  readonly #options: WorkspaceFilesOptions;
  readonly #bulk = new Semaphore(BULK_PLACES);
  readonly #small = new Semaphore(SMALL_PLACES);
  readonly #trees = new Semaphore(TREE_PLACES);
  #root: Directory | undefined;
  #ready: Promise<Ready> | undefined;

  constructor(options: WorkspaceFilesOptions) {
    this.#options = options;
    this.temporaryEntries = new TemporaryEntries(options.control);
  }

  /** Loads what the calls need, and recovers interrupted writes of an earlier sidecar. Every call awaits it. */
  ready(): Promise<Ready> {
    restoreWorkspaceAccess(this.#options.workspace);
    this.#ready ??= this.#prepare().catch((error: unknown) => {
      this.#ready = undefined;
      throw error;
    });
    return this.#ready;
  }

  /** At startup: finishes or undoes interrupted writes, if there are any. */
  async recover(): Promise<void> {
    // What an interrupted removal had moved becomes visible again. The caller can repeat the removal.
    for (const { name } of this.temporaryEntries.leftovers('removing'))
      this.temporaryEntries.unregister(name);
    if (this.temporaryEntries.hasLeftovers('write')) await this.ready();
  }

  stat(path: string, options: StatOptions): Promise<FileStat & { version: string | null }> {
    return this.#on(path, async ({ resolver }, names) => {
      const stat = (): Promise<FileStat & { version: string | null }> =>
        statPath(resolver, names, path, options);
      return options.version ? await this.#bulk.run(options.signal, stat) : await stat();
    });
  }

  list(path: string, options: ListOptions): ReturnType<typeof listPath> {
    return this.#on(path, (ready, names) => listPath(ready, names, options));
  }

  read(path: string, options: ReadOptions): Promise<ReadPiece> {
    return this.#on(path, async ({ resolver }, names) => {
      const read = (): Promise<ReadPiece> => readPath(resolver, names, path, options);
      return options.length <= SMALL_BYTES ? await read() : await this.#bulk.run(options.signal, read);
    });
  }

  write(
    path: string,
    precondition: WritePrecondition,
    content: Uint8Array,
    signal: AbortSignal,
  ): Promise<WriteResult> {
    return this.#on(path, ({ writer, resolver }, names) =>
      (content.length <= SMALL_BYTES ? this.#small : this.#bulk).run(signal, () =>
        writer.write(targetOf(resolver, names, path), precondition, content),
      ),
    );
  }

  /** Uploads of one connection. */
  async uploads(): Promise<Uploads> {
    return new Uploads((await this.ready()).writer);
  }

  /** The file that an upload replaces. */
  async target(path: string): Promise<WriteTarget> {
    const names = parsePath(path);
    return targetOf((await this.ready()).resolver, names, path);
  }

  mkdir(path: string, parents: boolean): Promise<boolean> {
    return this.#on(path, ({ resolver }, names) => makeFolder(resolver, names, path, parents));
  }

  symlink(path: string, link: string): Promise<void> {
    return this.#on(path, ({ resolver }, names) => makeLink(resolver, names, path, decodeLink(link)));
  }

  rename(from: string, to: string, overwrite: boolean): Promise<void> {
    return this.#on(from, async ({ resolver, native }, names) => {
      using source = namedPlace(resolver, names, from);
      const target = parsePath(to);
      await withFileErrors(to, () => {
        using place = namedPlace(resolver, target, to);
        renamePath(native, source, place, overwrite);
      });
    });
  }

  delete(path: string, options: TreeOptions<RemovalTotals> & { recursive: boolean }): Promise<RemovalTotals> {
    return this.#on(path, ({ resolver }, names) =>
      this.#trees.run(options.signal, async () => {
        using place = namedPlace(resolver, names, path);
        return await deletePath(place, { ...options, temporaryEntries: this.temporaryEntries });
      }),
    );
  }

  copy(from: string, to: string, overwrite: boolean, options: TreeOptions<CopyTotals>): Promise<CopyTotals> {
    return this.#on(from, ({ resolver, native, writer }, names) =>
      this.#trees.run(options.signal, async () => {
        const target = parsePath(to);
        if (isBelow(target, names)) {
          throw new HoldfastError('invalid_params', `${from} cannot be copied into itself`);
        }
        using source = namedPlace(resolver, names, from);
        return await withFileErrors(to, async () => {
          using place = namedPlace(resolver, target, to);
          return await copyTree(source, place, from, {
            ...options,
            native,
            temporaryEntries: this.temporaryEntries,
            copyFile: async (file, at, copied) => {
              const precondition = { create: true, overwrite, mode: Number(file.stat().mode & 0o777n) };
              const { directory, name } = at;
              const there: WriteTarget = {
                displayPath: to,
                locate: () => placeAt(reopenDirectory(directory), name),
              };
              await writer.writeWith(there, precondition, (staged) =>
                copyContent(file, staged, native, from, options.signal),
              );
              copied.files += 1;
              copied.bytes += Number(file.stat().size);
            },
          });
        });
      }),
    );
  }

  /** Closes the workspace. No call may follow. */
  close(): void {
    this.#root?.close();
  }

  async #on<T>(path: string, work: (ready: Ready, names: Buffer[]) => T | Promise<T>): Promise<T> {
    const names = parsePath(path);
    const ready = await this.ready();
    return await withFileErrors(path, () => work(ready, names));
  }

  async #prepare(): Promise<Ready> {
    const { workspace, withoutNative } = this.#options;
    const native = withoutNative === true ? null : await loadNative();
    const root = Directory.fromFd(openSync(workspace, O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW));
    this.#root?.close();
    this.#root = root;
    const resolver = new Resolver(root, native);
    const intents = new WriteIntents(this.temporaryEntries);
    await intents.recover(resolver, native, workspace);
    return {
      native,
      temporaryEntries: this.temporaryEntries,
      resolver,
      writer: new FileWriter({ native, intents }),
    };
  }
}

function targetOf(resolver: Resolver, names: readonly Buffer[], text: string): WriteTarget {
  return { displayPath: text, locate: () => resolver.parent(names, true) };
}

function isBelow(path: readonly Buffer[], top: readonly Buffer[]): boolean {
  return path.length >= top.length && top.every((name, index) => path[index]?.equals(name) === true);
}
