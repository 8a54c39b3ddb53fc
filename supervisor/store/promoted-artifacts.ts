import { z } from 'zod';
import { type ArtifactFile, ArtifactFileSchema, ArtifactKindSchema } from '../../protocol/artifacts.ts';
import { type Envelope, EnvelopeSchema } from '../../protocol/manifest.ts';
import { count, json, parseRow, time } from './columns.ts';
import type { Database } from './database.ts';

const RowSchema = z.object({
  id: z.string(),
  kind: ArtifactKindSchema,
  name: z.string(),
  createdAt: time,
  sessionId: z.string(),
  sessionName: z.string(),
  profile: z.string(),
  snapshotId: z.string(),
  files: count,
  bytes: count,
  sha256: z.string(),
  leftOut: count,
});
export type PromotedArtifactRow = z.output<typeof RowSchema>;
const ListSchema = z.object({ list: json(z.array(ArtifactFileSchema)) });
const EnvelopeRowSchema = z.object({ envelope: json(EnvelopeSchema) });
const TotalsSchema = z.object({ artifacts: count, bytes: count });
const COLUMNS =
  'id, kind, name, createdAt, sessionId, sessionName, profile, snapshotId, files, bytes, sha256, leftOut';

/** Results that people keep: one row each, whether or not its session still exists. */
export class PromotedArtifactRows {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  insert(row: PromotedArtifactRow, list: readonly ArtifactFile[], envelope: Envelope): void {
    this.#database.run(
      `INSERT INTO promoted_artifacts (${COLUMNS}, list, envelope) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
      ...[row.id, row.kind, row.name, row.createdAt, row.sessionId, row.sessionName, row.profile],
      ...[row.snapshotId, row.files, row.bytes, row.sha256, row.leftOut],
      JSON.stringify(list),
      JSON.stringify(envelope),
    );
  }

  find(id: string): PromotedArtifactRow | null {
    const row = this.#database.get(`SELECT ${COLUMNS} FROM promoted_artifacts WHERE id = ?`, id);
    return row === undefined ? null : parseRow(RowSchema, 'promoted_artifacts', row);
  }

  /** The newest first. */
  list(sessionId: string | null): PromotedArtifactRow[] {
    return this.#database
      .all(
        `SELECT ${COLUMNS} FROM promoted_artifacts WHERE ?1 IS NULL OR sessionId = ?1 ORDER BY ordinal DESC`,
        sessionId,
      )
      .map((row) => parseRow(RowSchema, 'promoted_artifacts', row));
  }

  /** Its files, in the order of their contents. */
  filesOf(id: string): ArtifactFile[] {
    const row = this.#database.get('SELECT list FROM promoted_artifacts WHERE id = ?', id);
    return row === undefined ? [] : parseRow(ListSchema, 'promoted_artifacts', row).list;
  }

  envelopeOf(id: string): Envelope | null {
    const row = this.#database.get('SELECT envelope FROM promoted_artifacts WHERE id = ?', id);
    return row === undefined ? null : parseRow(EnvelopeRowSchema, 'promoted_artifacts', row).envelope;
  }

  totals(): { readonly artifacts: number; readonly bytes: number } {
    const row = this.#database.get(
      'SELECT count(*) AS artifacts, coalesce(sum(bytes), 0) AS bytes FROM promoted_artifacts',
    );
    return parseRow(TotalsSchema, 'promoted_artifacts', row);
  }

  /** False if it was not there. */
  remove(id: string): boolean {
    return this.#database.run('DELETE FROM promoted_artifacts WHERE id = ?', id) > 0;
  }
}
