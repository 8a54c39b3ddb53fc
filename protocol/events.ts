import { z } from 'zod';
import type { Content } from './contents.ts';
import { DispatchCaseSchema, ExecIdSchema, SessionStatusSchema, TurnIdSchema } from './entities.ts';
import { AGENT_EVENTS } from './agent-events.ts';
import { CHECK_EVENTS } from './checks.ts';
import { EGRESS_EVENTS } from './egress.ts';
import { ARTIFACT_EVENTS } from './artifacts.ts';
import { HANDOFF_EVENTS } from './handoff.ts';
import { HISTORY_EVENTS } from './history.ts';
import { MANIFEST_EVENTS } from './manifest.ts';
import { HomeIdSchema, SessionIdSchema, SnapshotIdSchema, TerminalIdSchema } from './ids.ts';
import { REVIEW_COMMENT_EVENTS } from './review-comments.ts';
import { SnapshotReasonSchema } from './snapshots.ts';
import { TURN_EVENTS } from './turn-events.ts';
import { eventType } from './event-type.ts';

/** `prevHash` of a session's first event. */
export const GENESIS_HASH = '0'.repeat(64);

const bytes = z.number().int().nonnegative();

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

/**
 * Every event type: its data, and what else is to know (`event-type.ts`). Replaying the events of a session gives the
 * state of its rows. Events never contain secrets, prompts or outputs, because history is displayed, exported and kept
 * longer than anything else: they name contents (see `contents.ts`).
 */
