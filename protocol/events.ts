import { z } from 'zod';
import {
  DispatchCaseSchema,
  ExecIdSchema,
  SessionStatusSchema,
  TurnIdSchema,
  TurnStatusSchema,
} from './entities.ts';
import { EGRESS_EVENTS } from './egress.ts';
import { ErrorDataSchema } from './error-data.ts';
import { SessionIdSchema, SnapshotIdSchema, TerminalIdSchema } from './ids.ts';
import { SnapshotReasonSchema } from './snapshots.ts';

/** Bytes of one turn's output, of all streams together, that are kept inside events; more goes to an artifact. */
export const INLINE_OUTPUT_BYTES = 32 * 1024;
/** `prevHash` of a session's first event. */
export const GENESIS_HASH = '0'.repeat(64);

const bytes = z.number().int().nonnegative();
const ms = z.number().nonnegative().nullable();

export const TurnErrorSchema = z.object({
  message: z.string(),
  data: ErrorDataSchema,
  traceback: z.string().optional(),
});
export type TurnError = z.infer<typeof TurnErrorSchema>;

export const OUTPUT_STREAMS = ['stdout', 'stderr', 'result'] as const;
export const OutputStreamSchema = z.enum(OUTPUT_STREAMS);
export type OutputStream = z.infer<typeof OutputStreamSchema>;

/**
 * Everything that a session's history can say, by type. Replaying these gives the state that the rows hold. Secrets and
 * whole prompts never go into an event: history is shown, exported and kept longer than anything else.
 */
