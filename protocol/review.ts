import { z } from 'zod';
import { OpIdSchema, SessionIdSchema, SessionRefSchema, TimeSchema } from './entities.ts';
import { FILE_CHUNK_BYTES, WorkspacePathSchema } from './files.ts';
import { SnapshotIdSchema } from './ids.ts';
import { RISKS } from './risk.ts';
import { CHANGE_KINDS } from './snapshots.ts';
import { readNewerAs } from './newer-values.ts';

export const REVIEW_LIMITS = {
  /** Files of one page. */
  files: 1000,
  maxFiles: 5000,
  /** Paths that one decision names. */
  decisions: 1000,
  /** Hunks that one decision names for one path. */
  hunks: 5000,
  /** Larger texts are decided as a whole. */
  textBytes: FILE_CHUNK_BYTES,
} as const;

const count = z.number().int().nonnegative();
const hash = z.string().regex(/^[0-9a-f]{64}$/);

export const ReviewIdSchema = z.string().regex(/^rev-[a-z2-7]{16}$/);
/** Identifies both sides of one changed path. Another content, type, mode or origin has another id. */
export const ReviewFileIdSchema = z.string().regex(/^[0-9a-f]{24}$/);
/** Identifies a hunk of a file by the text on both sides. */
export const HunkIdSchema = z.string().regex(/^[0-9a-f]{8}$/);

/**
 * What a review compares with. `last`: the accepted tree of the last review that ended, or else `start`. `start`: the
 * oldest snapshot of the session. `turn:ID`: before that turn. `head:COMMIT`: a commit of the person's repository, see
 * protocol/review-base.ts.
 */
export const ReviewBaseSchema = z.union([
  z.enum(['last', 'start']),
  z.string().regex(/^turn:turn-[a-z2-7]{16}$/),
  z.string().regex(/^snapshot:snp-[a-z2-7]{16}$/),
  z.string().regex(/^head:[0-9a-f]{40}$/),
]);
export type ReviewBase = z.infer<typeof ReviewBaseSchema>;

/** `partial`: some hunks are accepted or rejected, and some are not decided. `mixed`: all are decided, not all alike. */
export const REVIEW_STATES = ['to-review', 'accepted', 'rejected', 'partial', 'mixed'] as const;
export const ReviewStateSchema = z.enum(REVIEW_STATES);
export type ReviewState = z.infer<typeof ReviewStateSchema>;

/** One changed path, or two for a rename. */
export const ReviewFileSchema = z.object({
  path: z.string(),
  id: ReviewFileIdSchema,
  kind: z.enum(CHANGE_KINDS),
  oldPath: z.string().optional(),
  type: z.enum(['file', 'directory', 'symlink', 'fifo', 'socket']),
  oldBytes: count.nullable(),
  newBytes: count.nullable(),
  oldMode: count.nullable(),
  newMode: count.nullable(),
  state: ReviewStateSchema,
  /** It was decided before, has changed since, and something of it is to review. */
  again: z.boolean(),
  /** Whether its hunks can be decided one by one, unless its content turns out to be no text: see `review/file`. */
  byHunk: z.boolean(),
  /** Paths below it that go with it: those of a folder that became a file, or the other way round. */
  below: count,
  /** Where it is decided in part: how many of its hunks are accepted as a whole, and how many it has. */
  hunks: z.object({ accepted: count, all: count }).optional(),
  // The risk that asks most of a person.
  risks: z.array(readNewerAs(z.enum(RISKS), () => 'executes')),
});
export type ReviewFile = z.infer<typeof ReviewFileSchema>;

/** A range of lines, from 0; `end` is exclusive. */
const range = { start: count, end: count };
export const LineRangeSchema = z.object(range);
/** Lines of the base that a change removes, and lines of the target that it adds. */
const lineSet = z.object({ removed: z.array(LineRangeSchema), added: z.array(LineRangeSchema) });

export const HunkSchema = z.object({
  id: HunkIdSchema,
  /** `mode`: permission bits and extended attributes; it has no lines. */
  what: z.enum(['lines', 'mode']),
  /** The lines of the base that it removes, and those of the target that it adds. */
  removed: LineRangeSchema,
  added: LineRangeSchema,
  state: ReviewStateSchema,
  /** Which of its lines are decided, where not all of them are decided alike (`partial`, `mixed`). */
  decided: z.object({ accepted: lineSet, rejected: lineSet }).optional(),
});
export type Hunk = z.infer<typeof HunkSchema>;

/** Totals of paths by state. */
export const ReviewCountsSchema = z.object({
  files: count,
  toReview: count,
  accepted: count,
  rejected: count,
  /** `partial` and `mixed`. */
  partial: count,
});
export type ReviewCounts = z.infer<typeof ReviewCountsSchema>;

