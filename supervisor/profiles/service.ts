import { mkdir, realpath, rename } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { z } from 'zod';
import { ProfileSummarySchema, type ProfileSummary } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Profile } from '../../protocol/profile.ts';
import type { Log } from '../daemon/logs.ts';
import type { Engine } from '../engine/port.ts';
import { failpoint } from '../failpoints.ts';
import { Lanes } from '../sessions/lanes.ts';
import type { Database } from '../store/database.ts';
import { type Home, syncDirectory } from '../store/home.ts';
import { hasErrorCode } from '../store/storage-error.ts';
import type { Begun, Operation, Operations } from '../store/operations.ts';
import type { ProfileRow, Profiles } from '../store/profiles.ts';
import { removeTree } from '../store/remove-tree.ts';
import type { SessionRow } from '../store/sessions.ts';
import { type CopiedProject, copyProject } from './copy.ts';
import { requireImage, type TellProgress } from './images.ts';
import { readProfile } from './read.ts';
import { summarize } from './summary.ts';
import { CodeVersions } from './versions.ts';

/** What undeploy needs of the sessions. */
export interface SessionsOfProfiles {
  /** Those not deleted. */
  sessionsOf(profile: string): readonly SessionRow[];
  deleteSession(sessionId: string, options: { readonly force: true }): Promise<void>;
}

export interface ProfileServiceOptions {
  readonly home: Home;
  readonly database: Database;
  readonly profiles: Profiles;
  readonly operations: Operations;
  readonly engine: Engine;
  readonly sessions: SessionsOfProfiles;
  readonly log: Log;
  /** What a profile without `image` runs in. */
  readonly defaultImage: string;
  readonly now: () => number;
}

export interface DeployRequest {
  readonly directory: string;
  readonly opId?: string | undefined;
  readonly tell: TellProgress;
  readonly signal: AbortSignal;
}

const DeployedSchema = z.object({
  profile: ProfileSummarySchema,
  replaced: z.boolean(),
  unchanged: z.boolean(),
});
export type Deployed = z.infer<typeof DeployedSchema>;
const UndeployedSchema = z.object({ sessionsDeleted: z.number().int() });
export type Undeployed = z.infer<typeof UndeployedSchema>;

const DEPLOY = 'profile/deploy';
const UNDEPLOY = 'profile/undeploy';
const DeployDataSchema = z.object({ profile: z.string().optional(), version: z.number().int().optional() });
const UndeployDataSchema = z.object({ profile: z.string(), sessionsDeleted: z.number().int().default(0) });

/** Deployed profiles: their code as numbered, never changing folders, of which one is current. */
export class ProfileService {
  readonly #options: ProfileServiceOptions;
  readonly #lanes = new Lanes();
  readonly versions: CodeVersions;

  constructor(options: ProfileServiceOptions) {
    this.#options = options;
    this.versions = new CodeVersions(options.home, options.engine, options.profiles);
  }

  /** Errors: `not_found`. */
  get(name: string): ProfileRow {
    const row = this.#options.profiles.get(name);
    if (row !== null) return row;
    throw new HoldfastError('not_found', `There is no profile ${name}`, {
      next: 'deploy it with `holdfast deploy DIR`, or see `holdfast profiles`',
    });
  }

  list(): ProfileSummary[] {
    return this.#options.profiles.list().map((row) => this.#summary(row));
  }

