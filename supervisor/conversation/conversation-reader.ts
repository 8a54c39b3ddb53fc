import { isUtf8 } from 'node:buffer';
import type { Content } from '../../protocol/contents.ts';
import { CONVERSATION_LIMITS } from '../../protocol/conversation.ts';
import type { ConversationItem, ProjectedItem } from '../../protocol/conversation.ts';
import { parseEvent } from '../../protocol/events.ts';
import { firstLine, PREVIEW_BYTES, PREVIEW_CHARACTERS, toSingleLine } from '../base/single-line.ts';
import type { Contents } from '../history/contents.ts';
import type { EventLog } from '../history/event-log.ts';
import type { Conversations } from './conversations.ts';
import type { Place } from './item-rows.ts';

/** JSON of one page. A message has room for it beside its largest item. */
const PAGE_BYTES = 512 * 1024;
/** Prompts in the queue that a page shows. */
const QUEUED = 50;
const QUEUED_BYTES = 256 * 1024;
/** Items of one notification. */
const CHANGED = 200;

export interface ConversationPage {
  readonly items: ConversationItem[];
  readonly before: string | null;
  readonly after: string | null;
  readonly queued: ConversationItem[];
  readonly total: number;
  readonly seq: number;
}

export interface PageRequest {
  /** At most one of them. */
  readonly before?: string | undefined;
  readonly after?: string | undefined;
  readonly limit?: number | undefined;
}

export interface ConversationReaderOptions {
  readonly conversations: Pick<Conversations, 'rows' | 'catchUp'>;
  readonly events: Pick<EventLog, 'get'>;
  readonly contents: Pick<Contents, 'read'>;
}

/** Reads conversations in pages, with the texts of their items. */
export class ConversationReader {
  readonly #options: ConversationReaderOptions;

  constructor(options: ConversationReaderOptions) {
    this.#options = options;
  }

  /** The end of a conversation, or what is before or after a cursor. */
  async page(sessionId: string, request: PageRequest): Promise<ConversationPage> {
    const { conversations } = this.#options;
    await conversations.catchUp(sessionId);
    // From here on nothing waits, so that everything is of one moment.
    const { rows } = conversations;
    const { limit = CONVERSATION_LIMITS.page.default } = request;
    const after = placeOf(request.after);
    const before = placeOf(request.before);
    // One more than asked for shows whether anything is left.
    const found =
      after === null ? rows.before(sessionId, before, limit + 1) : rows.after(sessionId, after, limit + 1);
    const { items, hasMore } = this.#take(sessionId, found, limit, PAGE_BYTES);
    if (after === null) items.reverse();
    const [first, last] = [items[0], items.at(-1)];
    const { seq, items: total } = rows.head(sessionId);
    const earlier = after === null ? hasMore : true;
    const later = after === null ? before !== null : hasMore;
    return {
      items,
      before: earlier ? cursorOf(first) : null,
      after: later ? cursorOf(last) : null,
      queued: this.#take(sessionId, rows.queued(sessionId, QUEUED), QUEUED, QUEUED_BYTES).items,
      total,
      seq,
    };
  }

  /** Items that changed after an event, and up to which event that is everything. */
  async changedAfter(sessionId: string, seq: number): Promise<{ items: ConversationItem[]; seq: number }> {
    const { conversations } = this.#options;
    await conversations.catchUp(sessionId);
    const found = conversations.rows.changedAfter(sessionId, seq, CHANGED + 1);
    const { items, hasMore } = this.#take(sessionId, found, CHANGED, PAGE_BYTES);
    if (!hasMore) return { items, seq: Math.max(seq, conversations.rows.head(sessionId).seq) };
    // An event can change two items. What the last event of this page changed must not be torn apart.
    const last = items.at(-1)?.seq ?? seq;
    const whole = items.filter((item) => item.seq < last);
    if (whole.length === 0) return { items: [...items, ...this.#others(sessionId, items)], seq: last };
    return { items: whole, seq: last - 1 };
  }

  item(sessionId: string, item: ProjectedItem): ConversationItem {
    const text = this.#textOf(sessionId, item);
    return item.type === 'prompt'
      ? { ...item, preview: this.#previewOf(sessionId, item, text), ...text }
      : { ...item, ...text };
  }

  /** Of the text, if the prompt is text: it has been read already. */
  #previewOf(sessionId: string, item: ProjectedItem, { text }: { readonly text: string | null }): string {
    if (text !== null) return toSingleLine(text.slice(0, PREVIEW_BYTES), PREVIEW_CHARACTERS);
    const [content] = item.contents;
    const head = content === undefined ? null : this.#readPart(sessionId, content.sha256, PREVIEW_BYTES);
    const old = item.type === 'prompt' ? item.preview : '';
    return head === null ? old : firstLine(head, PREVIEW_CHARACTERS);
  }

  /** What else the last event of a page has changed. */
  #others(sessionId: string, items: readonly ConversationItem[]): ConversationItem[] {
    const last = items.at(-1);
    if (last === undefined) return [];
    const { rows } = this.#options.conversations;
    return [...rows.changedAfter(sessionId, last.seq - 1, items.length + 4)]
      .filter(({ id, seq }) => seq === last.seq && !items.some((item) => item.id === id))
      .map((item) => this.item(sessionId, item));
  }

  #take(
    sessionId: string,
    found: Iterable<ProjectedItem>,
    limit: number,
    maxBytes: number,
  ): { readonly items: ConversationItem[]; readonly hasMore: boolean } {
    const items: ConversationItem[] = [];
    let bytes = 0;
    for (const projected of found) {
      if (items.length === limit) return { items, hasMore: true };
      const item = this.item(sessionId, projected);
      bytes += Buffer.byteLength(JSON.stringify(item));
      if (items.length > 0 && bytes > maxBytes) return { items, hasMore: true };
      items.push(item);
    }
    return { items, hasMore: false };
  }