/** Trees are named by the hashes of their root objects: equal roots mean equal files. */
export const ReviewSchema = z.object({
  id: ReviewIdSchema,
  sessionId: SessionIdSchema,
  createdAt: TimeSchema,
  updatedAt: TimeSchema,
  /** As asked for. `snapshotId` is null for the accepted tree of an earlier review, and for a commit. */
  base: z.object({ spec: ReviewBaseSchema, snapshotId: SnapshotIdSchema.nullable(), root: hash }),
  /** The workspace as it is reviewed. */
  target: z.object({ snapshotId: SnapshotIdSchema, root: hash }),
  /** The tree with the accepted changes, where `review/tree` has stored it since the last decision. */
  accepted: z.object({ root: hash }).nullable(),
  /** Rises with each decision, undo and newer target. */
  revision: count,
  counts: ReviewCountsSchema,
});
export type Review = z.infer<typeof ReviewSchema>;

export const VERDICTS = ['accept', 'reject'] as const;
export const VerdictSchema = z.enum(VERDICTS);
export type Verdict = z.infer<typeof VerdictSchema>;

/** What a request does about changes: `withdraw` takes back what was decided about them, whenever that was. */
export const ReviewActionSchema = z.enum([...VERDICTS, 'withdraw']);
export type ReviewAction = z.infer<typeof ReviewActionSchema>;

export const DecisionSchema = z.object({
  path: WorkspacePathSchema,
  /** The id of the file that the person saw. `conflict` if the path has another one now. */
  seen: ReviewFileIdSchema,
  /** Only these hunks; otherwise the whole path, whatever was decided before. */
  hunks: z.array(HunkIdSchema).min(1).max(REVIEW_LIMITS.hunks).optional(),
  /** Only these lines of one hunk. */
  lines: z.object({ hunk: HunkIdSchema, removed: LineRangeSchema, added: LineRangeSchema }).optional(),
});
export type Decision = z.infer<typeof DecisionSchema>;

/** The sides of a review whose files can be read. */
export const REVIEW_SIDES = ['base', 'target', 'accepted'] as const;

const session = z.object({ session: SessionRefSchema });
const opId = OpIdSchema.optional();
const reviewed = z.object({ review: ReviewSchema });

/** client → supervisor. Part of METHODS. */
export const REVIEW_METHODS = {
  /**
   * Snapshots the workspace and reviews it: goes on with the session's review, whose decisions stay where their text still
   * exists; with another `base` a new review begins and the earlier one ends. `upload`: the files of a base `head:COMMIT`, as
   * `review/base/begin` began it. `not_found` without a snapshot to compare with.
   */
  'review/open': {
    params: session.extend({ base: ReviewBaseSchema.optional(), upload: z.string().max(64).optional() }),
    result: reviewed,
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /** The session's review as it was last opened. `not_found` if none is open. */
  'review/show': { params: session, result: reviewed, repeat: 'safe', whenDamaged: 'refused' },
  /** The changed paths, the most dangerous first, then by path. */
  'review/files': {
    params: session.extend({
      cursor: z.string().max(100).optional(),
      limit: z.number().int().min(1).max(REVIEW_LIMITS.maxFiles).optional(),
    }),
    result: reviewed.extend({ files: z.array(ReviewFileSchema), nextCursor: z.string().nullable() }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /** One changed path with its hunks; empty if it is decided as a whole. */
  'review/file': {
    params: session.extend({ path: WorkspacePathSchema }),
    result: z.object({ file: ReviewFileSchema, hunks: z.array(HunkSchema) }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /** The bytes of a file on one side of the review: up to 4 MiB from `offset` on. */
  'review/read': {
    params: session.extend({
      path: WorkspacePathSchema,
      side: z.enum(REVIEW_SIDES),
      offset: count.optional(),
    }),
    result: z.object({ size: count }),
    bytes: 'result',
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /**
   * Accepts, rejects, or withdraws what was decided. Either `decisions`, all of them or none, or `all`: everything that is
   * not decided, if this `review` still has this `revision`. A rejected change is taken back in the workspace, unless the file
   * has changed since: `conflict`. What is withdrawn is to review again, and in the workspace again.
   */
  'review/decide': {
    params: session.extend({
      verdict: ReviewActionSchema,
      decisions: z.array(DecisionSchema).min(1).max(REVIEW_LIMITS.decisions).optional(),
      all: z.object({ review: z.string(), revision: count }).optional(),
      opId,
    }),
    result: reviewed.extend({ decided: count }),
    repeat: 'opId',
    whenDamaged: 'refused',
  },
  /**
   * Takes the last request of `review/decide` back, `verdict`; a rejected change returns into the workspace. `not_found` if
   * nothing can be undone.
   */
  'review/undo': {
    params: session.extend({ opId }),
    result: reviewed.extend({ verdict: ReviewActionSchema, paths: count }),
    repeat: 'opId',
    whenDamaged: 'refused',
  },
  /** Stores the base with the accepted changes as a tree; `accepted` of the review is then its root. */
  'review/tree': { params: session, result: reviewed, repeat: 'safe', whenDamaged: 'refused' },
} as const;
