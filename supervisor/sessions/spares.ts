import { z } from 'zod';
import { HoldfastError } from '../../protocol/errors.ts';
import type { BackgroundWork } from '../base/background-work.ts';
import { failpoint } from '../base/failpoints.ts';
import type { Log } from '../base/log.ts';
import type { Engine } from '../engine/port.ts';
import { sandboxSpec, sidecarOnlySpec, workspaceSpec } from '../sandboxes/sandbox-spec.ts';
import type { SidecarConnections } from '../sandboxes/sidecar-connections.ts';
import type { Database } from '../store/database.ts';
import type { Operation, Operations } from '../store/operations.ts';
import type { ProfileRow, Profiles } from '../store/profiles.ts';
import { type SessionRow, SPARE } from '../store/sessions.ts';
import type { FilledAhead, Seeding } from '../workspace/seeding.ts';
import type { SidecarClient } from '../workspace/sidecar-client.ts';
import type { NewSessionRows } from './new-session-rows.ts';

/** A session that has just started has the machine to itself that long. */
const MAKE_AFTER_MS = 1000;
/** A spare that no session took costs the memory of a sidecar and the disk of a workspace. */
const KEPT_MS = 10 * 60_000;
const MAX_SPARES = 2;
/** Of a workspace and a HOME together: a larger one is filled when its session starts. */
const MAX_BYTES = 2 ** 30;

/** What an intent needs to know for the removal. */
const IntentSchema = z.object({
  profile: z.string(),
  uid: z.int(),
  gid: z.int(),
  backing: z.enum(['directory', 'volume']),
});
type Place = Pick<SessionRow, 'id' | 'profile' | 'uid' | 'gid' | 'backing'>;

/** What the next session of a profile begins with: its id and uid, its filled workspace and HOME, and its sidecar, which runs. */
export interface Spare {
  readonly operation: Operation;
  readonly row: SessionRow;
  readonly filled: FilledAhead;
}

export interface SparesOptions {
  readonly database: Pick<Database, 'transaction' | 'afterCommit'>;
  readonly operations: Operations;
  readonly profiles: Pick<Profiles, 'get'>;
  readonly engine: Pick<
    Engine,
    'createWorkspace' | 'startSidecar' | 'removeSandbox' | 'deleteWorkspace' | 'status'
  >;
  readonly seeding: Pick<Seeding, 'fillAhead'>;
  readonly sidecars: Pick<SidecarConnections, 'acquireLease'>;
  readonly rows: Pick<NewSessionRows, 'create'>;
  readonly connect: (
    sandboxId: string,
  ) => Promise<Pick<SidecarClient, 'clearWorkspace' | 'clearHome' | 'close'>>;
  /** Whether a setup made the profile's image. */
  readonly isPrepared: (profile: ProfileRow) => boolean;
  /** Of what the profile's setup left in the workspace and in HOME. */
  readonly templateBytes: (profile: ProfileRow) => number;
  readonly background: Pick<BackgroundWork, 'add'>;
  readonly log: Log;
}

/**
 * Makes ahead what the next session of a prepared profile needs, so that it starts as fast as one container: at most one spare for each
 * profile whose session was started in the last ten minutes, and at most two in all. A spare is never one session's after another's: no
 * agent has run in it, it is filled from the setup alone, and a session takes it with its id and uid for good. The intent is stored
 * before anything of it exists, and ends in the transaction that creates the session; the next supervisor removes what is left.
 */
export class Spares {
  readonly #options: SparesOptions;
  /** Intents by the id of the spare: those being made or removed too. */
  readonly #places = new Map<string, Place>();
  /** The oldest first. */
  readonly #ready = new Map<string, Spare>();
  readonly #timers = new Map<string, NodeJS.Timeout>();
  readonly #soon = new Map<string, NodeJS.Timeout>();
  #last: Promise<void> = Promise.resolve();
  #isClosed = false;

  constructor(options: SparesOptions) {
    this.#options = options;
    for (const operation of options.operations.pending()) {
      const place = placeOf(operation);
      if (place !== null) this.#places.set(place.id, place);
    }
  }

  /** Whether the id is that of a spare: it has a workspace and a sidecar, and no session. */
  has(id: string): boolean {
    return this.#places.has(id);
  }

  /** Removes what an earlier supervisor, or an engine that went away, left. Errors: those of the engine; the next call tries again. */
  recover(): Promise<void> {
    return this.#inTurn(() => this.#removeLeft());
  }

