import { z } from 'zod';
import { TimeSchema } from './entities.ts';
import { WorkspacePathSchema } from './files.ts';
import { SessionRefSchema, SnapshotIdSchema, TurnIdSchema } from './ids.ts';

export const BLAME_LIMITS = {
  /** Bytes and lines of a file whose lines are followed back. */
  bytes: 4 * 2 ** 20,
  lines: 100_000,
  /** Versions of the file that are compared, the newest first; what is older is `unknown`. */
  versions: 500,
  /** Bytes of all compared versions. */
  comparedBytes: 256 * 2 ** 20,
  /** Renames of the file that are followed. */
  renames: 20,
  /** Ranges of one answer. */
  ranges: 1000,
  /** Turns that an origin names. */
  turns: 3,
} as const;

const count = z.number().int().nonnegative();

/** A state of the workspace that a line's change lies behind or before. */
const BlameStateSchema = z.object({ snapshotId: SnapshotIdSchema.nullable(), at: TimeSchema });

/**
 * What changed lines last. `start`: nobody since the session began. `turn`: a turn, by its tools or its shell. `person`: somebody
 * while no turn ran: a person, or a program that was left running. `unknown`: something between two states.
 */
export const BLAME_KINDS = ['start', 'turn', 'person', 'unknown'] as const;

export const BlameOriginSchema = z.object({
  kind: z.enum(BLAME_KINDS),
  /** False for a turn where somebody may have changed the lines before or after it: no state divides the two. */
  isExact: z.boolean(),
  /** With `turn` that turn; with `unknown` the first of those that ran between the states. */
  turns: z.array(z.object({ id: TurnIdSchema, prompt: z.string(), at: TimeSchema })).max(BLAME_LIMITS.turns),
  /** How many ran. */
  turnCount: count,
  /** The last state without the lines; null before the first one. */
  from: BlameStateSchema.nullable(),
  /** The first state that has them; null: the file as it is now. */
  to: BlameStateSchema.nullable(),
});
export type BlameOrigin = z.infer<typeof BlameOriginSchema>;

export const BlameSchema = z.object({
  path: z.string(),
  /** Of the file as it was read: see `files/read`. */
  version: z.string(),
  /** Lines of the file. */
  lines: count,
  origins: z.array(BlameOriginSchema),
  /** Lines from 0, in order; `end` is exclusive; `origin` is an index. */
  ranges: z.array(z.object({ start: count, end: count, origin: count })).max(BLAME_LIMITS.ranges),
  /** The line to go on from; null after the last one. */
  nextLine: count.nullable(),
});
export type Blame = z.infer<typeof BlameSchema>;

/** client → supervisor. Part of METHODS. */
export const BLAME_METHODS = {
  /**
   * What last changed each line of a file of the workspace, from `start` to `end`. `file_too_large`, `not_supported` for what is
   * no text, `conflict` if the file has another version than `ifVersion`.
   */
  'review/blame': {
    params: z.object({
      session: SessionRefSchema,
      path: WorkspacePathSchema,
      start: count.optional(),
      end: count.optional(),
      ifVersion: z.string().max(200).optional(),
    }),
    result: BlameSchema,
    repeat: 'safe',
    whenDamaged: 'refused',
  },
} as const;
