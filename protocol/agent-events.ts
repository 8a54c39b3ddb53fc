import { z } from 'zod';
import { ContentSchema } from './contents.ts';
import { TurnIdSchema } from './ids.ts';
import { eventType } from './event-type.ts';
import { readNewerAs } from './newer-values.ts';

export const AuthorSchema = z.enum(['person', 'agent', 'supervisor']);
export type Author = z.infer<typeof AuthorSchema>;

/**
 * What an agent that speaks the Agent Client Protocol said and did, as events of the session. They are the agent's own
 * account: what changed on disk is known from snapshots, and what left the sandbox from egress events. Texts, plans,
 * details of tool calls and attached files are contents; an event holds only names, states and counts.
 */

const bounded = (characters: number) => z.string().max(characters);
const count = z.number().int().nonnegative();

export const PermissionIdSchema = z.string().regex(/^perm-[a-z2-7]{16}$/);

/** What a tool call does, as the protocol names it. */
export const TOOL_KINDS = [
  'read',
  'edit',
  'delete',
  'move',
  'search',
  'execute',
  'think',
  'fetch',
  'other',
] as const;
export const ToolKindSchema = readNewerAs(z.enum(TOOL_KINDS), () => 'other');
export type ToolKind = z.infer<typeof ToolKindSchema>;

export const ToolStatusSchema = z.enum(['pending', 'in_progress', 'completed', 'failed', 'cancelled']);
export type ToolStatus = z.infer<typeof ToolStatusSchema>;

/** A file that a tool call is about. `path` is as the agent wrote it, usually below `/workspace`. */
export const ToolLocationSchema = z.object({ path: bounded(4096), line: count.nullable() });

/** How the agent came to know the conversation so far. */
export const CONTINUATIONS = ['new', 'warm', 'resumed', 'loaded', 'handover'] as const;
export const ContinuationSchema = z.enum(CONTINUATIONS);

/** The kinds of permission that an agent offers to a person. */
export const PERMISSION_KINDS = ['allow_once', 'allow_always', 'reject_once', 'reject_always'] as const;
export const PermissionOptionSchema = z.object({
  id: bounded(200),
  name: bounded(200),
  kind: z.enum(PERMISSION_KINDS),
});
export type PermissionOption = z.infer<typeof PermissionOptionSchema>;

/** Who answered a permission, or changed something: a client by its name, a rule, or the end of the turn. */
export const AnsweredBySchema = z.object({
  kind: z.enum(['client', 'rule', 'profile', 'turn']),
  /** The client's name as in `hello`, such as `holdfast-cli` or `holdfast-vscode`; the rule; null for the end of the turn. */
  name: bounded(200).nullable(),
});
export type AnsweredBy = z.infer<typeof AnsweredBySchema>;

export const AGENT_EVENTS = {
  /** The agent's process is connected, and it has a conversation. */
  'agent.connected': eventType(
    z.object({
      turnId: TurnIdSchema,
      name: bounded(200),
      version: bounded(100),
      /** The agent's own id of the conversation. */
      conversationId: bounded(500),
      how: ContinuationSchema,
      /** Why its own memory could not be used, for `handover`. */
      why: bounded(2000).nullable(),
    }),
  ),
  /**
   * A message, stored in one piece when the agent goes on to something else, or after a while: then the same `message`
   * continues in a further event.
   */
  'agent.message': eventType(
    z.object({
      turnId: TurnIdSchema,
      /** Names the message within its turn, from 1. */
      message: z.number().int().positive(),
      role: z.enum(['agent', 'thought']),
      content: ContentSchema.nullable(),
    }),
    { isStreamed: true },
  ),
  /** The whole plan; replaces the one before. The content is the JSON of its entries. */
  'agent.plan': eventType(z.object({ turnId: TurnIdSchema, content: ContentSchema.nullable() }), {
    isStreamed: true,
  }),
  /** The whole state of a tool call; replaces what an earlier event of the same `call` said. */
  'agent.tool': eventType(
    z.object({
      turnId: TurnIdSchema,
      /** The agent's id of the call. */
      call: bounded(200),
      kind: ToolKindSchema,
      status: ToolStatusSchema,
      title: bounded(500),
      locations: z.array(ToolLocationSchema).max(32),
      /** JSON: the input, the diffs and the output. Null where the agent gave none. */
      content: ContentSchema.nullable(),
    }),
    { isStreamed: true },
  ),
  /** A setting of the agent, such as its mode or model, has a new value. */
  'agent.option': eventType(
    z.object({
      turnId: TurnIdSchema.nullable(),
      option: bounded(200),
      value: bounded(500),
      by: z.enum(['agent', 'person']),
    }),
    { isInManifests: true },
  ),
  /** A person has chosen a value of a setting. It is set at once in a turn, else with the next prompt; then `agent.option` says so. */
  'agent.chosen': eventType(
    z.object({
      option: bounded(200),
      value: bounded(200),
      by: AnsweredBySchema,
    }),
  ),
  /** What the agent reports about its use, since its conversation began. Null: not reported. */
  'agent.usage': eventType(
    z.object({
      turnId: TurnIdSchema,
      contextUsed: count.nullable(),
      contextSize: count.nullable(),
      inputTokens: count.nullable(),
      outputTokens: count.nullable(),
      totalTokens: count.nullable(),
      cost: z.object({ amount: z.number().nonnegative(), currency: bounded(10) }).nullable(),
    }),
    { isStreamed: true },
  ),
  /** Something that a person should know about the agent: it broke the protocol, or something was left out. */
  'agent.notice': eventType(
    z.object({ turnId: TurnIdSchema.nullable(), code: bounded(100), text: bounded(2000) }),
  ),

  /** The agent waits for a person. The content is the JSON of the tool call as the agent described it. */
  'permission.asked': eventType(
    z.object({
      permissionId: PermissionIdSchema,
      turnId: TurnIdSchema,
      call: bounded(200).nullable(),
      kind: ToolKindSchema,
      title: bounded(500),
      options: z.array(PermissionOptionSchema).max(16),
      content: ContentSchema.nullable(),
    }),
    { isInManifests: true },
  ),
  /** `option` is null when the turn ended before anybody answered. */
  'permission.answered': eventType(
    z.object({
      permissionId: PermissionIdSchema,
      turnId: TurnIdSchema,
      option: PermissionOptionSchema.nullable(),
      by: AnsweredBySchema,
    }),
    { isInManifests: true },
  ),

  /**
   * From here on the agent knows nothing of the conversation before but the session's memory, in this version. The next
   * `agent.connected` begins a conversation of its own.
   */
  'conversation.started-over': eventType(z.object({ memory: z.number().int().positive().nullable() })),
  /** The session's memory has a new version. */
  'memory.changed': eventType(
    z.object({
      version: z.number().int().positive(),
      author: AuthorSchema,
      content: ContentSchema.nullable(),
    }),
  ),
} as const;
