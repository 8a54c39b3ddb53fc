import { lstat, readdir, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Garbage } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { ObservedObject } from '../engine/port.ts';
import { GIT_HISTORY_SUFFIX } from '../store/home.ts';
import type { SessionRow } from '../store/sessions.ts';
import { removeTree } from '../store/remove-tree.ts';
import { hasErrorCode } from '../store/storage-error.ts';
import { describeGarbage } from './engine-objects.ts';
import type { Log } from '../base/log.ts';
import type { Services } from './composition.ts';

/** What was found to belong to nothing: what went or would go, and what stays because it may be somebody's work. */
export interface Collected {
  readonly removed: Garbage[];
  readonly retained: Garbage[];
}

/** Something that belongs to nothing, and how it goes. Without `remove` it is shown and stays. */
interface Find {
  readonly garbage: Garbage;
  readonly remove?: () => Promise<unknown>;
}

/**
 * Finds what belongs to no session, profile or program any more. What an agent may have made is never removed on a guess: a
 * workspace with a row is not looked at, and one without a row goes only when it is empty.
 */
export class GarbageCollector {
  readonly #services: Services;
  readonly #log: Log;

  constructor(services: Services, log: Log) {
    this.#services = services;
    this.#log = log;
  }

  /**
   * With `dryRun` nothing is removed. What cannot be removed now is in neither list. Where the engine cannot be asked, what snapshots do
   * not need goes all the same: it may be all that gives a full disk room again.
   */
  async collect(dryRun: boolean): Promise<Collected> {
    const { maintenance } = this.#services;
    let observed: readonly ObservedObject[];
    try {
      observed = await this.#services.engine.observe();
    } catch (error) {
      throw onlySnapshots(error, await maintenance.collect(dryRun), dryRun);
    }
    const rows = new Map(this.#services.sessions.all().map((row) => [row.id, row]));
    const alive = (id: string): boolean => {
      const row = rows.get(id);
      return row !== undefined && row.status !== 'deleted';
    };
    const finds = [
      ...this.#onEngine(observed, alive),
      ...(await this.#runs(observed, alive)),
      ...(await this.#workspaces(rows)),
      ...(await this.#deploys()),
      ...(await this.#runtimes(observed)),
      ...(await this.#artifacts(alive)),
      ...this.#contents(),
    ];
    const removed: Garbage[] = [];
    const kept: Garbage[] = [];
    for (const { garbage, remove } of finds) {
      try {
        if (!dryRun) await remove?.();
        (remove === undefined ? kept : removed).push(garbage);
      } catch (error) {
        this.#log.warn('garbage could not be removed', { garbage: garbage.name, error });
      }
    }
    removed.push(...(await maintenance.collect(dryRun)));
    return { removed, retained: kept };
  }

  #onEngine(observed: readonly ObservedObject[], alive: (id: string) => boolean): Find[] {
    const { engine } = this.#services;
    return observed.flatMap((object) => {
      const { sessionId, role } = object;
      // Code and program volumes go with their version; a workspace never goes by itself.
      if (role === 'code' || role === 'runtime') return [];
      if (role === 'workspace') {
        if (sessionId !== null && alive(sessionId)) return [];
        return [
          {
            garbage: describeGarbage(
              object,
              'no session has this workspace; it is kept, look into it and remove it by hand',
            ),
          },
        ];
      }
      if (role === 'helper') {
        return [
          {
            garbage: describeGarbage(object, 'left over from work that ended'),
            remove: () => engine.removeObject(object),
          },
        ];
      }
      if (sessionId !== null && alive(sessionId)) return [];
      return [
        { garbage: describeGarbage(object, 'no session has it'), remove: () => engine.removeObject(object) },
      ];
    });
  }

  async #runs(observed: readonly ObservedObject[], alive: (id: string) => boolean): Promise<Find[]> {
    const { home } = this.#services;
    const mounted = new Set(observed.map(({ sessionId }) => sessionId));
    const finds: Find[] = [];
    for (const name of await folderNames(home.runs)) {
      if (alive(name) || mounted.has(name)) continue;
      finds.push(await directory(join(home.runs, name), 'directory', 'run directory of no session'));
    }
    return finds;
  }

  async #workspaces(rows: ReadonlyMap<string, SessionRow>): Promise<Find[]> {
    const { home } = this.#services;
    const finds: Find[] = [];
    for (const name of await folderNames(home.workspaces)) {
      const row = rows.get(name);
      if (row !== undefined && row.status !== 'deleted') continue;
      const path = join(home.workspaces, name);
      const empty = (await readdir(path).catch(() => ['unreadable'])).length === 0;
      const why = empty
        ? 'empty workspace of no session'
        : 'no session has this workspace; it is kept, look into it and remove it by hand';
      finds.push({
        garbage: { kind: 'directory', name: path, why, bytes: null },
        ...(empty ? { remove: () => removeEmpty(path) } : {}),
      });
    }
    return finds;
  }

  async #deploys(): Promise<Find[]> {
    const { home, profiles, profileService, operations } = this.#services;
    const finds: Find[] = profileService.versions.listUnused().map((one) => ({
      garbage: {
        kind: 'deploy',
        name: `${one.profile}/${one.version}`,
        why:
          profiles.get(one.profile) === null
            ? 'its profile was undeployed'
            : 'an old version that nothing runs',
        bytes: null,
      },
      remove: () => profileService.versions.remove(one),
    }));
    // A deploy that is under way has folders that are on no record yet.
    if (operations.pending().some(({ kind }) => kind === 'profile/deploy')) return finds;
    const known = new Set(
      profiles
        .listVersions()
        .flatMap(({ profile, version }) => [
          `${profile}/${version}`,
          `${profile}/${version}${GIT_HISTORY_SUFFIX}`,
        ]),
    );
    for (const profile of await folderNames(home.deploys)) {
      for (const version of await folderNames(join(home.deploys, profile))) {
        if (known.has(`${profile}/${version}`)) continue;
        finds.push(
          await directory(
            join(home.deploys, profile, version),
            'deploy',
            'left over from a deploy that did not end',
          ),
        );
      }
    }
    return finds;
  }

  /** Program files of other builds. Running containers keep theirs mounted, so these go only when nothing runs. */
  async #runtimes(observed: readonly ObservedObject[]): Promise<Find[]> {
    const { home, engine } = this.#services;
    if (observed.some(({ kind }) => kind === 'container')) return [];
    const current = engine.programsHash();
    const finds: Find[] = [];
    for (const name of await folderNames(home.runtimes)) {
      if (name === current || name.startsWith('.')) continue;
      finds.push(await directory(join(home.runtimes, name), 'runtime', 'program files of another build'));
    }
    return finds;
  }

  #contents(): Find[] {
    const { deletedSessions } = this.#services;
    return deletedSessions.findRemovable().map(({ sessionId, bytes }) => ({
      garbage: {
        kind: 'database',
        name: sessionId,
        why: 'inputs, outputs and events of a session that was deleted over a week ago',
        bytes,
      },
      remove: async () => {
        deletedSessions.remove(sessionId);
        await Promise.resolve();
      },
    }));
  }

