import { z } from 'zod';
import {
  CONTINUATIONS,
  PermissionIdSchema,
  PermissionOptionSchema,
  ToolKindSchema,
  ToolLocationSchema,
  ToolStatusSchema,
} from '../../../protocol/agent-events.ts';
import { ContentSchema } from '../../../protocol/contents.ts';
import { TurnErrorSchema } from '../../../protocol/turn-events.ts';
import { SettingSchema } from './settings.ts';
import { RpcIdSchema } from './wire.ts';

/**
 * What is known of a conversation with an agent: everything that the next supervisor needs to read on at the stored offset. It is
 * stored with the events that came out of it, in one transaction.
 */

const count = z.int().nonnegative();
const time = z.number();

export const REQUESTS = ['initialize', 'new', 'load', 'resume', 'set', 'prompt'] as const;
const PendingRequestSchema = z.object({
  id: count,
  what: z.enum(REQUESTS),
  /** When it is given up, ms since 1970; null: never. */
  deadline: time.nullable(),
  /** For `set`: the setting and its new value. */
  setting: z
    .object({
      id: z.string(),
      value: z.string(),
      /** Of the choice that it answers to; null: it is set for another reason, or the choices of the turn count as a whole. */
      revision: count.nullable().default(null),
    })
    .nullable(),
});
export type PendingRequest = z.infer<typeof PendingRequestSchema>;

/** A process of the agent, from its first message. */
export const ConnectionSchema = z.object({
  /** `settling`: the agent may go on to replay a loaded conversation. `ready`: it takes a prompt. */
  stage: z.enum(['initializing', 'opening', 'settling', 'setting', 'ready']),
  nextId: count,
  pending: z.array(PendingRequestSchema),
  name: z.string(),
  version: z.string(),
  can: z.object({ load: z.boolean(), resume: z.boolean(), image: z.boolean(), embed: z.boolean() }),
  how: z.enum(CONTINUATIONS),
  why: z.string().nullable(),
  /** The conversation so far has to be sent with the next prompt. */
  needsHandover: z.boolean(),
  settings: z.array(SettingSchema),
  /** End of `settling`: at the first, when the agent was silent; at the second in any case. ms since 1970. */
  settledAt: time,
  settledBy: time,
});
export type Connection = z.infer<typeof ConnectionSchema>;

const ToolSchema = z.object({
  kind: ToolKindSchema,
  status: ToolStatusSchema,
  title: z.string(),
  locations: z.array(ToolLocationSchema),
  /** What was stored of its input, diffs and output. */
  content: ContentSchema.nullable(),
});
export type Tool = z.infer<typeof ToolSchema>;

export const AgentTurnOutcomeSchema = z.object({
  status: z.enum(['succeeded', 'failed', 'cancelled', 'interrupted']),
  error: TurnErrorSchema.nullable(),
});
export type AgentTurnOutcome = z.infer<typeof AgentTurnOutcomeSchema>;

/** A person's choice of a setting. A higher revision is a later choice. */
const ChoiceSchema = z.object({ option: z.string(), value: z.string(), revision: count });
export type Choice = z.infer<typeof ChoiceSchema>;

/** What people want of the agent's settings. */
export interface Wanted {
  /** The model of the session; null: the agent's own. */
  readonly model: string | null;
  readonly choices: readonly Choice[];
}

/** Tokens, or a cost in a currency of the agent's. */
const AmountSchema = z.object({
  used: z.number().nonnegative(),
  isReported: z.boolean(),
  /** A person is asked beyond this; null: never. */
  limit: z.number().nonnegative().nullable(),
  /** What the profile allows, and each answer again; null: no limit. */
  step: z.number().nonnegative().nullable(),
});

const BudgetSchema = z.object({
  tokens: AmountSchema,
  cost: AmountSchema,
  currency: z.string(),
  question: z
    .object({
      id: PermissionIdSchema,
      /** The agent has ended its prompt, as it was told to. */
      hasStopped: z.boolean(),
      answer: z.enum(['go', 'stop']).nullable(),
      /** An agent that has not stopped by then is ended, ms since 1970. */
      deadline: time,
    })
    .nullable(),
});

