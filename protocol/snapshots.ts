import { z } from 'zod';
import { TimeSchema, OpIdSchema, SessionNameSchema, SessionSchema, TurnIdSchema } from './entities.ts';
import { WorkspacePathSchema } from './files.ts';
import { SessionIdSchema, SessionRefSchema, SnapshotIdSchema } from './ids.ts';

/** Changes of one page of a comparison. */
export const DIFF_LIMITS = { default: 1000, max: 5000 } as const;
/** Patch bytes behind one answer. */
export const PATCH_CHUNK_BYTES = 4 * 2 ** 20;
/** Paths that a snapshot names of those that it lacks. */
export const MAX_MISSING_PATHS = 100;
/** Paths that a patch leaves out, which one answer names. */
export const MAX_OMITTED_PATHS = 100;

/** `manual`: a person or program asked for it. All others are taken by Holdfast itself and thinned with age. */
export const SNAPSHOT_REASONS = [
  'manual',
  'before-turn',
  'before-restore',
  'before-reset',
  'before-delete',
] as const;
export const SnapshotReasonSchema = z.enum(SNAPSHOT_REASONS);
export type SnapshotReason = z.infer<typeof SnapshotReasonSchema>;

const count = z.number().int().nonnegative();
const ms = z.number().nonnegative();
const label = z
  .string()
  .min(1)
  .max(200)
  .regex(/^[^\p{C}]+$/u, 'no control characters');
const opId = OpIdSchema.optional();

export const SnapshotSchema = z.object({
  id: SnapshotIdSchema,
  sessionId: SessionIdSchema,
  createdAt: TimeSchema,
  reason: SnapshotReasonSchema,
  label: z.string().nullable(),
  /** Never thinned. */
  pinned: z.boolean(),
  /** The snapshot that was the session's newest when this one was taken. */
  base: SnapshotIdSchema.nullable(),
  /** Of the tree. Bytes are those of files as `stat` says, each hardlinked file once. */
  files: count,
  directories: count,
  bytes: count,
  /** Against the snapshot before it. */
  changedFiles: count,
  changedBytes: count,
  /** What it added to the disk. */
  newBytes: count,
  scanMs: ms,
  /** How long the agent stood still for it; 0 where nothing had to be frozen. */
  frozenMs: ms,
  /** Last event of the session's history that came before it. */
  eventSeq: count,
  /** The turn that it was taken for, and what that was asked, as one short line; null for other reasons. */
  turn: z.object({ id: TurnIdSchema, prompt: z.string() }).nullable(),
  /** It was taken for a turn that had begun before it was complete: it may hold some of what the turn has done. */
  duringTurn: z.boolean(),
  /** Paths that it lacks because they could not be read: it is incomplete unless this is 0. */
  missing: count,
  /** The first of them. */
  missingPaths: z.array(z.string()),
});
export type Snapshot = z.infer<typeof SnapshotSchema>;

export const CHANGE_KINDS = ['added', 'modified', 'deleted', 'renamed', 'mode', 'typechange'] as const;

/**
 * One path that differs. `mode`: content is the same, permission bits, mtime or attributes are not. `renamed`: the content is the same,
 * or most of it.
 */
export const ChangeSchema = z.object({
  path: z.string(),
  kind: z.enum(CHANGE_KINDS),
  /** Where it was, for a renamed one. */
  oldPath: z.string().optional(),
  /** For a renamed one: its content is not the same any more. */
  edited: z.boolean().optional(),
  /** What it is now, or was if it is gone. */
  type: z.enum(['file', 'directory', 'symlink', 'fifo', 'socket']),
  /** Bytes before and after; null where there was or is no file. */
  oldBytes: count.nullable(),
  newBytes: count.nullable(),
  /** Permission bits before and after; null where there was or is nothing. */
  oldMode: count.nullable(),
  newMode: count.nullable(),
});
export type Change = z.infer<typeof ChangeSchema>;

/** Of a whole comparison, whatever its page shows. Folders count apart: the other numbers are of files, links and the like. */
export const ChangeTotalsSchema = z.object({
  added: count,
  modified: count,
  deleted: count,
  renamed: count,
  mode: count,
  typechange: count,
  /** Folders that were added or deleted, or have other attributes. */
  directories: count,
  /** Bytes of the files that are added or modified, as they are afterwards. */
  bytes: count,
});
export type ChangeTotals = z.infer<typeof ChangeTotalsSchema>;

/** What a restore did to the workspace. `touched`: only modes, times or attributes differed. */
export const RestoreCountsSchema = z.object({
  created: count,
  replaced: count,
  removed: count,
  touched: count,
  bytes: count,
});
export type RestoreCounts = z.infer<typeof RestoreCountsSchema>;

/** `pack`, `object`, `path`: where it is damaged, as far as that is known. */
export const DamageSchema = z.object({
  what: z.string(),
  pack: z.string().nullable(),
  object: z.string().nullable(),
  path: z.string().nullable(),
});
export type Damage = z.infer<typeof DamageSchema>;

/** What the snapshots of one session use. A session and its forks share what is equal in them. */
export const SnapshotUsageSchema = z.object({
  snapshots: count,
  /** Bytes on disk of the session and its forks together. */
  bytes: count,
  /** Those of them that only snapshots of this session need; null where that is being counted. */
  uniqueBytes: count.nullable(),
});
export type SnapshotUsage = z.infer<typeof SnapshotUsageSchema>;

/** Where a session can begin, or be brought back, from. `files`: as they are. */
export const SnapshotSourceSchema = z.string().regex(/^snapshot:snp-[a-z2-7]{16}$/, 'snapshot:ID');
export const ResumeSourceSchema = z.enum(['files', 'clean', 'memory']).or(SnapshotSourceSchema);
export type ResumeSource = z.infer<typeof ResumeSourceSchema>;

