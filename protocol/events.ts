import { z } from 'zod';
import { type Content, ContentSchema } from './contents.ts';
import {
  DispatchCaseSchema,
  ExecIdSchema,
  SessionStatusSchema,
  TurnIdSchema,
  TurnStatusSchema,
} from './entities.ts';
import { AGENT_EVENTS } from './agent-events.ts';
import { AttachmentsSchema } from './attachments.ts';
import { CHECK_EVENTS } from './checks.ts';
import { EGRESS_EVENTS } from './egress.ts';
import { ARTIFACT_EVENTS } from './artifacts.ts';
import { HANDOFF_EVENTS } from './handoff.ts';
import { MANIFEST_EVENTS } from './manifest.ts';
import { ErrorDataSchema } from './error-data.ts';
import { HomeIdSchema, SessionIdSchema, SnapshotIdSchema, TerminalIdSchema } from './ids.ts';
import { REVIEW_COMMENT_EVENTS } from './review-comments.ts';
import { SnapshotReasonSchema } from './snapshots.ts';
import { TurnKindSchema } from './turn-kinds.ts';

/** The first output of a turn (all streams together), up to this size, is stored in the database, and the rest in a file. */
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

/** A session whose history was copied from another one: up to which event, and what it is itself. */
const COPIED_HISTORY = {
  from: SessionIdSchema,
  snapshotId: SnapshotIdSchema,
  eventSeq: bytes,
  name: z.string(),
  profile: z.string(),
  persistent: z.boolean(),
  backing: z.enum(['directory', 'volume']),
  uid: z.number().int(),
  gid: z.number().int(),
};

export const OUTPUT_STREAMS = ['stdout', 'stderr', 'result'] as const;
export const OutputStreamSchema = z.enum(OUTPUT_STREAMS);
export type OutputStream = z.infer<typeof OutputStreamSchema>;

