import type { Session } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Envelope } from '../../protocol/manifest.ts';
import type { Arrival, MovePredicate, MoveStep } from '../../protocol/moves.ts';
import { failpoint } from '../base/failpoints.ts';
import type { Bundles } from '../bundles/bundles.ts';
import type { HostKey } from '../manifests/host-key.ts';
import type { Removal } from '../sessions/removal.ts';
import type { Hydration } from '../snapshots/hydration.ts';
import type { Database } from '../store/database.ts';
import type { Home } from '../store/home.ts';
import type { MoveRows, TargetMove } from '../store/moves.ts';
import type { Profiles } from '../store/profiles.ts';
import type { SessionRow, Sessions } from '../store/sessions.ts';
import { isSameMove, keyIdOfPem, readStep, refused, signStep } from './move-statements.ts';

export interface ArrivalsOptions {
  readonly home: Pick<Home, 'id'>;
  readonly key: () => HostKey;
  readonly database: Pick<Database, 'transaction'>;
  readonly rows: MoveRows;
  readonly sessions: Pick<Sessions, 'get' | 'getByName' | 'changed'>;
  readonly profiles: Pick<Profiles, 'getOrThrow'>;
  readonly bundles: Pick<Bundles, 'beginImport'>;
  readonly removal: Pick<Removal, 'deleteSession'>;
  readonly hydration: Pick<Hydration, 'start'>;
  readonly view: (row: SessionRow) => Session;
  /** A session can be used from here on. */
  readonly onActive: (sessionId: string) => void;
  /** ms since 1970. */
  readonly now: () => number;
}

/** A session on its way here, as the client says; the offer is what its home signed. */
export interface ArrivalRequest {
  readonly offer: Envelope;
  /** Of the home that offers it, in PEM. */
  readonly publicKey: string;
  readonly profile: string;
  readonly name: string;
}

/** Moves to this home: a session arrives complete and held, and lives once its source has signed that it let go of it. */
export class Arrivals {
  readonly #options: ArrivalsOptions;

  constructor(options: ArrivalsOptions) {
    this.#options = options;
  }

  /** How far the move is here. If nothing is: errors as `begin`. */
  status(request: ArrivalRequest): Arrival {
    const offered = this.#readOffer(request);
    const row = this.#options.rows.target(offered.move);
    if (row === null) {
      this.#requireFreeName(request);
      return { state: 'unknown', session: null, acceptance: null, activation: null };
    }
    this.#requireSameSource(row, offered, request.publicKey);
    return this.#view(row);
  }

  /** Begins an import. Errors: `not_found` for the profile, `already_exists` for the name or the move, `permission_denied` for the offer. */
  async begin(request: ArrivalRequest & { readonly from: string }, owner: object): Promise<string> {
    const { bundles, rows, now } = this.#options;
    const offered = this.#readOffer(request);
    const { move, from } = offered;
    const requireNew = (): void => {
      if (rows.target(move) === null) return;
      throw new HoldfastError('already_exists', 'The session has arrived already', {
        next: 'repeat `holdfast session move`',
      });
    };
    requireNew();
    this.#requireFreeName(request);
    const { profile, name, publicKey, offer } = request;
    return await bundles.beginImport({ profile, name, key: keyIdOfPem(publicKey) }, owner, {
      // Its row, its files and that it is held are one transaction.
      onInsert: ({ row, bundle }, sha256) => {
        requireNew();
        if (bundle.home !== from.home || bundle.session.session.id !== from.session)
          throw refused('offer', 'the bundle is of another session');
        rows.insert({
          ...{ role: 'target', id: move, sessionId: row.id, state: 'arriving' },
          ...{ profile: row.profile, name: row.name },
          ...{ peerHome: from.home, peerName: request.from, peerKey: publicKey, peerSession: from.session },
          ...{ snapshotId: null, bundles: [sha256], offer, proof: null, createdAt: now(), updatedAt: now() },
        });
      },
    });
  }

