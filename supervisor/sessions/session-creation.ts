import { HoldfastError } from '../../protocol/errors.ts';
import type { Log } from '../base/log.ts';
import type { Engine } from '../engine/port.ts';
import { failpoint } from '../base/failpoints.ts';
import type { EventLog } from '../history/event-log.ts';
import type { Database } from '../store/database.ts';
import type { EgressRules } from '../store/egress-rules.ts';
import type { Operations } from '../store/operations.ts';
import type { ProfileRow, Profiles } from '../store/profiles.ts';
import type { SessionRow, Sessions } from '../store/sessions.ts';
import type { NewSessionRows } from './new-session-rows.ts';
import type { Spares } from './spares.ts';
import type { RestoreIntents } from '../snapshots/restore-intents.ts';
import type { SnapshotRow } from '../store/snapshots.ts';
import type { Seeding } from '../workspace/seeding.ts';
import type { SessionRecords } from '../history/session-records.ts';
import { workspaceSpec } from '../sandboxes/sandbox-spec.ts';

export interface SessionCreationOptions {
  readonly database: Database;
  readonly sessions: Sessions;
  readonly records: SessionRecords;
  readonly profiles: Profiles;
  readonly operations: Operations;
  readonly egressRules: Pick<EgressRules, 'copyDenials'>;
  readonly events: EventLog;
  readonly engine: Engine;
  readonly seeding: Pick<Seeding, 'recordIntent'>;
  readonly restoreIntents: Pick<RestoreIntents, 'recordHydration'>;
  readonly rows: NewSessionRows;
  readonly spares: Pick<Spares, 'find' | 'take'>;
  readonly log: Log;
}

/** What a new session is, beyond its profile. */
export interface NewSession {
  /** The session's id if left out. */
  readonly name?: string | undefined;
  /** Made for a single turn, and deleted after it. */
  readonly throwaway: boolean;
  /** The snapshot that its workspace begins with, instead of the project. Hosts that its session is denied stay denied. */
  readonly from?: SnapshotRow | undefined;
}

/** The part of the row of a session that begins with the files of a snapshot. */
export function beganWith({ id, lineage }: SnapshotRow, began: 'fork' | 'snapshot') {
  return { lineage, origin: id, began } as const;
}

/** Creates sessions. The row, the first event and the intent to fill the workspace are one transaction. */
export class SessionCreation {
  readonly #options: SessionCreationOptions;

  constructor(options: SessionCreationOptions) {
    this.#options = options;
  }

  /** A repeated `opId` returns the same session. Errors: `not_found`, `conflict` for a name that is in use. */
  async create(
    profileName: string,
    { name, from }: Pick<NewSession, 'name' | 'from'>,
    opId?: string,
  ): Promise<SessionRow> {
    const { profiles, operations, records } = this.#options;
    const profile = profiles.getOrThrow(profileName);
    const { result, replayed } = operations.runOnce(opId, 'session.create', () => ({
      sessionId: this.insert(profile, { name, throwaway: false, from }).id,
    }));
    const row = records.peek(result.sessionId);
    if (row === null) throw new HoldfastError('not_found', `There is no session ${result.sessionId}`);
    if (!replayed) await this.createWorkspace(row);
    return row;
  }

  /** Part of the caller's transaction. */
  insert(profile: ProfileRow, { name, throwaway, from }: NewSession): SessionRow {
    const { database, sessions, records, egressRules, events, seeding, restoreIntents } = this.#options;
    const { rows, spares } = this.#options;
    return database.transaction(() => {
      const spare = from === undefined ? spares.find(profile) : null;
      const created =
        spare === null ? this.row(profile, { name, throwaway }) : rows.adopt(spare.row, name, throwaway);
      const row = from === undefined ? created : { ...created, ...beganWith(from, 'snapshot') };
      sessions.insert(row);
      if (spare !== null) spares.take(spare);
      if (from === undefined) seeding.recordIntent(row.id, profile.config, spare?.filled);
      else {
        restoreIntents.recordHydration(row.id, from);
        egressRules.copyDenials(from.sessionId, row.id);
      }
      const { persistent, backing, uid, gid } = row;
      events.append(row.id, [
        {
          type: 'session.created',
          data: { name: row.name, profile: profile.name, persistent, throwaway, backing, uid, gid },
        },
      ]);
      return records.get(row.id);
    });
  }

  /** The row of a new session. Insert it in the same transaction, because its uid is not reserved. */
  row(profile: ProfileRow, { name, throwaway }: NewSession): SessionRow {
    return this.#options.rows.create(profile, name, throwaway);
  }

  /** Creates the workspace of a stored session. Without the engine, the first dispatch creates it. */
  async createWorkspace(row: SessionRow): Promise<void> {
    await failpoint('create.after-row');
    await this.#options.engine.createWorkspace(workspaceSpec(row)).catch((error: unknown) => {
      this.#options.log.info('the workspace is created later', {
        session: row.id,
        why: HoldfastError.from(error).sentence,
      });
    });
    await failpoint('create.after-workspace');
  }
}
