import { z } from 'zod';
import { DeployResultSchema } from './deploy-result.ts';
import {
  CheckSchema,
  DispatchResultSchema,
  EngineStatusSchema,
  EventSchema,
  ExecIdSchema,
  GarbageSchema,
  OpIdSchema,
  ProfileSummarySchema,
  SessionIdSchema,
  SessionNameSchema,
  SessionRefSchema,
  SessionSchema,
  SessionStatusSchema,
  TimeSchema,
  TurnIdSchema,
  TurnSchema,
  WorkspaceInfoSchema,
} from './entities.ts';
import { POLICY_METHODS } from './egress.ts';
import { FILES_METHODS } from './files.ts';
import { SnapshotIdSchema } from './ids.ts';
import { ProfileNameSchema } from './profile.ts';
import { SEARCH_METHODS, SEARCH_NOTIFICATIONS } from './search.ts';
import {
  ResumeSourceSchema,
  SNAPSHOT_METHODS,
  SnapshotSourceSchema,
  SnapshotUsageSchema,
} from './snapshots.ts';
import { TERMINAL_METHODS } from './terminals.ts';
import { WATCH_METHODS, WATCH_NOTIFICATIONS } from './watch.ts';
import { PEER_NOTIFICATIONS } from './wire/peer-notifications.ts';

/** Shape of one method: what goes in, what comes out. `bytes` says on which side raw bytes may ride behind the message. */
export interface MethodShape {
  readonly params: z.ZodType;
  readonly result: z.ZodType;
  readonly bytes?: 'params' | 'result' | 'both';
}

const nothing = z.object({});
const session = z.object({ session: SessionRefSchema });
const opId = OpIdSchema.optional();
const tag = z.string().min(1).max(64);

export const ClientInfoSchema = z.object({
  name: z.string().max(100),
  version: z.string().max(50),
  /** Identity of the program's build: two programs of one version may differ. */
  build: z.string().max(100),
  /** When that build was made, ms since 1970; the later one is the newer one at equal versions. */
  builtAt: z.number(),
});
export type ClientInfo = z.infer<typeof ClientInfoSchema>;

/** Protocol versions this program speaks, best first. A version changes only when an old peer would misunderstand. */
export const PROTOCOL_VERSIONS = ['1'] as const;

