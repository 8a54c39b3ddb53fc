import type { ConversationItem } from '../../protocol/conversation.ts';

type MessageItem = Extract<ConversationItem, { type: 'message' }>;

/** Where a message goes on. `missing`: bytes between what was printed and `text`, which have to be read from contents. */
export interface NextText {
  readonly text: Buffer;
  readonly missing: number;
}

/** Joins what is stored of messages with what is live, so that each byte is printed once. Offsets count bytes of a message. */
export class MessageTexts {
  readonly #printed = new Map<string, number>();

  /** The part of a chunk that was not printed yet; null for none, and for one that has a gap before it. */
  takeChunk(key: string, offset: number, text: string): Buffer | null {
    const printed = this.#printed.get(key) ?? 0;
    const bytes = Buffer.from(text);
    if (offset > printed || offset + bytes.length <= printed) return null;
    this.#printed.set(key, offset + bytes.length);
    return bytes.subarray(printed - offset);
  }

  /** The part of an item that was not printed yet; null for none. */
  takeItem(key: string, item: Pick<MessageItem, 'start' | 'text' | 'bytes'>): Buffer | null {
    const printed = this.#printed.get(key) ?? 0;
    const end = item.start + item.bytes;
    if (end <= printed) return null;
    const text = Buffer.from(item.text ?? '');
    this.#printed.set(key, end);
    const from = Math.max(0, printed - item.start);
    const cut = item.start + text.length < end ? Buffer.from(' […]') : Buffer.alloc(0);
    return Buffer.concat([text.subarray(from), cut]);
  }
}

export function messageKey(item: { turnId: string | null; message: number | null; role: string }): string {
  return `${item.turnId ?? ''}/${item.role}/${item.message ?? ''}`;
}
