import { z } from 'zod';
import { HoldfastError } from '../../protocol/errors.ts';
import { typesThat } from '../../protocol/event-facts.ts';
import type { Log } from '../base/log.ts';
import { count, parseRow } from '../store/columns.ts';
import type { Database } from '../store/database.ts';
import type { Sessions } from '../store/sessions.ts';
import type { Contents } from './contents.ts';
import type { EventLog } from './event-log.ts';

const DAY_MS = 86_400_000;
/** They say where a session came from and how it ended. */
const KEPT = typesThat('outlivesContents');
/**
 * As long as the last snapshot of a deleted session is kept: until then a fork can bring the session back with its
 * history.
 */
const GRACE_PERIOD_MS = 7 * DAY_MS;

export interface DeletedSessionsOptions {
  readonly database: Database;
  readonly sessions: Pick<Sessions, 'all' | 'update'>;
  readonly events: Pick<EventLog, 'append'>;
  readonly contents: Pick<Contents, 'removeAll'>;
  readonly log: Log;
  /** ms since 1970. */
  readonly now: () => number;
}

/** A deleted session whose contents can be removed, and their approximate size. */
export interface RemovableContents {
  readonly sessionId: string;
  readonly bytes: number;
}

/**
 * Removes the contents of sessions that were deleted over a week ago: inputs, outputs, artifacts and the data of
 * events. The row, the figures of turns and the hashes of events stay as a record that the session existed.
 */
export class DeletedSessionContents {
  readonly #options: DeletedSessionsOptions;
  #dailyTimer: NodeJS.Timeout | null = null;

  constructor(options: DeletedSessionsOptions) {
    this.#options = options;
  }

  /** Removes due contents now and once a day. */
  start(): void {
    this.#dailyTimer = setInterval(() => this.removeAll(), DAY_MS).unref();
    this.removeAll();
  }

  close(): void {
    if (this.#dailyTimer !== null) clearInterval(this.#dailyTimer);
  }

  /**
   * Sessions whose contents are due for removal. A session that still has a snapshot is not, because forks copy its
   * history.
   */
  findRemovable(): RemovableContents[] {
    const { database, sessions, now } = this.#options;
    const expired = sessions
      .all(['deleted'])
      .filter(({ deletedAt }) => deletedAt !== null && now() - deletedAt > GRACE_PERIOD_MS);
    return expired.flatMap(({ id }) => {
      const newest = database.get(
        'SELECT type FROM events WHERE sessionId = ? ORDER BY seq DESC LIMIT 1',
        id,
      );
      const isDone = parseRow(LastSchema.optional(), 'events', newest)?.type === 'session.contents-removed';
      if (isDone || database.get('SELECT 1 FROM snapshots WHERE sessionId = ? LIMIT 1', id) !== undefined)
        return [];
      const row = database.get(
        `SELECT coalesce((SELECT sum(length(inline)) FROM contents WHERE sessionId = ?1), 0)
           + coalesce((SELECT sum(length(data)) FROM events WHERE sessionId = ?1), 0) AS bytes`,
        id,
      );
      return [{ sessionId: id, bytes: parseRow(BytesSchema, 'events', row).bytes }];
    });
  }

  /** Removes all due contents. After a crash the next run continues. Failures are logged. */
  removeAll(): void {
    try {
      for (const { sessionId } of this.findRemovable()) this.remove(sessionId);
    } catch (error) {
      this.#options.log.warn('the contents of deleted sessions could not be removed', {
        why: HoldfastError.from(error).sentence,
      });
    }
  }

  remove(sessionId: string): void {
    const { database, sessions, events, contents, now } = this.#options;
    database.transaction(() => {
      const turns = 'SELECT id FROM turns WHERE sessionId = ?';
      contents.removeAll(sessionId, now());
      database.run(`DELETE FROM turn_pieces WHERE turnId IN (${turns})`, sessionId);
      database.run(`DELETE FROM turn_paths WHERE turnId IN (${turns})`, sessionId);
      database.run(
        `UPDATE turns SET output = NULL, outputArtifact = 0, error = NULL, changes = NULL,
           stdoutBytes = 0, stderrBytes = 0, resultBytes = 0
         WHERE sessionId = ?`,
        sessionId,
      );
      database.run('DELETE FROM terminals WHERE sessionId = ?', sessionId);
      // The hashes stay, so that the order of events can still be verified.
      database.run(
        `UPDATE events SET data = '{}' WHERE sessionId = ?
         AND type NOT IN (${KEPT.map(() => '?').join(', ')})`,
        sessionId,
        ...KEPT,
      );
      // The state at a checkpoint has names and errors. Its hash stays in what was signed.
      database.run('UPDATE history_checkpoints SET state = NULL WHERE sessionId = ?', sessionId);
      sessions.update(sessionId, { about: null, tags: [], model: null });
      events.append(sessionId, [{ type: 'session.contents-removed', data: {} }]);
    });
  }
}

const LastSchema = z.object({ type: z.string() });
const BytesSchema = z.object({ bytes: count });
