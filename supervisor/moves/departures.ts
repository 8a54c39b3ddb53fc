import { HoldfastError } from '../../protocol/errors.ts';
import type { Envelope } from '../../protocol/manifest.ts';
import type { MovePlace } from '../../protocol/move-state.ts';
import type { Departure, MovePredicate, MoveStep } from '../../protocol/moves.ts';
import { failpoint } from '../base/failpoints.ts';
import type { Ids } from '../base/ids.ts';
import { isoTime } from '../base/iso-time.ts';
import type { Log } from '../base/log.ts';
import type { Bundles } from '../bundles/bundles.ts';
import type { HostKey } from '../manifests/host-key.ts';
import type { ActiveWork } from '../sandboxes/active-work.ts';
import type { Removal } from '../sessions/removal.ts';
import type { SessionGate } from '../sessions/session-gate.ts';
import type { SessionService } from '../sessions/session-service.ts';
import type { SnapshotService } from '../snapshots/snapshot-service.ts';
import type { Database } from '../store/database.ts';
import type { Home } from '../store/home.ts';
import type { MoveRows, SourceMove } from '../store/moves.ts';
import type { PermissionRows } from '../store/permissions.ts';
import type { SessionRow, Sessions } from '../store/sessions.ts';
import type { Turns } from '../store/turns.ts';
import { isSameMove, keyIdOfPem, readOwnStep, readStep, refused, signStep } from './move-statements.ts';

export interface DeparturesOptions {
  readonly home: Pick<Home, 'id'>;
  readonly key: () => HostKey;
  readonly database: Pick<Database, 'transaction'>;
  readonly rows: MoveRows;
  readonly gate: Pick<SessionGate, 'close'>;
  readonly sessions: Pick<Sessions, 'get' | 'changed'>;
  readonly sessionService: Pick<SessionService, 'find' | 'stop'>;
  readonly turns: Pick<Turns, 'countQueued'>;
  readonly permissionRows: Pick<PermissionRows, 'countWaitingOf'>;
  readonly activeWork: Pick<ActiveWork, 'requireIdle'>;
  readonly snapshotService: Pick<SnapshotService, 'create' | 'find'>;
  readonly bundles: Pick<Bundles, 'exportHeld'>;
  readonly removal: Pick<Removal, 'deleteSession'>;
  readonly ids: Ids;
  /** ms since 1970. */
  readonly now: () => number;
  readonly log: Log;
}

/** The home that a session goes to. */
export interface Destination extends MovePlace {
  /** PEM. */
  readonly publicKey: string;
}

/**
 * Moves away from this home. A session is held by one row, from `begin` on; `release` and `abort` change that row once, so that exactly
 * one of the two homes may use the session, whoever is killed when.
 */
export class Departures {
  readonly #options: DeparturesOptions;
  /** Sessions that are being stopped for a move: a client whose connection broke asks again. */
  readonly #beginning = new Map<string, Promise<Departure>>();

  constructor(options: DeparturesOptions) {
    this.#options = options;
  }

  /** Errors: `conflict`, `not_supported`, `not_found`; those of a snapshot. */
  async begin(reference: string, to: Destination): Promise<Departure> {
    const known = this.#known(reference, to);
    if (known !== null) return known;
    const { sessionService, home } = this.#options;
    const session = sessionService.find(reference);
    const { id, name } = session;
    if (to.home === home.id)
      throw new HoldfastError('invalid_params', `Session ${name} is not moved`, {
        why: `${to.name} is the host that it is on`,
      });
    this.#requireMovable(session);
    const running = this.#beginning.get(`${id} ${to.home}`);
    if (running !== undefined) return await running;
    const beginning = this.#begin(session, to);
    this.#beginning.set(`${id} ${to.home}`, beginning);
    try {
      return await beginning;
    } finally {
      this.#beginning.delete(`${id} ${to.home}`);
    }
  }

