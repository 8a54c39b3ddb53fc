import { z } from 'zod';
import { AuthorSchema } from './agent-events.ts';
import { TimeSchema, OpIdSchema, SessionNameSchema, SessionSchema, TurnIdSchema } from './entities.ts';
import { CHANGE_KINDS, type ChangeTotals, ChangeTotalsSchema } from './changes.ts';
import { WorkspacePathSchema } from './files.ts';
import { SessionIdSchema, SessionRefSchema, SnapshotIdSchema } from './ids.ts';
import { readNewerAs } from './newer-values.ts';
import { SNAPSHOT_REASONS, type SnapshotReason } from './snapshot-reasons.ts';

export { CHANGE_KINDS, type ChangeTotals, SNAPSHOT_REASONS, type SnapshotReason };

/** Number of changes in one page of a comparison. */
export const DIFF_LIMITS = { default: 1000, max: 5000 } as const;
/** Maximum patch bytes in one response. */
export const PATCH_CHUNK_BYTES = 4 * 2 ** 20;
/** How many of its missing paths a snapshot lists. */
export const MAX_MISSING_PATHS = 100;
/** How many of the paths that a patch omits one response lists. */
export const MAX_OMITTED_PATHS = 100;

export const SnapshotReasonSchema = readNewerAs(z.enum(SNAPSHOT_REASONS), () => 'manual');

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
  /** Who asked for it; null from a supervisor that does not say. */
  author: AuthorSchema.nullable().default(null),
  label: z.string().nullable(),
  /** Never deleted automatically. */
  pinned: z.boolean(),
  /** The session's previous snapshot. */
  base: SnapshotIdSchema.nullable(),
  /** Totals of the tree. Bytes are sizes as in `stat`; each hardlinked file counts once. */
  files: count,
  directories: count,
  bytes: count,
  /** Compared with `base`. */
  changedFiles: count,
  changedBytes: count,
  /** Bytes that it added on disk. */
  newBytes: count,
  scanMs: ms,
  /** How long the agent was paused; 0 if it was not. */
  frozenMs: ms,
  /** The last event of the session's history before it. */
  eventSeq: count,
  /** The turn that it was created before or after, and the beginning of its prompt; null for other reasons. */
  turn: z.object({ id: TurnIdSchema, prompt: z.string() }).nullable(),
  /** It was finished after its turn had started, and may contain some of the turn's changes. */
  duringTurn: z.boolean(),
  /** Number of paths that are missing because they could not be read. 0: the snapshot is complete. */
  missing: count,
  /** The first of them. */
  missingPaths: z.array(z.string()),
  /** Hash of the tree of the agent's state (`agent.state`); null: the snapshot has none. */
  stateRoot: z.string().nullable().default(null),
});
export type Snapshot = z.infer<typeof SnapshotSchema>;

/**
 * One path that differs. `mode`: only permission bits, mtime or extended attributes differ. `renamed`: the content is the
 * same or similar.
 */
export const ChangeSchema = z.object({
  path: z.string(),
  kind: z.enum(CHANGE_KINDS),
  /** The old path, if it was renamed. */
  oldPath: z.string().optional(),
  /** It was renamed and its content differs. */
  edited: z.boolean().optional(),
  /** The current type, or the old one if it was deleted. */
  type: z.enum(['file', 'directory', 'symlink', 'fifo', 'socket']),
  /** Sizes before and after; null if there was or is no file. */
  oldBytes: count.nullable(),
  newBytes: count.nullable(),
  /** Permission bits before and after; null if nothing existed or exists. */
  oldMode: count.nullable(),
  newMode: count.nullable(),
});
export type Change = z.infer<typeof ChangeSchema>;

/** What a restore changed. `touched`: only modes, times or extended attributes differed. */
export const RestoreCountsSchema = z.object({
  created: count,
  replaced: count,
  removed: count,
  touched: count,
  bytes: count,
});
export type RestoreCounts = z.infer<typeof RestoreCountsSchema>;

/** One damaged object. `pack`, `object`, `path`: where, if known. */
export const DamageSchema = z.object({
  what: z.string(),
  pack: z.string().nullable(),
  object: z.string().nullable(),
  path: z.string().nullable(),
});
export type Damage = z.infer<typeof DamageSchema>;

/** Disk use of the snapshots of a session. A session and its forks share equal data. */
export const SnapshotUsageSchema = z.object({
  snapshots: count,
  /** Bytes on disk of the session and its forks together. */
  bytes: count,
  /** The part that only snapshots of this session use; null while it is being measured. */
  uniqueBytes: count.nullable(),
});
export type SnapshotUsage = z.infer<typeof SnapshotUsageSchema>;

/** How many restores and how many forks a graph lists, the newest ones. */
export const MAX_GRAPH_ENTRIES = 1000;

/**
 * How the snapshots of a session follow from each other, beside their order: a restore goes back to one of them, a fork is
 * a session that began with one. Both newest first; deleted forks are left out.
 */
export const SnapshotGraphSchema = z.object({
  /** The snapshot that the session began with; null if it is no fork. `session`: whose it is, null if that was deleted. */
  origin: z
    .object({
      snapshotId: SnapshotIdSchema,
      session: z.object({ id: SessionIdSchema, name: z.string() }).nullable(),
    })
    .nullable(),
  restores: z.array(
    z.object({
      /** Its event: a snapshot whose `eventSeq` is at least this was created after it. */
      seq: count,
      at: TimeSchema,
      snapshotId: SnapshotIdSchema,
      /** Null: all files. */
      path: z.string().nullable(),
      /** The snapshot of the files before. */
      undo: SnapshotIdSchema.nullable(),
    }),
  ),
  forks: z.array(
    z.object({ sessionId: SessionIdSchema, name: z.string(), snapshotId: SnapshotIdSchema, at: TimeSchema }),
  ),
});
export type SnapshotGraph = z.infer<typeof SnapshotGraphSchema>;

