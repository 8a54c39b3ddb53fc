import { HoldfastError } from '../../protocol/errors.ts';
import { formatPath, parsePath, WORKSPACE } from '../../protocol/paths.ts';
import type { FindParams, SEARCH_SIDECAR_METHODS, SearchParams } from '../../protocol/search.ts';
import type { Handlers } from '../../protocol/wire/shapes.ts';
import { Directory } from '../files/directory.ts';
import { withFileErrors } from '../files/file-errors.ts';
import { OpenFile, openDirectory } from '../files/open-file.ts';
import type { WorkspaceFiles } from '../files/workspace-files.ts';
import { usageByFolder } from '../workspace/usage-by-folder.ts';
import { findNames } from './find-names.ts';
import { type Page, TextSearch } from './text-search.ts';

/** Limit of searches per connection. */
const MAX_SEARCHES = 4;

/** The searches of one connection. They end with it. */
export class ConnectionSearches {
  readonly #files: Pick<WorkspaceFiles, 'ready'>;
  readonly #program: string;
  readonly #open = new Map<string, TextSearch>();
  #running = 0;
  #next = 1;
  #closed = false;

  constructor(files: Pick<WorkspaceFiles, 'ready'>, program: string) {
    this.#files = files;
    this.#program = program;
  }

  async open(params: SearchParams): Promise<string> {
    this.#checkLimit(this.#open.size);
    const { folder, base } = await this.folder(params.path);
    const search = new TextSearch(this.#program, folder, base, params);
    if (this.#closed) search.close();
    const id = `s${String(this.#next)}`;
    this.#next += 1;
    this.#open.set(id, search);
    return id;
  }

  async next(id: string, waitMs: number, signal: AbortSignal): Promise<Page> {
    const search = this.#open.get(id);
    if (search === undefined) throw new HoldfastError('not_found', 'This search does not exist');
    try {
      const page = await search.next(waitMs, signal);
      if (page.summary !== null) this.end(id);
      return page;
    } catch (error) {
      this.end(id);
      throw error;
    }
  }

  end(id: string): void {
    this.#open.get(id)?.close();
    this.#open.delete(id);
  }

  async find(params: FindParams, signal: AbortSignal): Promise<{ paths: string[]; more: boolean }> {
    this.#checkLimit(this.#running);
    this.#running += 1;
    try {
      const { folder, base } = await this.folder(params.path);
      using open = folder;
      return await findNames(this.#program, open, base, params, signal);
    } finally {
      this.#running -= 1;
    }
  }

  /** Opens the folder to search. The caller closes it. */
  async folder(path = WORKSPACE): Promise<{ folder: Directory; base: string }> {
    const names = parsePath(path);
    const { resolver } = await this.#files.ready();
    return await withFileErrors(path, () => {
      using named = new OpenFile(resolver.open(names, true));
      return { folder: Directory.fromFd(openDirectory(named).fd), base: formatPath(names) };
    });
  }

  close(): void {
    this.#closed = true;
    for (const id of [...this.#open.keys()]) this.end(id);
  }

  #checkLimit(running: number): void {
    if (running < MAX_SEARCHES) return;
    throw new HoldfastError('overloaded', 'The search was not started', {
      why: `${String(MAX_SEARCHES)} searches are already running`,
      next: 'cancel one of them',
    });
  }
}

/** Handlers of `files/search-*`, `files/find` and `files/usage` for one connection. */
export function searchHandlers<P>(
  files: Pick<WorkspaceFiles, 'ready'>,
  program: string,
  closed: Promise<unknown>,
): Handlers<typeof SEARCH_SIDECAR_METHODS, P> {
  const searches = new ConnectionSearches(files, program);
  void closed.then(() => searches.close());
  return {
    'files/search-open': async (params) => ({ search: await searches.open(params) }),
    'files/search-next': ({ search, waitMs }, { signal }) => searches.next(search, waitMs, signal),
    'files/search-close': ({ search }) => {
      searches.end(search);
      return {};
    },
    'files/find': (params, { signal }) => searches.find(params, signal),
    'files/usage': async ({ path, depth, limit }, { signal, progress }) => {
      const { folder, base } = await searches.folder(path);
      using open = folder;
      return await usageByFolder(open, base, {
        depth: depth ?? 3,
        limit: limit ?? 100,
        signal,
        onProgress: ({ files: counted }) => progress('counting', counted, undefined, 'files'),
      });
    },
  };
}