  /**
   * Makes the code in a folder the profile's current version; workspaces stay as they are. Same files again: nothing changes.
   * Errors: those of `readProfile`, `copyProject` and `requireImage`, `engine_unavailable`, `conflict`.
   */
  async deploy(request: DeployRequest): Promise<Deployed> {
    const begun = this.#options.operations.begin({
      opId: request.opId,
      kind: DEPLOY,
      sessionId: null,
      data: {},
    });
    if ('replay' in begun) return DeployedSchema.parse(firstAnswer(begun.replay));
    const { operation } = begun;
    return await this.#ended(operation, async () => {
      const directory = await this.#requireOutside(request.directory);
      const profile = await readProfile(directory);
      return await this.#lanes.run(profile.name, () =>
        this.#deployInLane(operation, directory, profile, request),
      );
    });
  }

  /** Deletes the sessions with their workspaces, then profile and code. Errors: `not_found`, `confirmation_required`. */
  async undeploy(
    name: string,
    options: { readonly force: boolean; readonly opId?: string | undefined },
  ): Promise<Undeployed> {
    const { operations } = this.#options;
    if (!options.force) throw this.#askFirst(this.get(name));
    return await this.#lanes.run(name, async () => {
      const begun = operations.begin({
        opId: options.opId,
        kind: UNDEPLOY,
        sessionId: null,
        data: { profile: name },
      });
      if ('replay' in begun) return UndeployedSchema.parse(firstAnswer(begun.replay));
      return await this.#ended(begun.operation, () => this.#undeployInLane(begun.operation));
    });
  }

  /**
   * After a start or when the engine is back: undoes deploys that were cut off, goes on with undeploys. What the engine
   * cannot do now stays for the next call.
   */
  async recover(): Promise<void> {
    for (const operation of this.#options.operations.pending()) {
      try {
        if (operation.kind === DEPLOY) await this.#undoDeploy(operation);
        else if (operation.kind === UNDEPLOY) await this.#resumeUndeploy(operation);
      } catch (error) {
        this.#options.log.warn('an operation of an earlier supervisor waits', {
          operation: operation.kind,
          error,
        });
      }
    }
  }

  /** Settles when no deploy or undeploy is under way. */
  async drained(): Promise<void> {
    await this.#lanes.drained();
  }

  #summary(row: ProfileRow): ProfileSummary {
    return summarize(row, this.#options.sessions.sessionsOf(row.name).length);
  }

  /** The agent writes in the home's workspaces: copying from there, it could swap folders under us for the host's. */
  async #requireOutside(directory: string): Promise<string> {
    const home = await realpath(this.#options.home.root);
    const real = await realpath(directory).catch(() => directory);
    if (real !== home && !real.startsWith(join(home, '/'))) return real;
    throw new HoldfastError('profile_invalid', `${directory} cannot be deployed`, {
      why: 'it lies in the home of this installation, where agents write',
      next: 'copy it to a folder outside and deploy that',
    });
  }

  async #deployInLane(
    operation: Operation,
    directory: string,
    profile: Profile,
    request: DeployRequest,
  ): Promise<Deployed> {
    const { home, engine, profiles, defaultImage, database, operations } = this.#options;
    const { signal, tell } = request;
    await this.#requireEngine(profile);
    const image = profile.image ?? defaultImage;
    await requireImage(engine.images, image, profile.image === undefined, tell, signal);

    const before = profiles.get(profile.name);
    const version = profiles.nextVersion(profile.name);
    const intent = operations.step(operation, 'numbered', { profile: profile.name, version });
    await failpoint('deploy.after-intent');
    try {
      const target = home.deploy(profile.name, version);
      const unfinished = `${target}.tmp`;
      await mkdir(dirname(target), { recursive: true, mode: 0o700 });
      // Left over from a version of that number that never came to be.
      await removeTree(unfinished);
      await removeTree(target);
      tell('copy');
      const copied = await copyProject(directory, unfinished, {
        except: home.root,
        signal,
        progress: (files) => tell('copy', files, undefined, 'files'),
      });
      requireEntry(profile, copied);
      await failpoint('deploy.after-copy');

      const same = before !== null && before.sourceHash === copied.hash && before.image === image;
      if (same) {
        await removeTree(unfinished);
        return this.#record(
          operation,
          { ...before, source: directory, config: profile },
          { replaced: false, unchanged: true },
        );
      }
      signal.throwIfAborted();
      await rename(unfinished, target);
      syncDirectory(dirname(target));
      syncDirectory(home.deploys);
      await engine.publishCode(profile.name, version, target);
      await failpoint('deploy.after-publish');

      const row: ProfileRow = {
        name: profile.name,
        version,
        deployedAt: this.#options.now(),
        source: directory,
        config: profile,
        sourceHash: copied.hash,
        files: copied.files,
        bytes: copied.bytes,
        image,
      };
      await failpoint('deploy.before-row');
      const deployed = database.transaction(() =>
        this.#record(operation, row, { replaced: before !== null, unchanged: false }),
      );
      await this.#removeUnused(profile.name);
      return deployed;
    } catch (error) {
      if (profiles.get(profile.name)?.version !== version) await this.#removeCode(intent, error);
      throw error;
    }
  }

  #record(operation: Operation, row: ProfileRow, how: { replaced: boolean; unchanged: boolean }): Deployed {
    const { database, profiles, operations, log } = this.#options;
    const deployed = database.transaction(() => {
      profiles.upsert(row);
      const answer = { profile: this.#summary(row), ...how };
      operations.finish(operation, answer);
      return answer;
    });
    log.info('deployed', {
      profile: row.name,
      version: row.version,
      files: row.files,
      bytes: row.bytes,
      ...how,
    });
    return deployed;
  }

  async #requireEngine(profile: Profile): Promise<void> {
    const { engine } = this.#options;
    const status = engine.status().reachable ? engine.status() : await engine.probe();
    if (!status.reachable) {
      throw new HoldfastError('engine_unavailable', `The profile ${profile.name} cannot be deployed now`, {
        why: status.why ?? 'the container engine cannot be reached',
        next: status.next ?? 'see `holdfast doctor`',
      });
    }
    const { runtimes, localPaths } = engine.capabilities();
    if (profile.runtime !== 'default' && !runtimes.includes(profile.runtime)) {
      throw new HoldfastError('not_supported', `The profile ${profile.name} cannot be deployed`, {
        why: `the engine has no runtime "${profile.runtime}"; it has ${runtimes.join(', ')}`,
        next: 'set `runtime: default`, or add that runtime to the engine',
        details: { runtimes: [...runtimes] },
      });
    }
    if (profile.workspace?.backing === 'directory' && !localPaths) {
      throw new HoldfastError('not_supported', `The profile ${profile.name} cannot be deployed`, {
        why: "the engine does not see this machine's files, so a directory cannot back a workspace",
        next: 'set `workspace.backing: volume`, or leave it out',
      });
    }
  }

  #askFirst(row: ProfileRow): HoldfastError {
    const sessions = this.#options.sessions.sessionsOf(row.name);
    const names = sessions.slice(0, 5).map(({ name }) => name);
    const more = sessions.length > names.length ? ` and ${sessions.length - names.length} more` : '';
    const what =
      sessions.length === 0
        ? 'its code would be deleted; it has no sessions'
        : `its code and ${sessions.length === 1 ? 'one session' : `${sessions.length} sessions`} with their workspaces would be deleted for good: ${names.join(', ')}${more}`;
    return new HoldfastError('confirmation_required', `The profile ${row.name} was not undeployed`, {
      why: what,
      next: 'repeat with --force to delete them',
      details: { profile: row.name, sessions: sessions.length, names },
    });
  }

  async #undeployInLane(begun: Operation): Promise<Undeployed> {
    const { profiles, sessions, operations, database, log } = this.#options;
    let operation = begun;
    const { profile: name } = UndeployDataSchema.parse(operation.data);
    let { sessionsDeleted } = UndeployDataSchema.parse(operation.data);
    if (operation.step === 'begun') this.get(name);
    await failpoint('undeploy.after-intent');
    for (;;) {
      for (const { id } of sessions.sessionsOf(name)) {
        await sessions.deleteSession(id, { force: true });
        sessionsDeleted += 1;
        operation = operations.step(operation, 'deleting', { sessionsDeleted });
      }
      await failpoint('undeploy.after-sessions');
      const done = database.transaction(() => {
        // One that was created meanwhile goes too; after the row has gone none can be.
        if (sessions.sessionsOf(name).length > 0) return false;
        profiles.remove(name);
        operations.finish(operation, { sessionsDeleted });
        return true;
      });
      if (done) break;
    }
    log.info('undeployed', { profile: name, sessionsDeleted });
    await this.#removeUnused(name);
    return { sessionsDeleted };
  }

  /** Undoing is complete, so the client that asks again with its opId gets a deploy, not the story of a crash. */
  async #undoDeploy(operation: Operation): Promise<void> {
    await this.#removeCode(operation, null);
    this.#options.operations.forget(operation);
  }

  async #resumeUndeploy(operation: Operation): Promise<void> {
    const { profile } = UndeployDataSchema.parse(operation.data);
    await this.#lanes.run(profile, async () => {
      if (this.#options.profiles.get(profile) === null && operation.step === 'begun') {
        this.#options.operations.forget(operation);
        return;
      }
      await this.#undeployInLane(operation);
    });
  }

  /** Takes back what a deploy that did not come to its end has written. Harmless where there is nothing. */
  async #removeCode(operation: Operation, cause: unknown): Promise<void> {
    const { home, engine, log, profiles } = this.#options;
    const { profile, version } = DeployDataSchema.parse(operation.data);
    if (profile === undefined || version === undefined || profiles.get(profile)?.version === version) return;
    try {
      const target = home.deploy(profile, version);
      await removeTree(`${target}.tmp`);
      await engine.removeCode(profile, version);
      await removeTree(target);
    } catch (error) {
      if (cause === null) throw error;
      // The deploy's own failure is what the caller hears; gc finds these leftovers.
      log.warn('code of a failed deploy stays behind', { profile, version, error });
    }
  }

  async #removeUnused(profile: string): Promise<void> {
    for (const version of this.versions.unused(profile)) {
      try {
        await this.versions.remove(version);
      } catch (error) {
        this.#options.log.warn('an old version stays until the next gc', { ...version, error });
      }
    }
  }

  /** Runs the work of an operation and notes a failure. What was only cut off may be asked again under the same opId. */
  async #ended<T>(operation: Operation, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      const failure = asFailure(error);
      if (operation.kind === DEPLOY && isCutOff(failure)) this.#options.operations.forget(operation);
      else if (operation.kind === DEPLOY || failure.code === 'not_found')
        this.#options.operations.fail(operation, failure);
      // An undeploy has begun to delete: it stays on record and goes on when it can.
      throw failure;
    }
  }
}

