import type { ConversationItem } from '../../protocol/conversation.ts';
import { TimeSlice } from '../../protocol/time-slice.ts';
import { handoverText } from './handover-text.ts';
import type { ConversationReader } from './conversation-reader.ts';
import type { Conversations } from './conversations.ts';
import type { SessionMemory } from './session-memory.ts';

/** Tokens of the conversation that an agent without memory of its own gets. */
const BUDGET_TOKENS = 24_000;
const PAGE = 200;
/** Items beyond which nothing is looked for. Most items of a long conversation are short tool calls. */
const MAX_ITEMS = 20_000;

export interface HandoverOptions {
  readonly conversations: Pick<Conversations, 'rows' | 'catchUp'>;
  readonly reader: Pick<ConversationReader, 'page'>;
  readonly memory: Pick<SessionMemory, 'show'>;
}

/** What a session hands over to an agent that does not remember the conversation. */
export class Handover {
  readonly #options: HandoverOptions;

  constructor(options: HandoverOptions) {
    this.#options = options;
  }

  /** True if the agent must begin a new conversation, even if it could load its last one. */
  async mustStartOver(sessionId: string): Promise<boolean> {
    const { conversations } = this.#options;
    await conversations.catchUp(sessionId);
    const startedOver = conversations.rows.find(sessionId, 'started-over');
    const connected = conversations.rows.find(sessionId, 'connected');
    return (startedOver?.id ?? 0) > (connected?.id ?? 0);
  }

  /**
   * The text to put before the prompt of a turn (`exceptTurn`), whose own items it leaves out. Null if there is nothing to
   * hand over. Of a session that started over it is the memory alone.
   */
  async textFor(
    sessionId: string,
    { exceptTurn, budgetTokens = BUDGET_TOKENS }: { exceptTurn?: string; budgetTokens?: number } = {},
  ): Promise<string | null> {
    const newestFirst = await this.#newest(sessionId, budgetTokens);
    return handoverText({
      memory: this.#options.memory.show(sessionId),
      newestFirst,
      budgetTokens,
      exceptTurn,
    });
  }

  /** From the end backwards, as far as the budget can reach. */
  async #newest(sessionId: string, budgetTokens: number): Promise<ConversationItem[]> {
    const slice = new TimeSlice();
    const newestFirst: ConversationItem[] = [];
    let characters = 0;
    let before: string | undefined;
    for (;;) {
      const page = await this.#options.reader.page(sessionId, { before, limit: PAGE });
      newestFirst.push(...page.items.toReversed());
      const hasStart = page.items.some((item) => item.type === 'mark' && item.mark === 'started-over');
      characters += page.items.reduce((sum, item) => sum + lengthOf(item), 0);
      // A token has four characters at most where it matters.
      if (page.before === null || hasStart || characters > budgetTokens * 4) return newestFirst;
      if (newestFirst.length >= MAX_ITEMS) return newestFirst;
      before = page.before;
      if (slice.isUsedUp) await slice.yieldToEventLoop();
    }
  }
}

/** What an item adds to the text at least. */
function lengthOf(item: ConversationItem): number {
  if (item.type === 'message' && item.role !== 'agent' && item.role !== 'stdout') return 0;
  return (item.text?.length ?? 0) + ('title' in item ? item.title.length : 0);
}
