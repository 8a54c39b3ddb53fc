import type { ContentBlock } from '@agentclientprotocol/sdk';
import type { PermissionOption } from '../../../protocol/agent-events.ts';
import type { HoldfastError } from '../../../protocol/errors.ts';
import { AgentConversation, type AgentConversationOptions } from './agent-conversation.ts';
import type { AgentLaunch } from './agent-process.ts';
import type { PromptFiles } from '../prompt-files.ts';
import { type PromptCapabilities, type PromptedTurn, promptBlocks } from './prompt.ts';
import { AcpStateSchema, type AgentTurnOutcome } from './state.ts';

/** What a turn asks of its agent. */
export interface AskedTurn extends PromptedTurn {
  readonly stderrBytes: number;
  /** It is over before it begins or goes on. */
  readonly isCancelled: boolean;
}

export interface AgentConversationsOptions extends AgentConversationOptions {
  readonly promptFiles: Pick<PromptFiles, 'read' | 'place'>;
}

/** The conversations of all sessions whose agents speak the Agent Client Protocol. */
export class AgentConversations {
  readonly #options: AgentConversationsOptions;
  readonly #bySession = new Map<string, AgentConversation>();

  constructor(options: AgentConversationsOptions) {
    this.#options = options;
  }

  /** Begins the turn, or goes on with it. Errors: those of the sidecar and the store. */
  async begin(turn: AskedTurn, launch: AgentLaunch): Promise<void> {
    const { sessionId } = turn;
    let conversation = this.#bySession.get(sessionId);
    if (conversation === undefined) {
      conversation = new AgentConversation(sessionId, launch, this.#options);
      this.#bySession.set(sessionId, conversation);
    }
    const prompt = (can: PromptCapabilities): Promise<ContentBlock[]> =>
      promptBlocks(turn, can, this.#options.promptFiles);
    const { id, isCancelled, stderrBytes: errorBytes } = turn;
    await conversation.begin({ id, prompt, errorBytes, isCancelled }, launch);
  }

  /** Whether this supervisor or an earlier one has begun the turn. */
  hasBegun(sessionId: string, turnId: string): boolean {
    const conversation = this.#bySession.get(sessionId);
    if (conversation !== undefined) return conversation.hasTurn(turnId);
    const stored = AcpStateSchema.safeParse(this.#options.store.get(sessionId)?.state);
    return stored.success && stored.data.turn?.id === turnId;
  }

  outcomeOf(sessionId: string, turnId: string): AgentTurnOutcome | null {
    return this.#bySession.get(sessionId)?.outcomeOf(turnId) ?? null;
  }

  isOverLimit(sessionId: string, turnId: string): boolean {
    return this.#bySession.get(sessionId)?.isOverLimit(turnId) ?? false;
  }

  storeFailure(sessionId: string): HoldfastError | null {
    return this.#bySession.get(sessionId)?.storeFailure ?? null;
  }

  async cancel(sessionId: string, turnId: string): Promise<void> {
    await this.#bySession.get(sessionId)?.cancel(turnId);
  }

  /** Stops reading. The agent goes on. */
  async stop(sessionId: string): Promise<void> {
    await this.#bySession.get(sessionId)?.stop();
  }

  /** The turn is over, however it ended. `recordEnd` stores that, in one transaction with the last of what the agent said. */
  end(sessionId: string, turnId: string, recordEnd: () => void): void {
    const conversation = this.#bySession.get(sessionId);
    if (conversation === undefined) recordEnd();
    else conversation.end(turnId, recordEnd);
  }

  answer(sessionId: string, permissionId: string, option: PermissionOption): void {
    this.#bySession.get(sessionId)?.answer(permissionId, option);
  }

  /** What people want of the agent's settings has changed. It reaches a turn that runs; the next one begins with it. */
  chosen(sessionId: string): void {
    this.#bySession.get(sessionId)?.chosen();
  }

  /** The session was deleted, after its last turn had ended. */
  forget(sessionId: string): void {
    this.#bySession.delete(sessionId);
    this.#options.store.remove(sessionId);
  }

  /** Stops reading. The agents go on. */
  async detach(): Promise<void> {
    await Promise.all([...this.#bySession.values()].map((conversation) => conversation.stop()));
  }
}