export const EVENT_TYPES = {
  'session.created': eventType(
    z.object({
      name: z.string(),
      profile: z.string(),
      persistent: z.boolean(),
      throwaway: z.boolean(),
      backing: z.enum(['directory', 'volume']),
      uid: z.number().int(),
      gid: z.number().int(),
    }),
    { changes: 'session', outlivesContents: true },
  ),
  'session.status': eventType(
    z.object({ from: SessionStatusSchema, to: SessionStatusSchema, why: z.string() }),
    { changes: 'session', outlivesContents: true, line: ({ from, to, why }) => `${from} → ${to} (${why})` },
  ),
  'session.updated': eventType(
    z.object({
      name: z.string().optional(),
      pinned: z.boolean().optional(),
      starred: z.boolean().optional(),
      archived: z.boolean().optional(),
      tags: z.array(z.string()).optional(),
      model: z.string().nullable().optional(),
      /** The beginning of the first prompt, in events of earlier versions only. */
      about: z.string().nullable().optional(),
    }),
    { changes: 'session' },
  ),
  /** The workspace is being deleted. The row stays as a tombstone. */
  'session.deleted': eventType(z.object({ why: z.string() }), { changes: 'session', outlivesContents: true }),
  /** A week after the deletion: inputs, outputs and the data of earlier events were removed. Their hashes stay. */
  'session.contents-removed': eventType(z.object({}), { changes: 'session' }),

  /** Starts a new generation. Containers of older generations are obsolete. */
  'sandbox.starting': eventType(z.object({ generation: z.number().int().positive() }), {
    changes: 'session',
  }),
  'sandbox.started': eventType(
    z.object({
      generation: z.number().int().positive(),
      case: DispatchCaseSchema,
      image: z.string(),
      /** The image id or digest that the engine reports. */
      imageIdentity: z.string().nullable(),
      codeVersion: z.number().int().positive().nullable(),
    }),
    { changes: 'session', isInManifests: true },
  ),
  'sandbox.lost': eventType(z.object({ generation: z.number().int(), why: z.string() }), {
    changes: 'session',
  }),
  'sandbox.removed': eventType(z.object({ generation: z.number().int(), why: z.string() }), {
    changes: 'session',
  }),

  ...TURN_EVENTS,
  'exec.started': eventType(
    z.object({
      execId: ExecIdSchema,
      /** The program and its arguments, truncated. */
      command: z.array(z.string()),
      tty: z.boolean(),
      case: DispatchCaseSchema,
      reused: z.boolean(),
    }),
  ),
  'exec.ended': eventType(
    z.object({
      execId: ExecIdSchema,
      exitCode: z.number().int().nullable(),
      signal: z.string().nullable(),
    }),
  ),

  'terminal.opened': eventType(
    z.object({
      terminalId: TerminalIdSchema,
      /** The program and its arguments, truncated; empty for the image's shell. */
      command: z.array(z.string()),
      case: DispatchCaseSchema,
      reused: z.boolean(),
    }),
  ),
  /** `why`: what ended it, if its program did not exit by itself. */
  'terminal.ended': eventType(
    z.object({
      terminalId: TerminalIdSchema,
      exitCode: z.number().int().nullable(),
      why: z.string().nullable(),
    }),
  ),

  'workspace.cleaned': eventType(z.object({ files: bytes, bytes, why: z.string() }), { changes: 'session' }),
  'workspace.measured': eventType(z.object({ bytes }), { changes: 'session' }),
  /** The project was copied into the workspace. Existing files were kept. */
  'workspace.seeded': eventType(z.object({ files: bytes, bytes, codeVersion: z.number().int().positive() })),
  /** The workspace, or only `path`, was restored from a snapshot. */
  'workspace.restored': eventType(
    z.object({
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
    { transcript: () => 'The workspace was restored from a snapshot' },
  ),
  /** Copying the files of the snapshot that the session starts with failed. The next use of the session retries. */
  'workspace.hydration-failed': eventType(
    z.object({ snapshotId: SnapshotIdSchema, code: z.string(), why: z.string() }),
    {
      note: ({ snapshotId, why }) => ({
        icon: 'warning',
        text: `The files of ${snapshotId} could not be copied: ${why}`,
        isWarning: true,
      }),
    },
  ),
  /** `setup.resume` ran in a new sandbox. The session went on, however it ended. `exitCode` is null if it could not be ended in time. */
  'setup.resumed': eventType(
    z.object({
      exitCode: z.number().int().nullable(),
      timedOut: z.boolean(),
      ms: z.number().int().nonnegative(),
      /** The last line that it printed, shortened. */
      lastLine: z.string().max(200),
    }),
  ),
  /** At least 90 % of `workspace.limit` is used. Reported once, until use is clearly lower again. */
  'workspace.near-limit': eventType(z.object({ bytes, limit: bytes }), {
    note: ({ bytes: used, limit }) => ({
      icon: 'warning',
      text: `The workspace is nearly full: ${Math.floor((100 * used) / limit)} % of its limit is used`,
      isWarning: true,
    }),
  }),
  'snapshot.created': eventType(
    z.object({
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
    {
      line: ({ snapshotId, label, reason, files, changedFiles }) =>
        `${snapshotId}  ${label ?? reason.replace('-', ' ')}: ${files} files, ${changedFiles} changed`,
    },
  ),
  /** A review was opened, or opened again with newer files. `base`, `target`: hashes of the trees. */
  'review.opened': eventType(
    z.object({
      reviewId: z.string(),
      base: z.string(),
      target: z.string(),
      snapshotId: SnapshotIdSchema,
    }),
  ),
  /** A person decided. `paths`: the first of them. `revision`: of the review, after it. */
  'review.decided': eventType(
    z.object({
      reviewId: z.string(),
      verdict: z.enum(['accept', 'reject', 'withdraw']),
      count: z.number().int().nonnegative(),
      paths: z.array(z.string()).max(100),
      revision: z.number().int().nonnegative(),
    }),
  ),
  'review.undone': eventType(
    z.object({
      reviewId: z.string(),
      verdict: z.enum(['accept', 'reject', 'withdraw']),
      count: z.number().int().nonnegative(),
      revision: z.number().int().nonnegative(),
    }),
  ),
  /** Its accepted tree is what the next review begins with. */
  'review.ended': eventType(z.object({ reviewId: z.string() })),
  'snapshot.deleted': eventType(z.object({ snapshotId: SnapshotIdSchema, why: z.string() })),
  /** An automatic snapshot failed. The operation that it was for continued. */
  'snapshot.failed': eventType(
    z.object({
      reason: SnapshotReasonSchema,
      code: z.string(),
      why: z.string(),
      /** The turn that the snapshot was for. */
      turnId: TurnIdSchema.optional(),
    }),
  ),
  /**
   * The events before this one were copied from the session `from`, up to its event `eventSeq`, with new turn ids and a
   * new hash chain. Of a snapshot that came in a bundle, the `session.imported` of `from` is copied too.
   */
  'session.forked': eventType(z.object(COPIED_HISTORY), { changes: 'session', outlivesContents: true }),
  /**
   * The events before this one came from another home, or from this one, in a bundle that `keyId` signed: those of the session `from`,
   * up to its event `eventSeq`, with new turn ids and a new hash chain. `snapshotId`: what the workspace began with.
   */
  'session.imported': eventType(
    z.object({
      home: HomeIdSchema,
      keyId: z.string(),
      ...COPIED_HISTORY,
      /** The checkpoint that the history began with there: events up to `seq` were removed. Its signature was verified. */
      checkpoint: z
        .object({ seq: z.number().int().positive(), removed: bytes, head: z.string(), madeAt: z.string() })
        .optional(),
    }),
    { changes: 'session', outlivesContents: true },
  ),
  ...EGRESS_EVENTS,
  ...AGENT_EVENTS,
  ...REVIEW_COMMENT_EVENTS,
  ...HANDOFF_EVENTS,
  ...ARTIFACT_EVENTS,
  ...MANIFEST_EVENTS,
  ...CHECK_EVENTS,
  ...HISTORY_EVENTS,

  /** A new version of the profile was deployed. The next turn uses it. */
  'profile.deployed': eventType(z.object({ profile: z.string(), version: z.number().int().positive() })),
} as const;

export type EventType = keyof typeof EVENT_TYPES;
export type EventData<T extends EventType> = z.input<(typeof EVENT_TYPES)[T]['data']>;

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
  return {
    type,
    data: EVENT_TYPES[type].data.parse(isOld ? { ...data, content: null } : data),
  } as EventEntry;
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
  return Object.hasOwn(EVENT_TYPES, type);
}
