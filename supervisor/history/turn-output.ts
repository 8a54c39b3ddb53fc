import { z } from 'zod';
import { type Content, JSON_TEXT } from '../../protocol/contents.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { parseEvent } from '../../protocol/events.ts';
import { INLINE_OUTPUT_BYTES } from '../../protocol/turn-events.ts';
import type { EventData } from '../../protocol/events.ts';
import type { OutputStream } from '../../protocol/turn-events.ts';
import { count, parseRow } from '../store/columns.ts';
import type { Database } from '../store/database.ts';
import type { Artifacts } from './artifacts.ts';
import type { Contents } from './contents.ts';
import type { EventLog } from './event-log.ts';

/** The most that one `read` returns. */
const MAX_READ_BYTES = 4 * 2 ** 20;
/** Each piece is a file access. A program that prints a few bytes at a time must not keep the supervisor busy. */
const MAX_READ_PIECES = 1000;

const TurnSchema = z.object({ sessionId: z.string(), stdout: count, stderr: count, result: count });
const TURN =
  'SELECT sessionId, stdoutBytes AS stdout, stderrBytes AS stderr, resultBytes AS result FROM turns WHERE id = ?';
/** A piece of a stream: a content, or, of earlier versions, a part of the file `artifact` or the event `seq`. */
const PieceSchema = z.object({
  stream: z.string(),
  start: count,
  bytes: count,
  sha256: z.string().nullable(),
  artifact: z.string().nullable(),
  seq: z.int().positive().nullable(),
});
type Piece = z.output<typeof PieceSchema>;

/**
 * Stores the output of turns, byte for byte. Each piece is a content that a `turn.output` event names. The first 32 KB
 * of a turn are stored in the database, and the rest in a file of the turn.
 */
export class TurnOutput {
  readonly #database: Database;
  readonly #events: EventLog;
  readonly #contents: Contents;
  readonly #artifacts: Artifacts;

  constructor(database: Database, events: EventLog, contents: Contents, artifacts: Artifacts) {
    this.#database = database;
    this.#events = events;
    this.#contents = contents;
    this.#artifacts = artifacts;
  }