export const EVENT_SCHEMAS = {
  'session.created': z.object({
    name: z.string(),
    profile: z.string(),
    persistent: z.boolean(),
    throwaway: z.boolean(),
    backing: z.enum(['directory', 'volume']),
    uid: z.number().int(),
    gid: z.number().int(),
  }),
  'session.status': z.object({ from: SessionStatusSchema, to: SessionStatusSchema, why: z.string() }),
  'session.updated': z.object({
    name: z.string().optional(),
    pinned: z.boolean().optional(),
    starred: z.boolean().optional(),
    archived: z.boolean().optional(),
    tags: z.array(z.string()).optional(),
    model: z.string().nullable().optional(),
    about: z.string().nullable().optional(),
  }),
  /** The workspace is gone or going; the row stays as a tombstone. */
  'session.deleted': z.object({ why: z.string() }),
  /** A week after the deletion: inputs, outputs and what the events before this one held are gone; their hashes stay. */
  'session.contents-removed': z.object({}),

  /** A new generation is begun: containers of an older one no longer count. */
  'sandbox.starting': z.object({ generation: z.number().int().positive() }),
  'sandbox.started': z.object({
    generation: z.number().int().positive(),
    case: DispatchCaseSchema,
    image: z.string(),
    /** What the engine says the image is: an id or digest. */
    imageIdentity: z.string().nullable(),
    codeVersion: z.number().int().positive().nullable(),
  }),
  'sandbox.lost': z.object({ generation: z.number().int(), why: z.string() }),
  'sandbox.removed': z.object({ generation: z.number().int(), why: z.string() }),

  'turn.queued': z.object({
    turnId: TurnIdSchema,
    kind: z.enum(['handler', 'command']),
    inputBytes: bytes,
    /** The beginning of the input, for a person to know it by. */
    preview: z.string(),
    timeoutMs: z.number().int().positive(),
  }),
  'turn.started': z.object({
    turnId: TurnIdSchema,
    case: DispatchCaseSchema,
    reused: z.boolean(),
    generation: z.number().int(),
    codeVersion: z.number().int().nullable(),
    queuedMs: ms,
    dispatchMs: ms,
  }),
  /** Its sandbox ended before anything of the turn had begun: it begins anew in the next one. */
  'turn.restarted': z.object({
    turnId: TurnIdSchema,
    generation: z.number().int(),
    /** How the next one came to be, in place of what `turn.started` said; not told by older supervisors. */
    case: DispatchCaseSchema.optional(),
    reused: z.boolean().optional(),
  }),
  /** The warm worker that took it. */
  'turn.worker': z.object({
    turnId: TurnIdSchema,
    workerId: z.string(),
    workerReused: z.boolean(),
    workerStartMs: ms,
  }),
  /** Exactly one of `text`, `base64` and `artifact`. With `artifact` the bytes are in a file beside the log. */
  'turn.output': z.object({
    turnId: TurnIdSchema,
    stream: OutputStreamSchema,
    offset: bytes,
    bytes,
    text: z.string().optional(),
    base64: z.string().optional(),
    artifact: z.string().optional(),
    /** Of the bytes in the artifact, so that the chain covers them too. */
    sha256: z.string().optional(),
  }),
  'turn.cancelling': z.object({ turnId: TurnIdSchema }),
  'turn.ended': z.object({
    turnId: TurnIdSchema,
    status: TurnStatusSchema,
    exitCode: z.number().int().nullable(),
    error: TurnErrorSchema.nullable(),
    /** The handler's value, where it is small enough. */
    output: z.json(),
    outputArtifact: z.boolean(),
    turnMs: ms,
    workerStartMs: ms,
    workerId: z.string().nullable(),
    workerReused: z.boolean().nullable(),
  }),

  'exec.started': z.object({
    execId: ExecIdSchema,
    /** The program and its arguments, shortened. */
    command: z.array(z.string()),
    tty: z.boolean(),
    case: DispatchCaseSchema,
    reused: z.boolean(),
  }),
  'exec.ended': z.object({
    execId: ExecIdSchema,
    exitCode: z.number().int().nullable(),
    signal: z.string().nullable(),
  }),

  'terminal.opened': z.object({
    terminalId: TerminalIdSchema,
    /** The program and its arguments, shortened; empty for the image's shell. */
    command: z.array(z.string()),
    case: DispatchCaseSchema,
    reused: z.boolean(),
  }),
  /** `why`: what ended it, where its program did not end by itself. */
  'terminal.ended': z.object({
    terminalId: TerminalIdSchema,
    exitCode: z.number().int().nullable(),
    why: z.string().nullable(),
  }),

  'workspace.cleaned': z.object({ files: bytes, bytes, why: z.string() }),
  'workspace.measured': z.object({ bytes }),
  /** The project was put into the workspace; what was there stayed. */
  'workspace.seeded': z.object({ files: bytes, bytes, codeVersion: z.number().int().positive() }),
  /** The workspace was made what a snapshot has: all of it, or what is at `path`. */
  'workspace.restored': z.object({
    snapshotId: SnapshotIdSchema,
    path: z.string().nullable(),
    /** The snapshot that was taken before. */
    undo: SnapshotIdSchema.nullable(),
    created: bytes,
    replaced: bytes,
    removed: bytes,
    touched: bytes,
    bytes,
  }),
  /** The files of the snapshot that the session begins with could not be brought; the next use tries again. */
  'workspace.hydration-failed': z.object({ snapshotId: SnapshotIdSchema, code: z.string(), why: z.string() }),
  /** 90 % of `workspace.limit` are used, or more. Once, until it is clearly less. */
  'workspace.near-limit': z.object({ bytes, limit: bytes }),
  'snapshot.created': z.object({
    snapshotId: SnapshotIdSchema,
    reason: SnapshotReasonSchema,
    label: z.string().nullable(),
    /** Hash of the tree. */
    root: z.string(),
    files: bytes,
    bytes,
    changedFiles: bytes,
    newBytes: bytes,
    frozenMs: z.number().nonnegative(),
    /** The turn that it was taken for. */
    turnId: TurnIdSchema.optional(),
    /** That turn had begun before it was complete. */
    duringTurn: z.boolean().optional(),
    /** How many paths it lacks because they could not be read, and the first of them. */
    missing: bytes.optional(),
    missingPaths: z.array(z.string()).optional(),
  }),
  'snapshot.deleted': z.object({ snapshotId: SnapshotIdSchema, why: z.string() }),
  /** One that Holdfast takes by itself could not be taken; what it was for went on. */
  'snapshot.failed': z.object({
    reason: SnapshotReasonSchema,
    code: z.string(),
    why: z.string(),
    /** The turn that it was for. */
    turnId: TurnIdSchema.optional(),
  }),
  /**
   * What comes before it in this history is the other session's, up to its event `eventSeq`, chained anew with new ids of
   * turns. From here on it is this session's own.
   */
  'session.forked': z.object({
    from: SessionIdSchema,
    snapshotId: SnapshotIdSchema,
    eventSeq: bytes,
    name: z.string(),
    profile: z.string(),
    persistent: z.boolean(),
    backing: z.enum(['directory', 'volume']),
    uid: z.number().int(),
    gid: z.number().int(),
  }),
  ...EGRESS_EVENTS,

  /** A newer version of the profile's code: the next turn runs it. */
  'profile.deployed': z.object({ profile: z.string(), version: z.number().int().positive() }),
} as const;

export type EventType = keyof typeof EVENT_SCHEMAS;
export type EventData<T extends EventType> = z.input<(typeof EVENT_SCHEMAS)[T]>;

/** What is given to the log: it adds the rest. `at` in ms since 1970, now when left out. */
export type EventEntry = {
  [T in EventType]: { readonly type: T; readonly data: EventData<T>; readonly at?: number };
}[EventType];

/** The data of an event as its type has it; null for a type that this program does not know. */
export function parseEvent(event: { type: string; data: unknown }): EventEntry | null {
  if (!Object.hasOwn(EVENT_SCHEMAS, event.type)) return null;
  const type = event.type as EventType;
  return { type, data: EVENT_SCHEMAS[type].parse(event.data) } as EventEntry;
}
