import { isUtf8 } from 'node:buffer';
import { hash } from 'node:crypto';
import { z } from 'zod';
import { HoldfastError } from '../../protocol/errors.ts';
import { EVENT_SCHEMAS, INLINE_OUTPUT_BYTES, OutputStreamSchema } from '../../protocol/events.ts';
import type { EventData, OutputStream } from '../../protocol/events.ts';
import { count, parseRow } from '../store/columns.ts';
import type { Database } from '../store/database.ts';
import type { Artifacts } from './artifacts.ts';
import type { EventLog } from './event-log.ts';

/** The most that one `read` returns. */
const MAX_READ_BYTES = 4 * 2 ** 20;

const TurnSchema = z.object({ sessionId: z.string(), stdout: count, stderr: count, result: count });
const TURN =
  'SELECT sessionId, stdoutBytes AS stdout, stderrBytes AS stderr, resultBytes AS result FROM turns WHERE id = ?';
const StreamSchema = z.object({
  stream: OutputStreamSchema,
  inlineBytes: count,
  artifact: z.string().nullable(),
});
const PieceSchema = z.object({ start: count, bytes: count, seq: z.int().positive() });

/**
 * Stores the output of turns, byte for byte. The first 32 KB of a turn are stored in events. A stream that exceeds that
 * moves to an artifact as a whole, and its later events only record which bytes arrived.
 */
export class TurnOutput {
  readonly #database: Database;
  readonly #events: EventLog;
  readonly #artifacts: Artifacts;

  constructor(database: Database, events: EventLog, artifacts: Artifacts) {
    this.#database = database;
    this.#events = events;
    this.#artifacts = artifacts;
  }

