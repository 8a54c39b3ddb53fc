import type { ConversationItem } from '../protocol/conversation.ts';
import { LiveTexts } from './live-texts.ts';
import type { LiveText } from './live-texts.ts';
import type { ConversationPage, LiveChunk } from './messages.ts';

/** Items in memory; further ones at the far end are dropped, and read again when a person scrolls there. */
export const MAX_ITEMS = 1500;

/**
 * The part of a conversation that the page has in memory: a window of its items, the end of it most of the time. Memory
 * is bounded, however long the conversation is.
 */
export class Conversation {
  #items: ConversationItem[] = [];
  #queued: readonly ConversationItem[] = [];
  #before: string | null = null;
  #after: string | null = null;
  #isLoaded = false;
  readonly #live = new LiveTexts();

  get items(): readonly ConversationItem[] {
    return this.#items;
  }

  /** Prompts that wait, in order. */
  get queued(): readonly ConversationItem[] {
    return this.#queued;
  }

  /** What the agent is saying now; nothing while the window is not at the end. */
  get live(): readonly LiveText[] {
    return this.#after === null ? this.#live.all : [];
  }

  /** Where `read` continues; null where nothing is left in that direction. */
  get cursors(): { readonly before: string | null; readonly after: string | null } {
    return { before: this.#before, after: this.#after };
  }

  get isLoaded(): boolean {
    return this.#isLoaded;
  }

  begin(page: ConversationPage): void {
    this.#live.clear();
    this.#items = page.items;
    this.#queued = page.queued;
    this.#before = page.before;
    this.#after = page.after;
    this.#isLoaded = true;
    for (const item of page.items) this.#live.addItem(item);
  }

  addOlder(page: ConversationPage): void {
    this.#items = [...without(page.items, this.#items), ...this.#items];
    this.#before = page.before;
    if (this.#items.length > MAX_ITEMS) {
      this.#items = this.#items.slice(0, MAX_ITEMS);
      this.#after = cursorOf(this.#items.at(-1));
    }
  }

  addNewer(page: ConversationPage): void {
    this.#items = [...this.#items, ...without(page.items, this.#items)];
    this.#after = page.after;
    this.#dropOldest();
  }

  /** Applies what has changed. Each item replaces the one with the same id. */
  change(items: readonly ConversationItem[], chunks: readonly LiveChunk[]): void {
    for (const item of items) this.#changeOne(item);
    for (const chunk of chunks) this.#live.addChunk(chunk);
    this.#dropOldest();
  }

  #changeOne(item: ConversationItem): void {
    this.#live.addItem(item);
    const isQueued = item.type === 'prompt' && item.state === 'queued';
    const waiting = this.#queued.filter(({ id, turnId }) => id !== item.id && !endsTurn(item, turnId));
    // A prompt that was edited keeps its place.
    this.#queued = isQueued ? [...waiting, item].sort((a, b) => a.id - b.id) : waiting;
    if (isQueued) return;
    const items = this.#items.filter(({ id }) => id !== item.id);
    const isKnown = items.length < this.#items.length;
    const last = items.at(-1);
    const isBehind = last === undefined || compare(item, last) > 0;
    // Outside of the window. It is read when a person scrolls there.
    if (!isKnown && isBehind && this.#after !== null) return;
    const first = items[0];
    if (!isKnown && first !== undefined && compare(item, first) < 0 && this.#before !== null) return;
    const place = isBehind ? items.length : items.findIndex((other) => compare(item, other) < 0);
    items.splice(place, 0, item);
    this.#items = items;
  }

  #dropOldest(): void {
    if (this.#items.length <= MAX_ITEMS) return;
    this.#items = this.#items.slice(-MAX_ITEMS);
    this.#before = cursorOf(this.#items[0]);
  }
}

/** A turn that was taken back ends without having been sent. */
function endsTurn(item: ConversationItem, turnId: string | null): boolean {
  return item.type === 'end' && item.turnId === turnId;
}

function without(items: readonly ConversationItem[], known: readonly ConversationItem[]): ConversationItem[] {
  const ids = new Set(known.map(({ id }) => id));
  return items.filter(({ id }) => !ids.has(id));
}

function cursorOf(item: ConversationItem | undefined): string | null {
  return item === undefined ? null : `${item.at}.${item.id}`;
}

function compare(a: ConversationItem, b: ConversationItem): number {
  return a.at - b.at || a.id - b.id;
}
