import { hash, createHash } from 'node:crypto';
import { setImmediate } from 'node:timers/promises';
import { z } from 'zod';
import { CONTENT_READ_BYTES, type Content } from '../../protocol/contents.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { failpoint } from '../base/failpoints.ts';
import { blob, count, parseRow, time } from '../store/columns.ts';
import { markNamed } from '../store/attachment-uploads.ts';
import { insertContent, mediaTypeOf } from '../store/contents.ts';
import type { Database } from '../store/database.ts';
import { hasErrorCode } from '../store/storage-error.ts';
import type { Artifacts } from './artifacts.ts';

const CHECKED_CHUNK_BYTES = 2 ** 20;

const RowSchema = z.object({
  bytes: count,
  mediaType: z.string(),
  part: blob.nullable(),
  artifact: z.string().nullable(),
  start: count,
  removedAt: time.nullable(),
});
const EndSchema = z.object({ end: count.nullable() });
const FileSchema = z.object({ artifact: z.string(), end: count });
const FileNameSchema = z.object({ artifact: z.string() });

export type ContentState = 'intact' | 'altered' | 'missing' | 'removed';

export interface ContentPart {
  readonly part: Buffer;
  readonly total: number;
  readonly mediaType: string;
}

/**
 * Prompts and outputs: bytes that events name by their SHA-256. A session stores equal bytes once. A content and its event
 * are written in one transaction of the caller; bytes that a crash left in a file without it are removed by `collect`.
 */
export class Contents {
  readonly #database: Database;
  readonly #artifacts: Artifacts;

  constructor(database: Database, artifacts: Artifacts) {
    this.#database = database;
    this.#artifacts = artifacts;
  }

