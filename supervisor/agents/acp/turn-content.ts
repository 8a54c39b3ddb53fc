import { cutJson } from './bounded-text.ts';
import { type LiveText, type NewEvent, contentOfJson } from './effects.ts';
import { OpenMessage } from './messages.ts';
import type { Outbox } from './outbox.ts';
import type { AgentTurn, Tool } from './state.ts';
import { ToolCalls } from './tool-calls.ts';
import type { Usage } from './turn-budget.ts';
import { ChunkSchema, ToolUpdateSchema, type Update, UsageSchema, textOf } from './wire.ts';

const PLAN_BYTES = 256 * 1024;

/** What an agent says and does in a turn: collected, so that a few events hold what came in many updates. */
export class TurnContent {
  readonly #turn: AgentTurn;
  readonly #outbox: Outbox;
  readonly #message: OpenMessage;
  readonly #tools: ToolCalls;
  readonly #reportUsage: (usage: Usage, now: number) => void;
  #plan: Update | null = null;
  #lastPlan: string | null = null;
  #usage: NewEvent | null = null;
  #live: LiveText[] = [];

  /** `onUsage`: the agent reports what it has used. */
  constructor(turn: AgentTurn, outbox: Outbox, onUsage: (usage: Usage, now: number) => void) {
    this.#turn = turn;
    this.#reportUsage = onUsage;
    this.#outbox = outbox;
    this.#message = new OpenMessage(turn);
    this.#tools = new ToolCalls(turn);
  }

  /** An update of the turn, in a message of `size` bytes. */
  apply(update: Update, size: number, now: number): void {
    switch (update.sessionUpdate) {
      case 'agent_message_chunk': {
        this.#onChunk('agent', update);
        return;
      }
      case 'agent_thought_chunk': {
        this.#onChunk('thought', update);
        return;
      }
      case 'tool_call':
      case 'tool_call_update': {
        this.applyTool(update, size);
        return;
      }
      case 'plan':
        this.#plan = update;
        return;
      case 'usage_update': {
        this.#onUsage(update, now);
        return;
      }
      case 'user_message_chunk':
      case 'available_commands_update':
      case 'session_info_update':
        return;
      default:
        this.#outbox.notice(
          `update:${update.sessionUpdate}`,
          `The agent sent an update of the kind ${update.sessionUpdate}, which is not known here`,
        );
    }
  }

  applyTool(update: unknown, size: number): void {
    const { success, data } = ToolUpdateSchema.safeParse(update);
    if (!success) {
      this.#outbox.notice('bad_tool_call', 'The agent reported a tool call without an id');
      return;
    }
    this.#closeMessage();
    const event = this.#tools.apply(data, size);
    if (event === false)
      this.#outbox.notice('too_many_tools', 'The agent reports more tool calls than are stored');
    else if (event !== null) this.#outbox.emit(event);
  }

  /** What a call does, if an update named it. */
  tool(id: string): Tool | null {
    return this.#tools.get(id);
  }

  takeLive(): LiveText[] {
    const live = this.#live;
    this.#live = [];
    return live;
  }

  /** Makes events of everything that is collected. */
  flush(): void {
    for (const event of this.#message.takeEvents()) this.#outbox.emit(event);
    for (const event of this.#tools.takeEvents()) this.#outbox.emit(event);
    if (this.#plan !== null) {
      const { content, bytes } = contentOfJson(cutJson(this.#plan['entries'] ?? [], PLAN_BYTES));
      if (content.sha256 !== this.#lastPlan)
        this.#outbox.emit({ type: 'agent.plan', data: { turnId: this.#turn.id, content }, bytes });
      this.#lastPlan = content.sha256;
    }
    this.#plan = null;
    if (this.#usage !== null) this.#outbox.emit(this.#usage);
    this.#usage = null;
  }

  #onChunk(role: 'agent' | 'thought', update: Update): void {
    const { success, data } = ChunkSchema.safeParse(update);
    if (!success) return;
    const { events, live } = this.#message.append(role, data.messageId ?? null, textOf(data.content));
    for (const event of events) this.#outbox.emit(event);
    if (live !== null) this.#live.push(live);
  }

  #onUsage(update: unknown, now: number): void {
    const { success, data } = UsageSchema.safeParse(update);
    if (!success) return;
    const { used = null, size = null, cost = null } = data;
    this.#usage = {
      type: 'agent.usage',
      data: {
        turnId: this.#turn.id,
        contextUsed: used,
        contextSize: size,
        inputTokens: null,
        outputTokens: null,
        totalTokens: null,
        cost,
      },
      bytes: null,
    };
    this.#reportUsage({ used, cost }, now);
  }

  #closeMessage(): void {
    for (const event of this.#message.close()) this.#outbox.emit(event);
  }
}