  async #artifacts(alive: (id: string) => boolean): Promise<Find[]> {
    const { home, artifacts } = this.#services;
    const finds: Find[] = [];
    for (const name of await folderNames(home.artifacts)) {
      if (alive(name)) continue;
      const bytes = await sizeOf(join(home.artifacts, name));
      finds.push({
        garbage: { kind: 'artifact', name, why: 'outputs of a session that was deleted', bytes },
        remove: async () => artifacts.remove(name),
      });
    }
    return finds;
  }
}

function onlySnapshots(error: unknown, given: readonly Garbage[], dryRun: boolean): HoldfastError {
  const failure = HoldfastError.from(error);
  const bytes = given.reduce((sum, one) => sum + (one.bytes ?? 0), 0);
  const would = dryRun ? 'would be' : 'was';
  return new HoldfastError(failure.code, `Only what no snapshot needs ${would} given back: ${bytes} bytes`, {
    why: `the rest needs the engine: ${failure.sentence}`,
    details: { ...failure.details, bytes },
    cause: error,
  });
}

async function directory(path: string, kind: 'directory' | 'deploy' | 'runtime', why: string): Promise<Find> {
  return { garbage: { kind, name: path, why, bytes: await sizeOf(path) }, remove: () => removeTree(path) };
}

/** Of the files directly in a folder: enough to see whether it matters, without walking what an agent made. */
async function sizeOf(path: string): Promise<number | null> {
  let bytes = 0;
  for (const name of await folderNames(path)) {
    const status = await lstat(join(path, name)).catch(() => null);
    if (status?.isFile() === true) bytes += status.size;
    else if (status?.isDirectory() === true) return null;
  }
  return bytes;
}

async function removeEmpty(path: string): Promise<void> {
  await rmdir(path).catch((error: unknown) => {
    // Somebody put something there meanwhile: then it stays.
    if (!hasErrorCode(error, 'ENOTEMPTY') && !hasErrorCode(error, 'ENOENT')) throw error;
  });
}

async function folderNames(folder: string): Promise<string[]> {
  try {
    return await readdir(folder);
  } catch (error) {
    if (hasErrorCode(error, 'ENOENT') || hasErrorCode(error, 'ENOTDIR')) return [];
    throw error;
  }
}
