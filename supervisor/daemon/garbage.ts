import { lstat, readdir, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Garbage } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { ObservedObject } from '../engine/port.ts';
import { CONFIGURATION_SUFFIX, GIT_HISTORY_SUFFIX, SOURCE_RECORD_SUFFIX } from '../store/home.ts';
import { removeTree } from '../store/remove-tree.ts';
import { hasErrorCode } from '../store/storage-error.ts';
import { describeGarbage } from './engine-objects.ts';
import type { Log } from '../base/log.ts';
import type { Services } from './composition.ts';

/** Objects that belong to nothing: what was or would be removed, and what stays because it may hold somebody's work. */
export interface Collected {
  readonly removed: Garbage[];
  readonly retained: Garbage[];
}

/** An object that belongs to nothing. Without `remove` it is listed and stays. */
interface Candidate {
  readonly garbage: Garbage;
  readonly remove?: () => Promise<unknown>;
}

/**
 * Removes what belongs to no session, profile or build. Files of an agent are never removed on a guess: a workspace with a row is
 * not touched, and a workspace without a row is removed only when it is empty.
 */
export class GarbageCollector {
  readonly #services: Services;
  readonly #log: Log;

  constructor(services: Services, log: Log) {
    this.#services = services;
    this.#log = log;
  }