  /** Lets the session live. Errors: `permission_denied` for a receipt that is none, `conflict` if it was discarded. */
  async activate(id: string, receipt: Envelope): Promise<Arrival> {
    const { database, rows, sessions, hydration, onActive, now } = this.#options;
    const { row, isNew } = database.transaction(() => {
      const before = this.#get(id);
      const released = readStep(receipt, before.peerKey, 'receipt');
      const isMine =
        isSameMove(released, this.#offered(before)) &&
        released.to.session === before.sessionId &&
        released.bundle === before.bundles[0];
      if (!isMine) throw refused('receipt', 'it is of another move');
      // A receipt that comes again finds the session as it is by now, or gone.
      if (before.state === 'active') return { row: before, isNew: false };
      // With a proof it was withdrawn, and is being deleted.
      if (before.state === 'discarded' || before.proof !== null) throw discarded(before);
      rows.update(before, { state: 'active', proof: receipt }, now());
      return { row: this.#get(id), isNew: true };
    });
    if (isNew) {
      sessions.changed.emit(row.sessionId);
      hydration.start(row.sessionId);
      onActive(row.sessionId);
    }
    await failpoint('move.after-activate');
    return this.#view(row);
  }

  /** The source keeps the session: deletes what arrived. Errors: `permission_denied` for a withdrawal that is none, `conflict` if it lives here. */
  async discard(id: string, withdrawal: Envelope): Promise<boolean> {
    const { rows, removal, sessions, now } = this.#options;
    const row = rows.target(id);
    if (row === null) return false;
    if (!isSameMove(readStep(withdrawal, row.peerKey, 'withdrawal'), this.#offered(row)))
      throw refused('withdrawal', 'it is of another move');
    if (row.state === 'active') {
      throw new HoldfastError('conflict', `Session ${row.name} is not removed`, {
        why: `${row.peerName} has released it, and it is used here`,
      });
    }
    const session = sessions.get(row.sessionId);
    if (session === null || session.status === 'deleted') {
      rows.update(row, { state: 'discarded' }, now());
      return false;
    }
    // It is held until its deletion is complete, which calls `handleDeleted`: the source uses the session already.
    rows.update(row, { proof: withdrawal }, now());
    await removal.deleteSession(row.sessionId, `it stays on ${row.peerName}`);
    return true;
  }

  /** A session that had not come to life was deleted: discarded, or by a person. Part of the deletion's transaction. */
  handleDeleted(sessionId: string): void {
    const { rows, now } = this.#options;
    const row = rows.holding(sessionId);
    if (row?.state === 'arriving') rows.update(row, { state: 'discarded' }, now());
  }

  #readOffer({ offer, publicKey }: ArrivalRequest): MovePredicate {
    const { home, key, rows } = this.#options;
    const offered = readStep(offer, publicKey, 'offer');
    // What has arrived was checked; the key may have been replaced since.
    const isKnown = rows.target(offered.move) !== null;
    if (offered.to.home !== home.id || (!isKnown && offered.to.key !== key().keyId))
      throw refused('offer', 'it is for another host');
    if (offered.from.home === home.id) throw refused('offer', 'it is of this host itself');
    return offered;
  }

  #requireFreeName({ profile, name }: ArrivalRequest): void {
    const { profiles, sessions } = this.#options;
    profiles.getOrThrow(profile);
    const other = sessions.getByName(profile, name);
    if (other === null) return;
    throw new HoldfastError(
      'already_exists',
      `The profile ${profile} already has a session named ${JSON.stringify(name)} there`,
      { why: `it is ${other.id}`, next: 'choose another name with --name', details: { session: other.id } },
    );
  }

  #requireSameSource(row: TargetMove, offered: MovePredicate, publicKey: string): void {
    if (!isSameMove(offered, this.#offered(row)) || keyIdOfPem(publicKey) !== keyIdOfPem(row.peerKey))
      throw refused('offer', 'another host has a move of the same id');
  }

  #offered(row: TargetMove): MovePredicate {
    return readStep(row.offer, row.peerKey, 'offer');
  }

  #get(id: string): TargetMove {
    const row = this.#options.rows.target(id);
    if (row !== null) return row;
    throw new HoldfastError('not_found', `The move ${id} has not arrived here`, {
      next: 'repeat `holdfast session move`',
    });
  }

  #view(row: TargetMove): Arrival {
    const found = this.#options.sessions.get(row.sessionId);
    const session = found === null || found.status === 'deleted' ? null : this.#options.view(found);
    return {
      state: row.state,
      session,
      acceptance:
        row.state === 'arriving' && row.proof === null && session !== null
          ? this.#sign('acceptance', row)
          : null,
      activation: row.state === 'active' ? this.#sign('activation', row) : null,
    };
  }

  #sign(step: MoveStep, row: TargetMove): Envelope {
    const { move, from, to } = this.#offered(row);
    return signStep(
      {
        ...{ step, move, from, at: this.#options.now() },
        to: { ...to, session: row.sessionId },
        bundle: row.bundles[0] ?? null,
      },
      this.#options.key(),
    );
  }
}

function discarded({ name, peerName }: TargetMove): HoldfastError {
  return new HoldfastError('conflict', `Session ${name} cannot be used here`, {
    why: 'the copy of it was deleted here',
    next: `create a session from its last snapshot on ${peerName} with \`holdfast snapshot fork\``,
  });
}