/** What a session can start from or resume with. `files`: the current files. */
export const SnapshotSourceSchema = z.string().regex(/^snapshot:snp-[a-z2-7]{16}$/, 'snapshot:ID');
export const ResumeSourceSchema = z.enum(['files', 'clean', 'memory']).or(SnapshotSourceSchema);
export type ResumeSource = z.infer<typeof ResumeSourceSchema>;

/** A limitation of a comparison: what is unknown about one of its sides. */
export const CaveatSchema = z.object({
  side: z.enum(['a', 'b']),
  /** Null for the current workspace. */
  snapshotId: SnapshotIdSchema.nullable(),
  /**
   * `during-turn`: the snapshot was finished after its turn had started, so that early changes of the turn may be on both
   * sides. `incomplete`: the side has missing paths, which are not compared.
   */
  kind: z.enum(['during-turn', 'incomplete']),
  /** How many paths are missing, and the first of them. */
  missing: count,
  missingPaths: z.array(z.string()),
});
export type Caveat = z.infer<typeof CaveatSchema>;

const session = z.object({ session: SessionRefSchema });
/** With `session`, a snapshot of another lineage is `not_found`. */
const snapshot = z.object({ snapshot: SnapshotIdSchema, session: SessionRefSchema.optional() });
/** `now`: the current workspace of `session`, or of the session of the other side. */
const side = SnapshotIdSchema.or(z.literal('now'));
const compared = z.object({
  a: side,
  b: side,
  session: SessionRefSchema.optional(),
  /** Only this path and everything below it. */
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

/** For an incomplete snapshot: how many paths are missing, and the first of them. They are left unchanged, or absent. */
const incompleteness = { missing: count.default(0), missingPaths: z.array(z.string()).default([]) };

/** client → supervisor. Part of METHODS. */
export const SNAPSHOT_METHODS = {
  /**
   * If no file has changed and no turn has ended since the newest snapshot, and no label is given, it returns that one
   * with `created: false`.
   */
  'snapshot/create': {
    params: session.extend({ label: label.optional(), pinned: z.boolean().optional(), opId }),
    result: SnapshotSchema.extend({ created: z.boolean() }),
    repeat: 'opId',
    whenDamaged: 'refused',
  },
  /** Newest first. A deleted session must be given by its id. */
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
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  'snapshot/graph': {
    params: session,
    result: SnapshotGraphSchema,
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  'snapshot/show': {
    params: snapshot,
    result: z.object({ snapshot: SnapshotSchema }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /** Reads and checks every object of the snapshot. Lists at most 1,000 damages. */
  'snapshot/verify': {
    params: snapshot,
    result: z.object({
      ok: z.boolean(),
      objects: count,
      bytes: count,
      damaged: count,
      damages: z.array(DamageSchema),
    }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /** Fails with `confirmation_required` unless `force`, and with `conflict` while it is the base of a fork. */
  'snapshot/delete': {
    params: snapshot.extend({ force: z.boolean(), opId }),
    result: z.object({}),
    repeat: 'opId',
    whenDamaged: 'refused',
  },
  'snapshot/update': {
    params: snapshot.extend({ pinned: z.boolean().optional(), label: label.nullable().optional() }),
    result: z.object({ snapshot: SnapshotSchema }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /** The changes from `a` to `b`, sorted by path. */
  'snapshot/diff': { params: compared.extend(page), result: changes, repeat: 'safe', whenDamaged: 'refused' },
  /**
   * The same as a unified diff for `git apply`, as the payload. Long patches come in chunks: continue with `nextCursor`,
   * which refers to the two trees of the first chunk. `omitted`: how many changes of this chunk are not in the patch,
   * because git would refuse their paths or they are larger than 512 MiB. `omittedPaths`: the first of them.
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
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /**
   * What `session/resume` from `from`, or a restore of `path`, would change. Changes nothing itself. From `clean` it
   * reports every file as deleted: it does not include the files that the new workspace starts with.
   */
  'snapshot/preview': {
    params: session.extend({ from: ResumeSourceSchema, path: WorkspacePathSchema.optional(), ...page }),
    result: changes,
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /**
   * Restores the workspace, or `path`, from the snapshot. First creates a snapshot of the current files (`undo`). Fails
   * with `conflict` while a turn, exec or terminal runs, unless `cancel`, which ends them. `force` continues if the
   * snapshot of the current files fails; `undo` is then null. `withState`: restore the agent's state too (`stateRoot`).
   */
  'snapshot/restore': {
    params: session.extend({
      snapshot: SnapshotIdSchema,
      withState: z.boolean().optional(),
      path: WorkspacePathSchema.optional(),
      cancel: z.boolean().optional(),
      force: z.boolean().optional(),
      opId,
    }),
    result: RestoreCountsSchema.extend({
      snapshot: SnapshotIdSchema,
      undo: SnapshotIdSchema.nullable(),
      stateRoot: z.string().nullable().default(null),
      ...incompleteness,
    }),
    repeat: 'opId',
    whenDamaged: 'refused',
  },
  /**
   * Creates a session with the files of the snapshot and the history of its session up to that point. Responds when the
   * session has been created durably. Its files are copied in the background (`hydration`); see `workspace/wait`.
   */
  'snapshot/fork': {
    params: snapshot.extend({ name: SessionNameSchema.optional(), opId }),
    result: z.object({ session: SessionSchema, ...incompleteness }),
    repeat: 'opId',
    whenDamaged: 'refused',
  },
} as const;
