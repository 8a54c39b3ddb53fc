import { z } from 'zod';
import { TurnChangesSchema } from './changes.ts';
import { ErrorDataSchema } from './error-data.ts';
import { SessionMoveSchema } from './move-state.ts';
import { ExecIdSchema, SessionIdSchema, SessionRefSchema, SnapshotIdSchema, TurnIdSchema } from './ids.ts';

/** ISO 8601, UTC. */
export const TimeSchema = z.iso.datetime();

export { ExecIdSchema, SessionIdSchema, SessionRefSchema, TurnIdSchema };
/** Matches an id of any kind. */
const ID_FORM = /^(ses|turn|exec|term|snp|sub)-[a-z2-7]{16}$/i;
/**
 * Names that users give to sessions, normalized to Unicode NFC. No slash (it separates profile and name), no control
 * characters, and nothing that a command line or a path would interpret in another way.
 */
export const SessionNameSchema = z
  .string()
  .normalize('NFC')
  .min(1)
  .max(128)
  .regex(/^[^\p{C}\p{Zl}\p{Zp}/]+$/u, 'no slash and no control characters')
  .refine((name) => name.trim() === name, 'no spaces at either end')
  .refine(
    (name) => !name.startsWith('-'),
    'no dash at the beginning, because commands would treat it as an option',
  )
  .refine((name) => name !== '.' && name !== '..', 'not "." or "..", which are directories')
  .refine((name) => !ID_FORM.test(name), 'not the form of an id');
/** An idempotency key chosen by the client. A repeated request with the same opId returns the first result. */
export const OpIdSchema = z
  .string()
  .min(8)
  .max(64)
  .regex(/^[A-Za-z0-9_-]+$/);

export const SESSION_STATUSES = [
  'created',
  'active',
  'idle',
  'paused',
  'resumable',
  'expired',
  'deleted',
] as const;
export const SessionStatusSchema = z.enum(SESSION_STATUSES);
export type SessionStatus = z.infer<typeof SessionStatusSchema>;

/** How dispatch obtained the sandbox for a turn or exec. */
export const DISPATCH_CASES = ['reuse', 'unpause', 'reattach', 'fresh', 'create', 'resurrect'] as const;
export const DispatchCaseSchema = z.enum(DISPATCH_CASES);
export type DispatchCase = z.infer<typeof DispatchCaseSchema>;

export const DispatchResultSchema = z.object({ reused: z.boolean(), case: DispatchCaseSchema });
export type DispatchResult = z.infer<typeof DispatchResultSchema>;

/** The workspace of a session is being hydrated: the files of the snapshot that it starts with are being copied. */
export const HydrationStateSchema = z.object({
  snapshotId: SnapshotIdSchema,
  /** Why the last attempt failed; null if none has. The next use of the session retries. */
  failed: z.object({ code: z.string(), why: z.string() }).nullable(),
});
export type HydrationState = z.infer<typeof HydrationStateSchema>;

/** How a session began: empty or with its project, as a fork of a session, with the files of a snapshot, or from a bundle. */
export const SESSION_ORIGINS = ['new', 'fork', 'snapshot', 'import'] as const;

