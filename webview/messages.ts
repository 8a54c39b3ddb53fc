import { z } from 'zod';
import { PERMISSION_KINDS, PermissionIdSchema } from '../protocol/agent-events.ts';
import { AttachmentsSchema } from '../protocol/attachments.ts';
import { ContentIdSchema } from '../protocol/contents.ts';
import {
  CONVERSATION_METHODS,
  CONVERSATION_NOTIFICATIONS,
  ConversationItemSchema,
} from '../protocol/conversation.ts';
import { OpIdSchema, SessionSchema } from '../protocol/entities.ts';
import { SnapshotIdSchema, TurnIdSchema } from '../protocol/ids.ts';
import { PATH_LIMITS } from '../protocol/paths.ts';
import type { HandlersOf, ListenersOf, MessageMap, RequestMap } from './link.ts';

/**
 * What the session page and the extension say to each other. Both sides parse what they receive, and a message without
 * a handler does not compile.
 */

const nothing = z.object({});
const cursor = z.string().max(40);
/** The most that a person writes at once, in characters. */
export const MAX_PROMPT = 256 * 1024;
/** The most that a page copies, in characters. */
export const MAX_COPY = 2 ** 20;
/** Files that a mention is completed with. */
export const MAX_FOUND_FILES = 20;

const count = z.number().int().nonnegative();
const text = z.string().max(5000);
/** In characters: bytes that are not UTF-8 are escaped. */
const path = z.string().max(PATH_LIMITS.characters);
/** A prompt with attachments may have no text. */
const prompt = { text: z.string().max(MAX_PROMPT), attachments: AttachmentsSchema };

/** Why the page may be out of date or cannot do something; `connected` is the normal state. */
export const HOST_STATES = ['connected', 'connecting', 'engine-down', 'offline'] as const;

export const PageStateSchema = z.object({
  /** Null before it is known, and when the session was deleted. */
  session: SessionSchema.nullable(),
  isDeleted: z.boolean(),
  host: z.enum(HOST_STATES),
  /** What is wrong and what to do, for a state other than `connected`. */
  why: z.string().nullable(),
  /** A handler takes JSON. */
  input: z.enum(['prompt', 'json']),
});
export type PageState = z.infer<typeof PageStateSchema>;

const page = CONVERSATION_METHODS['conversation/read'].result;
export type ConversationPage = z.infer<typeof page>;

/** Values of a setting that the page offers. */
export const MAX_PICKS = 100;
const picked = z.enum(['mode', 'model']);
/** What a person chooses beside the prompt. Names are the agent's own, sanitized. */
const PickerSchema = z.object({
  what: picked,
  value: text,
  options: z.array(z.object({ value: text, name: text })).max(MAX_PICKS),
});
export type Picker = z.infer<typeof PickerSchema>;

/** extension → page. */
export const TO_PAGE = {
  state: PageStateSchema,
  /** The end of the conversation, in place of what the page had. */
  begin: page,
  /** What has changed since. The page confirms it with `shown`, and gets the next batch then. */
  changed: z.object({
    batch: z.number().int(),
    items: z.array(ConversationItemSchema),
    chunks: z.array(CONVERSATION_NOTIFICATIONS['conversation/chunk'].params.omit({ subscription: true })),
  }),
  pickers: z.object({ pickers: z.array(PickerSchema) }),
} as const satisfies MessageMap;
export type ToPage = typeof TO_PAGE;
export type LiveChunk = z.infer<ToPage['changed']>['chunks'][number];

/** Commands on the session that the page offers; their names are `holdfast.…`. */
export const PAGE_COMMANDS = [
  'openWorkspace',
  'openTerminal',
  'showHistory',
  'resumeSession',
  'createSnapshot',
  'saveManifest',
  'connect',
  'checkEngine',
] as const;

