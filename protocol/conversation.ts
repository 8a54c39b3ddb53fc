import { z } from 'zod';
import {
  AnsweredBySchema,
  ContinuationSchema,
  PermissionIdSchema,
  PermissionOptionSchema,
  ToolKindSchema,
  ToolLocationSchema,
  ToolStatusSchema,
} from './agent-events.ts';
import { AttachmentsSchema } from './attachments.ts';
import { ContentSchema } from './contents.ts';
import { EgressEventSchema, RuleScopeSchema } from './egress.ts';
import { SessionIdSchema, SessionRefSchema, SnapshotIdSchema, TurnIdSchema } from './ids.ts';
import { TimeSchema, TurnStatusSchema } from './entities.ts';
import { leaveOutNewer, readNewerAs } from './newer-values.ts';
import { SnapshotReasonSchema } from './snapshots.ts';

/**
 * The conversation of a session, as people read it: a view of its events (`conversation-projection.ts`). Turns of every
 * kind of agent have the same items.
 */

export const CONVERSATION_LIMITS = {
  /** Contents of one item. A message with more pieces continues in a further item. */
  pieces: 64,
  /** Bytes of text in one item. A single content with more is cut, and the item names it. */
  textBytes: 64 * 1024,
  /** Items of one page. */
  page: { default: 100, max: 500 },
  /** Characters of a search, and its results on one page. */
  searchCharacters: 200,
  results: { default: 20, max: 100 },
  /** Characters of the text around a match. */
  excerptCharacters: 240,
} as const;

const count = z.number().int().nonnegative();
/** Who speaks: the agent, its thoughts, or the output streams of a program. */
export const MESSAGE_ROLES = ['agent', 'thought', 'stdout', 'stderr'] as const;
export type MessageRole = (typeof MESSAGE_ROLES)[number];

/** What every item has. */
const item = z.object({
  /** Names the item in its session: the seq of its first event. */
  id: count,
  /** Its place: the seq of the event at which it stands, 0 for a prompt that waits in the queue. Order: `at`, then `id`. */
  at: count,
  /** The seq of the last event that changed it. */
  seq: count,
  time: TimeSchema,
  turnId: TurnIdSchema.nullable(),
  /** What it names, oldest first; `content/read` has all of the bytes. */
  contents: z.array(ContentSchema).max(CONVERSATION_LIMITS.pieces),
});

