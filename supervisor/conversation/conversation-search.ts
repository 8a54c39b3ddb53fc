import { CONVERSATION_LIMITS } from '../../protocol/conversation.ts';
import type { SearchResult } from '../../protocol/conversation.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { TimeSlice } from '../../protocol/time-slice.ts';
import type { Sessions } from '../store/sessions.ts';
import { cursorOf } from './conversation-reader.ts';
import type { Conversations } from './conversations.ts';
import { type FoundText, type WordIndex, wordsOf } from './word-index.ts';

/** Looks into the index that one request may take. The client continues with the cursor. */
const MAX_QUERIES = 4;
/** Of a text with other letters than ASCII, the part in which an excerpt looks for a word: each character takes its time. */
const FOLDED_CHARACTERS = 16 * 1024;

export interface SearchRequest {
  readonly text: string;
  readonly sessionId: string | null;
  readonly profile?: string | undefined;
  readonly limit?: number | undefined;
  readonly cursor?: string | undefined;
}

export interface ConversationSearchOptions {
  readonly conversations: Pick<Conversations, 'index' | 'rows' | 'isComplete' | 'catchUp'>;
  readonly sessions: Pick<Sessions, 'get'>;
}

/** Finds words in the conversations of sessions that are not deleted. */
export class ConversationSearch {
  readonly #options: ConversationSearchOptions;

  constructor(options: ConversationSearchOptions) {
    this.#options = options;
  }

  /** Errors: `not_supported` without an index. */
  async search(
    request: SearchRequest,
    signal?: AbortSignal,
  ): Promise<{ results: SearchResult[]; cursor: string | null; complete: boolean }> {
    const { conversations } = this.#options;
    if (request.sessionId !== null) await conversations.catchUp(request.sessionId);
    const { limit = CONVERSATION_LIMITS.results.default } = request;
    const index = this.#index();
    const results: SearchResult[] = [];
    const slices = new TimeSlice(signal);
    let below = request.cursor === undefined ? null : Number(request.cursor);
    for (let queries = 0; queries < MAX_QUERIES; queries += 1) {
      const { found, next } = index.find({
        text: request.text,
        sessionId: request.sessionId,
        below,
        limit: limit - results.length,
      });
      for (const one of found) {
        if (slices.isUsedUp) await slices.yieldToEventLoop();
        const result = this.#result(one, request);
        if (result !== null) results.push(result);
      }
      below = next;
      if (below === null || results.length >= limit) break;
    }
    return {
      results,
      cursor: below === null ? null : String(below),
      complete: conversations.isComplete || request.sessionId !== null,
    };
  }

  #index(): WordIndex {
    const { index } = this.#options.conversations;
    if (index !== null) return index;
    throw new HoldfastError('not_supported', 'Conversations cannot be searched', {
      why: 'the SQLite of this Node has no full text search (FTS5)',
      next: 'search the output of `holdfast session events SESSION`',
    });
  }

  #result(found: FoundText, { text, profile }: SearchRequest): SearchResult | null {
    const { conversations, sessions } = this.#options;
    const { sessionId } = found;
    const session = sessions.get(sessionId);
    if (session === null || session.status === 'deleted') return null;
    if (profile !== undefined && session.profile !== profile) return null;
    const item = conversations.rows.get(sessionId, found.item);
    const cursor = cursorOf(item);
    if (item === undefined || cursor === null) return null;
    return {
      sessionId,
      sessionName: session.name,
      profile: session.profile,
      turnId: item.turnId,
      item: item.id,
      cursor,
      type: item.type === 'message' ? item.role : item.type,
      time: item.time,
      excerpt: excerptOf(found.text, text),
    };
  }
}

/** What is around the first of the words, on one line. */
export function excerptOf(text: string, wanted: string): string {
  const { excerptCharacters } = CONVERSATION_LIMITS;
  const plain = folded(text);
  const places = wordsOf(wanted).map((word) => plain.indexOf(folded(word)));
  const first = Math.min(...places.filter((place) => place >= 0), text.length);
  const from = first === text.length ? 0 : Math.max(0, first - excerptCharacters / 3);
  const part = text.slice(from, from + excerptCharacters).replaceAll(/[\s\p{Cc}]+/gu, ' ');
  return `${from > 0 ? '…' : ''}${part.trim()}${from + excerptCharacters < text.length ? '…' : ''}`;
}

/** Lower case without accents. Each character stays in its place. */
function folded(text: string): string {
  if (/^\p{ASCII}*$/u.test(text)) return text.toLowerCase();
  return text.slice(0, FOLDED_CHARACTERS).replaceAll(/./gsu, (character) => {
    const base = character.normalize('NFD').replaceAll(/\p{M}/gu, '').toLowerCase();
    return base.length === character.length ? base : character;
  });
}
