import { randomBytes } from 'node:crypto';
import { mkdir, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { CONFIG_LIMITS } from '../../protocol/agent-config.ts';
import type { ProjectEntry, ProjectTree } from '../../protocol/deploy.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Home } from '../store/home.ts';
import { removeTree } from '../store/remove-tree.ts';
import { TreeWriter, UploadTotals, type WrittenTree } from './tree-writer.ts';

const MOST_UPLOADS = 16;
/** A client that sends nothing for so long is gone. */
const IDLE_MS = 300_000;

export interface UploadedProject {
  /** The folder on the client's machine. */
  readonly source: string;
  /** The code, ready to be published by a rename. */
  readonly codeFolder: string;
  readonly code: WrittenTree;
  /** A git directory; null if the client sent none. */
  readonly historyFolder: string | null;
  /** What HOME begins with; null if the client sent none. */
  readonly configuration: { readonly folder: string; readonly tree: WrittenTree } | null;
  /** Removes what was not published. */
  discard(): Promise<void>;
}

interface Upload {
  readonly id: string;
  readonly source: string;
  readonly owner: object;
  readonly folder: string;
  readonly writers: Readonly<Record<ProjectTree, TreeWriter>>;
  /** The trees that were sent. */
  readonly sent: Set<ProjectTree>;
  /** The last append, which the next one waits for. */
  last: Promise<void>;
  idle: NodeJS.Timeout;
}

/** Projects that clients are sending. They are in no version yet, and end with their connection and with this process. */
export class Uploads {
  readonly #home: Home;
  readonly #uploads = new Map<string, Upload>();
  /** Folders in use, by name: also those of uploads that are being published. */
  readonly #inUse = new Set<string>();

  constructor(home: Home) {
    this.#home = home;
  }

  /** `owner`: the connection that sends it. Errors: `overloaded`. */
  async begin(source: string, owner: object): Promise<string> {
    if (this.#inUse.size >= MOST_UPLOADS) {
      throw new HoldfastError('overloaded', 'The project cannot be deployed now', {
        why: `${MOST_UPLOADS} other deploys are under way`,
        next: 'try again when one of them has ended',
      });
    }
    const id = randomBytes(16).toString('hex');
    const folder = join(this.#home.uploads, id);
    this.#inUse.add(id);
    try {
      await mkdir(folder, { recursive: true, mode: 0o700 });
    } catch (error) {
      this.#inUse.delete(id);
      throw error;
    }
    const totals = new UploadTotals();
    this.#uploads.set(id, {
      id,
      source,
      owner,
      folder,
      writers: {
        code: new TreeWriter(join(folder, 'code'), 'code', totals),
        history: new TreeWriter(join(folder, 'history'), 'history', totals),
        configuration: new TreeWriter(
          join(folder, 'configuration'),
          'configuration',
          new UploadTotals(CONFIG_LIMITS),
        ),
      },
      sent: new Set(),
      last: Promise.resolve(),
      idle: this.#abortWhenIdle(id, owner),
    });
    return id;
  }

  /** Calls may overlap; they take effect in their order. Errors: those of `TreeWriter`, after which the upload is over. */
  async append(
    id: string,
    owner: object,
    tree: ProjectTree,
    entries: readonly ProjectEntry[],
    bytes: Buffer,
  ): Promise<void> {
    const upload = this.#get(id, owner);
    clearTimeout(upload.idle);
    upload.sent.add(tree);
    upload.last = upload.last.then(() => upload.writers[tree].append(entries, bytes));
    try {
      await upload.last;
    } catch (error) {
      await this.abort(id, owner);
      throw error;
    }
    if (this.#uploads.get(id) === upload) {
      clearTimeout(upload.idle);
      upload.idle = this.#abortWhenIdle(id, owner);
    }
  }

  /** Ends the upload; the caller owns what was sent and calls `discard`. */
  async finish(id: string, owner: object): Promise<UploadedProject> {
    const upload = this.#get(id, owner);
    this.#uploads.delete(id);
    clearTimeout(upload.idle);
    try {
      await upload.last;
      const { writers, sent } = upload;
      const code = await writers.code.finish();
      if (sent.has('history')) await writers.history.finish();
      const configuration = sent.has('configuration') ? await writers.configuration.finish() : null;
      return {
        source: upload.source,
        codeFolder: join(upload.folder, 'code'),
        code,
        historyFolder: sent.has('history') ? join(upload.folder, 'history') : null,
        configuration:
          configuration === null
            ? null
            : { folder: join(upload.folder, 'configuration'), tree: configuration },
        discard: () => this.#remove(upload),
      };
    } catch (error) {
      await this.#remove(upload);
      throw error;
    }
  }

  /** Does nothing if the upload has ended. */
  async abort(id: string, owner: object): Promise<void> {
    const upload = this.#uploads.get(id);
    if (upload?.owner !== owner) return;
    this.#uploads.delete(id);
    clearTimeout(upload.idle);
    await upload.last.catch(() => undefined);
    await this.#remove(upload);
  }

  /** Removes folders that an earlier supervisor left. */
  async removeLeftovers(): Promise<void> {
    const names = await readdir(this.#home.uploads).catch(() => []);
    for (const name of names) {
      if (!this.#inUse.has(name)) await removeTree(join(this.#home.uploads, name));
    }
  }

  async close(): Promise<void> {
    for (const { id, owner } of [...this.#uploads.values()]) await this.abort(id, owner);
  }

  #abortWhenIdle(id: string, owner: object): NodeJS.Timeout {
    // What cannot be removed now is a leftover for the next supervisor.
    return setTimeout(() => void this.abort(id, owner).catch(() => undefined), IDLE_MS).unref();
  }

  async #remove(upload: Upload): Promise<void> {
    try {
      await Promise.all(Object.values(upload.writers).map((writer) => writer.close()));
      await removeTree(upload.folder);
    } finally {
      // What could not be removed is a leftover for the next supervisor; other uploads need its place.
      this.#inUse.delete(upload.id);
    }
  }

  #get(id: string, owner: object): Upload {
    const upload = this.#uploads.get(id);
    if (upload?.owner === owner) return upload;
    throw new HoldfastError('interrupted', 'The deploy was interrupted', {
      why: 'its upload has ended',
      next: 'deploy again',
    });
  }
}
