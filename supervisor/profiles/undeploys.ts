import { z } from 'zod';
import { HoldfastError } from '../../protocol/errors.ts';
import { failpoint } from '../base/failpoints.ts';
import type { KeyedMutex } from '../base/keyed-mutex.ts';
import { type Operation, replayResult } from '../store/operations.ts';
import type { ProfileRow } from '../store/profiles.ts';
import { type ProfileServiceOptions, RunningOperations } from './requests.ts';
import type { CodeVersions } from './versions.ts';

export const UNDEPLOY = 'profile/undeploy';

const UndeployedSchema = z.object({ sessionsDeleted: z.number().int() });
export type Undeployed = z.infer<typeof UndeployedSchema>;

const DataSchema = z.object({
  profile: z.string(),
  /** The incarnation to delete. Earlier versions of Holdfast did not store it. */
  incarnation: z.int().optional(),
  sessionsDeleted: z.number().int().default(0),
});

/** The error of an interrupted undeploy that will not be finished. */
export function redeployedError(profile: string): HoldfastError {
  return new HoldfastError('interrupted', `The undeploy of ${profile} was not completed`, {
    why: 'the profile was deployed again meanwhile',
    next: `run \`holdfast undeploy ${profile}\` to delete the current deployment`,
  });
}

/**
 * Deletes a profile, its sessions and its code. After a crash the next supervisor finishes the undeploy, unless the
 * profile was deployed again. A failed undeploy has been reported and is not resumed: a retry begins with what is
 * left.
 */
export class Undeploys {
  readonly #options: ProfileServiceOptions;
  readonly #lanes: KeyedMutex;
  readonly #versions: CodeVersions;
  readonly #running: RunningOperations;

  constructor(options: ProfileServiceOptions, lanes: KeyedMutex, versions: CodeVersions) {
    this.#options = options;
    this.#lanes = lanes;
    this.#versions = versions;
    this.#running = new RunningOperations(options.operations);
  }

  /** Runs after the confirmation. Errors: `not_found`. */
  async run(name: string, opId: string | undefined): Promise<Undeployed> {
    const { operations, profiles, reserve } = this.#options;
    const incarnation = profiles.get(name)?.incarnation;
    const data = { profile: name, ...(incarnation === undefined ? {} : { incarnation }) };
    const begun = reserve.retryOnFullDisk(() =>
      operations.begin({ opId, kind: UNDEPLOY, sessionId: null, data }),
    );
    if ('replay' in begun) return UndeployedSchema.parse(replayResult(begun.replay));
    const { operation } = begun;
    return await this.#running.run(operation, async () => {
      if (incarnation === undefined) {
        throw new HoldfastError('not_found', `There is no profile ${name}`, {
          next: 'see `holdfast profiles`',
        });
      }
      return await this.#lanes.run(name, async () => {
        // A deploy that ran before it may have cancelled it: nothing may be deleted then.
        if (!operations.isPending(operation)) throw redeployedError(name);
        return this.#inLane(operation, incarnation);
      });
    });
  }

  /** Continues after a crash. An unreachable engine leaves the operation pending. */
  async resume(operation: Operation): Promise<void> {
    if (this.#running.has(operation)) return;
    const { operations } = this.#options;
    const { profile, incarnation } = DataSchema.parse(operation.data);
    const finish = async (): Promise<void> => {
      // A deploy that ran before it may have cancelled it.
      if (!operations.isPending(operation)) return;
      if (incarnation === undefined) throw unknownIncarnation(profile);
      await this.#inLane(operation, incarnation);
    };
    await this.#running.run(operation, () => this.#lanes.run(profile, finish), true);
  }

  /** The question to confirm before anything is deleted. */
  confirmationError(row: ProfileRow): HoldfastError {
    const sessions = this.#options.sessions.sessionsOf(row.name);
    const names = sessions.slice(0, 5).map(({ name }) => name);
    const more = sessions.length > names.length ? ` and ${sessions.length - names.length} more` : '';
    const many =
      sessions.length === 1
        ? 'one session with its workspace'
        : `${sessions.length} sessions with their workspaces`;
    return new HoldfastError('confirmation_required', `The profile ${row.name} was not undeployed`, {
      why:
        sessions.length === 0
          ? 'its code would be deleted; it has no sessions'
          : `its code and ${many} would be deleted for good: ${names.join(', ')}${more}`,
      next: 'repeat with --force to delete them',
      details: { profile: row.name, sessions: sessions.length, names },
    });
  }

  async #inLane(begun: Operation, incarnation: number): Promise<Undeployed> {
    const { profiles, forgetProfile, sessions, operations, database, reserve, log } = this.#options;
    let operation = begun;
    const { profile: name } = DataSchema.parse(operation.data);
    let { sessionsDeleted } = DataSchema.parse(operation.data);
    const row = profiles.get(name);
    if (row === null) {
      // Another undeploy finished while this one waited.
      reserve.retryOnFullDisk(() => operations.finish(operation, { sessionsDeleted }));
      return { sessionsDeleted };
    }
    // A new deployment shares only the name with the one to delete.
    if (row.incarnation !== incarnation) throw redeployedError(name);
    await failpoint('undeploy.after-intent');
    for (;;) {
      for (const { id } of sessions.sessionsOf(name)) {
        await sessions.deleteSession(id, { force: true });
        sessionsDeleted += 1;
        const step = { sessionsDeleted };
        operation = reserve.retryOnFullDisk(() => operations.recordStep(operation, 'deleting', step));
      }
      await failpoint('undeploy.after-sessions');
      const finish = (): boolean => {
        // A session that was created meanwhile is deleted too; without the row none can be created.
        if (sessions.sessionsOf(name).length > 0) return false;
        profiles.remove(name);
        forgetProfile(name);
        operations.finish(operation, { sessionsDeleted });
        return true;
      };
      if (reserve.retryOnFullDisk(() => database.transaction(finish))) break;
    }
    log.info('undeployed', { profile: name, sessionsDeleted });
    await this.#versions.removeUnused(name);
    return { sessionsDeleted };
  }
}

function unknownIncarnation(profile: string): HoldfastError {
  return new HoldfastError('interrupted', `The undeploy of ${profile} was not completed`, {
    why: 'an earlier version of Holdfast began it and did not record which deployment to delete',
    next: `run \`holdfast undeploy ${profile}\` again`,
  });
}