  /**
   * With `dryRun` nothing is removed. What cannot be removed now is in neither list. Without the engine, objects that no snapshot
   * needs are removed all the same, because that may be the only way to free a full disk.
   */
  async collect(dryRun: boolean): Promise<Collected> {
    const { maintenance } = this.#services;
    let observed: readonly ObservedObject[];
    let images: readonly ObservedObject[];
    try {
      const { engine } = this.#services;
      [observed, images] = await Promise.all([engine.observe(), engine.observeImages()]);
    } catch (error) {
      throw onlySnapshotsCollected(error, await maintenance.collect(dryRun), dryRun);
    }
    const candidates = [
      ...this.#onEngine(observed),
      ...this.#preparedImages(images),
      ...(await this.#runs(observed)),
      ...(await this.#workspaces()),
      ...(await this.#deploys()),
      ...(await this.#runtimes(observed)),
      ...(await this.#artifacts()),
      ...(await this.#promoted()),
      ...this.#contents(),
    ];
    const removed: Garbage[] = [];
    const kept: Garbage[] = [];
    for (const { garbage, remove } of candidates) {
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

  #onEngine(observed: readonly ObservedObject[]): Candidate[] {
    const { engine, setups } = this.#services;
    return observed.flatMap((object) => {
      const { sessionId, role } = object;
      // Volumes of code and programs are removed with their version; a workspace is never removed here.
      if (role === 'code' || role === 'runtime') return [];
      // A running setup has its containers.
      if (sessionId !== null && setups.isRunning(sessionId)) return [];
      if (role === 'workspace' || role === 'home') {
        if (sessionId !== null && this.#isPresent(sessionId)) return [];
        return [
          {
            garbage: describeGarbage(
              object,
              `no session has this ${role === 'home' ? 'HOME' : 'workspace'}; it is kept, look into it and remove it by hand`,
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
      if (sessionId !== null && this.#isPresent(sessionId)) return [];
      return [
        { garbage: describeGarbage(object, 'no session has it'), remove: () => engine.removeObject(object) },
      ];
    });
  }

  /** Of a running deploy, the image may be prepared and the profile not recorded yet. */
  #preparedImages(images: readonly ObservedObject[]): Candidate[] {
    const { engine, setups, operations } = this.#services;
    const isDeploying = (): boolean => operations.pending().some(({ kind }) => kind === 'profile/deploy');
    if (isDeploying()) return [];
    const listed = images.flatMap((object) =>
      object.sessionId === null ? [] : [{ reference: object.name, setupId: object.sessionId, object }],
    );
    const unused = setups.unusedImages(listed);
    return unused.flatMap(({ reference, setupId, profile, bytes }) => {
      const object = images.find(({ name }) => name === reference);
      if (object === undefined) return [];
      return [
        {
          garbage: {
            ...describeGarbage(
              object,
              profile === null ? 'left over from a setup' : `prepared for ${profile}, which does not use it`,
            ),
            bytes,
          },
          remove: async () => {
            if (isDeploying() || setups.unusedImages([{ reference, setupId }]).length === 0) return;
            // Recorded first: were we killed in between, an image without a record is found again, and no record names one that is gone.
            await setups.recordImageRemoved(setupId);
            await engine.removeObject(object);
          },
        },
      ];
    });
  }

  async #runs(observed: readonly ObservedObject[]): Promise<Candidate[]> {
    const { home } = this.#services;
    const mounted = new Set(observed.map(({ sessionId }) => sessionId));
    const candidates: Candidate[] = [];
    for (const name of await folderNames(home.runs)) {
      if (this.#isPresent(name) || mounted.has(name) || this.#services.setups.isRunning(name)) continue;
      const candidate = await directory(join(home.runs, name), 'directory', 'run directory of no session');
      candidates.push(this.#unlessPresent(name, candidate));
    }
    return candidates;
  }

  async #workspaces(): Promise<Candidate[]> {
    const { home } = this.#services;
    const candidates: Candidate[] = [];
    for (const [folder, what] of [
      [home.workspaces, 'workspace'],
      [home.agentHomes, 'HOME'],
    ] as const) {
      for (const name of await folderNames(folder)) {
        if (this.#isPresent(name) || this.#services.setups.isRunning(name)) continue;
        const path = join(folder, name);
        const empty = (await readdir(path).catch(() => ['unreadable'])).length === 0;
        const why = empty
          ? `empty ${what} of no session`
          : `no session has this ${what}; it is kept, look into it and remove it by hand`;
        candidates.push({
          garbage: { kind: 'directory', name: path, why, bytes: null },
          ...(empty ? { remove: () => removeEmpty(path) } : {}),
        });
      }
    }
    return candidates;
  }

  async #deploys(): Promise<Candidate[]> {
    const { home, profiles, profileService, operations } = this.#services;
    const candidates: Candidate[] = profileService.versions.listUnused().map((one) => ({
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
    // A running deploy has folders that are not recorded yet.
    if (operations.pending().some(({ kind }) => kind === 'profile/deploy')) return candidates;
    const known = this.#versionNames();
    for (const profile of await folderNames(home.deploys)) {
      if (join(home.deploys, profile) === home.uploads) continue;
      for (const version of await folderNames(join(home.deploys, profile))) {
        if (known.has(`${profile}/${version}`)) continue;
        const path = join(home.deploys, profile, version);
        candidates.push({
          ...(await directory(path, 'deploy', 'left over from a deploy that did not end')),
          remove: async () => {
            // A deploy may have published it since the folders were listed.
            const isPending = operations.pending().some(({ kind }) => kind === 'profile/deploy');
            if (isPending || this.#versionNames().has(`${profile}/${version}`)) return;
            await removeTree(path);
          },
        });
      }
    }
    return candidates;
  }

  /** What the versions that exist have below `deploys/`. */
  #versionNames(): Set<string> {
    return new Set(
      this.#services.profiles
        .listVersions()
        .flatMap(({ profile, version }) => [
          `${profile}/${version}`,
          `${profile}/${version}${GIT_HISTORY_SUFFIX}`,
          `${profile}/${version}${CONFIGURATION_SUFFIX}`,
          `${profile}/${version}${SOURCE_RECORD_SUFFIX}`,
        ]),
    );
  }

  #isPresent(sessionId: string): boolean {
    const { sessions, bundleImports, spares } = this.#services;
    const row = sessions.get(sessionId);
    return row === null
      ? bundleImports.isArriving(sessionId) || spares.has(sessionId)
      : row.status !== 'deleted';
  }

  /** The same, but a session that was created since the listing keeps what it has. */
  #unlessPresent(sessionId: string, { garbage, remove }: Candidate): Candidate {
    return {
      garbage,
      remove: async () => {
        if (!this.#isPresent(sessionId)) await remove?.();
      },
    };
  }

  /** Program files of other builds, if no container runs: containers keep theirs mounted. */
  async #runtimes(observed: readonly ObservedObject[]): Promise<Candidate[]> {
    const { home, engine } = this.#services;
    if (observed.some(({ kind }) => kind === 'container')) return [];
    const current = engine.programsHash();
    const candidates: Candidate[] = [];
    for (const name of await folderNames(home.runtimes)) {
      if (name === current || name.startsWith('.')) continue;
      candidates.push(
        await directory(join(home.runtimes, name), 'runtime', 'program files of another build'),
      );
    }
    return candidates;
  }

  #contents(): Candidate[] {
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

  /** What people keep has a row, and is never garbage. */
  async #promoted(): Promise<Candidate[]> {
    const { home, promotedArtifacts } = this.#services;
    return (await promotedArtifacts.findUnused()).map((name) => ({
      garbage: {
        kind: 'artifact',
        name,
        why: 'left over from an artifact that was not completed, or was removed',
        bytes: null,
      },
      remove: async () => {
        if ((await promotedArtifacts.findUnused()).includes(name))
          await removeTree(join(home.promoted, name));
      },
    }));
  }

  async #artifacts(): Promise<Candidate[]> {
    const { home, contents, now } = this.#services;
    const candidates: Candidate[] = [];
    for (const name of await folderNames(home.artifacts)) {
      if (this.#isPresent(name)) continue;
      const bytes = await sizeOf(join(home.artifacts, name));
      const candidate: Candidate = {
        garbage: { kind: 'artifact', name, why: 'outputs of a session that was deleted', bytes },
        remove: async () => {
          contents.removeFiles(name);
          contents.recordFilesRemoved(name, now());
          await Promise.resolve();
        },
      };
      candidates.push(this.#unlessPresent(name, candidate));
    }
    return candidates;
  }
}

function onlySnapshotsCollected(
  error: unknown,
  collected: readonly Garbage[],
  dryRun: boolean,
): HoldfastError {
  const failure = HoldfastError.from(error);
  const bytes = collected.reduce((sum, one) => sum + (one.bytes ?? 0), 0);
  const would = dryRun ? 'would be' : 'was';
  return new HoldfastError(
    failure.code,
    `Only data that no snapshot needs ${would} removed: ${bytes} bytes`,
    {
      why: `the rest needs the engine: ${failure.sentence}`,
      details: { ...failure.details, bytes },
      cause: error,
    },
  );
}

async function directory(
  path: string,
  kind: 'directory' | 'deploy' | 'runtime',
  why: string,
): Promise<Candidate> {
  return { garbage: { kind, name: path, why, bytes: await sizeOf(path) }, remove: () => removeTree(path) };
}

/** Size of the files directly in a folder; null if it has subfolders. Never walks into files of an agent. */
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
    // Somebody created a file there: then it stays.
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
