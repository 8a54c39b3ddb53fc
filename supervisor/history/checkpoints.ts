import { createHash, createPublicKey, hash, type KeyObject } from 'node:crypto';
import { z } from 'zod';
import { openEnvelope, parseEnvelope, sealEnvelope } from '../../protocol/envelope.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import {
  type Checkpoint,
  CHECKPOINT_TYPE,
  CheckpointSchema,
  type CheckpointVerification,
} from '../../protocol/history.ts';
import { JsonSchema, count, json, parseRow, time } from '../store/columns.ts';
import type { Database } from '../store/database.ts';
import { isoTime } from '../base/iso-time.ts';
import { canonicalJson } from './canonical-json.ts';
import type { EventLog, Head } from './event-log.ts';
import type { ProjectedSession } from './projection.ts';

const RowSchema = z.object({
  seq: count,
  hash: z.string(),
  madeAt: time,
  state: z.string().nullable(),
  envelope: z.string(),
});
const StateSchema = json(z.record(z.string(), JsonSchema));
type Row = z.output<typeof RowSchema>;

/** The key of a home. */
export interface SigningKey {
  readonly privateKey: KeyObject;
  /** PEM. */
  readonly publicKey: string;
  readonly keyId: string;
}

export interface CheckpointsOptions {
  readonly database: Database;
  readonly events: Pick<EventLog, 'keptUpTo'>;
  readonly homeId: string;
  /** Errors: `home_damaged`, `no_space`. */
  readonly key: () => SigningKey;
  /** ms since 1970. */
  readonly now: () => number;
}

/** Where histories begin that were cut: the signed checkpoint of each session, and the state that replay begins with. */
export class Checkpoints {
  readonly #options: CheckpointsOptions;

  constructor(options: CheckpointsOptions) {
    this.#options = options;
  }

  /** The state after the checkpoint's event. Null without a checkpoint. Errors: `home_damaged` if it is not what was signed. */
  state(sessionId: string): ProjectedSession | null {
    const row = this.#row(sessionId);
    if (row === null) return null;
    const why = this.verify(sessionId)?.why ?? (row.state === null ? 'its state was removed' : null);
    if (why !== null || row.state === null) {
      throw new HoldfastError('home_damaged', `The checkpoint of ${sessionId} cannot be used`, {
        why: why ?? 'its state is missing',
        next: 'see `holdfast session verify SESSION`',
      });
    }
    // What was signed was written by `save`.
    return StateSchema.parse(row.state) as unknown as ProjectedSession;
  }

  /** The text of the signed checkpoint; null without one. */
  envelope(sessionId: string): string | null {
    return this.#row(sessionId)?.envelope ?? null;
  }

  /**
   * Replaces the checkpoint of a session. Call it in the transaction that removes the events up to `head`, after that.
   * `removed`: how many there were since the session began. Returns the id of the key.
   */
  save(sessionId: string, head: Head, removed: number, state: ProjectedSession): string {
    const { database, homeId: home, key, now } = this.#options;
    const text = canonicalJson(state);
    const madeAt = now();
    const { privateKey, keyId } = key();
    const checkpoint: Checkpoint = {
      ...{ format: 1, home, session: sessionId, seq: head.seq, head: head.hash, removed },
      ...this.#kept(sessionId, head.seq).summary,
      stateSha256: hash('sha256', text),
      madeAt: isoTime(madeAt),
    };
    const payload = Buffer.from(JSON.stringify(CheckpointSchema.parse(checkpoint)));
    database.run(
      `INSERT INTO history_checkpoints (sessionId, seq, hash, madeAt, state, envelope) VALUES (?, ?, ?, ?, ?, ?)
       ON CONFLICT (sessionId) DO UPDATE SET seq = excluded.seq, hash = excluded.hash, madeAt = excluded.madeAt,
         state = excluded.state, envelope = excluded.envelope`,
      sessionId,
      head.seq,
      head.hash,
      madeAt,
      text,
      JSON.stringify(sealEnvelope(payload, privateKey, CHECKPOINT_TYPE)),
    );
    return keyId;
  }

  /** The checkpoint as it was signed, whether or not it is valid. Null without one. */
  verify(sessionId: string): CheckpointVerification | null {
    const row = this.#row(sessionId);
    if (row === null) return null;
    const publicKey = createPublicKey(this.#options.key().publicKey);
    const opened = openEnvelope(row.envelope, publicKey, CHECKPOINT_TYPE);
    const signed = readCheckpoint(row.envelope);
    const why = opened.valid ? this.#fault(sessionId, row, signed) : opened.why;
    return {
      seq: row.seq,
      madeAt: isoTime(row.madeAt),
      removed: signed?.removed ?? 0,
      kept: signed?.kept ?? 0,
      keyId: opened.valid ? opened.keyId : null,
      valid: why === null,
      why,
    };
  }

  #fault(sessionId: string, row: Row, signed: Checkpoint | null): string | null {
    if (signed === null) return 'what was signed is not a checkpoint that this version knows';
    if (signed.session !== sessionId || signed.home !== this.#options.homeId)
      return 'it is the checkpoint of another session';
    if (signed.seq !== row.seq || signed.head !== row.hash || signed.madeAt !== isoTime(row.madeAt))
      return 'it is another checkpoint than the one that was signed';
    if (row.state !== null && hash('sha256', row.state) !== signed.stateSha256)
      return 'the state at the checkpoint was changed';
    const { summary, isIntact } = this.#kept(sessionId, row.seq);
    if (!isIntact || summary.keptSha256 !== signed.keptSha256)
      return 'the events before it that stay were changed';
    return null;
  }

  /** The events up to `seq` that are there. */
  #kept(sessionId: string, seq: number) {
    const digest = createHash('sha256');
    let kept = 0;
    let isIntact = true;
    for (const one of this.#options.events.keptUpTo(sessionId, seq)) {
      digest.update(JSON.stringify([one.seq, one.hash]));
      isIntact &&= one.isIntact;
      kept += 1;
    }
    return { summary: { kept, keptSha256: digest.digest('hex') }, isIntact };
  }

  #row(sessionId: string): Row | null {
    const row = this.#options.database.get(
      'SELECT seq, hash, madeAt, state, envelope FROM history_checkpoints WHERE sessionId = ?',
      sessionId,
    );
    return row === undefined ? null : parseRow(RowSchema, 'history_checkpoints', row);
  }
}

/** The checkpoint in an envelope whose signature nobody checked here. Null if it is none. */
export function readCheckpoint(envelope: string): Checkpoint | null {
  const payload = parseEnvelope(envelope, CHECKPOINT_TYPE)?.payload ?? '';
  try {
    return CheckpointSchema.parse(JSON.parse(Buffer.from(payload, 'base64').toString('utf8')));
  } catch {
    return null;
  }
}