  async #begin(session: SessionRow, to: Destination): Promise<Departure> {
    const { sessionService, gate, snapshotService } = this.#options;
    const { id, name } = session;
    this.#requireIdle(session);
    const open = await gate.close(id, name);
    try {
      this.#requireIdle(session);
      // Processes that a turn has left go with the sandbox; nothing writes files from here on.
      await sessionService.stop(session, false);
      const { row: snapshot } = await snapshotService.create(session, {
        label: `before the move to ${to.name}`.slice(0, 100),
      });
      const row = this.#hold(session, snapshot.id, to);
      await failpoint('move.after-hold');
      return this.#view(row);
    } finally {
      open();
    }
  }

  /** Begins an export of the held session. The caller reads it as any other. Errors: `conflict` once it was released. */
  async export(id: string, owner: object): Promise<string> {
    const { bundles, snapshotService, sessionService, rows, now } = this.#options;
    const row = this.#get(id);
    if (row.state !== 'leaving') throw this.#wrongState(row);
    const session = sessionService.find(row.sessionId);
    const snapshot = snapshotService.find(row.snapshotId);
    return await bundles.exportHeld(session, snapshot, owner, (sha256) => {
      const current = rows.source(id);
      if (current !== null) rows.addBundle(current, sha256, now());
    });
  }

  /** Lets go of the session. Errors: `permission_denied` for an acceptance that is none, `conflict` if the move was given up. */
  async release(id: string, acceptance: Envelope): Promise<Departure> {
    const { database, rows, sessions, now } = this.#options;
    const row = database.transaction(() => {
      const before = this.#get(id);
      const accepted = readStep(acceptance, before.peerKey, 'acceptance');
      const offered = this.#offered(before);
      if (!isSameMove(accepted, offered) || accepted.to.session === null || accepted.bundle === null)
        throw refused('acceptance', 'it is of another move');
      if (before.state === 'released' || before.state === 'finished') return before;
      if (before.state !== 'leaving') throw this.#wrongState(before);
      if (sessions.get(before.sessionId)?.status === 'deleted') throw this.#wrongState(before);
      if (!before.bundles.includes(accepted.bundle))
        throw refused('acceptance', 'it is of a bundle that was not made here');
      const receipt = this.#sign('receipt', { ...offered, to: accepted.to, bundle: accepted.bundle });
      rows.update(before, { state: 'released', peerSession: accepted.to.session, proof: receipt }, now());
      return this.#get(id);
    });
    sessions.changed.emit(row.sessionId);
    await failpoint('move.after-release');
    return this.#view(row);
  }

  /** The session lives at the target: deletes what is left of it here. May fail without the engine; the next supervisor goes on. */
  async finish(id: string, activation: Envelope): Promise<Departure> {
    const { rows, removal, sessions, now } = this.#options;
    const row = this.#get(id);
    // Nothing is left, and nothing has to be proved.
    if (sessions.get(row.sessionId)?.status === 'deleted') return this.#view(row);
    const activated = readStep(activation, row.peerKey, 'activation');
    if (!isSameMove(activated, this.#offered(row)) || activated.to.session !== row.peerSession)
      throw refused('activation', 'it is of another move');
    if (row.state !== 'released' && row.state !== 'finished') throw this.#wrongState(row);
    rows.update(row, { state: 'finished' }, now());
    await failpoint('move.after-finish');
    await removal.deleteSession(row.sessionId, `moved to ${row.peerName}`);
    return this.#view(this.#get(id));
  }

  /** Gives the session back. Errors: `conflict` once it was released, `not_found` if it is not moving. */
  async abort(reference: string): Promise<{ move: string; to: MovePlace; withdrawal: Envelope }> {
    const { sessionService, rows, database, sessions, now } = this.#options;
    const left = rows.findLeft(reference);
    const row = database.transaction(() => {
      const sessionId =
        left !== null && left.sessionId === reference ? reference : sessionService.find(reference).id;
      const before = rows.newestFrom(sessionId);
      if (before === null)
        throw new HoldfastError('not_found', `Session ${reference} is not moving`, {
          next: 'see `holdfast session list`',
        });
      if (before.state === 'withdrawn') return before;
      if (before.state !== 'leaving') throw this.#wrongState(before);
      const withdrawal = this.#sign('withdrawal', this.#offered(before));
      rows.update(before, { state: 'withdrawn', proof: withdrawal }, now());
      return this.#get(before.id);
    });
    sessions.changed.emit(row.sessionId);
    await failpoint('move.after-withdrawal');
    const { id: move, proof, peerHome, peerName } = row;
    if (proof === null) throw this.#wrongState(row);
    return { move, to: { home: peerHome, name: peerName }, withdrawal: proof };
  }

  /** Deletes sessions whose move has ended, where an earlier supervisor did not come to that. */
  async recover(): Promise<void> {
    const { rows, removal, log } = this.#options;
    for (const { sessionId, peerName } of rows.finished()) {
      try {
        await removal.deleteSession(sessionId, `moved to ${peerName}`);
      } catch (error) {
        log.warn('what is left of a moved session could not be deleted', {
          session: sessionId,
          why: HoldfastError.from(error).sentence,
        });
      }
    }
  }

  /** A session that was deleted by force can no longer leave. Part of the deletion's transaction. */
  handleDeleted(sessionId: string): void {
    const { rows, now } = this.#options;
    const row = rows.newestFrom(sessionId);
    if (row?.state !== 'leaving') return;
    rows.update(row, { state: 'withdrawn', proof: this.#sign('withdrawal', this.#offered(row)) }, now());
  }

  /** The move of the session that has begun already, if there is one. Errors: `conflict` for one to another target. */
  #known(reference: string, to: Destination): Departure | null {
    const { rows, sessionService } = this.#options;
    let row: SourceMove | null;
    try {
      const held = rows.holding(sessionService.find(reference).id);
      row = held?.role === 'source' ? held : null;
    } catch (error) {
      const isGone = error instanceof HoldfastError && error.code === 'not_found';
      row = isGone ? rows.findLeft(reference) : null;
      if (row === null) throw error;
    }
    if (row === null) return null;
    // What was let go of can live only there: a key that was replaced since keeps nobody from it.
    const isSameKey = row.state !== 'leaving' || keyIdOfPem(row.peerKey) === keyIdOfPem(to.publicKey);
    if (row.peerHome === to.home && isSameKey) return this.#view(row);
    if (row.state !== 'leaving') throw this.#wrongState(row);
    throw new HoldfastError('conflict', `Session ${row.name} is not moved to ${to.name}`, {
      why: `it is moving to ${row.peerName}`,
      next: `finish that, or cancel it with \`holdfast session move ${row.sessionId} --abort\``,
    });
  }

  #requireIdle(session: SessionRow): void {
    const { activeWork, turns, permissionRows } = this.#options;
    const { id, name } = session;
    const waiting = permissionRows.countWaitingOf(id);
    const queued = turns.countQueued(id);
    if (waiting > 0)
      throw new HoldfastError('conflict', `Session ${name} is not moved`, {
        why:
          waiting === 1 ? 'its agent waits for a permission' : `its agent waits for ${waiting} permissions`,
        next: `answer (see \`holdfast permission list ${id}\`), and repeat the command with --wait`,
        details: { live: waiting },
      });
    activeWork.requireIdle(session, 'moved', '--wait');
    if (queued === 0) return;
    throw new HoldfastError('conflict', `Session ${name} is not moved`, {
      why: 'a turn waits in its queue',
      next: 'wait, cancel the turn, or repeat the command with --wait',
      details: { live: queued },
    });
  }

  #requireMovable({ name, persistent, throwaway }: SessionRow): void {
    if (persistent && !throwaway) return;
    throw new HoldfastError('not_supported', `Session ${name} is not moved`, {
      why: 'its workspace does not outlive its sandbox',
      next: 'take its files along with `holdfast snapshot export`',
    });
  }

  /** From here on nothing can use the session. */
  #hold(session: SessionRow, snapshotId: string, to: Destination): SourceMove {
    const { database, rows, sessions, ids, home, now } = this.#options;
    const id = ids.next('mov');
    const offer = this.#sign('offer', {
      move: id,
      from: { home: home.id, session: session.id },
      to: { home: to.home, key: keyIdOfPem(to.publicKey), session: null },
      bundle: null,
    });
    database.transaction(() => {
      rows.insert({
        ...{ role: 'source', id, sessionId: session.id, state: 'leaving' },
        ...{ profile: session.profile, name: session.name },
        ...{ peerHome: to.home, peerName: to.name, peerKey: to.publicKey, peerSession: null },
        ...{ snapshotId, bundles: [], offer, proof: null, createdAt: now(), updatedAt: now() },
      });
    });
    sessions.changed.emit(session.id);
    return this.#get(id);
  }

  #sign(step: MoveStep, facts: Omit<MovePredicate, 'step' | 'at'>): Envelope {
    return signStep({ ...facts, step, at: this.#options.now() }, this.#options.key());
  }

  /** What this home offered. */
  #offered(row: SourceMove): MovePredicate {
    return readOwnStep(row.offer, 'offer');
  }

  #get(id: string): SourceMove {
    const row = this.#options.rows.source(id);
    if (row !== null) return row;
    throw new HoldfastError('not_found', `There is no move ${id}`, {
      next: 'repeat `holdfast session move`',
    });
  }

  #wrongState({ state, name, sessionId, peerName, peerSession }: SourceMove): HoldfastError {
    if (state === 'released' || state === 'finished')
      return new HoldfastError('conflict', `Session ${name} is not here any more`, {
        why: `it has moved to ${peerName}, where it is ${peerSession ?? 'another session'}`,
        next: `move it back from there, or repeat \`holdfast session move ${sessionId}\` if that was interrupted`,
      });
    return new HoldfastError('conflict', `Session ${name} is not moved`, {
      why: 'the move was cancelled',
      next: 'begin again with `holdfast session move`',
    });
  }

  #view(row: SourceMove): Departure {
    const { id: move, sessionId, name, profile, state, createdAt, peerHome, peerName, offer, proof } = row;
    if (state === 'withdrawn') throw this.#wrongState(row);
    return {
      ...{ move, sessionId, name, profile, state, since: isoTime(createdAt), offer },
      to: { home: peerHome, name: peerName },
      publicKey: this.#options.key().publicKey,
      receipt: state === 'leaving' ? null : proof,
    };
  }
}