  /** Stores a content in the database. Call it in the transaction of its event. */
  insert(sessionId: string, bytes: Uint8Array, mediaType?: string): Content {
    return insertContent(this.#database, sessionId, bytes, mediaType);
  }

  /** Stores a content at the end of a file, durably. Call it in the transaction of its event. Errors: `no_space`. */
  append(
    sessionId: string,
    artifact: string,
    bytes: Uint8Array,
    mediaType: string = mediaTypeOf(bytes),
  ): Content {
    const content = { sha256: hash('sha256', bytes), bytes: bytes.length, mediaType };
    markNamed(this.#database, sessionId, content.sha256);
    const existing = this.#row(sessionId, content.sha256, 0, 0);
    if (existing !== null && existing.removedAt === null && this.#hasBytes(sessionId, existing))
      return content;
    const start = this.#endOf(sessionId, artifact) ?? 0;
    this.#artifacts.append(sessionId, artifact, start, bytes);
    this.#artifacts.sync(sessionId, artifact);
    // Not awaited, because a transaction is synchronous; a kill happens inside the call.
    void failpoint('content.before-event');
    this.#database.run(
      `INSERT INTO contents (sessionId, sha256, bytes, mediaType, artifact, start) VALUES (?, ?, ?, ?, ?, ?)
       ON CONFLICT (sessionId, sha256)
       DO UPDATE SET artifact = excluded.artifact, start = excluded.start, removedAt = NULL`,
      sessionId,
      content.sha256,
      content.bytes,
      mediaType,
      artifact,
      start,
    );
    return content;
  }

  /** A content that the session has; null for none, and for one that was removed. */
  find(sessionId: string, sha256: string): Content | null {
    const row = this.#row(sessionId, sha256, 0, 0);
    if (row?.removedAt !== null) return null;
    return { sha256, bytes: row.bytes, mediaType: row.mediaType };
  }

  /** Removes a content that no event names, with the file that it has for itself. Call it in a transaction. */
  remove(sessionId: string, sha256: string): void {
    const row = this.#row(sessionId, sha256, 0, 0);
    if (row === null) return;
    this.#database.run('DELETE FROM contents WHERE sessionId = ? AND sha256 = ?', sessionId, sha256);
    if (row.artifact !== null && this.#endOf(sessionId, row.artifact) === null)
      this.#artifacts.truncate(sessionId, row.artifact, 0);
  }

  /**
   * Up to `limit` (≤ 4 MiB) bytes from `offset`; empty at the end. Errors: `not_found` for a content that the session does
   * not have or that was removed, `home_damaged` if bytes are missing.
   */
  read(sessionId: string, sha256: string, offset: number, limit: number): ContentPart {
    const row = this.#row(sessionId, sha256, offset, Math.min(limit, CONTENT_READ_BYTES));
    if (row === null)
      throw new HoldfastError('not_found', `The session ${sessionId} has no content ${sha256}`);
    if (row.removedAt !== null) {
      throw new HoldfastError('not_found', `The content ${sha256} of ${sessionId} was removed`, {
        why: 'its session was deleted, or its events were removed by `history cut`; the hash stays',
      });
    }
    const end = Math.min(row.bytes, offset + Math.min(limit, CONTENT_READ_BYTES));
    const wanted = Math.max(0, end - offset);
    const part =
      row.artifact === null
        ? (row.part ?? Buffer.alloc(0))
        : this.#readFile(sessionId, row.artifact, row.start + offset, wanted);
    if (part.length === wanted) return { part, total: row.bytes, mediaType: row.mediaType };
    throw new HoldfastError('home_damaged', `A part of a content of ${sessionId} is missing`, {
      why: `${sha256} has ${part.length} of ${wanted} bytes from ${offset} on`,
      next: 'see which event names it with `holdfast session verify`',
    });
  }

  /** The first bytes of a content, at most `limit`; null for one that was removed, or is missing. */
  readStart(sessionId: string, sha256: string, limit: number): Buffer | null {
    try {
      return this.read(sessionId, sha256, 0, limit).part;
    } catch (error) {
      const { code } = HoldfastError.from(error);
      if (code === 'not_found' || code === 'home_damaged') return null;
      throw error;
    }
  }

  /** Reads a content and compares its hash. Yields to other work in between. */
  async check(sessionId: string, { sha256, bytes }: Content): Promise<ContentState> {
    const row = this.#row(sessionId, sha256, 0, 0);
    if (row === null) return 'missing';
    if (row.removedAt !== null) return 'removed';
    if (row.bytes !== bytes) return 'altered';
    const hasher = createHash('sha256');
    for (let offset = 0; offset < bytes; offset += CHECKED_CHUNK_BYTES) {
      try {
        hasher.update(this.read(sessionId, sha256, offset, CHECKED_CHUNK_BYTES).part);
      } catch (error) {
        const { code } = HoldfastError.from(error);
        if (code === 'home_damaged') return 'missing';
        // The session was deleted meanwhile.
        if (code === 'not_found') return 'removed';
        throw error;
      }
      await setImmediate();
    }
    return hasher.digest('hex') === sha256 ? 'intact' : 'altered';
  }

  /** Copies the files that hold these contents to another session, durably and under the same names. */
  async copyFiles(from: string, to: string, ids: readonly string[]): Promise<void> {
    const files = this.#database.all(
      `SELECT artifact, max(start + bytes) AS end FROM contents
       WHERE sessionId = ? AND artifact IS NOT NULL AND sha256 IN (SELECT value FROM json_each(?)) GROUP BY artifact`,
      from,
      JSON.stringify(ids),
    );
    for (const row of files) {
      const { artifact, end } = parseRow(FileSchema, 'contents', row);
      await this.#artifacts.copy({ sessionId: from, name: artifact }, { sessionId: to, name: artifact }, end);
    }
  }

  /** Copies contents to another session whose files were copied by `copyFiles`. */
  copyRows(from: string, to: string, ids: readonly string[]): void {
    this.#database.run(
      `INSERT OR IGNORE INTO contents (sessionId, sha256, bytes, mediaType, inline, artifact, start, removedAt)
       SELECT ?, sha256, bytes, mediaType, inline, artifact, start, removedAt FROM contents
       WHERE sessionId = ? AND sha256 IN (SELECT value FROM json_each(?))`,
      to,
      from,
      JSON.stringify(ids),
    );
  }

  /** Records a content that lies in a file of the session already, durably. Call it in the transaction of its event. */
  adopt(sessionId: string, { sha256, bytes, mediaType }: Content, artifact: string, start: number): void {
    this.#database.run(
      `INSERT INTO contents (sessionId, sha256, bytes, mediaType, artifact, start) VALUES (?, ?, ?, ?, ?, ?)
       ON CONFLICT (sessionId, sha256) DO NOTHING`,
      ...[sessionId, sha256, bytes, mediaType, artifact, start],
    );
  }

  /** Removes the files of a session that is being deleted. `recordFilesRemoved` has to follow. */
  removeFiles(sessionId: string): void {
    this.#artifacts.remove(sessionId);
  }

