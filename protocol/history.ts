import { z } from 'zod';
import { OpIdSchema, SessionRefSchema, TimeSchema } from './entities.ts';
import { HomeIdSchema, SessionIdSchema } from './ids.ts';
import { eventType, type Note } from './event-type.ts';
import { EnvelopeSchema } from './manifest.ts';

/**
 * The end of a history that was cut: what replay and verification begin with. The home signs it, as DSSE has it, with the
 * key of its manifests.
 */
export const CHECKPOINT_TYPE = 'application/vnd.holdfast.checkpoint+json';

const count = z.number().int().nonnegative();
const hash = z.string().regex(/^[0-9a-f]{64}$/);

/** What the signature covers. */
export const CheckpointSchema = z.strictObject({
  format: z.literal(1),
  home: HomeIdSchema,
  session: SessionIdSchema,
  /** The last event that can have been removed, and its hash, to which the next event is chained. */
  seq: z.number().int().positive(),
  head: hash,
  /** How many events were removed up to there, since the session began. */
  removed: count,
  /** How many of them stayed, and the SHA-256 of the JSON of their `[seq, hash]` in order. */
  kept: count,
  keptSha256: hash,
  /** SHA-256 of the state of session and turns after the event, as canonical JSON. */
  stateSha256: hash,
  madeAt: TimeSchema,
});
export type Checkpoint = z.infer<typeof CheckpointSchema>;

export const CheckpointEnvelopeSchema = EnvelopeSchema.extend({ payloadType: z.literal(CHECKPOINT_TYPE) });
export type CheckpointEnvelope = z.infer<typeof CheckpointEnvelopeSchema>;

/** What `session/verify` found of a checkpoint. `why`: what is wrong with it. */
export const CheckpointVerificationSchema = z.object({
  seq: count,
  madeAt: TimeSchema,
  removed: count,
  kept: count,
  keyId: hash.nullable(),
  valid: z.boolean(),
  why: z.string().nullable(),
});
export type CheckpointVerification = z.infer<typeof CheckpointVerificationSchema>;

/** What a verification of a history with a checkpoint does not say, each as a sentence. */
export function unprovenByCheckpoint({ seq, removed }: Pick<Checkpoint, 'seq' | 'removed'>): string[] {
  return [
    `what was in the ${removed} removed events up to event ${seq}: only the hash of the last one is left`,
    'that the state at the checkpoint follows from them: the home verified their chain, replayed them and signed the result',
    'prompts and outputs that only they named: they were removed too',
  ];
}

/** What a cut removes, or would remove. */
export const HistoryCutSchema = z.object({
  /** The last event that is removed; 0 if none is. */
  seq: count,
  /** Events that are removed, and events up to there that stay because something needs them. */
  events: count,
  kept: count,
  /** Turns whose events are removed. Their figures stay. */
  turns: count,
  /** Prompts and outputs that no other event names. */
  contents: count,
  bytes: count,
  /** Snapshots from before `seq`: a fork of one begins without the removed history. */
  snapshots: count,
  /** Why less is removed than was asked for; null if it is not less. */
  limitedBy: z.string().nullable(),
});
export type HistoryCut = z.infer<typeof HistoryCutSchema>;

const CutSchema = z.object({ seq: z.number().int().positive(), removed: count, kept: count, keyId: hash });

/** What stands where the conversation begins then. `time`: of the cut. */
export function cutNote({ removed }: z.output<typeof CutSchema>, time: string): Note {
  const events = removed === 1 ? '1 event' : `${removed} events`;
  return {
    icon: 'history',
    text: `Earlier events were removed on ${time.slice(0, 10)} (${events})`,
    isWarning: false,
  };
}

export const HISTORY_EVENTS = {
  /** Events up to `seq` were removed, with prompts and outputs that only they named. A signed checkpoint is in their place. */
  'history.cut': eventType(CutSchema, {
    outlivesContents: true,
    line: ({ seq, removed }) => `events up to ${seq} were removed, ${removed} in all`,
    transcript: ({ removed }) => `Earlier events were removed (${removed})`,
  }),
} as const;

export const HISTORY_METHODS = {
  /**
   * Removes the oldest events of a session: those from before `before`, or all but the newest `keep`. Never those of turns
   * that wait or run, and not what kept things need. Leaves a signed checkpoint. `dryRun` only says what would be removed.
   * Fails with `home_damaged` if the chain of the events is broken.
   */
  'history/cut': {
    params: z
      .object({
        session: SessionRefSchema,
        before: TimeSchema.optional(),
        keep: z.number().int().min(1).max(1_000_000_000).optional(),
        dryRun: z.boolean().optional(),
        opId: OpIdSchema.optional(),
      })
      .refine(({ before, keep }) => (before === undefined) !== (keep === undefined), {
        error: 'either before or keep',
      }),
    result: HistoryCutSchema,
    repeat: 'opId',
    whenDamaged: 'refused',
  },
} as const;
