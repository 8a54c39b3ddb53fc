import { z } from 'zod';
import { ErrorDataSchema } from '../../protocol/error-data.ts';
import type { HoldfastError } from '../../protocol/errors.ts';
import { SETUP_STATES } from '../../protocol/setup.ts';
import { RootHashSchema } from '../../snapshot-format/sidecar-calls.ts';
import { count, flag, json, parseRow, time, toColumn, toJson } from './columns.ts';
import type { Database } from './database.ts';

const TemplateTreeSchema = z.object({
  root: RootHashSchema,
  files: count,
  directories: count,
  bytes: count,
});
const SetupTemplateSchema = z.object({
  workspace: TemplateTreeSchema,
  home: TemplateTreeSchema,
  /** HOME without what the profile keeps from sandbox to sandbox. */
  rest: RootHashSchema,
});
/** What new sessions begin with. */
export type SetupTemplate = z.output<typeof SetupTemplateSchema>;

const SetupRowSchema = z.object({
  id: z.string(),
  profile: z.string(),
  /** Equal keys make equal images. */
  key: z.string(),
  state: z.enum(SETUP_STATES),
  step: z.string(),
  /** Of the sidecar that it gets its network from. */
  backing: z.enum(['directory', 'volume']),
  uid: z.int(),
  gid: z.int(),
  baseImage: z.string(),
  /** It runs commands in a workspace. */
  hasCommands: flag,
  /** Name and id of the prepared image; null unless `done`. */
  image: z.string().nullable(),
  imageId: z.string().nullable(),
  bytes: count.nullable(),
  /** Null unless `done`, and without commands. */
  template: json(SetupTemplateSchema).nullable(),
  error: json(z.object({ message: z.string(), data: ErrorDataSchema })).nullable(),
  startedAt: time,
  endedAt: time.nullable(),
});
export type SetupRow = z.output<typeof SetupRowSchema>;

export type NewSetupRow = Omit<
  SetupRow,
  'state' | 'step' | 'image' | 'imageId' | 'bytes' | 'template' | 'error' | 'endedAt'
>;

export interface FinishedSetupFields {
  readonly image: string;
  readonly imageId: string;
  readonly bytes: number;
  readonly template: SetupTemplate | null;
}

/** Setups. A row that is `running` is the intent: it is stored before anything of the setup exists. */
export class SetupRows {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  begin(row: NewSetupRow): void {
    this.#database.run(
      `INSERT INTO setups (id, profile, key, state, step, backing, uid, gid, hasCommands, baseImage, startedAt)
       VALUES (?, ?, ?, 'running', 'start', ?, ?, ?, ?, ?, ?)`,
      row.id,
      row.profile,
      row.key,
      row.backing,
      row.uid,
      row.gid,
      toColumn(row.hasCommands),
      row.baseImage,
      row.startedAt,
    );
  }

  recordStep(id: string, step: string): void {
    this.#database.run("UPDATE setups SET step = ? WHERE id = ? AND state = 'running'", step, id);
  }

  /** `alongside` runs in the same transaction. */
  finish(
    id: string,
    at: number,
    { image, imageId, bytes, template }: FinishedSetupFields,
    alongside?: () => void,
  ): void {
    this.#database.transaction(() => {
      this.#database.run(
        "UPDATE setups SET state = 'done', image = ?, imageId = ?, bytes = ?, template = ?, endedAt = ? WHERE id = ? AND state = 'running'",
        image,
        imageId,
        bytes,
        template === null ? null : toJson(template),
        at,
        id,
      );
      alongside?.();
    });
  }

  fail(id: string, at: number, failure: HoldfastError): void {
    this.#database.run(
      "UPDATE setups SET state = ?, error = ?, endedAt = ? WHERE id = ? AND state = 'running'",
      failure.code === 'cancelled' ? 'cancelled' : 'failed',
      toJson({ message: failure.message, data: failure.toData() }),
      at,
      id,
    );
  }

  /** Its image is gone. */
  markRemoved(id: string): void {
    this.#database.run(
      "UPDATE setups SET state = 'removed', image = NULL, imageId = NULL, template = NULL WHERE id = ? AND state = 'done'",
      id,
    );
  }

  /** The newest setup with this key whose image is there, as far as is known. */
  findDone(key: string): SetupRow | null {
    const row = this.#database.get(
      "SELECT * FROM setups WHERE key = ? AND state = 'done' ORDER BY startedAt DESC, id LIMIT 1",
      key,
    );
    return row === undefined ? null : parseRow(SetupRowSchema, 'setups', row);
  }

  /** The setup that made a prepared image that is there, as far as is known. */
  findByImage(image: string): SetupRow | null {
    const row = this.#database.get("SELECT * FROM setups WHERE image = ? AND state = 'done'", image);
    return row === undefined ? null : parseRow(SetupRowSchema, 'setups', row);
  }

  get(id: string): SetupRow | null {
    const row = this.#database.get('SELECT * FROM setups WHERE id = ?', id);
    return row === undefined ? null : parseRow(SetupRowSchema, 'setups', row);
  }

  /** Of one profile or of all, the newest first. */
  list(profile?: string): SetupRow[] {
    const rows =
      profile === undefined
        ? this.#database.all('SELECT * FROM setups ORDER BY startedAt DESC, id')
        : this.#database.all('SELECT * FROM setups WHERE profile = ? ORDER BY startedAt DESC, id', profile);
    return rows.map((row) => parseRow(SetupRowSchema, 'setups', row));
  }

  remove(id: string): void {
    this.#database.run('DELETE FROM setups WHERE id = ?', id);
  }
}
