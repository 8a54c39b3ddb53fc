import type { ConversationItem } from '../../protocol/conversation.ts';
import { snapshotReasonRule } from '../../protocol/snapshot-reasons.ts';
import { MAX_WORDS } from '../../webview/home-messages.ts';
import type { MessageSummary } from '../../webview/home-messages.ts';

const MAX_QUESTION = 300;

/** What the end of a conversation says. `items`: oldest first. */
export function lastMessage(items: readonly ConversationItem[]): MessageSummary {
  const begin = items.findLastIndex(({ type }) => type === 'prompt');
  // Without its prompt all of the page belongs to the last turn.
  const turn = items.slice(begin + 1);
  const asked = turn.filter((item) => item.type === 'permission').findLast(({ by }) => by === null);
  const end = turn.findLast((item) => item.type === 'end');
  // What the session or the turn began with stands after its prompt as well; it says what was changed before.
  const changed = turn
    .filter((item) => item.type === 'mark')
    .filter((mark) => mark.mark === 'snapshot')
    .findLast(({ reason }) => snapshotReasonRule(reason).isBeginning !== true);
  const said = turn.map(wordsOf).findLast((words) => words !== null);
  return {
    words: said === undefined ? null : tail(said),
    asks: asked?.title.slice(0, MAX_QUESTION) ?? null,
    isFailure: end !== undefined && end.status !== 'succeeded' && end.status !== 'cancelled',
    changedFiles: changed?.changedFiles ?? null,
  };
}

function wordsOf(item: ConversationItem): string | null {
  switch (item.type) {
    case 'message':
      return item.role === 'thought' ? null : filled(item.text);
    case 'end':
      return item.error === null ? (item.text === 'null' ? null : filled(item.text)) : item.error.message;
    default:
      return null;
  }
}

function filled(text: string | null): string | null {
  const trimmed = text?.trim() ?? '';
  return trimmed === '' ? null : trimmed;
}

/** The end of a long text, from the beginning of a word. */
function tail(text: string): string {
  if (text.length <= MAX_WORDS) return text;
  const end = text.slice(-MAX_WORDS);
  return `…${end.slice(end.search(/\s/) + 1)}`;
}
