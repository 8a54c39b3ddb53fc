import { z } from 'zod';
import { ATTACHMENT_LIMITS } from '../protocol/attachment-names.ts';
import { PermissionIdSchema } from '../protocol/agent-events.ts';
import { SessionIdSchema } from '../protocol/ids.ts';
import type { HandlersOf, ListenersOf, MessageMap, RequestMap } from './link.ts';

/**
 * What the home page and the extension say to each other. Both sides parse what they receive, and a message without a
 * handler does not compile.
 */

/** Sessions that the page knows: those that need a person first, then the latest. The Sessions view has all of them. */
export const MAX_HOME_SESSIONS = 200;
/** Profiles and folders that the form offers. */
export const MAX_STARTS = 200;
/** The most that a person writes at once, in characters. */
export const MAX_FIRST_PROMPT = 256 * 1024;
/** Characters of what an agent said last. */
export const MAX_WORDS = 300;

/** Questions of a session that its card shows. */
export const MAX_QUESTIONS = 3;
/** Of a question: as many as a permission has options. */
export const MAX_ANSWERS = 16;

const nothing = z.object({});
const count = z.number().int().nonnegative();
/** Names and sentences, which an agent or another machine may have written. */
const line = z.string().max(2000);

/** What a session needs, the most urgent first. */
export const NEEDS = ['waiting', 'running', 'paused', 'earlier'] as const;
export type Need = (typeof NEEDS)[number];

export const HomeSessionSchema = z.object({
  id: SessionIdSchema,
  title: line,
  profile: line,
  /** As `HomeHostSchema.name`. */
  host: line,
  need: z.enum(NEEDS),
  /** Why it waits for a person: its agent asks, or a turn has ended that nobody has looked at. Null: it does not wait. */
  reason: z.enum(['asks', 'ended']).nullable(),
  status: line,
  /** The beginning of the latest prompt. */
  prompt: line.nullable(),
  /** Of the workspace. */
  bytes: count.nullable(),
  lastActiveAt: z.string(),
  /** Rises with every event of the session. */
  seq: count,
});
export type HomeSession = z.infer<typeof HomeSessionSchema>;

export const HomeHostSchema = z.object({
  name: line,
  title: line,
  state: z.enum(['connected', 'connecting', 'engine-down', 'offline']),
  /** What is wrong, for a state other than `connected`. */
  why: line.nullable(),
});
export type HomeHost = z.infer<typeof HomeHostSchema>;

/** What an agent asks, and what a person can answer. Names and titles are the agent's, sanitized. */
const HomeQuestionSchema = z.object({
  id: PermissionIdSchema,
  title: line,
  /** What it is about: files, where the agent names them. */
  about: line.nullable(),
  /** In the order in which they are offered. `effect`: what it does, whatever its name says. */
  answers: z
    .array(z.object({ id: line, label: line, effect: line, isAllowing: z.boolean() }))
    .max(MAX_ANSWERS),
});
export type HomeQuestion = z.infer<typeof HomeQuestionSchema>;

/** What a session starts from. `uri`: of a folder of the window. */
export const StartSchema = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('profile'), host: line, name: line }),
  z.object({ kind: z.literal('folder'), uri: line }),
  z.object({ kind: z.literal('example') }),
]);
export type Start = z.infer<typeof StartSchema>;

export const HomeStateSchema = z.object({
  /** The host of the window, to which the form's folders and the example go, then the others. */
  hosts: z.array(HomeHostSchema).max(100),
  /** False before the sessions are known. */
  isListed: z.boolean(),
  /** `input`: a handler takes JSON. */
  profiles: z.array(z.object({ host: line, name: line, input: z.enum(['prompt', 'json']) })).max(MAX_STARTS),
  folders: z.array(z.object({ uri: line, name: line })).max(MAX_STARTS),
  /** Whether the engine has Holdfast's images; null where that was not asked. */
  images: z.enum(['checking', 'there', 'missing']).nullable(),
  /** How many secrets there are; null where that was not asked. */
  secrets: count.nullable(),
});
export type HomeState = z.infer<typeof HomeStateSchema>;