/** client → supervisor. The one map that types both sides; nothing else may be called. */
export const METHODS = {
  hello: {
    params: z.object({
      client: ClientInfoSchema,
      protocolVersions: z.array(z.string().max(20)).min(1).max(20),
      home: z.string().optional(),
    }),
    result: z.object({
      protocolVersion: z.string(),
      supervisor: ClientInfoSchema.extend({ pid: z.number().int(), epoch: z.number().int() }),
      home: z.string(),
      /** Presence flags: what this supervisor can do beyond version 1. */
      capabilities: z.record(z.string(), z.boolean()),
    }),
  },
  ping: { params: nothing, result: nothing },

  'supervisor/status': {
    params: nothing,
    result: z.object({
      pid: z.number().int(),
      version: z.string(),
      build: z.string(),
      home: z.string(),
      startedAt: TimeSchema,
      epoch: z.number().int(),
      rssBytes: z.number().int(),
      connections: z.number().int(),
      engine: EngineStatusSchema,
      sessions: z
        .record(SessionStatusSchema, z.number().int())
        .and(z.object({ total: z.number().int(), live: z.number().int() })),
      turns: z.object({ running: z.number().int(), queued: z.number().int() }),
      logFile: z.string(),
    }),
  },
  /** Ends the supervisor; sandboxes and turns go on, the next supervisor picks them up. `sandboxes: true` stops those too. */
  'supervisor/stop': {
    params: z.object({ sandboxes: z.boolean().optional() }),
    result: z.object({ stopped: z.number().int() }),
  },
  /** A newer program asks this one to make room: it finishes the step at hand, lets go of the home and leaves. */
  'supervisor/handover': {
    params: z.object({ to: ClientInfoSchema }),
    result: z.object({ leaving: z.boolean() }),
  },
  'supervisor/doctor': { params: nothing, result: z.object({ checks: z.array(CheckSchema) }) },
  gc: {
    params: z.object({ dryRun: z.boolean().optional() }),
    /** `kept` belongs to nothing either, but may be somebody's work: it never goes by itself. */
    result: z.object({
      removed: z.array(GarbageSchema),
      retained: z.array(GarbageSchema),
      dryRun: z.boolean(),
    }),
  },
  /** Removes every container, volume, network and file of this home, then the supervisor leaves. */
  purge: { params: z.object({ force: z.boolean() }), result: z.object({ removed: z.array(GarbageSchema) }) },

  'profile/deploy': {
    /** `directory` is absolute, on the supervisor's machine. */
    params: z.object({ directory: z.string().min(1).max(4096), opId }),
    result: DeployResultSchema,
  },
  'profile/undeploy': {
    params: z.object({ profile: ProfileNameSchema, force: z.boolean(), opId }),
    result: z.object({ sessionsDeleted: z.number().int() }),
  },
  'profile/list': { params: nothing, result: z.object({ profiles: z.array(ProfileSummarySchema) }) },

  'session/create': {
    params: z.object({
      profile: ProfileNameSchema,
      name: SessionNameSchema.optional(),
      /** Begin with a snapshot's files instead of the project. */
      from: SnapshotSourceSchema.optional(),
      opId,
    }),
    result: z.object({ session: SessionSchema }),
  },
  'session/list': {
    params: z.object({
      status: SessionStatusSchema.optional(),
      search: z.string().max(200).optional(),
      profile: z.string().max(64).optional(),
      pinned: z.boolean().optional(),
      archived: z.boolean().optional(),
      tag: tag.optional(),
      limit: z.number().int().min(1).max(1000).optional(),
      cursor: z.string().max(400).optional(),
    }),
    result: z.object({ sessions: z.array(SessionSchema), nextCursor: z.string().nullable() }),
  },
  'session/show': { params: session, result: z.object({ session: SessionSchema }) },
  'session/pause': { params: session, result: z.object({ session: SessionSchema }) },
  /** Ends the containers; the workspace stays. Refused with `conflict` while a turn, exec or terminal is live, unless `force`. */
  'session/stop': {
    params: session.extend({ force: z.boolean().optional() }),
    result: z.object({ session: SessionSchema }),
  },
  /**
   * From `clean` and from a snapshot a snapshot is taken first (`undo`), and it is refused while a turn, exec or terminal is
   * live, unless `cancel`; `force` goes on where that snapshot cannot be taken.
   */
  'session/resume': {
    params: session.extend({
      from: ResumeSourceSchema.optional(),
      cancel: z.boolean().optional(),
      force: z.boolean().optional(),
      opId,
    }),
    result: z.object({
      session: SessionSchema,
      /** The snapshot that takes the workspace back to what it was; null where nothing was changed. */
      undo: SnapshotIdSchema.nullable(),
      sandbox: DispatchResultSchema,
      timings: z.object({ dispatchMs: z.number() }),
    }),
  },
  'session/update': {
    params: session.extend({
      name: SessionNameSchema.optional(),
      pinned: z.boolean().optional(),
      starred: z.boolean().optional(),
      archived: z.boolean().optional(),
      tags: z.array(tag).max(32).optional(),
      model: z.string().max(100).nullable().optional(),
    }),
    result: z.object({ session: SessionSchema }),
  },
  'session/delete': { params: session.extend({ force: z.boolean(), opId }), result: nothing },

  'session/events': {
    params: session.extend({
      after: z.number().int().nonnegative().optional(),
      limit: z.number().int().min(1).max(5000).optional(),
      type: z.string().max(64).optional(),
    }),
    result: z.object({ events: z.array(EventSchema), lastSeq: z.number().int() }),
  },
  /** From here on `session/event` notifications arrive, gap-free after `after`; `session/unsubscribe` ends them. */
  'session/subscribe': {
    params: session.extend({ after: z.number().int().nonnegative().optional() }),
    result: z.object({ subscription: z.string(), lastSeq: z.number().int() }),
  },
  'session/unsubscribe': { params: z.object({ subscription: z.string() }), result: nothing },
  'session/verify': {
    params: session,
    result: z.object({
      ok: z.boolean(),
      events: z.number().int(),
      head: z.string(),
      firstInvalid: z.number().int().nullable(),
    }),
  },

  /**
   * Puts a turn into the session's queue and returns at once. By `session`, or by `profile` (and `name`):
   * a persistent profile then uses its session `default`, an ephemeral one a throw-away; a new name creates the session.
   * Input: JSON in `input` for a handler, text in `prompt` for a command – or raw bytes behind the message for either.
   */
  'turn/start': {
    params: z.object({
      session: SessionRefSchema.optional(),
      profile: ProfileNameSchema.optional(),
      name: SessionNameSchema.optional(),
      input: z.json().optional(),
      prompt: z.string().optional(),
      timeoutMs: z
        .number()
        .int()
        .min(1)
        .max(7 * 86_400_000)
        .optional(),
      opId,
    }),
    result: z.object({ turn: TurnSchema, session: SessionSchema }),
    bytes: 'params',
  },
  'turn/show': { params: z.object({ turn: TurnIdSchema }), result: z.object({ turn: TurnSchema }) },
  'turn/list': {
    params: session.extend({ limit: z.number().int().min(1).max(1000).optional() }),
    result: z.object({ turns: z.array(TurnSchema) }),
  },
  /** Answers when the turn has ended or `timeoutMs` has passed (then with the turn as it is). */
  'turn/wait': {
    params: z.object({ turn: TurnIdSchema, timeoutMs: z.number().int().min(0).max(86_400_000).optional() }),
    result: z.object({ turn: TurnSchema }),
  },
  'turn/cancel': { params: z.object({ turn: TurnIdSchema }), result: z.object({ turn: TurnSchema }) },
  /**
   * Up to `limit` bytes of a turn's output from `offset` on, as raw bytes behind the answer. With `waitMs` it waits for
   * at least one byte or the end. `ended` with no bytes left means: that was all.
   */
  'turn/output': {
    params: z.object({
      turn: TurnIdSchema,
      stream: z.enum(['stdout', 'stderr', 'result']),
      offset: z.number().int().nonnegative(),
      limit: z
        .number()
        .int()
        .min(1)
        .max(4 * 2 ** 20)
        .optional(),
      waitMs: z.number().int().min(0).max(60_000).optional(),
    }),
    result: z.object({ offset: z.number().int(), total: z.number().int(), ended: z.boolean() }),
    bytes: 'result',
  },

  /** Starts a process in the agent container. Output arrives as `exec/output`, the end as `exec/exited`. */
  'exec/start': {
    params: session.extend({
      command: z.array(z.string().max(131_072)).min(1).max(4096),
      tty: z
        .object({ columns: z.number().int().min(1).max(10_000), rows: z.number().int().min(1).max(10_000) })
        .optional(),
      stdin: z.boolean().optional(),
      env: z.record(z.string(), z.string()).optional(),
      cwd: z.string().optional(),
    }),
    result: z.object({ exec: ExecIdSchema, sessionId: SessionIdSchema, sandbox: DispatchResultSchema }),
  },
  /** Input bytes ride behind the message; the answer comes when they have been taken (flow control). `end` closes stdin. */
  'exec/input': {
    params: z.object({ exec: ExecIdSchema, end: z.boolean().optional() }),
    result: nothing,
    bytes: 'params',
  },
  'exec/resize': {
    params: z.object({
      exec: ExecIdSchema,
      columns: z.number().int().min(1).max(10_000),
      rows: z.number().int().min(1).max(10_000),
    }),
    result: nothing,
  },
  'exec/kill': {
    params: z.object({ exec: ExecIdSchema, signal: z.enum(['TERM', 'KILL', 'INT', 'HUP']).optional() }),
    result: nothing,
  },

  ...TERMINAL_METHODS,

  /** `snapshots`: what its snapshots take, which is not part of `bytes`. */
  'workspace/info': {
    params: session,
    result: WorkspaceInfoSchema.extend({ snapshots: SnapshotUsageSchema }),
  },
  /**
   * Answered when all files are there that the session begins with: at once where nothing is being brought. Fails as a use of the
   * workspace would. Cancelled, they are brought all the same.
   */
  'workspace/wait': { params: session, result: z.object({ session: SessionSchema }) },
  /** Empties the workspace. Refused with `confirmation_required` unless `force`, with `conflict` while a turn is live. */
  'workspace/clean': {
    params: session.extend({ force: z.boolean(), opId }),
    result: z.object({ removedFiles: z.number().int(), removedBytes: z.number().int() }),
  },

  ...POLICY_METHODS,
  ...FILES_METHODS,
  ...WATCH_METHODS,
  ...SEARCH_METHODS,
  ...SNAPSHOT_METHODS,
} as const satisfies Record<string, MethodShape>;