/** What a comparison cannot tell of one of its sides. */
export const CaveatSchema = z.object({
  side: z.enum(['a', 'b']),
  /** Null for the workspace as it is. */
  snapshotId: SnapshotIdSchema.nullable(),
  /**
   * `during-turn`: the snapshot was taken after its turn had begun; changes from the beginning of the turn may be on both sides.
   * `incomplete`: the side lacks paths that could not be read; they are not among the changes.
   */
  kind: z.enum(['during-turn', 'incomplete']),
  /** Of the paths that are missing: how many, and the first of them. */
  missing: count,
  missingPaths: z.array(z.string()),
});
export type Caveat = z.infer<typeof CaveatSchema>;

const session = z.object({ session: SessionRefSchema });
/** With `session`, a snapshot that is not of its lineage is `not_found`. */
const snapshot = z.object({ snapshot: SnapshotIdSchema, session: SessionRefSchema.optional() });
/** `now`: the workspace as it is, of the session given or of the other side's. */
const side = SnapshotIdSchema.or(z.literal('now'));
const compared = z.object({
  a: side,
  b: side,
  session: SessionRefSchema.optional(),
  /** Only what is at or below it. */
  path: WorkspacePathSchema.optional(),
});
const page = {
  cursor: z.string().max(12_400).optional(),
  limit: z.number().int().min(1).max(DIFF_LIMITS.max).optional(),
};
const changes = z.object({
  changes: z.array(ChangeSchema),
  totals: ChangeTotalsSchema,
  nextCursor: z.string().nullable(),
  caveats: z.array(CaveatSchema),
});

/** Of an incomplete snapshot: how many files it lacks, which are left as they are, or not there; and the first of them. */
const lacking = { missing: count.default(0), missingPaths: z.array(z.string()).default([]) };

/** client → supervisor. Part of METHODS. */
export const SNAPSHOT_METHODS = {
  /**
   * Where no file has changed and no turn has ended since the newest one, and no label is given, that one is the answer and
   * `created` is false.
   */
  'snapshot/create': {
    params: session.extend({ label: label.optional(), pinned: z.boolean().optional(), opId }),
    result: SnapshotSchema.extend({ created: z.boolean() }),
  },
  /** The newest first. A deleted session is named by its id. */
  'snapshot/list': {
    params: session.extend({
      reason: SnapshotReasonSchema.optional(),
      limit: z.number().int().min(1).max(1000).optional(),
      cursor: z.string().max(400).optional(),
    }),
    result: z.object({
      snapshots: z.array(SnapshotSchema),
      nextCursor: z.string().nullable(),
      usage: SnapshotUsageSchema,
    }),
  },
  'snapshot/show': { params: snapshot, result: z.object({ snapshot: SnapshotSchema }) },
  /** Reads and checks every object that the snapshot needs. At most 1,000 damages are listed. */
  'snapshot/verify': {
    params: snapshot,
    result: z.object({
      ok: z.boolean(),
      objects: count,
      bytes: count,
      damaged: count,
      damages: z.array(DamageSchema),
    }),
  },
  /** Refused with `confirmation_required` unless `force`; with `conflict` while it is the base of a fork. */
  'snapshot/delete': { params: snapshot.extend({ force: z.boolean(), opId }), result: z.object({}) },
  'snapshot/update': {
    params: snapshot.extend({ pinned: z.boolean().optional(), label: label.nullable().optional() }),
    result: z.object({ snapshot: SnapshotSchema }),
  },
  /** How to get from `a` to `b`, in the order of their paths. */
  'snapshot/diff': { params: compared.extend(page), result: changes },
  /**
   * The same as a unified diff that `git apply` takes, as bytes behind the answer. Long ones in pieces: go on with
   * `nextCursor`, which stands for the two trees that the first piece compared. `leftOut`: how many changes of this stretch are
   * not in it, as git would refuse their paths or as they are larger than 512 MiB; `omittedPaths`: the first of them.
   */
  'snapshot/patch': {
    params: compared.extend({ cursor: page.cursor }),
    result: z.object({
      bytes: count,
      nextCursor: z.string().nullable(),
      omitted: count,
      omittedPaths: z.array(z.string()),
      caveats: z.array(CaveatSchema),
    }),
    bytes: 'result',
  },
  /**
   * What `session/resume` from there, or a restore (with `path`: of a part), would change. Changes nothing. From `clean` all is
   * told as deleted: what the new workspace begins with comes after that.
   */
  'snapshot/preview': {
    params: session.extend({ from: ResumeSourceSchema, path: WorkspacePathSchema.optional(), ...page }),
    result: changes,
  },
  /**
   * Makes the workspace, or what is at `path`, what the snapshot has. Takes a snapshot first: `undo`, null only where that
   * was forced. Refused with `conflict` while a turn, exec or terminal is live, unless `cancel`: then those are ended.
   * `force` goes on where the snapshot before it cannot be taken.
   */
  'snapshot/restore': {
    params: session.extend({
      snapshot: SnapshotIdSchema,
      path: WorkspacePathSchema.optional(),
      cancel: z.boolean().optional(),
      force: z.boolean().optional(),
      opId,
    }),
    result: RestoreCountsSchema.extend({
      snapshot: SnapshotIdSchema,
      undo: SnapshotIdSchema.nullable(),
      ...lacking,
    }),
  },
  /**
   * A new session with the snapshot's files, and the history of its session up to there. It is answered when it is there for good; its
   * files are brought meanwhile (`filling`), and `workspace/wait` is answered when they are there.
   */
  'snapshot/fork': {
    params: snapshot.extend({ name: SessionNameSchema.optional(), opId }),
    result: z.object({ session: SessionSchema, ...lacking }),
  },
} as const;
