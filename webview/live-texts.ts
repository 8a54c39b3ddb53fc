import type { ConversationItem } from '../protocol/conversation.ts';
import type { LiveChunk } from './messages.ts';

/** The end of a message that is not stored yet. */
export interface LiveText {
  readonly turnId: string;
  readonly message: number;
  readonly role: LiveChunk['role'];
  /** Bytes of the message before `text`. */
  readonly offset: number;
  readonly text: string;
  /** Of `text`. */
  readonly bytes: number;
}

/** Messages whose stored bytes are known, the newest ones: the chunks of older ones came long ago. */
const MAX_STORED = 1000;

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** Joins the stored items of messages and the chunks behind them: each byte is shown once. */
export class LiveTexts {
  readonly #texts = new Map<string, LiveText>();
  /** How many bytes of each message its items have. */
  readonly #stored = new Map<string, number>();

  get all(): readonly LiveText[] {
    return [...this.#texts.values()];
  }

  addChunk(chunk: LiveChunk): void {
    const key = keyOf(chunk);
    const { turnId, message, role } = chunk;
    const before = this.#texts.get(key);
    const bytes = encoder.encode(chunk.text).byteLength;
    const continues = before !== undefined && before.offset + before.bytes === chunk.offset;
    const next = continues
      ? { ...before, text: before.text + chunk.text, bytes: before.bytes + bytes }
      : { turnId, message, role, offset: chunk.offset, text: chunk.text, bytes };
    this.#keep(key, next);
  }

  addItem(item: ConversationItem): void {
    if (item.type === 'end') {
      for (const [key, text] of this.#texts) if (text.turnId === item.turnId) this.#texts.delete(key);
      return;
    }
    if (item.type !== 'message' || item.message === null || item.turnId === null) return;
    const { turnId, message, role } = item;
    if (role !== 'agent' && role !== 'thought') return;
    const key = keyOf({ turnId, message, role });
    this.#stored.set(key, Math.max(this.#stored.get(key) ?? 0, item.start + item.bytes));
    const [oldest] = this.#stored.keys();
    if (this.#stored.size > MAX_STORED && oldest !== undefined) this.#stored.delete(oldest);
    const live = this.#texts.get(key);
    if (live !== undefined) this.#keep(key, live);
  }

  clear(): void {
    this.#texts.clear();
    this.#stored.clear();
  }

  /** Keeps what is behind the stored part. */
  #keep(key: string, live: LiveText): void {
    const stored = (this.#stored.get(key) ?? 0) - live.offset;
    if (stored <= 0) {
      this.#texts.set(key, live);
      return;
    }
    if (stored >= live.bytes) this.#texts.delete(key);
    else {
      const text = decoder.decode(encoder.encode(live.text).subarray(stored));
      this.#texts.set(key, { ...live, offset: live.offset + stored, text, bytes: live.bytes - stored });
    }
  }
}

function keyOf({ turnId, message, role }: Pick<LiveText, 'turnId' | 'message' | 'role'>): string {
  return `${turnId} ${message} ${role}`;
}