/** supervisor → client. `bytes` as above. */
export const NOTIFICATIONS = {
  'session/event': { params: z.object({ subscription: z.string(), event: EventSchema }) },
  /** The client fell behind so far that the supervisor gave up keeping its place: subscribe again after the last seq seen. */
  'session/resync': { params: z.object({ subscription: z.string(), lastSeq: z.number().int() }) },
  'exec/output': {
    params: z.object({ exec: ExecIdSchema, stream: z.enum(['stdout', 'stderr']) }),
    bytes: 'params',
  },
  'exec/exited': {
    params: z.object({
      exec: ExecIdSchema,
      exitCode: z.number().int().nullable(),
      signal: z.string().nullable(),
    }),
  },
  ...WATCH_NOTIFICATIONS,
  ...SEARCH_NOTIFICATIONS,
  progress: PEER_NOTIFICATIONS.progress,
} as const satisfies Record<string, { params: z.ZodType; bytes?: 'params' }>;

/** client → supervisor, without an answer. */
export const CLIENT_NOTIFICATIONS = {
  cancel: PEER_NOTIFICATIONS.cancel,
} as const satisfies Record<string, { params: z.ZodType }>;

export type Methods = typeof METHODS;
export type MethodName = keyof Methods;
export type Params<M extends MethodName> = z.input<Methods[M]['params']>;
export type Result<M extends MethodName> = z.output<Methods[M]['result']>;
export type Notifications = typeof NOTIFICATIONS;
export type NotificationName = keyof Notifications;
export type NotificationParams<N extends NotificationName> = z.output<Notifications[N]['params']>;