/** What a turn may use; null: as much as it likes. */
export interface BudgetLimits {
  readonly tokens: number | null;
  readonly cost: number | null;
}

export function newBudget({ tokens, cost }: BudgetLimits): z.infer<typeof BudgetSchema> {
  const amount = (limit: number | null) => ({ used: 0, isReported: false, limit, step: limit });
  return { tokens: amount(tokens), cost: amount(cost), currency: '', question: null };
}

const AgentTurnSchema = z.object({
  id: z.string(),
  /** `prompted`: the prompt is stored as sent. It is never sent again to a process that may have received it. */
  phase: z.enum(['waiting', 'prompted', 'ended']),
  isCancelled: z.boolean(),
  /** The offset behind the prompt in the input of the process; null before it is sent. */
  promptEnd: count.nullable(),
  model: z.string().nullable(),
  choices: z.array(ChoiceSchema).default([]),
  /** Messages so far; a message is numbered from 1. */
  messages: count,
  tools: z.record(z.string(), ToolSchema),
  permissions: count,
  notices: count,
  /** Kinds of notices that are given once in a turn. */
  noticed: z.array(z.string()),
  /** Charged against the turn's limit of output. */
  storedBytes: count,
  limitBytes: count,
  isOverLimit: z.boolean(),
  budget: BudgetSchema.default(() => newBudget({ tokens: null, cost: null })),
  /** Its prompt was sent and ended at the budget: the agent is told to go on. */
  isContinuing: z.boolean().default(false),
  outcome: AgentTurnOutcomeSchema.nullable(),
});
export type AgentTurn = z.infer<typeof AgentTurnSchema>;

const WaitingPermissionSchema = z.object({
  id: PermissionIdSchema,
  /** Null: a question of ours, of which the agent knows nothing. */
  rpcId: RpcIdSchema.nullable(),
  options: z.array(PermissionOptionSchema),
});
export type WaitingPermission = z.infer<typeof WaitingPermissionSchema>;

export const AcpStateSchema = z.object({
  /** The agent's own id of the conversation; null before the first, and after it was lost. */
  conversationId: z.string().nullable(),
  /** How often in a row the agent's process has ended while it loaded that conversation. */
  fatalLoads: count.default(0),
  /** Settings by id, as the history has them: what a load must not change. */
  kept: z.record(z.string(), z.string()),
  /** What the agent offered last, while no process of it has said what it offers. */
  offered: z.array(SettingSchema).default([]),
  /** The revisions of the choices that the agent was asked to take, by setting. */
  taken: z.record(z.string(), count).default({}),
  /** What the agent has reported last: tokens in its context, and the cost of its conversation. */
  reported: z
    .object({ tokens: z.number().nonnegative(), cost: z.number().nonnegative() })
    .default({ tokens: 0, cost: 0 }),
  connection: ConnectionSchema.nullable(),
  turn: AgentTurnSchema.nullable(),
  waiting: z.array(WaitingPermissionSchema),
});
export type AcpState = z.infer<typeof AcpStateSchema>;

/** Tool calls of a turn that the next supervisor still knows; of others it takes what their next update says. */
const KEPT_TOOLS = 64;

/** The state as it is stored: bounded, however many tool calls a turn has. */
export function storedState(state: AcpState): AcpState {
  const { turn } = state;
  if (turn === null) return state;
  const open = Object.entries(turn.tools).filter(
    ([, { status }]) => status === 'pending' || status === 'in_progress',
  );
  return { ...state, turn: { ...turn, tools: Object.fromEntries(open.slice(-KEPT_TOOLS)) } };
}

export const NO_CONVERSATION: AcpState = {
  conversationId: null,
  fatalLoads: 0,
  kept: {},
  offered: [],
  taken: {},
  reported: { tokens: 0, cost: 0 },
  connection: null,
  turn: null,
  waiting: [],
};
