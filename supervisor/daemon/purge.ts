import { readdir, rmdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Garbage } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Engine } from '../engine/port.ts';
import type { HandlerTable } from '../rpc/handler-table.ts';
import { sandboxSpec } from '../sandboxes/sandbox-spec.ts';
import type { Home } from '../store/home.ts';
import { removeTree } from '../store/remove-tree.ts';
import { hasErrorCode } from '../store/storage-error.ts';
import { SidecarClient } from '../workspace/sidecar-client.ts';
import { removeEngineObjects } from './engine-objects.ts';
import type { Log } from '../base/log.ts';
import type { Services } from './composition.ts';
import { DRAIN_MS, within } from './within.ts';

export interface PurgeOptions {
  readonly home: Home;
  readonly engine: Engine;
  /** Null when the database cannot be read: a purge works all the same. */
  readonly services: Pick<
    Services,
    'sessionRuntime' | 'sessions' | 'profiles' | 'setups' | 'watchConnections' | 'egressProxy'
  > | null;
  readonly log: Log;
}

/** Removes everything of this home, from the engine and from disk. The supervisor shuts down afterwards. */
export class Purge {
  readonly #options: PurgeOptions;
  #running = false;

  constructor(options: PurgeOptions) {
    this.#options = options;
  }

  get isRunning(): boolean {
    return this.#running;
  }

  /**
   * `done` is called when the removal has ended, with whether everything was removed: after a partial removal the supervisor cannot
   * serve requests either. Errors: `confirmation_required`, `engine_unavailable` (nothing was removed).
   */
  handler(done: (all: boolean) => void): HandlerTable['purge'] {
    return async ({ force }, { progress }) => {
      if (!force) throw await this.#confirmation();
      if (this.#running) throw new HoldfastError('conflict', 'A purge is already running');
      const { engine, home } = this.#options;
      const status = await engine.probe();
      if (!status.reachable) {
        throw new HoldfastError('engine_unavailable', `Nothing of ${home.root} was removed`, {
          why: `its containers cannot be listed: ${status.why ?? 'the engine cannot be reached'}`,
          next: status.next ?? 'start the engine and try again',
        });
      }
      this.#running = true;
      try {
        const removed = await this.#run(progress);
        done(true);
        return { removed };
      } catch (error) {
        done(false);
        throw error;
      }
    };
  }

  /** Removes everything but the lock and the logs. Call it when no file of the home is open. */
  static async removeHome(home: Home): Promise<void> {
    const kept = new Set([home.lock, home.logs, home.idFile]);
    for (const name of await names(home.root)) {
      const path = join(home.root, name);
      // SQLite removes the files of the lock, and we must not open them.
      if (!kept.has(path) && !path.startsWith(home.lock)) await removeTree(path);
    }
  }

  /** Removes the rest after the lock is released, and the folder itself unless it is a mount point or not empty. */
  static async removeRest(home: Home): Promise<void> {
    for (const name of await names(home.root)) await removeTree(join(home.root, name));
    await rmdir(home.root).catch((error: unknown) => {
      const stays = ['EBUSY', 'ENOTEMPTY', 'EEXIST', 'ENOENT', 'EACCES', 'EPERM'];
      if (!stays.some((code) => hasErrorCode(error, code))) throw error;
    });
  }

  async #confirmation(): Promise<HoldfastError> {
    const { home, services } = this.#options;
    const sessions = services?.sessions.all().filter(({ status }) => status !== 'deleted').length;
    const workspaces = (await names(home.workspaces)).length;
    const what =
      sessions === undefined ? `${workspaces} workspaces` : `${sessions} sessions with their workspaces`;
    return new HoldfastError('confirmation_required', 'Nothing was removed', {
      why: `${what}, all history and every container of ${home.root} would be deleted permanently`,
      next: 'repeat with --force',
      details: { home: home.root, workspaces, ...(sessions === undefined ? {} : { sessions }) },
    });
  }

  async #run(
    progress: (stage: string, done?: number, of?: number, unit?: string) => void,
  ): Promise<Garbage[]> {
    const { home, engine, services, log } = this.#options;
    log.warn('purge', { home: home.root });
    progress('containers');
    // Processes end with their containers; nothing may be started from here on.
    await services?.watchConnections.close();
    await services?.sessionRuntime.stop();
    // One that hangs ends with its containers, which are removed below.
    await within(DRAIN_MS, services?.setups.stop()).catch((error: unknown) =>
      log.warn('setups go on while their containers are removed', { error }),
    );
    await services?.egressProxy.close();
    await engine.finishHelpers();
    const removed = await removeEngineObjects(engine, ({ name }, error) => {
      log.warn('an image stays', { image: name, error });
      progress(`image ${name} is in use and stays`);
    });
    const folders = [home.workspaces, home.agentHomes];
    const owned = (
      await Promise.all(
        folders.map(async (folder) =>
          (await names(folder)).map((name) => ({ name, path: join(folder, name) })),
        ),
      )
    ).flat();
    for (const [index, { name, path }] of owned.entries()) {
      progress('workspaces', index, owned.length, 'workspaces');
      const { bytes } = await this.#removeOwned(path, name);
      removed.push({ kind: 'directory', name: path, why: 'purged', bytes });
    }
    for (const [kind, folder] of [
      ['directory', home.runs],
      ['deploy', home.deploys],
      ['runtime', home.runtimes],
      ['artifact', home.artifacts],
      ['snapshots', home.store],
      ['directory', home.setups],
      ['database', home.backups],
      ['directory', home.secrets],
    ] as const) {
      const { bytes } = await removeTree(folder);
      removed.push({ kind, name: folder, why: 'purged', bytes });
    }
    const database = await stat(home.database).catch(() => null);
    removed.push({ kind: 'database', name: home.database, why: 'purged', bytes: database?.size ?? null });
    return removed;
  }

  /** With user namespaces the agent's files belong to other users; then the sidecar, which has their uid, empties workspace and HOME. */
  async #removeOwned(path: string, sessionId: string): Promise<{ bytes: number }> {
    try {
      return await removeTree(path);
    } catch (error) {
      if (!hasErrorCode(error, 'EACCES') && !hasErrorCode(error, 'EPERM')) throw error;
      const cleared = await this.#clearThroughSidecar(sessionId);
      if (!cleared) throw error;
      return await removeTree(path);
    }
  }

  async #clearThroughSidecar(sessionId: string): Promise<boolean> {
    const { engine, services } = this.#options;
    const row = services?.sessions.get(sessionId);
    const profile = row === undefined || row === null ? null : services?.profiles.get(row.profile);
    if (row === undefined || row === null || profile === null || profile === undefined) return false;
    await engine.startSidecar(sandboxSpec(row, profile.config, profile.image, profile.version));
    try {
      const client = await SidecarClient.connect(() => engine.dial(sessionId), sessionId);
      await client.clearWorkspace();
      await client.clearHome();
      client.close();
    } finally {
      await engine.removeSandbox(sessionId, 0);
    }
    return true;
  }
}

async function names(folder: string): Promise<string[]> {
  try {
    return await readdir(folder);
  } catch (error) {
    if (hasErrorCode(error, 'ENOENT')) return [];
    throw error;
  }
}