/**
 * The data of every event type. Replaying the events of a session gives the state of its rows. Events never contain
 * secrets, prompts or outputs, because history is displayed, exported and kept longer than anything else: they name
 * contents (see `contents.ts`).
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
    /** The beginning of the first prompt, in events of earlier versions only. */
    about: z.string().nullable().optional(),
  }),
  /** The workspace is being deleted. The row stays as a tombstone. */
  'session.deleted': z.object({ why: z.string() }),
  /** A week after the deletion: inputs, outputs and the data of earlier events were removed. Their hashes stay. */
  'session.contents-removed': z.object({}),

  /** Starts a new generation. Containers of older generations are obsolete. */
  'sandbox.starting': z.object({ generation: z.number().int().positive() }),
  'sandbox.started': z.object({
    generation: z.number().int().positive(),
    case: DispatchCaseSchema,
    image: z.string(),
    /** The image id or digest that the engine reports. */
    imageIdentity: z.string().nullable(),
    codeVersion: z.number().int().positive().nullable(),
  }),
  'sandbox.lost': z.object({ generation: z.number().int(), why: z.string() }),
  'sandbox.removed': z.object({ generation: z.number().int(), why: z.string() }),

  'turn.queued': z.object({
    turnId: TurnIdSchema,
    kind: TurnKindSchema,
    inputBytes: bytes,
    /** The beginning of the input, in events of earlier versions only. */
    preview: z.string().optional(),
    /** The whole input. Null in events of earlier versions. */
    content: ContentSchema.nullable(),
    timeoutMs: z.number().int().positive(),
    attachments: AttachmentsSchema.optional(),
  }),
  /** The input of a turn that still waits was replaced; the data is that of the new one. */
  'turn.edited': z.object({
    turnId: TurnIdSchema,
    inputBytes: bytes,
    /** As in `turn.queued`. */
    preview: z.string().optional(),
    content: ContentSchema,
    /** All that it has from now on. */
    attachments: AttachmentsSchema.optional(),
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
  /** The sandbox ended before the turn had started in it. The turn starts again in the next sandbox. */
  'turn.restarted': z.object({
    turnId: TurnIdSchema,
    generation: z.number().int(),
    /** How the next sandbox was obtained; replaces the value of `turn.started`. Older supervisors omit it. */
    case: DispatchCaseSchema.optional(),
    reused: z.boolean().optional(),
  }),
  /** The worker that runs the turn. */
  'turn.worker': z.object({
    turnId: TurnIdSchema,
    workerId: z.string(),
    workerReused: z.boolean(),
    workerStartMs: ms,
  }),
  'turn.output': z.object({
    turnId: TurnIdSchema,
    stream: OutputStreamSchema,
    offset: bytes,
    bytes,
    /** Null in events of earlier versions, which had the output in one of the next three fields instead. */
    content: ContentSchema.nullable(),
    text: z.string().optional(),
    base64: z.string().optional(),
    /** A file, and the hash of its bytes. */
    artifact: z.string().optional(),
    sha256: z.string().optional(),
  }),
  'turn.cancelling': z.object({ turnId: TurnIdSchema }),
  'turn.ended': z.object({
    turnId: TurnIdSchema,
    status: TurnStatusSchema,
    exitCode: z.number().int().nullable(),
    error: TurnErrorSchema.nullable(),
    /** The handler's return value as JSON. Null without one, and in events of earlier versions. */
    content: ContentSchema.nullable(),
    /** The return value in events of earlier versions. */
    output: z.json().optional(),
    outputArtifact: z.boolean(),
    turnMs: ms,
    workerStartMs: ms,
    workerId: z.string().nullable(),
    workerReused: z.boolean().nullable(),
  }),

  'exec.started': z.object({
    execId: ExecIdSchema,
    /** The program and its arguments, truncated. */
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
    /** The program and its arguments, truncated; empty for the image's shell. */
    command: z.array(z.string()),
    case: DispatchCaseSchema,
    reused: z.boolean(),
  }),
  /** `why`: what ended it, if its program did not exit by itself. */
  'terminal.ended': z.object({
    terminalId: TerminalIdSchema,
    exitCode: z.number().int().nullable(),
    why: z.string().nullable(),
  }),

  'workspace.cleaned': z.object({ files: bytes, bytes, why: z.string() }),
  'workspace.measured': z.object({ bytes }),
  /** The project was copied into the workspace. Existing files were kept. */
  'workspace.seeded': z.object({ files: bytes, bytes, codeVersion: z.number().int().positive() }),
  /** The workspace, or only `path`, was restored from a snapshot. */
  'workspace.restored': z.object({
    snapshotId: SnapshotIdSchema,
    path: z.string().nullable(),
    /** The snapshot that was created before the restore. */
    undo: SnapshotIdSchema.nullable(),
    created: bytes,
    replaced: bytes,
    removed: bytes,
    touched: bytes,
    bytes,
    /** Hash of the tree of the agent's state that was restored too. */
    stateRoot: z.string().optional(),
  }),
  /** Copying the files of the snapshot that the session starts with failed. The next use of the session retries. */
  'workspace.hydration-failed': z.object({ snapshotId: SnapshotIdSchema, code: z.string(), why: z.string() }),
  /** `setup.resume` ran in a new sandbox. The session went on, however it ended. `exitCode` is null if it could not be ended in time. */
  'setup.resumed': z.object({
    exitCode: z.number().int().nullable(),
    timedOut: z.boolean(),
    ms: z.number().int().nonnegative(),
    /** The last line that it printed, shortened. */
    lastLine: z.string().max(200),
  }),
  /** At least 90 % of `workspace.limit` is used. Reported once, until use is clearly lower again. */
  'workspace.near-limit': z.object({ bytes, limit: bytes }),
  'snapshot.created': z.object({
    snapshotId: SnapshotIdSchema,
    reason: SnapshotReasonSchema,
    label: z.string().nullable(),
    /** Hash of the tree. */
    root: z.string(),
    /** Hash of the tree of the agent's state, if the snapshot has one. */
    stateRoot: z.string().optional(),
    files: bytes,
    bytes,
    changedFiles: bytes,
    newBytes: bytes,
    frozenMs: z.number().nonnegative(),
    /** The turn that it was created for. */
    turnId: TurnIdSchema.optional(),
    /** The turn started before the snapshot was complete. */
    duringTurn: z.boolean().optional(),
    /** How many paths are missing because they could not be read, and the first of them. */
    missing: bytes.optional(),
    missingPaths: z.array(z.string()).optional(),
  }),
  /** A review was opened, or opened again with newer files. `base`, `target`: hashes of the trees. */
  'review.opened': z.object({
    reviewId: z.string(),
    base: z.string(),
    target: z.string(),
    snapshotId: SnapshotIdSchema,
  }),
  /** A person decided. `paths`: the first of them. `revision`: of the review, after it. */
  'review.decided': z.object({
    reviewId: z.string(),
    verdict: z.enum(['accept', 'reject', 'withdraw']),
    count: z.number().int().nonnegative(),
    paths: z.array(z.string()).max(100),
    revision: z.number().int().nonnegative(),
  }),
  'review.undone': z.object({
    reviewId: z.string(),
    verdict: z.enum(['accept', 'reject', 'withdraw']),
    count: z.number().int().nonnegative(),
    revision: z.number().int().nonnegative(),
  }),
  /** Its accepted tree is what the next review begins with. */
  'review.ended': z.object({ reviewId: z.string() }),
  'snapshot.deleted': z.object({ snapshotId: SnapshotIdSchema, why: z.string() }),
  /** An automatic snapshot failed. The operation that it was for continued. */
  'snapshot.failed': z.object({
    reason: SnapshotReasonSchema,
    code: z.string(),
    why: z.string(),
    /** The turn that the snapshot was for. */
    turnId: TurnIdSchema.optional(),
  }),
  /**
   * The events before this one were copied from the session `from`, up to its event `eventSeq`, with new turn ids and a
   * new hash chain. Of a snapshot that came in a bundle, the `session.imported` of `from` is copied too.
   */
  'session.forked': z.object(COPIED_HISTORY),
  /**
   * The events before this one came from another home, or from this one, in a bundle that `keyId` signed: those of the session `from`,
   * up to its event `eventSeq`, with new turn ids and a new hash chain. `snapshotId`: what the workspace began with.
   */
  'session.imported': z.object({
    home: HomeIdSchema,
    keyId: z.string(),
    ...COPIED_HISTORY,
  }),
  ...EGRESS_EVENTS,
  ...AGENT_EVENTS,
  ...REVIEW_COMMENT_EVENTS,
  ...HANDOFF_EVENTS,
  ...ARTIFACT_EVENTS,
  ...MANIFEST_EVENTS,
  ...CHECK_EVENTS,

  /** A new version of the profile was deployed. The next turn uses it. */
  'profile.deployed': z.object({ profile: z.string(), version: z.number().int().positive() }),
} as const;

export type EventType = keyof typeof EVENT_SCHEMAS;
export type EventData<T extends EventType> = z.input<(typeof EVENT_SCHEMAS)[T]>;

/** An event to append. The log adds the other fields. `at`: ms since 1970, default now. */
export type EventEntry = {
  [T in EventType]: { readonly type: T; readonly data: EventData<T>; readonly at?: number };
}[EventType];

/** Types under which earlier versions stored events. Stored events are never rewritten, because their hash covers the type. */
const OLD_TYPES: Readonly<Record<string, EventType>> = {
  'workspace.fill-failed': 'workspace.hydration-failed',
};

/** Texts of prompts that earlier versions stored in events. The contents of `turn.queued` and `turn.edited` have them. */
const OLD_PROMPT_TEXTS: Readonly<Record<string, string>> = {
  'turn.queued': 'preview',
  'turn.edited': 'preview',
  'session.updated': 'about',
};

/** Events of these types name a content. Earlier versions stored them without it. */
const TYPES_WITH_CONTENT: readonly string[] = ['turn.queued', 'turn.output', 'turn.ended'];

/** Parses the type and data of a stored event. Null for a type that this version does not know. */
export function parseEvent(event: { type: string; data: unknown }): EventEntry | null {
  const type = currentType(event.type);
  if (!isEventType(type)) return null;
  const { data } = event;
  const isOld =
    TYPES_WITH_CONTENT.includes(type) && typeof data === 'object' && data !== null && !('content' in data);
  return { type, data: EVENT_SCHEMAS[type].parse(isOld ? { ...data, content: null } : data) } as EventEntry;
}

/**
 * The data of an event for a copy of its history: without the text of prompts that an earlier version put beside their
 * contents.
 */
export function withoutPromptText(type: string, data: Record<string, unknown>): Record<string, unknown> {
  const field = OLD_PROMPT_TEXTS[type];
  // A prompt from before there were contents is nowhere else.
  if (field === undefined || !(field in data) || (field === 'preview' && !data['content'])) return data;
  const { [field]: _, ...rest } = data;
  return rest;
}

/** The content that an event is about; null for none. */
export function contentOf({ data }: EventEntry): Content | null {
  return 'content' in data ? data.content : null;
}

/** All contents that an event names: the one above, and those of attachments. */
export function contentsOf(entry: EventEntry): Content[] {
  const content = contentOf(entry);
  const attachments = 'attachments' in entry.data ? (entry.data.attachments ?? []) : [];
  return [
    ...(content === null ? [] : [content]),
    ...attachments.flatMap((one) => (one.kind === 'link' ? [] : [one.content])),
  ];
}

/** The type that this version gives to events of a stored type. */
export function currentType(type: string): string {
  return (Object.hasOwn(OLD_TYPES, type) ? OLD_TYPES[type] : undefined) ?? type;
}

/** All types under which events of this type are stored. */
export function storedTypes(type: string): readonly string[] {
  return [type, ...Object.keys(OLD_TYPES).filter((old) => OLD_TYPES[old] === type)];
}

function isEventType(type: string): type is EventType {
  return Object.hasOwn(EVENT_SCHEMAS, type);
}