export const SessionSchema = z.object({
  id: SessionIdSchema,
  name: z.string(),
  profile: z.string(),
  status: SessionStatusSchema,
  persistent: z.boolean(),
  /** A temporary session of an ephemeral profile, which is deleted when its turn has ended. */
  autoRemove: z.boolean(),
  createdAt: TimeSchema,
  /** The account on its machine that created it; null in sessions of earlier versions. */
  author: z.string().nullable().default(null),
  /** The first session of its lineage: a session and its forks share equal data of their snapshots. */
  lineage: SessionIdSchema.nullable().default(null),
  /** `snapshotId`: the snapshot of another session that it began with. Null from a supervisor that does not say. */
  origin: z
    .object({ kind: z.enum(SESSION_ORIGINS), snapshotId: SnapshotIdSchema.nullable() })
    .nullable()
    .default(null),
  lastActiveAt: TimeSchema,
  expiresAt: TimeSchema.nullable(),
  pinned: z.boolean(),
  starred: z.boolean(),
  archived: z.boolean(),
  tags: z.array(z.string()),
  model: z.string().nullable(),
  workspaceBytes: z.number().int().nonnegative().nullable(),
  backing: z.enum(['directory', 'volume']),
  /** Null once all files are in the workspace. Until then every use of the workspace waits for them. */
  hydration: HydrationStateSchema.nullable(),
  /** Null unless it is on its way between two homes. Nothing can use or change it then. */
  move: SessionMoveSchema.nullable().default(null),
  /** False while the engine is unreachable. `status` is then the last known one. */
  engineReachable: z.boolean(),
  runningTurn: TurnIdSchema.nullable(),
  queuedTurns: z.number().int().nonnegative(),
  /** Permissions that wait for a person. */
  waiting: z.number().int().nonnegative().default(0),
  /** The first prompt, truncated. */
  about: z.string().nullable(),
  /** The latest prompt, truncated. */
  lastPrompt: z.string().nullable(),
  lastSeq: z.number().int().nonnegative(),
});
export type Session = z.infer<typeof SessionSchema>;

export const TURN_STATUSES = [
  'queued',
  'running',
  'succeeded',
  'failed',
  'cancelled',
  'timeout',
  'interrupted',
] as const;
export const TurnStatusSchema = z.enum(TURN_STATUSES);
export type TurnStatus = z.infer<typeof TurnStatusSchema>;
export const ENDED_TURN_STATUSES: ReadonlySet<TurnStatus> = new Set([
  'succeeded',
  'failed',
  'cancelled',
  'timeout',
  'interrupted',
]);

/** The state of the snapshot before a turn. */
export const TurnSnapshotSchema = z.object({
  /** `taking`: it is not finished yet, and the turn has started without it. */
  state: z.enum(['taking', 'taken', 'failed']),
  /** May be an earlier snapshot if nothing has changed since. Null unless `state` is `taken`. */
  snapshotId: SnapshotIdSchema.nullable(),
  /** The snapshot was finished after the turn had started and may contain some of its changes. */
  duringTurn: z.boolean(),
  /** Number of paths that are missing because they could not be read. */
  missing: z.number().int().nonnegative(),
  /** Why the snapshot failed. */
  failure: z.object({ code: z.string(), why: z.string() }).nullable(),
});
export type TurnSnapshot = z.infer<typeof TurnSnapshotSchema>;

export const TurnSchema = z.object({
  turnId: TurnIdSchema,
  sessionId: SessionIdSchema,
  status: TurnStatusSchema,
  createdAt: TimeSchema,
  startedAt: TimeSchema.nullable(),
  endedAt: TimeSchema.nullable(),
  /** Number of turns ahead in the session's queue; 0 once it runs. */
  ahead: z.number().int().nonnegative(),
  /** What blocks the turn, if known. `disk_space`: the disk of the home is full, so its output and end cannot be stored. */
  waitingFor: z.enum(['disk_space']).nullable().default(null),
  sandbox: DispatchResultSchema.nullable(),
  /** For a handler its return value, for a command null (read the output with `turn/output`). Null for large values. */
  output: z.json().nullable(),
  /** The return value is larger than 32 KB: read it with `turn/output`, stream `result`. */
  outputArtifact: z.boolean(),
  exitCode: z.number().int().nullable(),
  error: z
    .object({ message: z.string(), data: ErrorDataSchema, traceback: z.string().optional() })
    .nullable(),
  bytes: z.object({ stdout: z.number().int(), stderr: z.number().int(), result: z.number().int() }),
  timings: z.object({
    queuedMs: z.number().nullable(),
    /** From the request until the sandbox is ready. */
    dispatchMs: z.number().nullable(),
    /** From the start in the agent until the end. */
    turnMs: z.number().nullable(),
    /** The part of turnMs that starting a worker took; null if the worker was reused. */
    workerStartMs: z.number().nullable(),
  }),
  /** The worker that ran the turn. Turns with the same worker share memory. Null for commands. */
  worker: z.object({ id: z.string(), reused: z.boolean() }).nullable(),
  /** Null before the turn starts, and if there is none (in temporary sessions). */
  snapshot: TurnSnapshotSchema.nullable(),
  /** What it changed on disk. Null until it has ended, in sessions that are not persistent, and for turns of older versions. */
  changes: TurnChangesSchema.nullable().default(null),
});
export type Turn = z.infer<typeof TurnSchema>;

