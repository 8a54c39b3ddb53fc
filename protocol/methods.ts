import { z } from 'zod';
import { ATTACHMENT_LIMITS } from './attachment-names.ts';
import { ATTACHMENT_METHODS, AttachmentRefSchema } from './attachments.ts';
import { BUNDLE_METHODS } from './bundles.ts';
import { TurnChangesSchema, TurnPathSchema } from './changes.ts';
import { CONVERSATION_METHODS, CONVERSATION_NOTIFICATIONS } from './conversation.ts';
import { CONTENT_METHODS, ContentsVerificationSchema } from './contents.ts';
import { DEPLOY_METHODS, SOURCE_METHODS } from './deploy.ts';
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
import { CheckpointVerificationSchema, HISTORY_METHODS } from './history.ts';
import { HOST_METHODS, HOST_NOTIFICATIONS } from './host.ts';
import { ARTIFACT_METHODS } from './artifacts.ts';
import { HANDOFF_METHODS } from './handoff.ts';
import { HomeIdSchema, SnapshotIdSchema } from './ids.ts';
import { BLAME_METHODS } from './blame.ts';
import { CHECK_METHODS, CHECK_NOTIFICATIONS } from './checks.ts';
import { MANIFEST_METHODS } from './manifest.ts';
import { MEMORY_METHODS } from './memory.ts';
import { MOVE_METHODS } from './moves.ts';
import { ProfileNameSchema } from './profile.ts';
import { SECRET_METHODS } from './secrets.ts';
import { REVIEW_COMMENT_METHODS } from './review-comments.ts';
import { REVIEW_BASE_METHODS } from './review-base.ts';
import { REVIEW_METHODS } from './review.ts';
import { SETUP_METHODS, SETUP_NOTIFICATIONS } from './setup.ts';
import { SEARCH_METHODS, SEARCH_NOTIFICATIONS } from './search.ts';
import {
  ResumeSourceSchema,
  SNAPSHOT_METHODS,
  SnapshotSourceSchema,
  SnapshotUsageSchema,
} from './snapshots.ts';
import { TERMINAL_METHODS } from './terminals.ts';
import { WATCH_METHODS, WATCH_NOTIFICATIONS } from './watch.ts';
import { AGENT_SETTING_METHODS } from './agent-settings.ts';
import { leaveOutNewer } from './newer-values.ts';
import { PERMISSION_METHODS } from './permissions.ts';
import { PEER_NOTIFICATIONS } from './wire/peer-notifications.ts';

/** The schemas of one method. `bytes` says whether the request, the response or both may carry a raw payload. */
export interface MethodShape {
  readonly params: z.ZodType;
  readonly result: z.ZodType;
  readonly bytes?: 'params' | 'result' | 'both';
}

/**
 * Whether a client may send a request again when the connection broke before the response.
 * - `safe`: always. It changes nothing, or the same parameters leave the same state however often they are sent.
 * - `opId`: if it carries one. The supervisor answers the second request with the first result.
 * - `ifVersion`: if it names the version that it replaces. Without one it could overwrite what came in between.
 * - `never`: a repeated request could do something twice, or its effect belongs to the connection that was lost.
 */
export type Repeat = 'safe' | 'opId' | 'ifVersion' | 'never';

/** A method that clients call. A method without these facts does not compile. */
export interface ClientMethodShape extends MethodShape {
  readonly repeat: Repeat;
  /** What a supervisor does whose database is damaged: it `answers`, or the request is `refused` with `home_damaged`. */
  readonly whenDamaged: 'answers' | 'refused';
}

const nothing = z.object({});
const session = z.object({ session: SessionRefSchema });
const opId = OpIdSchema.optional();
const tag = z.string().min(1).max(64);

export const ClientInfoSchema = z.object({
  name: z.string().max(100),
  version: z.string().max(50),
  /** Identifies the build: two programs of the same version may differ. */
  build: z.string().max(100),
  /** Time of the build, ms since 1970. Of two builds of the same version the later one is newer. */
  builtAt: z.number(),
});
export type ClientInfo = z.infer<typeof ClientInfoSchema>;

