import type {
  AGENT_METHODS,
  CLIENT_METHODS,
  PROTOCOL_METHODS,
  PROTOCOL_VERSION,
} from '@agentclientprotocol/sdk';
import { z } from 'zod';
import { PERMISSION_KINDS, TOOL_KINDS, type ToolStatus } from '../../../protocol/agent-events.ts';

/**
 * What we read of an agent's messages. Names are the protocol's; the compiler compares them with its authors' library, which is not
 * loaded. The schemas take as little as possible: a field that is missing or wrong is left out, so that one agent's mistake costs
 * one detail and not the message.
 */
export const TO_AGENT = {
  initialize: 'initialize',
  session_new: 'session/new',
  session_load: 'session/load',
  session_resume: 'session/resume',
  session_set_mode: 'session/set_mode',
  session_set_config_option: 'session/set_config_option',
  session_prompt: 'session/prompt',
  session_cancel: 'session/cancel',
} as const satisfies Partial<typeof AGENT_METHODS>;

export const FROM_AGENT = {
  session_request_permission: 'session/request_permission',
  session_update: 'session/update',
} as const satisfies Partial<typeof CLIENT_METHODS>;

export const CANCEL_REQUEST = '$/cancel_request' satisfies typeof PROTOCOL_METHODS.cancel_request;

/** The version that every agent answers; they differ in later ones. */
export const VERSION = 1 satisfies typeof PROTOCOL_VERSION;

export const RPC_ERRORS = {
  invalidRequest: -32600,
  methodNotFound: -32601,
  invalidParams: -32602,
  requestCancelled: -32800,
  authRequired: -32000,
} as const;

export const RpcIdSchema = z.union([z.string().max(200), z.number()]);
export type RpcId = z.infer<typeof RpcIdSchema>;

/** A value that is used if it is what we expect, and otherwise as if the agent had not sent it. */
export const lenient = <T extends z.ZodType>(schema: T) => schema.nullish().catch(undefined);
export const text = (characters: number) => z.string().max(characters);

export const RpcErrorSchema = z.object({
  code: z.number().catch(0),
  message: z.string().catch('the agent gave no reason'),
  data: z.unknown().optional(),
});
export type RpcError = z.infer<typeof RpcErrorSchema>;

const ImplementationSchema = z.object({
  name: z.string().catch(''),
  title: lenient(z.string()),
  version: z.string().catch(''),
});

const presence = z.unknown().transform((value) => typeof value === 'object' && value !== null);

export const InitializeResultSchema = z.object({
  protocolVersion: z.number().catch(VERSION),
  agentInfo: lenient(ImplementationSchema),
  agentCapabilities: lenient(
    z.object({
      loadSession: lenient(z.boolean()),
      promptCapabilities: lenient(
        z.object({ image: lenient(z.boolean()), embeddedContext: lenient(z.boolean()) }),
      ),
      sessionCapabilities: lenient(z.object({ resume: presence.optional() })),
    }),
  ),
});

const ModesSchema = z.object({
  currentModeId: text(500),
  availableModes: z.array(z.unknown()).catch([]),
});

/** The answer to `session/new`, `load` and `resume`. The last two need not have a session id. */
export const OpenedSchema = z.object({
  sessionId: lenient(text(500).min(1)),
  modes: lenient(ModesSchema),
  configOptions: lenient(z.array(z.unknown())),
});

export const PromptResultSchema = z.object({ stopReason: z.string().catch('end_turn') });

export const UpdateParamsSchema = z.object({
  sessionId: lenient(z.string()),
  update: z.looseObject({ sessionUpdate: text(100) }),
});
export type Update = z.infer<typeof UpdateParamsSchema>['update'];

export const ChunkSchema = z.object({ content: z.unknown().optional(), messageId: lenient(text(200)) });

export const ToolKindOfAgentSchema = z.enum(TOOL_KINDS);
const LocationSchema = z.object({ path: text(1024), line: lenient(z.int().nonnegative()) });
const MAX_LOCATIONS = 16;
/** Characters of all paths of a call: they are stored again with each of its events. */
const LOCATIONS_CHARACTERS = 4096;

/** A tool call or a change of one. What is undefined stays as it was. */
export const ToolUpdateSchema = z.object({
  toolCallId: text(200).min(1),
  title: lenient(z.string()),
  kind: lenient(ToolKindOfAgentSchema),
  status: lenient(z.string()),
  content: lenient(z.array(z.unknown())),
  locations: lenient(z.array(z.unknown())),
  rawInput: z.unknown().optional(),
  rawOutput: z.unknown().optional(),
});
export type ToolUpdate = z.infer<typeof ToolUpdateSchema>;

export function locationsOf(items: readonly unknown[]) {
  let left = LOCATIONS_CHARACTERS;
  return items.slice(0, MAX_LOCATIONS).flatMap((item) => {
    const { success, data } = LocationSchema.safeParse(item);
    if (!success) return [];
    left -= data.path.length;
    return left < 0 ? [] : [{ path: data.path.toWellFormed(), line: data.line ?? null }];
  });
}

/** The status as events have it. An agent's own word counts as under way. */
export function statusOf(status: string): ToolStatus {
  switch (status) {
    case 'pending':
    case 'completed':
    case 'failed':
    case 'cancelled':
      return status;
    default:
      return 'in_progress';
  }
}

export const PermissionParamsSchema = z.object({
  toolCall: z.unknown().optional(),
  options: z.array(z.unknown()).catch([]),
});
export const PermissionOptionOfAgentSchema = z.object({
  optionId: text(200).min(1),
  name: z.string().catch(''),
  kind: z.enum(PERMISSION_KINDS),
});

export const UsageSchema = z.object({
  used: lenient(z.int().nonnegative()),
  size: lenient(z.int().nonnegative()),
  cost: lenient(z.object({ amount: z.number().nonnegative().max(1e12), currency: text(10) })),
});

export const CancelRequestSchema = z.object({ requestId: RpcIdSchema });

/** The text that stands for a piece of content in a message. */
export function textOf(content: unknown): string {
  const { success, data } = ContentBlockSchema.safeParse(content);
  if (!success) return '';
  switch (data.type) {
    case 'text':
      return data.text ?? '';
    case 'image':
    case 'audio':
      return `[${data.type}${data.mimeType === undefined ? '' : ` ${data.mimeType.slice(0, 100)}`}]`;
    case 'resource_link':
      return `[${(data.name ?? '').slice(0, 500)}](${(data.uri ?? '').slice(0, 4096)})`;
    case 'resource':
      return data.resource?.text ?? `[${(data.resource?.uri ?? 'resource').slice(0, 4096)}]`;
    default:
      return '';
  }
}

const optionalText = z.string().optional().catch(undefined);
const ContentBlockSchema = z.object({
  type: z.string(),
  text: optionalText,
  mimeType: optionalText,
  name: optionalText,
  uri: optionalText,
  resource: z.object({ text: optionalText, uri: optionalText }).optional().catch(undefined),
});