const upload = line;
/** A file for the first prompt. The extension keeps its bytes until there is a session that can have them. */
const HomeFileSchema = z.object({ upload, name: line, bytes: count });
export type HomeFile = z.infer<typeof HomeFileSchema>;
const files = z.array(HomeFileSchema).max(ATTACHMENT_LIMITS.count);

/** extension → page. */
export const TO_HOME = {
  state: HomeStateSchema,
  sessions: z.object({
    /** These replace all that the page knows. */
    isSnapshot: z.boolean(),
    changed: z.array(HomeSessionSchema).max(MAX_HOME_SESSIONS),
    removed: z.array(SessionIdSchema),
    /** Further sessions, which the page does not get. */
    left: count,
  }),
} as const satisfies MessageMap;
export type ToHome = typeof TO_HOME;

/** Commands that the page offers; their names are `holdfast.…`. */
export const HOME_COMMANDS = ['checkEngine', 'buildImages', 'setSecret', 'showLog'] as const;
/** Commands on a session. */
export const SESSION_COMMANDS = [
  'openSessionPage',
  'openWorkspace',
  'answerPermission',
  'reviewChanges',
  'cancelTurn',
  'resumeSession',
] as const;
export type SessionCommand = (typeof SESSION_COMMANDS)[number];

/** page → extension. */
export const HOME_REQUESTS = {
  /** The page can receive. `uploads`: those of the page's files that the extension still has. */
  ready: { params: z.object({ files }), result: z.object({ uploads: z.array(upload) }) },
  /** A part of a file, in order; the bytes are base64. */
  upload: {
    params: z.object({
      upload,
      offset: count,
      total: count.max(ATTACHMENT_LIMITS.bytes),
      bytes: z.string().max(2 * ATTACHMENT_LIMITS.chunkBytes),
    }),
    result: z.object({ isWhole: z.boolean() }),
  },
  /** The file is not wanted any more. */
  dropUpload: { params: z.object({ upload }), result: nothing },
  /** What the agent said last, and what it asks. */
  words: {
    params: z.object({ session: SessionIdSchema }),
    result: z.object({
      words: z
        .string()
        .max(MAX_WORDS + 1)
        .nullable(),
      asks: line.nullable(),
      /** The oldest questions that wait, and how many more do. */
      questions: z.array(HomeQuestionSchema).max(MAX_QUESTIONS).default([]),
      moreQuestions: count.default(0),
      /** The last turn ended in another way than it should. */
      isFailure: z.boolean(),
      /** Files that changed since the last prompt, where a snapshot says so. */
      changedFiles: count.nullable(),
    }),
  },
  /** Answers a question with one of its answers. A person is told where that came too late. */
  answer: {
    params: z.object({ session: SessionIdSchema, question: PermissionIdSchema, answer: line }),
    result: nothing,
  },
  /** Creates a session and gives it its first prompt. `session`: null where the person declined a question on the way. */
  start: {
    params: z.object({ from: StartSchema, prompt: z.string().min(1).max(MAX_FIRST_PROMPT), files }),
    result: z.object({ session: SessionIdSchema.nullable() }),
  },
  /** `host`: as `HomeHostSchema.name`. */
  connectHost: { params: z.object({ host: line }), result: nothing },
  openFolder: { params: nothing, result: nothing },
  command: { params: z.object({ command: z.enum(HOME_COMMANDS) }), result: nothing },
  sessionCommand: {
    params: z.object({ command: z.enum(SESSION_COMMANDS), session: SessionIdSchema }),
    result: nothing,
  },
} as const satisfies RequestMap;
export type HomeRequests = typeof HOME_REQUESTS;

export type LastMessage = z.infer<HomeRequests['words']['result']>;
/** Those without the questions, which are read beside them. */
export type MessageSummary = Omit<LastMessage, 'questions' | 'moreQuestions'>;
export type HomeHandlers = HandlersOf<HomeRequests>;
export type HomeListeners = ListenersOf<ToHome>;

/** What VS Code keeps of the page, so that a reload restores it. */
export const SavedHomeSchema = z.object({
  draft: z.string().max(MAX_FIRST_PROMPT).default(''),
  files: files.default([]),
});
export type SavedHome = z.infer<typeof SavedHomeSchema>;
