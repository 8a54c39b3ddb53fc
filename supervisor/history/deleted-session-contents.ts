import { z } from 'zod';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Log } from '../base/log.ts';
import { count, parseRow } from '../store/columns.ts';
import type { Database } from '../store/database.ts';
import type { Sessions } from '../store/sessions.ts';
import type { Artifacts } from './artifacts.ts';
import type { EventLog } from './event-log.ts';

const DAY_MS = 86_400_000;
/** As long as the last snapshot of a deleted session stays: until then it can come back as a fork, with its history. */
const GRACE_MS = 7 * DAY_MS;

export interface DeletedSessionsOptions {
  readonly database: Database;
  readonly sessions: Pick<Sessions, 'all' | 'update'>;
  readonly events: Pick<EventLog, 'append'>;
  readonly artifacts: Pick<Artifacts, 'remove'>;
  readonly log: Log;
  /** ms since 1970. */
  readonly now: () => number;
}

/** What goes of a deleted session: about so many bytes. */
export interface RemovableContents {
  readonly sessionId: string;
  readonly bytes: number;
}

/**
 * Removes what a session that was deleted over a week ago had said and been told: inputs, outputs, artifacts, and what its events hold.
 * Its row, the figures of its turns and the hashes of its events stay: they tell that it was there, and when.
 */
export class DeletedSessionContents {
  readonly #options: DeletedSessionsOptions;
  #tick: NodeJS.Timeout | null = null;

  constructor(options: DeletedSessionsOptions) {
    this.#options = options;
  }

  /** Now and once a day. */
  start(): void {
    this.#tick = setInterval(() => this.removeAll(), DAY_MS).unref();
    this.removeAll();
  }

  close(): void {
    if (this.#tick !== null) clearInterval(this.#tick);
  }

  /** Sessions whose contents are there and not needed any more. One with a snapshot that is still there keeps them: forks copy its history. */
  findRemovable(): RemovableContents[] {
    const { database, sessions, now } = this.#options;
    const old = sessions
      .all(['deleted'])
      .filter(({ deletedAt }) => deletedAt !== null && now() - deletedAt > GRACE_MS);
    return old.flatMap(({ id }) => {
      const last = database.get('SELECT type FROM events WHERE sessionId = ? ORDER BY seq DESC LIMIT 1', id);
      const isDone = parseRow(LastSchema.optional(), 'events', last)?.type === 'session.contents-removed';
      if (isDone || database.get('SELECT 1 FROM snapshots WHERE sessionId = ? LIMIT 1', id) !== undefined)
        return [];
      const row = database.get(
        `SELECT coalesce((SELECT sum(inputBytes) FROM turns WHERE sessionId = ?1), 0)
           + coalesce((SELECT sum(length(data)) FROM events WHERE sessionId = ?1), 0) AS bytes`,
        id,
      );
      return [{ sessionId: id, bytes: parseRow(BytesSchema, 'events', row).bytes }];
    });
  }

  /** Killed in the middle, the rest goes the next time. What fails is logged and left. */
  removeAll(): void {
    try {
      for (const { sessionId } of this.findRemovable()) this.remove(sessionId);
    } catch (error) {
      this.#options.log.warn('contents of deleted sessions stay', {
        why: HoldfastError.from(error).sentence,
      });
    }
  }

  remove(sessionId: string): void {
    const { database, sessions, events, artifacts } = this.#options;
    artifacts.remove(sessionId);
    database.transaction(() => {
      const turns = 'SELECT id FROM turns WHERE sessionId = ?';
      database.run(`UPDATE turn_inputs SET bytes = x'' WHERE turnId IN (${turns})`, sessionId);
      database.run(`DELETE FROM turn_pieces WHERE turnId IN (${turns})`, sessionId);
      database.run(`DELETE FROM turn_streams WHERE turnId IN (${turns})`, sessionId);
      database.run(
        `UPDATE turns SET output = NULL, outputArtifact = 0, error = NULL, stdoutBytes = 0, stderrBytes = 0, resultBytes = 0
         WHERE sessionId = ?`,
        sessionId,
      );
      database.run('DELETE FROM terminals WHERE sessionId = ?', sessionId);
      // Hashes stay, so that the order of what was said can still be followed.
      database.run(
        "UPDATE events SET data = '{}' WHERE sessionId = ? AND type NOT IN ('session.created', 'session.forked', 'session.status', 'session.deleted')",
        sessionId,
      );
      sessions.update(sessionId, { about: null, tags: [], model: null });
      events.append(sessionId, [{ type: 'session.contents-removed', data: {} }]);
    });
  }
}

const LastSchema = z.object({ type: z.string() });
const BytesSchema = z.object({ bytes: count });
