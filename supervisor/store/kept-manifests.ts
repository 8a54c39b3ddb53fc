import { z } from 'zod';
import { count, parseRow, time } from './columns.ts';
import type { Database } from './database.ts';

const RowSchema = z.object({
  id: z.string(),
  reason: z.enum(['snapshot', 'resume']),
  /** The snapshot that it was made for. */
  snapshotId: z.string().nullable(),
  madeAt: time,
});
export type KeptManifestRow = z.output<typeof RowSchema>;
const SizeSchema = z.object({ ordinal: count, bytes: count });
const EnvelopeSchema = z.object({ envelope: z.string() });

/** What is kept of one session; the oldest go. */
const MAX_KEPT = 50;
const MAX_CHARACTERS = 4 * 2 ** 20;

/** Signed manifests that nobody asked for: one for each resume and each snapshot, as far as they are kept. */
export class KeptManifestRows {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  insert(sessionId: string, { id, reason, snapshotId, madeAt }: KeptManifestRow, envelope: string): void {
    this.#database.transaction(() => {
      // It was made behind what caused it: the session may be deleted by now.
      this.#database.run(
        `INSERT INTO kept_manifests (id, sessionId, reason, snapshotId, madeAt, envelope)
         SELECT ?1, id, ?3, ?4, ?5, ?6 FROM sessions WHERE id = ?2 AND status <> 'deleted'`,
        id,
        sessionId,
        reason,
        snapshotId,
        madeAt,
        envelope,
      );
      let characters = 0;
      const sizes = this.#database
        .all(
          'SELECT ordinal, length(envelope) AS bytes FROM kept_manifests WHERE sessionId = ? ORDER BY ordinal DESC',
          sessionId,
        )
        .map((row) => parseRow(SizeSchema, 'kept_manifests', row));
      const firstToGo = sizes.find(({ bytes }, at) => {
        characters += bytes;
        return at > 0 && (at >= MAX_KEPT || characters > MAX_CHARACTERS);
      });
      if (firstToGo === undefined) return;
      this.#database.run(
        'DELETE FROM kept_manifests WHERE sessionId = ? AND ordinal <= ?',
        sessionId,
        firstToGo.ordinal,
      );
    });
  }

  /** The newest first. */
  listOf(sessionId: string): KeptManifestRow[] {
    return this.#database
      .all(
        'SELECT id, reason, snapshotId, madeAt FROM kept_manifests WHERE sessionId = ? ORDER BY ordinal DESC',
        sessionId,
      )
      .map((row) => parseRow(RowSchema, 'kept_manifests', row));
  }

  /** The JSON of its envelope. */
  find(sessionId: string, id: string): string | null {
    const row = this.#database.get(
      'SELECT envelope FROM kept_manifests WHERE sessionId = ? AND id = ?',
      sessionId,
      id,
    );
    return row === undefined ? null : parseRow(EnvelopeSchema, 'kept_manifests', row).envelope;
  }

  /** The session was deleted. */
  removeOfSession(sessionId: string): void {
    this.#database.run('DELETE FROM kept_manifests WHERE sessionId = ?', sessionId);
  }
}
