import { z } from 'zod';
import { HoldfastError } from '../../protocol/errors.ts';
import { failpoint } from '../failpoints.ts';
import type { Lanes } from '../sessions/lanes.ts';
import { type Operation, resultOf } from '../store/operations.ts';
import type { ProfileRow } from '../store/profiles.ts';
import { asFailure, type ProfileServiceOptions } from './requests.ts';
import type { CodeVersions } from './versions.ts';

export const UNDEPLOY = 'profile/undeploy';

const UndeployedSchema = z.object({ sessionsDeleted: z.number().int() });
export type Undeployed = z.infer<typeof UndeployedSchema>;

const DataSchema = z.object({ profile: z.string(), sessionsDeleted: z.number().int().default(0) });

/** Deletes a profile with all that hangs on it. Once begun it is finished, by the next supervisor if need be. */
export class Undeploys {
  readonly #options: ProfileServiceOptions;
  readonly #lanes: Lanes;
  readonly #versions: CodeVersions;
  readonly #running = new Set<number>();

  constructor(options: ProfileServiceOptions, lanes: Lanes, versions: CodeVersions) {
    this.#options = options;
    this.#lanes = lanes;
    this.#versions = versions;
  }

  /** Deleting was confirmed. Errors: `not_found`. */
  async run(name: string, opId: string | undefined): Promise<Undeployed> {
    const { operations } = this.#options;
    const begun = operations.begin({ opId, kind: UNDEPLOY, sessionId: null, data: { profile: name } });
    if ('replay' in begun) return UndeployedSchema.parse(resultOf(begun.replay));
    if (this.#options.profiles.get(name) === null) {
      const missing = new HoldfastError('not_found', `There is no profile ${name}`, {
        next: 'see `holdfast profiles`',
      });
      operations.fail(begun.operation, missing);
      throw missing;
    }
    return await this.#guarded(begun.operation);
  }

  async resume(operation: Operation): Promise<void> {
    if (!this.#running.has(operation.id)) await this.#guarded(operation);
  }

  /** What the person is asked before anything is deleted. */
  question(row: ProfileRow): HoldfastError {
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

  /** A failure leaves the operation on record: it has begun to delete, and goes on when it can. */
  async #guarded(operation: Operation): Promise<Undeployed> {
    const { profile } = DataSchema.parse(operation.data);
    this.#running.add(operation.id);
    try {
      return await this.#lanes.run(profile, () => this.#inLane(operation));
    } catch (error) {
      throw asFailure(error);
    } finally {
      this.#running.delete(operation.id);
    }
  }

  async #inLane(begun: Operation): Promise<Undeployed> {
    const { profiles, policies, sessions, operations, database, log } = this.#options;
    let operation = begun;
    const { profile: name } = DataSchema.parse(operation.data);
    let { sessionsDeleted } = DataSchema.parse(operation.data);
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
        policies.forgetProfile(name);
        operations.finish(operation, { sessionsDeleted });
        return true;
      });
      if (done) break;
    }
    log.info('undeployed', { profile: name, sessionsDeleted });
    await this.#versions.removeUnused(name);
    return { sessionsDeleted };
  }
}