const PromptItemSchema = item.extend({
  type: z.literal('prompt'),
  kind: z.string(),
  /** The beginning of the prompt, on one line. As projected: empty, unless the event is of an earlier version. */
  preview: z.string(),
  state: z.enum(['queued', 'sent']),
  /** Left out where there are none. */
  attachments: AttachmentsSchema.optional(),
});
const MessageItemSchema = item.extend({
  type: z.literal('message'),
  role: z.enum(MESSAGE_ROLES),
  /** Names the message within its turn; null for output of a program. */
  message: count.nullable(),
  /** Bytes of the message, or of the stream, before this item. More than 0: it continues an earlier item. */
  start: count,
  bytes: count,
});
/** `text` is the JSON of the entries. A newer plan of the same turn replaces the older. */
const PlanItemSchema = item.extend({ type: z.literal('plan') });
/** The content is JSON: input, diffs and output. */
const ToolItemSchema = item.extend({
  type: z.literal('tool'),
  call: z.string(),
  kind: ToolKindSchema,
  status: ToolStatusSchema,
  title: z.string(),
  locations: z.array(ToolLocationSchema),
});
const PermissionItemSchema = item.extend({
  type: z.literal('permission'),
  permissionId: PermissionIdSchema,
  call: z.string().nullable(),
  kind: ToolKindSchema,
  title: z.string(),
  options: z.array(PermissionOptionSchema),
  /** Null while it waits, and when the turn ended before anybody answered. */
  answer: PermissionOptionSchema.nullable(),
  /** Null while it waits. */
  by: AnsweredBySchema.nullable(),
});
const OptionItemSchema = item.extend({
  type: z.literal('option'),
  option: z.string(),
  value: z.string(),
  by: z.enum(['agent', 'person']),
});
const UsageItemSchema = item.extend({
  type: z.literal('usage'),
  contextUsed: count.nullable(),
  contextSize: count.nullable(),
  inputTokens: count.nullable(),
  outputTokens: count.nullable(),
  totalTokens: count.nullable(),
  cost: z.object({ amount: z.number(), currency: z.string() }).nullable(),
});
const NoticeItemSchema = item.extend({ type: z.literal('notice'), code: z.string(), message: z.string() });
const ConnectedItemSchema = item.extend({
  type: z.literal('connected'),
  name: z.string(),
  version: z.string(),
  how: ContinuationSchema,
  why: z.string().nullable(),
});
/** The end of a turn. `text` is the value that a handler returned, as JSON. */
const EndItemSchema = item.extend({
  type: z.literal('end'),
  status: TurnStatusSchema,
  exitCode: z.number().int().nullable(),
  error: z.object({ code: z.string(), message: z.string(), traceback: z.string().nullable() }).nullable(),
  turnMs: z.number().nullable(),
});
/** Something that happened beside the conversation and matters to who reads it. */
const mark = item.extend({ type: z.literal('mark') });
const MarkItemSchema = z.discriminatedUnion('mark', [
  mark.extend({
    mark: z.literal('snapshot'),
    snapshotId: SnapshotIdSchema,
    reason: SnapshotReasonSchema,
    label: z.string().nullable(),
    changedFiles: count,
  }),
  mark.extend({
    mark: z.literal('snapshot-failed'),
    reason: SnapshotReasonSchema,
    code: z.string(),
    why: z.string(),
  }),
  mark.extend({ mark: z.literal('resume-failed'), why: z.string() }),
  mark.extend({
    mark: z.literal('restored'),
    snapshotId: SnapshotIdSchema,
    path: z.string().nullable(),
    undo: SnapshotIdSchema.nullable(),
  }),
  mark.extend({ mark: z.literal('cleaned'), files: count }),
  mark.extend({
    mark: z.literal('egress'),
    decision: EgressEventSchema.shape.decision,
    host: z.string(),
    port: z.number().int(),
    reason: EgressEventSchema.shape.reason,
    count,
    allow: z.string().nullable(),
  }),
  mark.extend({
    mark: z.literal('policy'),
    action: z.enum(['allow', 'deny']),
    host: z.string(),
    scope: RuleScopeSchema,
  }),
  mark.extend({ mark: z.literal('forked'), from: SessionIdSchema, snapshotId: SnapshotIdSchema }),
  mark.extend({ mark: z.literal('restarted') }),
  mark.extend({
    mark: z.literal('memory'),
    version: count,
    author: z.enum(['person', 'agent', 'supervisor']),
  }),
  mark.extend({ mark: z.literal('started-over'), memory: count.nullable() }),
  /** An event that has nothing to click. `icon`: a codicon. */
  mark.extend({
    mark: z.literal('note'),
    icon: z.string().regex(/^[a-z-]{1,40}$/),
    note: z.string(),
    isWarning: z.boolean(),
  }),
  /** A check ended. Its output is the content. */
  mark.extend({
    mark: z.literal('check'),
    name: z.string(),
    // A `CheckSubject`. Its module would bring everything about reviews into the session page.
    of: z.enum(['workspace', 'accepted']),
    exitCode: z.number().int(),
    ms: count,
  }),
  // What a newer supervisor recorded, of which this version knows only the name. No supervisor sends it.
  mark.extend({ mark: z.literal('newer'), name: z.string() }),
]);

/** An item as it follows from events, without the text of its contents. */
export const ProjectedItemSchema = z.discriminatedUnion('type', [
  PromptItemSchema,
  MessageItemSchema,
  PlanItemSchema,
  ToolItemSchema,
  PermissionItemSchema,
  OptionItemSchema,
  UsageItemSchema,
  NoticeItemSchema,
  ConnectedItemSchema,
  EndItemSchema,
  MarkItemSchema,
]);
export type ProjectedItem = z.infer<typeof ProjectedItemSchema>;

/**
 * `text`: of prompts, messages, plans and ends; null for other items, and where the contents are not text or were
 * removed. `cut`: the contents have more than `text`. Texts are as the agent wrote them: whoever shows them on a terminal
 * or a page removes what acts there.
 */
const text = z.object({ text: z.string().nullable(), cut: z.boolean() });
export const ConversationItemSchema = readNewerAs(ProjectedItemSchema.and(text), (value) => {
  const { data } = mark
    .omit({ type: true })
    .extend({ type: z.string(), mark: z.string().optional() })
    .safeParse(value);
  if (data === undefined) return value;
  const name = (data.mark ?? data.type).slice(0, 64);
  return { ...data, type: 'mark', mark: 'newer', name, text: null, cut: false } satisfies ProjectedItem &
    z.infer<typeof text>;
});
export type ConversationItem = z.infer<typeof ConversationItemSchema>;