function firstAnswer(replay: Extract<Begun, { replay: unknown }>['replay']): unknown {
  if ('error' in replay) throw replay.error;
  return replay.result;
}

function isCutOff({ code }: HoldfastError): boolean {
  return (
    code === 'cancelled' ||
    code === 'connection_closed' ||
    code === 'shutting_down' ||
    code === 'engine_unavailable'
  );
}

function asFailure(error: unknown): HoldfastError {
  if (error instanceof Error && error.name === 'AbortError') {
    return new HoldfastError('cancelled', 'The request was cancelled', { cause: error });
  }
  if (hasErrorCode(error, 'ENOSPC') || hasErrorCode(error, 'EDQUOT')) {
    return new HoldfastError('no_space', 'The request could not be finished', {
      why: 'the disk of the home is full',
      next: 'free some space there (`holdfast gc`) and try again',
      cause: error,
    });
  }
  return HoldfastError.from(error);
}

function requireEntry({ agent }: Profile, copied: CopiedProject): void {
  if (agent.protocol !== 'handler' || copied.has(agent.entry)) return;
  throw new HoldfastError('profile_invalid', `The entry ${agent.entry} is not in the project`, {
    why: 'there is no regular file of that name, or an ignore file leaves it out',
    next: 'correct `agent.entry` in holdfast.yaml, or create the file',
    details: { entry: agent.entry },
  });
}