/** Protocol versions that this program supports, best first. A version changes only for incompatible changes. */
export const PROTOCOL_VERSIONS = ['1'] as const;

/** client → supervisor. This map types both sides. No other method can be called. */
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
      /** The random id of the home, which links name. */
      homeId: HomeIdSchema,
      /** Capabilities of this supervisor beyond version 1. */
      capabilities: z.record(z.string(), z.boolean()),
    }),
    repeat: 'never',
    whenDamaged: 'answers',
  },
  ping: { params: nothing, result: nothing, repeat: 'safe', whenDamaged: 'answers' },

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
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /** Stops the supervisor. Sandboxes and turns keep running, and the next supervisor adopts them. `sandboxes: true` stops them too. */
  'supervisor/stop': {
    params: z.object({ sandboxes: z.boolean().optional() }),
    result: z.object({ stopped: z.number().int() }),
    repeat: 'never',
    whenDamaged: 'answers',
  },
  /** A newer program asks this supervisor to hand over: it finishes its current step, releases the home and exits. */
  'supervisor/handover': {
    params: z.object({ to: ClientInfoSchema }),
    result: z.object({ leaving: z.boolean() }),
    repeat: 'never',
    whenDamaged: 'answers',
  },
  'supervisor/doctor': {
    params: nothing,
    result: z.object({ checks: leaveOutNewer(z.array(CheckSchema)) }),
    repeat: 'safe',
    whenDamaged: 'answers',
  },
  gc: {
    params: z.object({ dryRun: z.boolean().optional() }),
    /** `retained`: unused objects that may be somebody's work and are never removed automatically. */
    result: z.object({
      removed: z.array(GarbageSchema),
      retained: z.array(GarbageSchema),
      dryRun: z.boolean(),
    }),
    repeat: 'never',
    whenDamaged: 'refused',
  },
  /** Removes every container, volume, network and file of this home, then stops the supervisor. */
  purge: {
    params: z.object({ force: z.boolean() }),
    result: z.object({ removed: z.array(GarbageSchema) }),
    repeat: 'never',
    whenDamaged: 'answers',
  },

  ...HOST_METHODS,

  ...DEPLOY_METHODS,
  ...SOURCE_METHODS,
  'profile/undeploy': {
    params: z.object({ profile: ProfileNameSchema, force: z.boolean(), opId }),
    result: z.object({ sessionsDeleted: z.number().int() }),
    repeat: 'opId',
    whenDamaged: 'refused',
  },
  'profile/list': {
    params: nothing,
    result: z.object({ profiles: leaveOutNewer(z.array(ProfileSummarySchema)) }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },

  'session/create': {
    params: z.object({
      profile: ProfileNameSchema,
      name: SessionNameSchema.optional(),
      /** Start with the files of a snapshot instead of the project. */
      from: SnapshotSourceSchema.optional(),
      opId,
    }),
    result: z.object({ session: SessionSchema }),
    repeat: 'opId',
    whenDamaged: 'refused',
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
    result: z.object({ sessions: leaveOutNewer(z.array(SessionSchema)), nextCursor: z.string().nullable() }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  'session/show': {
    params: session,
    result: z.object({ session: SessionSchema }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  'session/pause': {
    params: session,
    result: z.object({ session: SessionSchema }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /** Stops the containers and keeps the workspace. Fails with `conflict` while a turn, exec or terminal runs, unless `force`. */
  'session/stop': {
    params: session.extend({ force: z.boolean().optional() }),
    result: z.object({ session: SessionSchema }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /**
   * Starts the sandbox. From `clean` or from a snapshot it first creates a snapshot of the current files (`undo`), and
   * fails with `conflict` while a turn, exec or terminal runs, unless `cancel`. `force` continues without that snapshot.
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
      /** The snapshot of the files before the change; null if nothing was changed. */
      undo: SnapshotIdSchema.nullable(),
      sandbox: DispatchResultSchema,
      timings: z.object({ dispatchMs: z.number() }),
    }),
    repeat: 'opId',
    whenDamaged: 'refused',
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
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  'session/delete': {
    params: session.extend({ force: z.boolean(), opId }),
    result: nothing,
    repeat: 'opId',
    whenDamaged: 'refused',
  },

  'session/events': {
    params: session.extend({
      after: z.number().int().nonnegative().optional(),
      limit: z.number().int().min(1).max(5000).optional(),
      type: z.string().max(64).optional(),
    }),
    result: z.object({ events: leaveOutNewer(z.array(EventSchema)), lastSeq: z.number().int() }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /** Starts `session/event` notifications for all events after `after`, without gaps. `session/unsubscribe` ends them. */
  'session/subscribe': {
    params: session.extend({ after: z.number().int().nonnegative().optional() }),
    result: z.object({ subscription: z.string(), lastSeq: z.number().int() }),
    repeat: 'never',
    whenDamaged: 'refused',
  },
  'session/unsubscribe': {
    params: z.object({ subscription: z.string() }),
    result: nothing,
    repeat: 'never',
    whenDamaged: 'refused',
  },
  'session/verify': {
    params: session,
    result: z.object({
      ok: z.boolean(),
      events: z.number().int(),
      head: z.string(),
      /** The first event at which the hash chain is broken. */
      firstInvalid: z.number().int().nullable(),
      contents: ContentsVerificationSchema,
      /** Where a history begins that was cut; null for a whole one. */
      checkpoint: CheckpointVerificationSchema.nullable().default(null),
      /** What cannot be proved because events were removed, each as a sentence. */
      unproven: z.array(z.string()).default([]),
    }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },

  /**
   * Adds a turn to the session's queue and returns at once. The session is given by `session`, or by `profile` and
   * `name`: a new name creates the session. Without a name, a persistent profile uses its session `default`, an ephemeral
   * one a temporary session. Input: JSON in `input` for a handler, text in `prompt` for a command, or the payload for either.
   */
  'turn/start': {
    params: z.object({
      session: SessionRefSchema.optional(),
      profile: ProfileNameSchema.optional(),
      name: SessionNameSchema.optional(),
      input: z.json().optional(),
      prompt: z.string().optional(),
      attachments: z.array(AttachmentRefSchema).max(ATTACHMENT_LIMITS.count).optional(),
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
    repeat: 'opId',
    whenDamaged: 'refused',
  },
  /**
   * Replaces the input of a turn that waits in the queue, given as in `turn/start`. Without `attachments` it keeps those that it has.
   * Fails with `invalid_state` once it has begun.
   */
  'turn/edit': {
    params: z.object({
      turn: TurnIdSchema,
      input: z.json().optional(),
      prompt: z.string().optional(),
      attachments: z.array(AttachmentRefSchema).max(ATTACHMENT_LIMITS.count).optional(),
      opId,
    }),
    result: z.object({ turn: TurnSchema }),
    bytes: 'params',
    repeat: 'opId',
    whenDamaged: 'refused',
  },
  'turn/show': {
    params: z.object({ turn: TurnIdSchema }),
    result: z.object({ turn: TurnSchema }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /**
   * Responds when the changes are known or cannot be, or with `pending` after 10 seconds. `paths`: the changed ones in order,
   * 1,000 at most. `omitted`: how many differences there are beyond, directories included.
   */
  'turn/changes': {
    params: z.object({ turn: TurnIdSchema }),
    result: z.object({
      changes: TurnChangesSchema.nullable(),
      paths: z.array(TurnPathSchema),
      omitted: z.number().int().nonnegative(),
    }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  'turn/list': {
    params: session.extend({ limit: z.number().int().min(1).max(1000).optional() }),
    result: z.object({ turns: z.array(TurnSchema) }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /**
   * Responds when the turn has ended, or with its current state after `timeoutMs`. With `seen` it also responds when the
   * turn differs from that.
   */
  'turn/wait': {
    params: z.object({
      turn: TurnIdSchema,
      timeoutMs: z.number().int().min(0).max(86_400_000).optional(),
      seen: TurnSchema.pick({ status: true, ahead: true, waitingFor: true }).optional(),
    }),
    result: z.object({ turn: TurnSchema }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  'turn/cancel': {
    params: z.object({ turn: TurnIdSchema }),
    result: z.object({ turn: TurnSchema }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /**
   * Returns up to `limit` bytes of a turn's output from `offset` on as the payload. With `waitMs` it waits for at least
   * one byte or the end. `ended` without bytes means the end of the output.
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
    repeat: 'safe',
    whenDamaged: 'refused',
  },

  /** Starts a process in the agent container. Its output arrives as `exec/output`, its exit as `exec/exited`. */
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
    repeat: 'never',
    whenDamaged: 'refused',
  },
  /** The payload is input. Responds when the process has accepted it (flow control). `end` closes stdin. */
  'exec/input': {
    params: z.object({ exec: ExecIdSchema, end: z.boolean().optional() }),
    result: nothing,
    bytes: 'params',
    repeat: 'never',
    whenDamaged: 'refused',
  },
  'exec/resize': {
    params: z.object({
      exec: ExecIdSchema,
      columns: z.number().int().min(1).max(10_000),
      rows: z.number().int().min(1).max(10_000),
    }),
    result: nothing,
    repeat: 'never',
    whenDamaged: 'refused',
  },
  'exec/kill': {
    params: z.object({ exec: ExecIdSchema, signal: z.enum(['TERM', 'KILL', 'INT', 'HUP']).optional() }),
    result: nothing,
    repeat: 'never',
    whenDamaged: 'refused',
  },

  ...TERMINAL_METHODS,

  /** `snapshots`: disk use of its snapshots, which `bytes` does not include. */
  'workspace/info': {
    params: session,
    result: WorkspaceInfoSchema.extend({ snapshots: SnapshotUsageSchema }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /**
   * Responds when the workspace has been hydrated: at once if nothing is being copied. Fails as a use of the workspace
   * would. Cancelling the request does not stop the hydration.
   */
  'workspace/wait': {
    params: session,
    result: z.object({ session: SessionSchema }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /** Deletes all files of the workspace. Fails with `confirmation_required` unless `force`, and with `conflict` while a turn runs. */
  'workspace/clean': {
    params: session.extend({ force: z.boolean(), opId }),
    result: z.object({ removedFiles: z.number().int(), removedBytes: z.number().int() }),
    repeat: 'opId',
    whenDamaged: 'refused',
  },

  ...CONTENT_METHODS,
  ...ATTACHMENT_METHODS,
  ...PERMISSION_METHODS,
  ...AGENT_SETTING_METHODS,
  ...CONVERSATION_METHODS,
  ...MEMORY_METHODS,
  ...HISTORY_METHODS,
  ...POLICY_METHODS,
  ...SECRET_METHODS,
  ...SETUP_METHODS,
  ...FILES_METHODS,
  ...WATCH_METHODS,
  ...SEARCH_METHODS,
  ...SNAPSHOT_METHODS,
  ...BUNDLE_METHODS,
  ...MOVE_METHODS,
  ...REVIEW_METHODS,
  ...REVIEW_BASE_METHODS,
  ...REVIEW_COMMENT_METHODS,
  ...BLAME_METHODS,
  ...HANDOFF_METHODS,
  ...ARTIFACT_METHODS,
  ...MANIFEST_METHODS,
  ...CHECK_METHODS,
} as const satisfies Record<string, ClientMethodShape>;

/** supervisor → client. */
export const NOTIFICATIONS = {
  'session/event': { params: z.object({ subscription: z.string(), event: EventSchema }) },
  /** The supervisor has dropped the subscription, because the client fell too far behind: subscribe again after the last seq. */
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
  ...HOST_NOTIFICATIONS,
  ...CONVERSATION_NOTIFICATIONS,
  ...WATCH_NOTIFICATIONS,
  ...SEARCH_NOTIFICATIONS,
  ...CHECK_NOTIFICATIONS,
  ...SETUP_NOTIFICATIONS,
  progress: PEER_NOTIFICATIONS.progress,
} as const satisfies Record<string, { params: z.ZodType; bytes?: 'params' }>;

/** client → supervisor, without a response. */
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
