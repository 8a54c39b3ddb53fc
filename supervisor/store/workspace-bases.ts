import { z } from 'zod';
import { ProjectOriginSchema } from '../../protocol/deploy.ts';
import { RootHashSchema } from '../../snapshot-format/sidecar-calls.ts';
import { json, parseRow, time } from './columns.ts';
import type { Database } from './database.ts';

const WorkspaceBaseRowSchema = z.object({
  sessionId: z.string(),
  /** The lineage whose store has its objects. */
  lineage: z.string(),
  /** Hash of the root tree, hexadecimal. */
  root: RootHashSchema,
  seededAt: time,
  codeVersion: z.int().positive(),
  origin: json(ProjectOriginSchema.nullable()),
  /** The folder of the project that was copied, with a slash at the end; empty for the whole project. */
  folder: z.string(),
});
export type WorkspaceBaseRow = z.output<typeof WorkspaceBaseRowSchema>;

/** What the workspace of each session held when the project had been copied into it, before the agent's first process. */
export class WorkspaceBases {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  /** All objects that the root refers to must be durable in the store. Replaces the session's earlier base. */
  put(row: WorkspaceBaseRow): void {
    this.#database.run(
      `INSERT INTO workspace_bases (sessionId, lineage, root, seededAt, codeVersion, origin, folder)
       VALUES (?, ?, ?, ?, ?, ?, ?)
       ON CONFLICT (sessionId) DO UPDATE SET lineage = excluded.lineage, root = excluded.root,
         seededAt = excluded.seededAt, codeVersion = excluded.codeVersion, origin = excluded.origin,
         folder = excluded.folder`,
      row.sessionId,
      row.lineage,
      row.root,
      row.seededAt,
      row.codeVersion,
      JSON.stringify(row.origin),
      row.folder,
    );
  }

  get(sessionId: string): WorkspaceBaseRow | null {
    const row = this.#database.get('SELECT * FROM workspace_bases WHERE sessionId = ?', sessionId);
    return row === undefined ? null : parseRow(WorkspaceBaseRowSchema, 'workspace_bases', row);
  }

  /** Bases of a session and its forks. */
  listByLineage(lineage: string): WorkspaceBaseRow[] {
    return this.#database
      .all('SELECT * FROM workspace_bases WHERE lineage = ?', lineage)
      .map((row) => parseRow(WorkspaceBaseRowSchema, 'workspace_bases', row));
  }

  remove(sessionId: string): void {
    this.#database.run('DELETE FROM workspace_bases WHERE sessionId = ?', sessionId);
  }
}
