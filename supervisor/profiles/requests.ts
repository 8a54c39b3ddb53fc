import { HoldfastError } from '../../protocol/errors.ts';
import type { KeyedMutex } from '../base/keyed-mutex.ts';
import type { Database } from '../store/database.ts';
import type { Home } from '../store/home.ts';
import type { Operation, Operations } from '../store/operations.ts';
import type { Profiles } from '../store/profiles.ts';
import type { DiskReserve } from '../store/reserve.ts';
import { hasErrorCode } from '../store/storage-error.ts';
import type { SessionRow } from '../store/sessions.ts';
import type { Log } from '../base/log.ts';
import type { Engine } from '../engine/port.ts';
import type { Setups } from '../setup/setups.ts';
import type { SecretScope } from './secret-destinations.ts';
import type { FillWorkspace } from './setup-seed.ts';

/** The part of the sessions that deploy and undeploy use. */
export interface ProfileSessions {
  /** Sessions of the profile that are not deleted. */
  sessionsOf(profile: string): readonly SessionRow[];
  /** Deletes a session with its workspace and waits for the end. A session that is gone already is fine. */
  deleteSession(sessionId: string, options: { readonly force: true }): Promise<void>;
}

export interface ProfileServiceOptions {
  readonly home: Home;
  readonly database: Database;
  readonly profiles: Profiles;
  readonly operations: Operations;
  readonly engine: Engine;
  readonly sessions: ProfileSessions;
  /** One deploy, setup or undeploy of a profile at a time. */
  readonly mutex: KeyedMutex;
  /** Forgets what people added to a profile, with its undeploy; in the same transaction. */
  readonly forgetProfile: (profile: string) => void;
  /** For whom the secret is that the profile gets by this name; null: there is none that can be used. */
  readonly secretScope: (profile: string, name: string) => SecretScope | null;
  /** An undeploy frees space, so its writes must succeed on a full disk. */
  readonly reserve: Pick<DiskReserve, 'retryOnFullDisk'>;
  /** Prepares the image of a profile with a setup. */
  readonly setups: Pick<Setups, 'ensureImage' | 'runAgain' | 'recover' | 'prune'>;
  readonly fillWorkspace: FillWorkspace;
  readonly log: Log;
  /** The image of profiles without `image`. */
  readonly defaultImage: string;
  readonly now: () => number;
}

/** The request was interrupted from outside, not refused: a retry may succeed. */
export function isInterruption({ code }: HoldfastError): boolean {
  return ['cancelled', 'connection_closed', 'shutting_down', 'engine_unavailable'].includes(code);
}

/**
 * Ends an operation whose failure the caller is about to get, so that nobody resumes it. An interrupted one is
 * deleted: the same opId may be used again.
 */
function recordFailure(operations: Operations, operation: Operation, failure: HoldfastError): void {
  try {
    if (isInterruption(failure)) operations.forget(operation);
    else operations.fail(operation, failure);
  } catch {
    operations.abandon(operation, failure);
  }
}

/** The operations of one kind that this process runs: any other that is stored was left by a process that is gone. */
export class RunningOperations {
  readonly #operations: Operations;
  readonly #ids = new Set<number>();

  constructor(operations: Operations) {
    this.#operations = operations;
  }

  has({ id }: Operation): boolean {
    return this.#ids.has(id);
  }

  /**
   * Does the work of an operation. Errors: those of `toFailure`, which end the operation. `isResumed`: nobody asked for it now, so
   * that an interrupted one stays for the next process.
   */
  async run<T>(operation: Operation, work: () => Promise<T>, isResumed = false): Promise<T> {
    this.#ids.add(operation.id);
    try {
      return await work();
    } catch (error) {
      const failure = toFailure(error);
      if (!isResumed || !isInterruption(failure)) recordFailure(this.#operations, operation, failure);
      throw failure;
    } finally {
      this.#ids.delete(operation.id);
    }
  }
}

export function toFailure(error: unknown): HoldfastError {
  if (error instanceof Error && error.name === 'AbortError') {
    return new HoldfastError('cancelled', 'The request was cancelled', { cause: error });
  }
  if (hasErrorCode(error, 'ENOSPC') || hasErrorCode(error, 'EDQUOT')) {
    return new HoldfastError('no_space', 'The request could not be completed', {
      why: 'the disk of the home is full',
      next: 'free some space there (`holdfast gc`) and try again',
      cause: error,
    });
  }
  return HoldfastError.from(error);
}