/** A place between items, as `AT.ID`. */
const CursorSchema = z
  .string()
  .max(40)
  .regex(/^\d{1,16}\.\d{1,16}$/, 'a cursor of an earlier page');

const session = z.object({ session: SessionRefSchema });

export const SearchResultSchema = z.object({
  sessionId: SessionIdSchema,
  sessionName: z.string(),
  profile: z.string(),
  turnId: TurnIdSchema.nullable(),
  /** The item, and a cursor: `conversation/read` with `before` or `after` shows what is around it. */
  item: count,
  cursor: CursorSchema,
  type: z.string(),
  time: TimeSchema,
  excerpt: z.string(),
});
export type SearchResult = z.infer<typeof SearchResultSchema>;

export const CONVERSATION_METHODS = {
  /**
   * A page of the conversation, oldest item first: its end, or what is `before` or `after` a cursor. May have fewer items
   * than `limit`, to fit into a message. Cursors are null where nothing is left in that direction. `queued`: prompts that
   * wait, in order. `seq`: the events that the page knows; subscribe after it.
   */
  'conversation/read': {
    params: session.extend({
      before: CursorSchema.optional(),
      after: CursorSchema.optional(),
      limit: z.number().int().min(1).max(CONVERSATION_LIMITS.page.max).optional(),
    }),
    result: z.object({
      items: leaveOutNewer(z.array(ConversationItemSchema)),
      before: CursorSchema.nullable(),
      after: CursorSchema.nullable(),
      queued: leaveOutNewer(z.array(ConversationItemSchema)),
      /** Items of the whole conversation, those in the queue included. */
      total: count,
      seq: count,
    }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /**
   * Sends `conversation/changed` with every item that changed after the event `after` (default: now), and
   * `conversation/chunk` with text that is not stored yet. A client that reads slowly gets fewer, larger notifications.
   * After a lost connection subscribe again after the last `seq`.
   */
  'conversation/subscribe': {
    params: session.extend({ after: count.optional() }),
    result: z.object({ subscription: z.string(), seq: count }),
    repeat: 'never',
    whenDamaged: 'refused',
  },
  'conversation/unsubscribe': {
    params: z.object({ subscription: z.string() }),
    result: z.object({}),
    repeat: 'never',
    whenDamaged: 'refused',
  },
  /**
   * Finds the words of `text` in conversations, newest first; the last word may be the beginning of one. May return fewer
   * results than `limit`, even none: continue with `cursor` until it is null. Fails with `not_supported` where SQLite has
   * no FTS5.
   */
  'session/search': {
    params: z.object({
      text: z.string().min(1).max(CONVERSATION_LIMITS.searchCharacters),
      session: SessionRefSchema.optional(),
      profile: z.string().max(64).optional(),
      limit: z.number().int().min(1).max(CONVERSATION_LIMITS.results.max).optional(),
      cursor: z
        .string()
        .max(20)
        .regex(/^\d{1,16}$/)
        .optional(),
    }),
    result: z.object({
      results: leaveOutNewer(z.array(SearchResultSchema)),
      cursor: z.string().nullable(),
      /** False while conversations from before this version are still being indexed. */
      complete: z.boolean(),
    }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
} as const;

export const CONVERSATION_NOTIFICATIONS = {
  /** Items that are new or have changed, each replacing the one with the same id. All events up to `seq` are shown. */
  'conversation/changed': {
    params: z.object({
      subscription: z.string(),
      items: leaveOutNewer(z.array(ConversationItemSchema)),
      seq: count,
    }),
  },
  /**
   * Text of a message that is not stored yet. `offset`: bytes of the message before it. Text that follows it comes in
   * further chunks; when the item of the message reaches it, the item has it too (`LiveTexts` joins them).
   */
  'conversation/chunk': {
    params: z.object({
      subscription: z.string(),
      turnId: TurnIdSchema,
      message: count,
      role: z.enum(['agent', 'thought']),
      offset: count,
      text: z.string(),
    }),
  },
  /** The supervisor has dropped the subscription: subscribe again after the last `seq`. */
  'conversation/resync': { params: z.object({ subscription: z.string() }) },
} as const;