  /** A session of the profile was started: there may soon be another. */
  makeSoon(profile: string): void {
    if (this.#isClosed || this.#soon.has(profile)) return;
    const timer = setTimeout(() => {
      this.#soon.delete(profile);
      this.#options.background.add(this.#inTurn(() => this.#make(profile)));
    }, MAKE_AFTER_MS);
    this.#soon.set(profile, timer.unref());
  }

  /** The spare of this version of the profile; null without one. */
  find({ name, version, image }: ProfileRow): Spare | null {
    if (this.#isClosed) return null;
    for (const spare of this.#ready.values()) {
      const { row, filled, operation } = spare;
      if (row.profile !== name || filled.version !== version || filled.image !== image) continue;
      // Another session took it, or takes it in a transaction that has not ended.
      if (this.#options.operations.isPending(operation)) return spare;
    }
    return null;
  }

  /** A session has its id now. Part of the caller's transaction. */
  take({ operation, row }: Spare): void {
    const { database, operations, sidecars } = this.#options;
    operations.finish(operation, {});
    database.afterCommit(() => {
      this.#forget(row.id);
      this.#places.delete(row.id);
      // It counts as used from now on.
      sidecars.acquireLease(row.id)();
    });
  }

  /** Removes the spare of a profile that has another version or image now, or is gone. */
  removeOutdated(profile: string): void {
    const now = this.#options.profiles.get(profile);
    for (const { row, filled, operation } of this.#ready.values()) {
      if (row.profile !== profile) continue;
      if (filled.version !== now?.version || filled.image !== now.image) this.#removeSoon(operation);
    }
  }

  /** Removes all. What cannot be removed now is removed by the next supervisor. */
  async close(): Promise<void> {
    this.#isClosed = true;
    for (const timer of [...this.#soon.values(), ...this.#timers.values()]) clearTimeout(timer);
    await this.#inTurn(async () => {
      // One that cannot be removed keeps none of the others.
      await Promise.allSettled(this.#pending().map((one) => this.#remove(one)));
    });
  }

  async #make(name: string): Promise<void> {
    const profile = this.#options.profiles.get(name);
    if (this.#isClosed || profile === null || !this.#isWorthwhile(profile)) return;
    const current = this.find(profile);
    if (current !== null) {
      this.#removeLater(current.operation);
      return;
    }
    // What could not be removed takes memory and disk too: until it is gone, no other is made.
    await this.#removeLeft();
    const oldest = [...this.#ready.values()][0];
    if (oldest !== undefined && this.#ready.size >= MAX_SPARES) await this.#remove(oldest.operation);
    const { operation, row } = this.#begin(profile);
    try {
      const filled = await this.#fill(row, profile);
      this.#ready.set(row.id, { operation, row, filled });
      this.#removeLater(operation);
      this.removeOutdated(name);
    } catch (error) {
      this.#options.log.info('no session was made ahead', {
        profile: name,
        why: HoldfastError.from(error).sentence,
      });
      await this.#remove(operation);
    }
  }

  #isWorthwhile(profile: ProfileRow): boolean {
    const { engine, isPrepared, templateBytes } = this.#options;
    return engine.status().reachable && isPrepared(profile) && templateBytes(profile) <= MAX_BYTES;
  }

  #begin(profile: ProfileRow): { operation: Operation; row: SessionRow } {
    const { database, operations, rows } = this.#options;
    return database.transaction(() => {
      const row = rows.create(profile, undefined, false);
      const { id: sessionId, uid, gid, backing } = row;
      const data = { profile: profile.name, uid, gid, backing };
      const begun = operations.begin({ kind: SPARE, sessionId, data });
      if ('replay' in begun) throw new HoldfastError('internal', 'An intent without a key was repeated');
      database.afterCommit(() => this.#places.set(row.id, row));
      return { operation: begun.operation, row };
    });
  }

  async #fill(row: SessionRow, profile: ProfileRow): Promise<FilledAhead> {
    const { engine, seeding } = this.#options;
    await engine.createWorkspace(workspaceSpec(row));
    await engine.startSidecar(sandboxSpec(row, profile.config, profile.image, profile.version));
    await failpoint('spare.after-sidecar');
    const filled = await seeding.fillAhead(row, profile);
    await failpoint('spare.after-files');
    return filled;
  }

  #removeLater(operation: Operation): void {
    const id = operation.sessionId ?? '';
    clearTimeout(this.#timers.get(id));
    this.#timers.set(id, setTimeout(() => this.#removeSoon(operation), KEPT_MS).unref());
  }

  #removeSoon(operation: Operation): void {
    this.#options.background.add(
      this.#inTurn(async () => {
        if (this.#options.operations.isPending(operation)) await this.#remove(operation);
      }),
    );
  }

  #pending(): Operation[] {
    return this.#options.operations.pending().filter(({ kind }) => kind === SPARE);
  }

  /** Removes what is neither ready nor being made: an earlier removal of it failed. Only in turn. */
  async #removeLeft(): Promise<void> {
    for (const operation of this.#pending())
      if (!this.#ready.has(operation.sessionId ?? '')) await this.#remove(operation);
  }

  /** Only a sidecar opens what a setup wrote. */
  async #remove(operation: Operation): Promise<void> {
    const { engine, connect, operations } = this.#options;
    const place = placeOf(operation);
    if (place === null) return;
    this.#forget(place.id);
    await engine.createWorkspace(workspaceSpec(place));
    await engine.startSidecar(sidecarOnlySpec(place));
    const sidecar = await connect(place.id);
    try {
      await sidecar.clearWorkspace();
      await sidecar.clearHome();
    } finally {
      sidecar.close();
    }
    await engine.removeSandbox(place.id, 0);
    await engine.deleteWorkspace(workspaceSpec(place));
    operations.finish(operation, {});
    this.#places.delete(place.id);
  }

  #forget(id: string): void {
    this.#ready.delete(id);
    clearTimeout(this.#timers.get(id));
    this.#timers.delete(id);
  }

  /** One at a time: a spare costs the engine as much as a session. */
  #inTurn(act: () => Promise<void>): Promise<void> {
    const mine = this.#last.then(act);
    this.#last = mine.catch(() => undefined);
    return mine;
  }
}

function placeOf({ kind, sessionId, data }: Operation): Place | null {
  return kind === SPARE && sessionId !== null ? { id: sessionId, ...IntentSchema.parse(data) } : null;
}