  recordFilesRemoved(sessionId: string, now: number): void {
    this.#database.run(
      'UPDATE contents SET artifact = NULL, start = 0, removedAt = ? WHERE sessionId = ? AND artifact IS NOT NULL',
      now,
      sessionId,
    );
  }

  /** Removes the bytes of all contents of a session. Their hashes stay, marked as removed. */
  removeAll(sessionId: string, now: number): void {
    this.removeFiles(sessionId);
    this.#database.run(
      `UPDATE contents SET inline = NULL, artifact = NULL, start = 0, removedAt = ?
       WHERE sessionId = ? AND removedAt IS NULL`,
      now,
      sessionId,
    );
  }

  /**
   * Removes the bytes of these contents, which no event names any more, and not those that wait for their prompt. Their
   * hashes stay, marked as removed. Call it in a transaction. Returns the files that may have bytes without a content then.
   */
  removeNamed(sessionId: string, ids: readonly string[], now: number): string[] {
    const wanted = `sessionId = ?1 AND removedAt IS NULL AND sha256 IN (SELECT value FROM json_each(?2))
      AND NOT EXISTS (SELECT 1 FROM attachment_uploads AS upload
        WHERE upload.sessionId = contents.sessionId AND upload.sha256 = contents.sha256)`;
    const list = JSON.stringify(ids);
    const files = this.#database.all(
      `SELECT DISTINCT artifact FROM contents WHERE ${wanted} AND artifact IS NOT NULL`,
      sessionId,
      list,
    );
    this.#database.run(
      `UPDATE contents SET inline = NULL, artifact = NULL, start = 0, removedAt = ?3 WHERE ${wanted}`,
      sessionId,
      list,
      now,
    );
    return files.map((row) => parseRow(FileNameSchema, 'contents', row).artifact);
  }

  /** Cuts off what lies behind the last content of a file; removes a file without one. A crash leaves it to `collect`. */
  trim(sessionId: string, artifact: string): void {
    const end = this.#endOf(sessionId, artifact) ?? 0;
    if (this.#artifacts.size(sessionId, artifact) > end) this.#artifacts.truncate(sessionId, artifact, end);
  }

  /**
   * Removes bytes that no content has from the files of sessions: a crash left them before their event was written.
   * Returns how many files were cut or removed. Yields to other work in between.
   */
  async collect(): Promise<number> {
    let collected = 0;
    for (const sessionId of this.#artifacts.sessionIds()) {
      await setImmediate();
      // The files of a fork arrive before its row, and those of a deleted session are garbage as a whole.
      const isPresent =
        this.#database.get("SELECT 1 FROM sessions WHERE id = ? AND status <> 'deleted'", sessionId) !==
        undefined;
      if (!isPresent) continue;
      for (const name of this.#artifacts.names(sessionId)) {
        // Earlier versions stored a whole stream in a file.
        const isOld =
          this.#database.get(
            'SELECT 1 FROM turn_pieces JOIN turns ON id = turnId WHERE artifact = ? AND sessionId = ? LIMIT 1',
            name,
            sessionId,
          ) !== undefined;
        const end = this.#endOf(sessionId, name) ?? 0;
        if (isOld || this.#artifacts.size(sessionId, name) <= end) continue;
        this.#artifacts.truncate(sessionId, name, end);
        collected += 1;
      }
    }
    return collected;
  }

  /** False if the file of a content was lost: then it is stored again. */
  #hasBytes(sessionId: string, { artifact, start, bytes }: z.output<typeof RowSchema>): boolean {
    return artifact === null || this.#artifacts.size(sessionId, artifact) >= start + bytes;
  }

  #readFile(sessionId: string, artifact: string, offset: number, limit: number): Buffer {
    try {
      return this.#artifacts.read(sessionId, artifact, offset, limit);
    } catch (error) {
      if (HoldfastError.from(error).code === 'not_found' || hasErrorCode(error, 'ENOENT'))
        return Buffer.alloc(0);
      throw error;
    }
  }

  #endOf(sessionId: string, artifact: string): number | null {
    const row = this.#database.get(
      `SELECT start + bytes AS end FROM contents WHERE sessionId = ? AND artifact = ? ORDER BY start DESC LIMIT 1`,
      sessionId,
      artifact,
    );
    return row === undefined ? null : parseRow(EndSchema, 'contents', row).end;
  }

  #row(sessionId: string, sha256: string, offset: number, limit: number): z.output<typeof RowSchema> | null {
    const row = this.#database.get(
      `SELECT bytes, mediaType, substr(inline, ?3 + 1, ?4) AS part, artifact, start, removedAt FROM contents
       WHERE sessionId = ?1 AND sha256 = ?2`,
      sessionId,
      sha256,
      offset,
      limit,
    );
    return row === undefined ? null : parseRow(RowSchema, 'contents', row);
  }
}
