import { z } from 'zod';
import { ErrorDataSchema } from './error-data.ts';
import { ExecIdSchema, SessionIdSchema, SessionRefSchema, SnapshotIdSchema, TurnIdSchema } from './ids.ts';

/** ISO 8601, UTC. */
export const TimeSchema = z.iso.datetime();

export { ExecIdSchema, SessionIdSchema, SessionRefSchema, TurnIdSchema };
/** The form of every id that there is. */
const ID_FORM = /^(ses|turn|exec|term|snp|sub)-[a-z2-7]{16}$/i;
/**
 * Names people give, in Unicode's form NFC: what looks the same is the same name. No slash (it separates profile and name), no control
 * characters or line ends, and nothing that a command line or a path would take for something else.
 */
export const SessionNameSchema = z
  .string()
  .normalize('NFC')
  .min(1)
  .max(128)
  .regex(/^[^\p{C}\p{Zl}\p{Zp}/]+$/u, 'no slash and no control characters')
  .refine((name) => name.trim() === name, 'no spaces at either end')
  .refine((name) => !name.startsWith('-'), 'no dash at the beginning: commands would take it for an option')
  .refine((name) => name !== '.' && name !== '..', 'not "." or "..", which stand for folders')
  .refine((name) => !ID_FORM.test(name), 'not the form of an id');
/** Chosen by the client, kept with the result: asking twice with one opId gives the first answer. */
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

/** How a turn or exec reached its sandbox. */
export const DISPATCH_CASES = ['reuse', 'unpause', 'reattach', 'fresh', 'create', 'resurrect'] as const;
export const DispatchCaseSchema = z.enum(DISPATCH_CASES);
export type DispatchCase = z.infer<typeof DispatchCaseSchema>;

export const DispatchResultSchema = z.object({ reused: z.boolean(), case: DispatchCaseSchema });
export type DispatchResult = z.infer<typeof DispatchResultSchema>;

/** The files of the snapshot that a session begins with are still being brought. */
export const HydrationStateSchema = z.object({
  snapshotId: SnapshotIdSchema,
  /** What the last try ended with, null while none has failed. The session's next use is another try. */
  failed: z.object({ code: z.string(), why: z.string() }).nullable(),
});
export type HydrationState = z.infer<typeof HydrationStateSchema>;

export const SessionSchema = z.object({
  id: SessionIdSchema,
  name: z.string(),
  profile: z.string(),
  status: SessionStatusSchema,
  persistent: z.boolean(),
  /** A throw-away session of an ephemeral profile: deleted when its turn has ended. */
  autoRemove: z.boolean(),
  createdAt: TimeSchema,
  lastActiveAt: TimeSchema,
  expiresAt: TimeSchema.nullable(),
  pinned: z.boolean(),
  starred: z.boolean(),
  archived: z.boolean(),
  tags: z.array(z.string()),
  model: z.string().nullable(),
  workspaceBytes: z.number().int().nonnegative().nullable(),
  backing: z.enum(['directory', 'volume']),
  /** Null where the files are all there. Until they are, whoever uses the workspace waits for them. */
  hydration: HydrationStateSchema.nullable(),
  /** False while the engine cannot be asked: `status` is then the last one known. */
  engineReachable: z.boolean(),
  runningTurn: TurnIdSchema.nullable(),
  queuedTurns: z.number().int().nonnegative(),
  /** The first request, shortened: what the session is about. */
  about: z.string().nullable(),
  /** The latest request, shortened in the same way. */
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

/** The snapshot before a turn, as far as it has come. */
export const TurnSnapshotSchema = z.object({
  /** `taking`: the turn began without waiting for it any longer. */
  state: z.enum(['taking', 'taken', 'failed']),
  /** Also an earlier one, where nothing had changed since; null unless it is taken. */
  snapshotId: SnapshotIdSchema.nullable(),
  /** It was still being taken when the turn began: it may hold some of what the turn has done. */
  duringTurn: z.boolean(),
  /** Paths that it lacks because they could not be read. */
  missing: z.number().int().nonnegative(),
  /** Why there is none. */
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
  /** Turns of the session before this one that have not ended; 0 once it runs. */
  ahead: z.number().int().nonnegative(),
  /** Why it does not go on now, where that is known. `disk_space`: the disk of the home is full; its output and its end wait for room. */
  waitingFor: z.enum(['disk_space']).nullable().default(null),
  sandbox: DispatchResultSchema.nullable(),
  /** Handler: the JSON value it returned. Command: null, its output is read with `turn/output`. Large values: null and `outputArtifact`. */
  output: z.json().nullable(),
  /** Set when the handler's value is larger than 32 KB: read it with `turn/output`, stream `result`. */
  outputArtifact: z.boolean(),
  exitCode: z.number().int().nullable(),
  error: z
    .object({ message: z.string(), data: ErrorDataSchema, traceback: z.string().optional() })
    .nullable(),
  bytes: z.object({ stdout: z.number().int(), stderr: z.number().int(), result: z.number().int() }),
  timings: z.object({
    queuedMs: z.number().nullable(),
    /** Request at the supervisor → sandbox ready. */
    dispatchMs: z.number().nullable(),
    /** Handed to the agent → ended. */
    turnMs: z.number().nullable(),
    /** Part of turnMs that a fresh warm worker took to start; null when it was warm already. */
    workerStartMs: z.number().nullable(),
  }),
  /** Which warm worker answered: the same value means in-memory state was shared. Null for commands. */
  worker: z.object({ id: z.string(), reused: z.boolean() }).nullable(),
  /** Null before the turn begins, and where none is taken (the turn of a throw-away). */
  snapshot: TurnSnapshotSchema.nullable(),
});
export type Turn = z.infer<typeof TurnSchema>;

/**
 * One line of a session's history. `hash` = sha256 over the canonical JSON `[sessionId, seq, at, type, data, prevHash]`.
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
  /** Shell commands by name that tell whether the work is good. */
  checks: z.record(z.string(), z.string()),
});
export type ProfileSummary = z.infer<typeof ProfileSummarySchema>;

export const WorkspaceInfoSchema = z.object({
  sessionId: SessionIdSchema,
  /** The host's folder where the backing is a directory, else null. */
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
  /** Why it cannot be reached and what to do, when it cannot. */
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