/**
 * One event of a session's history. `hash` = sha256 over the canonical JSON `[sessionId, seq, at, type, data, prevHash]`.
 * Canonical: keys sorted, no spaces (RFC 8785). `prevHash` of the first event is 64 zeros.
 */
export const EventSchema = z.object({
  sessionId: SessionIdSchema,
  seq: z.number().int().positive(),
  at: TimeSchema,
  type: z.string(),
  data: z.record(z.string(), z.json()),
  prevHash: z.string(),
  hash: z.string(),
});
export type SessionEvent = z.infer<typeof EventSchema>;

export const ProfileSummarySchema = z.object({
  name: z.string(),
  version: z.number().int().positive(),
  deployedAt: TimeSchema,
  image: z.string(),
  agent: z.object({
    protocol: z.string(),
    entry: z.string().nullable(),
    command: z.array(z.string()).nullable(),
  }),
  persistent: z.boolean(),
  files: z.number().int().nonnegative(),
  bytes: z.number().int().nonnegative(),
  sessions: z.number().int().nonnegative(),
  source: z.string(),
  /** Shell commands by name that check the agent's work. */
  checks: z.record(z.string(), z.string()),
});
export type ProfileSummary = z.infer<typeof ProfileSummarySchema>;

export const WorkspaceInfoSchema = z.object({
  sessionId: SessionIdSchema,
  /** The directory on the host if the backing is a directory, else null. */
  path: z.string().nullable(),
  volume: z.string().nullable(),
  bytes: z.number().int().nonnegative(),
  files: z.number().int().nonnegative(),
  directories: z.number().int().nonnegative(),
  limit: z.number().int().positive().nullable(),
  lastUsedAt: TimeSchema,
});
export type WorkspaceInfo = z.infer<typeof WorkspaceInfoSchema>;

export const EngineStatusSchema = z.object({
  reachable: z.boolean(),
  endpoint: z.string(),
  source: z.enum(['DOCKER_HOST', 'context', 'default', 'setting']),
  version: z.string().nullable(),
  apiVersion: z.string().nullable(),
  capabilities: z
    .object({
      pause: z.enum(['freezer', 'signal', 'suspend', 'none']),
      execAttach: z.boolean(),
      localPaths: z.boolean(),
      runtimes: z.array(z.string()),
    })
    .nullable(),
  /** If it cannot be reached: why, and what to do. */
  why: z.string().nullable(),
  next: z.string().nullable(),
});
export type EngineStatus = z.infer<typeof EngineStatusSchema>;

export const CheckSchema = z.object({
  name: z.string(),
  status: z.enum(['ok', 'warning', 'problem']),
  found: z.string(),
  next: z.string().nullable(),
});
export type Check = z.infer<typeof CheckSchema>;

export const GarbageSchema = z.object({
  kind: z.enum([
    'container',
    'volume',
    'image',
    'directory',
    'deploy',
    'runtime',
    'artifact',
    'snapshots',
    'database',
  ]),
  name: z.string(),
  why: z.string(),
  bytes: z.number().int().nonnegative().nullable(),
});
export type Garbage = z.infer<typeof GarbageSchema>;
