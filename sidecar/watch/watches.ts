import { fstatSync } from 'node:fs';
import { HoldfastError } from '../../protocol/errors.ts';
import { formatPath, parsePath } from '../../protocol/paths.ts';
import { MAX_CHANGES_PER_BATCH, type WatchMode } from '../../protocol/watch.ts';
import { Directory } from '../files/directory.ts';
import { withFileErrors } from '../files/file-errors.ts';
import { OpenFile, openDirectory } from '../files/open-file.ts';
import type { Resolver } from '../files/resolver.ts';
import type { WorkspaceFiles } from '../files/workspace-files.ts';
import { WatchBudget, type WatchLimits } from './budget.ts';
import { compileExcludes, type Excludes } from './excludes.ts';
import { type Batch, PendingChanges } from './pending-changes.ts';
import { WatchTree, type WatchTreeOptions } from './watch-tree.ts';

/** Limit of the paths in one batch, which must fit into one message line of at most 1 MiB. */
const MAX_CHARACTERS = 200_000;
/** Limit of watches per connection. */
const MAX_WATCHES = 100;

export interface WatchRequest {
  readonly path: string;
  readonly recursive: boolean;
  readonly excludes: readonly string[];
}

interface SharedTree {
  readonly tree: Promise<WatchTree>;
  users: number;
}

/** The trees that are watched. Equal requests share one tree. */
export class WatchedTrees {
  readonly #files: Pick<WorkspaceFiles, 'ready'>;
  readonly #budget: WatchBudget;
  readonly #pollMs: number | undefined;
  readonly #shared = new Map<string, SharedTree>();

  constructor(
    files: Pick<WorkspaceFiles, 'ready'>,
    options: { readonly limits?: WatchLimits; readonly pollMs?: number } = {},
  ) {
    this.#files = files;
    this.#budget = new WatchBudget(options.limits);
    this.#pollMs = options.pollMs;
  }

  /** Release the tree with `release`. Errors: as of `files/stat`, and `invalid_params` for an invalid glob. */
  async acquire(request: WatchRequest): Promise<{ tree: WatchTree; release: () => void }> {
    const key = JSON.stringify([request.path, request.recursive, request.excludes.toSorted()]);
    let shared = this.#shared.get(key);
    if (shared === undefined) {
      shared = { tree: this.#open(request), users: 0 };
      this.#shared.set(key, shared);
    }
    const mine = shared;
    mine.users += 1;
    const release = (): void => {
      mine.users -= 1;
      if (mine.users > 0) return;
      if (this.#shared.get(key) === mine) this.#shared.delete(key);
      void mine.tree.then(
        (tree) => tree.close(),
        () => undefined, // It never started.
      );
    };
    try {
      return { tree: await mine.tree, release };
    } catch (error) {
      release();
      throw error;
    }
  }

  async #open({ path, recursive, excludes }: WatchRequest): Promise<WatchTree> {
    const names = parsePath(path);
    const matcher = compiled(excludes);
    const { resolver, temporaryEntries } = await this.#files.ready();
    const tree = await withFileErrors(path, () => {
      const folder = opened(resolver, names);
      if (folder !== null)
        return this.#tree(folder, names, { temporaryEntries, recursive, onlyName: null, excludes: matcher });
      const parent = opened(resolver, names.slice(0, -1));
      const only = names.at(-1) ?? null;
      if (parent === null || only === null) {
        throw new HoldfastError(
          'file_not_a_directory',
          `${path} leads through something that is not a folder`,
        );
      }
      return this.#tree(parent, names.slice(0, -1), {
        temporaryEntries,
        recursive: false,
        onlyName: only,
        excludes: null,
      });
    });
    try {
      await tree.start();
      return tree;
    } catch (error) {
      await tree.close();
      throw error;
    }
  }

  #tree(
    root: Directory,
    names: readonly Buffer[],
    rest: Pick<WatchTreeOptions, 'temporaryEntries' | 'recursive' | 'onlyName' | 'excludes'>,
  ): WatchTree {
    const poll = this.#pollMs === undefined ? {} : { pollMs: this.#pollMs };
    return new WatchTree({ root, path: formatPath(names), budget: this.#budget, ...rest, ...poll });
  }
}

/** Null if it is not a folder, for example a file. Throws if nothing is there. */
function opened(resolver: Resolver, names: readonly Buffer[]): Directory | null {
  using named = new OpenFile(resolver.open(names, true));
  if (!fstatSync(named.fd).isDirectory()) return null;
  return Directory.fromFd(openDirectory(named).fd);
}

function compiled(globs: readonly string[]): Excludes | null {
  try {
    return compileExcludes(globs);
  } catch (cause) {
    throw new HoldfastError('invalid_params', 'An exclude is not a valid glob', {
      why: cause instanceof Error ? cause.message : String(cause),
      cause,
    });
  }
}

interface Watching {
  readonly tree: WatchTree;
  readonly pending: PendingChanges;
  wake: (() => void) | null;
  readonly end: () => void;
}

/** The watches of one connection. They end with it. */
export class ConnectionWatches {
  readonly #trees: WatchedTrees;
  readonly #open = new Map<string, Watching>();
  #next = 1;
  #closed = false;

  constructor(trees: WatchedTrees) {
    this.#trees = trees;
  }

  async open(request: WatchRequest): Promise<{ watch: string; mode: WatchMode }> {
    if (this.#open.size >= MAX_WATCHES) {
      throw new HoldfastError('overloaded', `${request.path} cannot be watched`, {
        why: `this connection has ${String(MAX_WATCHES)} watches already`,
        next: 'close some watches, or watch a folder above them',
      });
    }
    const { tree, release } = await this.#trees.acquire(request);
    const pending = new PendingChanges(MAX_CHANGES_PER_BATCH, MAX_CHARACTERS);
    const unlisten = tree.listen({
      changed: (path, kind) => pending.add(path, kind),
      overflow: () => pending.overflow(),
      batchEnded: () => {
        if (!pending.isEmpty) watching.wake?.();
      },
    });
    const watching: Watching = {
      tree,
      pending,
      wake: null,
      end: () => {
        unlisten();
        release();
        watching.wake?.();
      },
    };
    if (this.#closed) watching.end();
    const watch = `w${String(this.#next)}`;
    this.#next += 1;
    this.#open.set(watch, watching);
    return { watch, mode: tree.mode };
  }

  async next(watch: string, waitMs: number, signal: AbortSignal): Promise<Batch & { mode: WatchMode }> {
    const watching = this.#get(watch);
    if (watching.pending.isEmpty && waitMs > 0) {
      await new Promise<void>((resolve) => {
        const done = (): void => {
          clearTimeout(timer);
          signal.removeEventListener('abort', done);
          watching.wake = null;
          resolve();
        };
        const timer = setTimeout(done, waitMs);
        signal.addEventListener('abort', done);
        watching.wake = done;
      });
    }
    return { ...watching.pending.take(), mode: watching.tree.mode };
  }

  end(watch: string): void {
    const watching = this.#get(watch);
    this.#open.delete(watch);
    watching.end();
  }

  close(): void {
    this.#closed = true;
    for (const watching of this.#open.values()) watching.end();
    this.#open.clear();
  }

  #get(watch: string): Watching {
    const watching = this.#open.get(watch);
    if (watching !== undefined) return watching;
    throw new HoldfastError('not_found', 'This watch does not exist', { next: 'open it again' });
  }
}