  #textOf(sessionId: string, item: ProjectedItem): { text: string | null; cut: boolean } {
    const none = { text: null, cut: false };
    switch (item.type) {
      case 'prompt':
      case 'plan':
      case 'end':
        return item.contents.some((content) => !isText(content))
          ? none
          : (this.#join(sessionId, item) ?? (item.type === 'plan' ? none : this.#oldText(sessionId, item)));
      case 'message':
        // A piece of output may end in the middle of a character; together the pieces are text.
        return this.#join(sessionId, item) ?? this.#oldText(sessionId, item);
      default:
        return none;
    }
  }

  /** The beginning of the contents; null if the item names none. */
  #join(sessionId: string, item: ProjectedItem): { text: string | null; cut: boolean } | null {
    if (item.contents.length === 0) return null;
    const { textBytes } = CONVERSATION_LIMITS;
    const parts: Buffer[] = [];
    let room: number = textBytes;
    for (const { sha256 } of item.contents) {
      if (room === 0) break;
      const part = this.#readPart(sessionId, sha256, room);
      if (part === null) return { text: null, cut: false };
      parts.push(part);
      room -= part.length;
    }
    const total = item.contents.reduce((sum, { bytes }) => sum + bytes, 0);
    return { text: decode(Buffer.concat(parts)), cut: total > textBytes };
  }

  #readPart(sessionId: string, sha256: string, limit: number): Buffer | null {
    try {
      return this.#options.contents.read(sessionId, sha256, 0, limit).part;
    } catch {
      // Removed on purpose, or missing: `content/read` says which.
      return null;
    }
  }

  /** What an event of an earlier version has inside. */
  #oldText(sessionId: string, { id }: ProjectedItem): { text: string | null; cut: boolean } {
    const event = this.#options.events.get(sessionId, id);
    const entry = event === null ? null : parseEvent(event);
    const { textBytes } = CONVERSATION_LIMITS;
    if (entry?.type === 'turn.ended' && entry.data.output !== undefined) {
      const bytes = Buffer.from(JSON.stringify(entry.data.output));
      return { text: decode(bytes.subarray(0, textBytes)), cut: bytes.length > textBytes };
    }
    if (entry?.type !== 'turn.output') return { text: null, cut: false };
    const { text, base64 } = entry.data;
    if (text === undefined && base64 === undefined) return { text: null, cut: false };
    const bytes = text === undefined ? Buffer.from(base64 ?? '', 'base64') : Buffer.from(text);
    return { text: decode(bytes.subarray(0, textBytes)), cut: bytes.length > textBytes };
  }
}

/** Without half a character at the end. */
function decode(bytes: Buffer): string {
  return isUtf8(bytes)
    ? bytes.toString('utf8')
    : new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes, { stream: true });
}

function placeOf(cursor: string | undefined): Place | null {
  if (cursor === undefined) return null;
  const [at = '0', id = '0'] = cursor.split('.');
  return { at: Number(at), id: Number(id) };
}

export function cursorOf(item: Pick<ProjectedItem, 'at' | 'id'> | undefined): string | null {
  return item === undefined ? null : `${item.at}.${item.id}`;
}

/** Prompts can be images and files. */
function isText({ mediaType }: Content): boolean {
  return mediaType.startsWith('text/') || mediaType === 'application/json';
}