  /**
   * Stores output durably: the event, the offset in the turn's row, and the file. Bytes that are already stored are
   * ignored. Returns how many bytes of the stream are durable. Errors: `not_found`, `no_space`, `internal` for a gap.
   */
  store(turnId: string, stream: OutputStream, offset: number, bytes: Uint8Array): number {
    return this.#database.transaction(() => {
      const turn = this.#turn(turnId);
      const durable = turn[stream];
      if (offset > durable) {
        throw new HoldfastError('internal', `The output of ${turnId} has a gap`, {
          why: `${stream} is stored up to ${durable} and the next bytes are for ${offset}`,
        });
      }
      const fresh = bytes.subarray(durable - offset);
      if (fresh.length === 0) return durable;
      const streams = this.#streams(turnId);
      const own = streams.find((one) => one.stream === stream) ?? { stream, inlineBytes: 0, artifact: null };
      const inlineBytes = streams.reduce((sum, one) => sum + one.inlineBytes, 0);
      if (own.artifact === null && inlineBytes + fresh.length <= INLINE_OUTPUT_BYTES) {
        this.#storeInline(turn.sessionId, turnId, stream, durable, fresh);
        this.#saveStream(turnId, { ...own, inlineBytes: own.inlineBytes + fresh.length });
      } else {
        const artifact = own.artifact ?? this.#spill(turn.sessionId, turnId, stream);
        this.#artifacts.append(turn.sessionId, artifact, durable, fresh);
        this.#artifacts.sync(turn.sessionId, artifact);
        this.#append(turn.sessionId, {
          turnId,
          stream,
          offset: durable,
          bytes: fresh.length,
          artifact,
          sha256: hash('sha256', fresh),
        });
        if (own.artifact === null) this.#saveStream(turnId, { ...own, artifact });
      }
      const total = durable + fresh.length;
      this.#database.run(`UPDATE turns SET ${stream}Bytes = ? WHERE id = ?`, total, turnId);
      return total;
    });
  }

  /** Up to `limit` (≤ 4 MiB) durable bytes from `offset`; empty at the end. Errors: `not_found`, `home_damaged`. */
  read(turnId: string, stream: OutputStream, offset: number, limit: number): Buffer {
    const turn = this.#turn(turnId);
    // A file may hold more bytes than were acknowledged: only the bytes counted in the row are output.
    const end = Math.min(turn[stream], offset + Math.min(limit, MAX_READ_BYTES));
    if (end <= offset) return Buffer.alloc(0);
    const artifact = this.#streams(turnId).find((one) => one.stream === stream)?.artifact ?? null;
    const bytes =
      artifact === null
        ? this.#readInline(turn.sessionId, turnId, stream, offset, end)
        : this.#artifacts.read(turn.sessionId, artifact, offset, end - offset);
    if (bytes.length === end - offset) return bytes;
    throw new HoldfastError('home_damaged', `A part of the output of ${turnId} is missing`, {
      why: `${stream} has ${bytes.length} of ${end - offset} bytes from ${offset} on`,
      details: { turn: turnId, stream, offset },
    });
  }

  #storeInline(
    sessionId: string,
    turnId: string,
    stream: OutputStream,
    offset: number,
    bytes: Uint8Array,
  ): void {
    const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    // A partial character at either end makes the chunk binary: output is never altered to be readable.
    const content = isUtf8(buffer)
      ? { text: buffer.toString('utf8') }
      : { base64: buffer.toString('base64') };
    const seq = this.#append(sessionId, { turnId, stream, offset, bytes: bytes.length, ...content });
    this.#savePiece(turnId, stream, offset, bytes.length, seq);
  }

  #savePiece(turnId: string, stream: OutputStream, start: number, bytes: number, seq: number): void {
    this.#database.run(
      'INSERT INTO turn_pieces (turnId, stream, start, bytes, seq) VALUES (?, ?, ?, ?, ?)',
      turnId,
      stream,
      start,
      bytes,
      seq,
    );
  }

  #readInline(sessionId: string, turnId: string, stream: OutputStream, offset: number, end: number): Buffer {
    const pieces = this.#database.all(
      `SELECT start, bytes, seq FROM turn_pieces
       WHERE turnId = ? AND stream = ? AND start < ? AND start + bytes > ? ORDER BY start`,
      turnId,
      stream,
      end,
      offset,
    );
    const parts = pieces.map((row) => {
      const piece = parseRow(PieceSchema, 'turn_pieces', row);
      const content = this.#content(sessionId, piece.seq);
      return content.subarray(Math.max(0, offset - piece.start), Math.max(0, end - piece.start));
    });
    return Buffer.concat(parts);
  }

  #content(sessionId: string, seq: number): Buffer {
    const event = this.#events.get(sessionId, seq);
    const data = EVENT_SCHEMAS['turn.output'].safeParse(event?.data);
    if (!data.success) {
      throw new HoldfastError(
        'home_damaged',
        `Event ${seq} of ${sessionId} does not hold the output it should`,
        {
          next: 'check the history with `holdfast session verify`',
          cause: data.error,
        },
      );
    }
    const { text, base64 } = data.data;
    return text === undefined ? Buffer.from(base64 ?? '', 'base64') : Buffer.from(text, 'utf8');
  }

  /** The artifacts that hold streams of a turn, and how many bytes of each are output. */
  artifactFiles(
    turnId: string,
  ): { readonly stream: OutputStream; readonly artifact: string; readonly bytes: number }[] {
    const turn = this.#turn(turnId);
    return this.#streams(turnId).flatMap(({ stream, artifact }) =>
      artifact === null ? [] : [{ stream, artifact, bytes: turn[stream] }],
    );
  }

  /**
   * Copies the output records of a turn to its copy in another session, whose events and artifacts have already been
   * copied. `seqOf` maps the seq of an event to that of its copy.
   */
  copy(turnId: string, copyId: string, seqOf: (seq: number) => number | undefined): void {
    for (const own of this.#streams(turnId)) {
      this.#saveStream(copyId, {
        ...own,
        artifact: own.artifact === null ? null : artifactName(copyId, own.stream),
      });
      const pieces = this.#database.all(
        'SELECT start, bytes, seq FROM turn_pieces WHERE turnId = ? AND stream = ?',
        turnId,
        own.stream,
      );
      for (const row of pieces) {
        const { start, bytes, seq } = parseRow(PieceSchema, 'turn_pieces', row);
        this.#savePiece(copyId, own.stream, start, bytes, seqOf(seq) ?? seq);
      }
    }
  }

  /** Removes the artifacts of a session that is being deleted; its events keep the first 32 KB of each turn. */
  removeFiles(sessionId: string): void {
    this.#artifacts.remove(sessionId);
  }

  /** Moves a stream to an artifact: copies the bytes that the events hold. */
  #spill(sessionId: string, turnId: string, stream: OutputStream): string {
    const name = artifactName(turnId, stream);
    const soFar = this.#readInline(sessionId, turnId, stream, 0, INLINE_OUTPUT_BYTES);
    this.#artifacts.append(sessionId, name, 0, soFar);
    return name;
  }

  #append(sessionId: string, data: EventData<'turn.output'>): number {
    const [event] = this.#events.append(sessionId, [{ type: 'turn.output', data }]);
    if (event === undefined) throw new HoldfastError('internal', 'The history took no event');
    return event.seq;
  }

  #turn(turnId: string): z.output<typeof TurnSchema> {
    const row = this.#database.get(TURN, turnId);
    if (row === undefined) throw new HoldfastError('not_found', `There is no turn ${turnId}`);
    return parseRow(TurnSchema, 'turns', row);
  }

  #streams(turnId: string): z.output<typeof StreamSchema>[] {
    return this.#database
      .all('SELECT stream, inlineBytes, artifact FROM turn_streams WHERE turnId = ?', turnId)
      .map((row) => parseRow(StreamSchema, 'turn_streams', row));
  }

  #saveStream(turnId: string, stream: z.output<typeof StreamSchema>): void {
    this.#database.run(
      `INSERT INTO turn_streams (turnId, stream, inlineBytes, artifact) VALUES (?, ?, ?, ?)
       ON CONFLICT (turnId, stream) DO UPDATE SET inlineBytes = excluded.inlineBytes, artifact = excluded.artifact`,
      turnId,
      stream.stream,
      stream.inlineBytes,
      stream.artifact,
    );
  }
}

function artifactName(turnId: string, stream: OutputStream): string {
  return `${turnId}.${stream}`;
}
