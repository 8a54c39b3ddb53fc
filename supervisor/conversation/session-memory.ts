import { z } from 'zod';
import type { Content } from '../../protocol/contents.ts';
import { TEXT } from '../../protocol/contents.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { EVENT_TYPES } from '../../protocol/events.ts';
import { MEMORY_BYTES } from '../../protocol/memory.ts';
import type { Memory, MemoryVersion } from '../../protocol/memory.ts';
import { isoTime } from '../base/iso-time.ts';
import type { Contents } from '../history/contents.ts';
import type { EventLog } from '../history/event-log.ts';
import { json, parseRow, time } from '../store/columns.ts';
import type { Database } from '../store/database.ts';
import type { Operations } from '../store/operations.ts';

const HISTORY = 50;
const SET = 'memory.set';
const RowSchema = z.object({ at: time, data: json(EVENT_TYPES['memory.changed'].data) });
/** Without the name of the index SQLite would look at the whole history of a session. */
const CHANGES =
  "SELECT at, data FROM events INDEXED BY events_about_memory WHERE sessionId = ?1 AND type = 'memory.changed'";

export interface MemoryChange {
  readonly text: string;
  readonly author: MemoryVersion['author'];
  /** The version that the text is based on, 0 for none; undefined: whatever it is. */
  readonly ifVersion?: number | undefined;
  readonly opId?: string | undefined;
}

export interface SessionMemoryOptions {
  readonly database: Database;
  readonly events: EventLog;
  readonly contents: Contents;
  readonly operations: Operations;
}

/** The memories of sessions. Their versions are events, so a fork has those of its source. */
export class SessionMemory {
  readonly #options: SessionMemoryOptions;

  constructor(options: SessionMemoryOptions) {
    this.#options = options;
  }

  /** The newest version, or the given one. Null for a session without one. Errors: `not_found` for an unknown version. */
  show(sessionId: string, version?: number): Memory | null {
    const [found] =
      version === undefined
        ? this.#changes(`${CHANGES} ORDER BY seq DESC LIMIT 1`, sessionId)
        : this.#changes(
            `${CHANGES} AND json_extract(data, '$.version') = ?2 ORDER BY seq DESC LIMIT 1`,
            sessionId,
            version,
          );
    if (found === undefined && version !== undefined) {
      throw new HoldfastError('not_found', `The memory of the session has no version ${version}`, {
        next: 'see `holdfast memory history SESSION`',
      });
    }
    return found === undefined ? null : this.#withText(sessionId, found);
  }

  /** Newest first. */
  history(
    sessionId: string,
    {
      before,
      limit = HISTORY,
    }: { readonly before?: number | undefined; readonly limit?: number | undefined },
  ): { versions: MemoryVersion[]; before: number | null } {
    const found = this.#changes(
      `${CHANGES} AND (?2 IS NULL OR json_extract(data, '$.version') < ?2) ORDER BY seq DESC LIMIT ?3`,
      sessionId,
      before ?? null,
      limit + 1,
    );
    const versions = found.slice(0, limit).map(({ version, author, at, content }) => ({
      ...{ version, author, at },
      bytes: content?.bytes ?? 0,
    }));
    return { versions, before: found.length > limit ? (versions.at(-1)?.version ?? null) : null };
  }

  /** Errors: `conflict` if `ifVersion` is not the newest, `invalid_params` for a text that is too long. */
  set(sessionId: string, change: MemoryChange): Memory {
    const { operations, database, events, contents } = this.#options;
    const bytes = Buffer.from(change.text);
    if (bytes.length > MEMORY_BYTES) {
      throw new HoldfastError('invalid_params', 'The memory was not changed', {
        why: `the text has ${bytes.length} bytes, and a memory has ${MEMORY_BYTES} at most`,
        next: 'keep what the next conversation needs, and put the rest into files of the workspace',
      });
    }
    const { result } = operations.runOnce(change.opId, SET, () =>
      database.transaction(() => {
        const current = this.show(sessionId);
        const version = current?.version ?? 0;
        if (change.ifVersion !== undefined && change.ifVersion !== version) {
          throw new HoldfastError('conflict', 'The memory was not changed', {
            why: `it has version ${version} now, and the text is based on version ${change.ifVersion}`,
            next: 'read it again with `holdfast memory show SESSION`',
            details: { version },
          });
        }
        if (version > 0 && current?.text === change.text) return { version: String(version) };
        const content = bytes.length === 0 ? null : contents.insert(sessionId, bytes, TEXT);
        const data = { version: version + 1, author: change.author, content };
        events.append(sessionId, [{ type: 'memory.changed', data }]);
        return { version: String(version + 1) };
      }),
    );
    const memory = this.show(sessionId, Number(result.version));
    if (memory === null) throw new HoldfastError('internal', 'A version of a memory is missing');
    return memory;
  }

  #withText(sessionId: string, { content, ...version }: Change): Memory {
    const text =
      content === null
        ? ''
        : this.#options.contents.read(sessionId, content.sha256, 0, MEMORY_BYTES).part.toString('utf8');
    return { ...version, bytes: content?.bytes ?? 0, text };
  }

  #changes(sql: string, ...values: (string | number | null)[]): Change[] {
    return this.#options.database.all(sql, ...values).map((row) => {
      const { at, data } = parseRow(RowSchema, 'events', row);
      return { ...data, at: isoTime(at) };
    });
  }
}

interface Change {
  readonly version: number;
  readonly author: MemoryVersion['author'];
  readonly at: string;
  readonly content: Content | null;
}