  /**
   * Stores output durably: the content, the event, and the offset in the turn's row. Bytes that are already stored are
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
      const content = this.#storeContent(turn, turnId, stream, fresh);
      const data: EventData<'turn.output'> = {
        turnId,
        stream,
        offset: durable,
        bytes: fresh.length,
        content,
      };
      this.#events.append(turn.sessionId, [{ type: 'turn.output', data }]);
      const { sha256 } = content;
      const piece = { stream, start: durable, bytes: fresh.length, sha256, artifact: null, seq: null };
      this.#savePiece(turnId, piece);
      const total = durable + fresh.length;
      this.#database.run(`UPDATE turns SET ${stream}Bytes = ? WHERE id = ?`, total, turnId);
      return total;
    });
  }

  /** Up to `limit` (≤ 4 MiB) durable bytes from `offset`; empty at the end. Errors: `not_found`, `home_damaged`. */
  read(turnId: string, stream: OutputStream, offset: number, limit: number): Buffer {
    const turn = this.#turn(turnId);
    const limitEnd = Math.min(turn[stream], offset + Math.min(limit, MAX_READ_BYTES));
    if (limitEnd <= offset) return Buffer.alloc(0);
    // Pieces follow each other, so the first one is the last that begins at the offset or before.
    const rows = this.#database.all(
      `SELECT * FROM turn_pieces WHERE turnId = ?1 AND stream = ?2 AND start < ?4 AND start >= coalesce(
         (SELECT max(start) FROM turn_pieces WHERE turnId = ?1 AND stream = ?2 AND start <= ?3), 0)
       ORDER BY start LIMIT ?5`,
      turnId,
      stream,
      offset,
      limitEnd,
      MAX_READ_PIECES,
    );
    const pieces = rows.map((row) => parseRow(PieceSchema, 'turn_pieces', row));
    if (pieces.length === 0) {
      throw new HoldfastError('not_found', `The output of ${turnId} was removed`, {
        why: 'its events were removed by `history cut`',
      });
    }
    const last = pieces.at(-1);
    const isCut = last !== undefined && pieces.length === MAX_READ_PIECES;
    const end = isCut ? Math.min(limitEnd, last.start + last.bytes) : limitEnd;
    const parts = pieces.map((piece) => {
      const from = Math.max(0, offset - piece.start);
      const to = Math.min(piece.bytes, end - piece.start);
      return this.#readPiece(turn.sessionId, piece, from, Math.max(0, to - from));
    });
    const bytes = Buffer.concat(parts);
    if (bytes.length === end - offset) return bytes;
    throw new HoldfastError('home_damaged', `A part of the output of ${turnId} is missing`, {
      why: `${stream} has ${bytes.length} of ${end - offset} bytes from ${offset} on`,
      details: { turn: turnId, stream, offset },
    });
  }

  /** The files in which earlier versions stored streams of a turn, and how many bytes of each are output. */
  oldFiles(turnId: string): { readonly artifact: string; readonly bytes: number }[] {
    return this.#pieces(turnId).flatMap(({ artifact, bytes }) =>
      artifact === null ? [] : [{ artifact, bytes }],
    );
  }

  /**
   * Copies the output records of a turn to its copy in another session, whose events, contents and files have already
   * been copied. `seqOf` maps the seq of an event to that of its copy.
   */
  copy(turnId: string, copyId: string, seqOf: (seq: number) => number | undefined): void {
    for (const piece of this.#pieces(turnId)) {
      const seq = piece.seq === null ? null : (seqOf(piece.seq) ?? piece.seq);
      this.#savePiece(copyId, { ...piece, seq });
    }
  }

  /** Records the output of a turn that came with its history, whose contents are stored already. */
  adopt(turnId: string, pieces: readonly Omit<Piece, 'artifact' | 'seq'>[]): void {
    for (const piece of pieces) this.#savePiece(turnId, { ...piece, artifact: null, seq: null });
  }

  #storeContent(
    turn: z.output<typeof TurnSchema>,
    turnId: string,
    stream: OutputStream,
    bytes: Uint8Array,
  ): Content {
    const mediaType = stream === 'result' ? JSON_TEXT : undefined;
    const stored = turn.stdout + turn.stderr + turn.result;
    return stored + bytes.length <= INLINE_OUTPUT_BYTES
      ? this.#contents.insert(turn.sessionId, bytes, mediaType)
      : this.#contents.append(turn.sessionId, outputFile(turnId), bytes, mediaType);
  }

  #readPiece(sessionId: string, piece: Piece, from: number, limit: number): Buffer {
    const { sha256, artifact, seq, start } = piece;
    if (sha256 !== null) return this.#contents.read(sessionId, sha256, from, limit).part;
    if (artifact !== null) return this.#artifacts.read(sessionId, artifact, start + from, limit);
    return this.#readEvent(sessionId, seq ?? 0).subarray(from, from + limit);
  }

  /** Output that an earlier version stored in an event. */
  #readEvent(sessionId: string, seq: number): Buffer {
    const event = this.#events.get(sessionId, seq);
    const entry = event === null ? null : parseEvent(event);
    if (entry?.type !== 'turn.output') {
      throw new HoldfastError(
        'home_damaged',
        `Event ${seq} of ${sessionId} does not hold the output it should`,
        {
          next: 'check the history with `holdfast session verify`',
        },
      );
    }
    const { text, base64 } = entry.data;
    return text === undefined ? Buffer.from(base64 ?? '', 'base64') : Buffer.from(text, 'utf8');
  }

  #savePiece(turnId: string, { stream, start, bytes, sha256, artifact, seq }: Piece): void {
    this.#database.run(
      'INSERT INTO turn_pieces (turnId, stream, start, bytes, sha256, artifact, seq) VALUES (?, ?, ?, ?, ?, ?, ?)',
      turnId,
      stream,
      start,
      bytes,
      sha256,
      artifact,
      seq,
    );
  }

  #pieces(turnId: string): Piece[] {
    return this.#database
      .all('SELECT * FROM turn_pieces WHERE turnId = ?', turnId)
      .map((row) => parseRow(PieceSchema, 'turn_pieces', row));
  }

  #turn(turnId: string): z.output<typeof TurnSchema> {
    const row = this.#database.get(TURN, turnId);
    if (row === undefined) throw new HoldfastError('not_found', `There is no turn ${turnId}`);
    return parseRow(TurnSchema, 'turns', row);
  }
}

/** The file of a turn's outputs; earlier versions had one for each stream. */
function outputFile(turnId: string): string {
  return `${turnId}.output`;
}