/** page → extension. Each has a result, or fails with the sentence of an error. */
export const REQUESTS = {
  /** The page can receive. */
  ready: { params: nothing, result: nothing },
  shown: { params: z.object({ batch: z.number().int() }), result: nothing },
  read: { params: z.object({ before: cursor.optional(), after: cursor.optional() }), result: page },
  /** All of a content that an item names, up to 1 MiB. */
  content: {
    params: z.object({ sha256: ContentIdSchema }),
    result: z.object({ text: z.string(), isCut: z.boolean() }),
  },
  /** `opId` is the same for a prompt that is sent again because its answer was lost. `hasEnded`: nothing of its turn is to come. */
  prompt: {
    params: z.object({ ...prompt, opId: OpIdSchema }),
    result: z.object({ hasEnded: z.boolean().default(false) }),
  },
  /** Chooses the mode or the model of the agent: at once in a turn, else from the next prompt on. */
  choose: { params: z.object({ what: picked, value: text }), result: nothing },
  /** Cancels the running turn. */
  stop: { params: nothing, result: nothing },
  /** Replaces the prompt of a turn that waits in the queue. */
  edit: {
    params: z.object({ ...prompt, turnId: TurnIdSchema }),
    result: nothing,
  },
  /** Cancels a turn that waits in the queue. */
  takeBack: { params: z.object({ turnId: TurnIdSchema }), result: nothing },
  /** `tooLate`: why the answer does not count, if somebody else was faster or the turn has ended. */
  answer: {
    params: z.object({
      permissionId: PermissionIdSchema,
      answer: z.union([z.enum(PERMISSION_KINDS), z.string().min(1).max(200)]),
    }),
    result: z.object({ tooLate: z.string().max(1000).nullable().default(null) }),
  },
  allowHost: { params: z.object({ host: z.string().max(300) }), result: nothing },
  /** Opens a file of the workspace. `path` is as the agent wrote it. */
  openFile: {
    params: z.object({ path, line: z.number().int().nullable() }),
    result: nothing,
  },
  /** Files of the workspace whose path has the letters of `query`, relative to it, the best match first. */
  findFiles: {
    params: z.object({ query: z.string().max(500) }),
    result: z.object({ paths: z.array(path).max(MAX_FOUND_FILES) }),
  },
  /** Opens a web address, after VS Code has asked. */
  openLink: { params: z.object({ url: z.string().max(4096) }), result: nothing },
  /** Puts text on the clipboard. */
  copy: { params: z.object({ text: z.string().max(MAX_COPY) }), result: nothing },
  /**
   * What a turn changed on disk. `lines` is null where that is not known; `added` and `removed` are null where the
   * changes are too large to count.
   */
  turnLines: {
    params: z.object({ turnId: TurnIdSchema }),
    result: z.object({
      lines: z.object({ files: count, added: count.nullable(), removed: count.nullable() }).nullable(),
    }),
  },
  changesOfTurn: { params: z.object({ turnId: TurnIdSchema }), result: nothing },
  snapshotBeforeTurn: {
    params: z.object({ turnId: TurnIdSchema }),
    result: z.object({ snapshot: SnapshotIdSchema }),
  },
  forkBeforeTurn: { params: z.object({ turnId: TurnIdSchema }), result: nothing },
  forkSnapshot: { params: z.object({ snapshot: SnapshotIdSchema }), result: nothing },
  /** `to`: null for the files as they are. */
  compareSnapshots: {
    params: z.object({ from: SnapshotIdSchema, to: SnapshotIdSchema.nullable() }),
    result: nothing,
  },
  command: { params: z.object({ command: z.enum(PAGE_COMMANDS) }), result: nothing },
} as const satisfies RequestMap;
export type Requests = typeof REQUESTS;
export type RequestName = keyof Requests;

/** The handlers of the extension: one for each request. */
export type RequestHandlers = HandlersOf<Requests>;
/** The handlers of the page: one for each message. */
export type MessageHandlers = ListenersOf<ToPage>;

/** Where a person reads who has left the end of the conversation: an item, and how far it is below the top of the view, in pixels. */
const PlaceSchema = z.object({ id: z.number().int(), at: z.number().int(), top: z.number() });
export type Place = z.infer<typeof PlaceSchema>;

/** What VS Code keeps of a page, so that a reload restores it. */
export const SavedPageSchema = z.object({
  session: z.string().max(200),
  /** The part that was shown, the snapshot that was selected, and whether the preview of its restore was open. */
  tab: z.enum(['conversation', 'snapshots', 'record']).optional(),
  snapshot: z.string().max(40).optional(),
  restore: z.boolean().optional(),
  place: PlaceSchema.optional(),
  draft: z.string().max(MAX_PROMPT).optional(),
  attachments: AttachmentsSchema.optional(),
  /** With which the draft was sent, if no answer has come. */
  opId: OpIdSchema.optional(),
});
export type SavedPage = z.infer<typeof SavedPageSchema>;
