import { describe, expect, test } from 'vitest';
import type { ConversationItem } from '../../../protocol/conversation.ts';
import { Conversation, MAX_ITEMS } from '../../../webview/conversation.ts';
import { timeline } from '../../../webview/timeline.ts';
import {
  NEXT_TURN,
  TURN,
  item,
  message,
  page,
  permission,
  prompt,
} from '../../editor/session-page/conversations.ts';
import { seededRandom } from '../../fixtures/protocol/seeded-random.ts';

const texts = (conversation: Conversation): string[] =>
  timeline(conversation.items, conversation.live).map((row) =>
    row.kind === 'message' ? row.text : row.kind === 'prompt' ? `> ${row.item.preview}` : row.kind,
  );
const ids = ({ items }: Conversation): number[] => items.map(({ id }) => id);

function begun(items: ConversationItem[], more: Parameters<typeof page>[1] = {}): Conversation {
  const conversation = new Conversation();
  conversation.begin(page(items, more));
  return conversation;
}

describe('the conversation that a page has', () => {
  test('grows at its end, and a changed item keeps its place', () => {
    const conversation = begun([prompt(1, 'go'), message(2, 'one')]);
    conversation.change([message(4, 'three'), message(3, 'two')], []);
    conversation.change([{ ...message(2, 'ONE'), seq: 9 }], []);
    expect(texts(conversation)).toEqual(['> go', 'ONE', 'two', 'three']);
  });

  test('a prompt waits in the queue until it is sent or taken back', () => {
    const queued = { ...prompt(5, 'later', { state: 'queued', turnId: NEXT_TURN }), at: 0 };
    const conversation = begun([prompt(1, 'go')]);
    conversation.change([queued], []);
    expect(conversation.queued.map(({ id }) => id)).toEqual([5]);
    expect(ids(conversation)).toEqual([1]);
    conversation.change([prompt(5, 'later', { turnId: NEXT_TURN })], []);
    expect(conversation.queued).toEqual([]);
    expect(ids(conversation)).toEqual([1, 5]);

    const other = begun([prompt(1, 'go')], { queued: [queued] });
    const end = item(6, 'end', {
      status: 'cancelled',
      exitCode: null,
      error: null,
      turnMs: null,
      turnId: NEXT_TURN,
    });
    other.change([end], []);
    expect(other.queued).toEqual([]);
  });

  test('a prompt that is edited while it waits keeps its place in the queue', () => {
    const waiting = (id: number, text: string, seq = id) => ({
      ...prompt(id, text, { state: 'queued', turnId: `turn-${String(id).padStart(16, 'a')}` }),
      ...{ at: 0, seq },
    });
    const conversation = begun([prompt(1, 'go')], { queued: [waiting(5, 'first'), waiting(6, 'second')] });
    conversation.change([waiting(5, 'first, edited', 9)], []);
    expect(conversation.queued.map(({ text }) => text)).toEqual(['first, edited', 'second']);
  });

  test('keeps a bounded window while a person reads backwards, and shows what is new at the end only', () => {
    const all = Array.from({ length: 5000 }, (_, n) => message(n + 1, `m${n + 1}`));
    const cursor = (one: ConversationItem | undefined): string => `${one?.at ?? 0}.${one?.id ?? 0}`;
    const read = ({ before, after }: { before?: string | null; after?: string | null }) => {
      const at = Number((before ?? after ?? '').split('.')[0]);
      const start = typeof before === 'string' ? Math.max(0, at - 1 - 100) : at;
      const end = typeof before === 'string' ? at - 1 : Math.min(all.length, at + 100);
      const items = all.slice(start, end);
      return page(items, {
        before: start > 0 ? cursor(items[0]) : null,
        after: end < all.length ? cursor(items.at(-1)) : null,
      });
    };
    const conversation = begun(all.slice(-100), { before: cursor(all.at(-100)) });
    while (conversation.cursors.before !== null) {
      conversation.addOlder(read({ before: conversation.cursors.before }));
      expect(conversation.items.length).toBeLessThanOrEqual(MAX_ITEMS);
    }
    expect(ids(conversation)[0]).toBe(1);
    expect(conversation.cursors.after).toBe(`${MAX_ITEMS}.${MAX_ITEMS}`);
    conversation.change(
      [message(5001, 'new')],
      [{ turnId: TURN, message: 5002, role: 'agent', offset: 0, text: 'live' }],
    );
    expect(ids(conversation).at(-1)).toBe(MAX_ITEMS);
    expect(conversation.live).toEqual([]);
    all.push(message(5001, 'new'));
    while (conversation.cursors.after !== null) {
      conversation.addNewer(read({ after: conversation.cursors.after }));
      expect(conversation.items.length).toBeLessThanOrEqual(MAX_ITEMS);
    }
    expect(ids(conversation)).toEqual(all.slice(-MAX_ITEMS).map(({ id }) => id));
    expect(texts(conversation).at(-1)).toBe('live');
  });
});

describe('text that is not stored yet', () => {
  const chunk = (offset: number, text: string, number = 3) =>
    ({ turnId: TURN, message: number, role: 'agent', offset, text }) as const;
  const stored = (id: number, text: string, start = 0): ConversationItem =>
    item(id, 'message', { role: 'agent', message: 3, start, bytes: Buffer.byteLength(text), text });

  test('is shown once, whether the item or the chunk arrives first', () => {
    const conversation = begun([prompt(1, 'go')]);
    conversation.change([], [chunk(0, 'Hé'), chunk(3, 'llo')]);
    expect(texts(conversation).at(-1)).toBe('Héllo');
    conversation.change([stored(2, 'Hé')], []);
    expect(texts(conversation)).toEqual(['> go', 'Héllo']);
    conversation.change([stored(4, 'llo wor', 3)], [chunk(3, 'llo')]);
    expect(texts(conversation)).toEqual(['> go', 'Héllo wor']);
    conversation.change([], [chunk(10, 'ld')]);
    expect(texts(conversation)).toEqual(['> go', 'Héllo world']);
  });

  test('any order of stored parts and chunks gives the message', () => {
    const whole = 'Grüße, 世界! This is a message in many parts. 😀 The end.';
    const bytes = Buffer.from(whole);
    const random = seededRandom(3);
    for (let round = 0; round < 200; round += 1) {
      const conversation = begun([prompt(1, 'go')]);
      let sent = 0;
      let kept = 0;
      let id = 2;
      while (kept < bytes.length) {
        const next = boundary(bytes, sent + Math.ceil(random() * 12));
        if (sent < bytes.length) conversation.change([], [chunk(sent, bytes.toString('utf8', sent, next))]);
        sent = Math.max(sent, next);
        if (random() < 0.4 || sent === bytes.length) {
          const end = random() < 0.5 ? sent : boundary(bytes, kept + Math.ceil(random() * (sent - kept)));
          if (end > kept) conversation.change([stored(id++, bytes.toString('utf8', kept, end), kept)], []);
          kept = Math.max(kept, end);
        }
        expect(texts(conversation).at(-1)).toBe(bytes.toString('utf8', 0, sent));
      }
      expect(conversation.live).toEqual([]);
    }
  });

  test('ends with its turn', () => {
    const conversation = begun([prompt(1, 'go')]);
    conversation.change([], [chunk(0, 'never stored')]);
    conversation.change([item(2, 'end', { status: 'failed', exitCode: 1, error: null, turnMs: 5 })], []);
    expect(texts(conversation)).toEqual(['> go', 'end']);
  });
});

/** The next place between two characters. */
function boundary(bytes: Buffer, from: number): number {
  let at = Math.min(from, bytes.length);
  while (at < bytes.length && ((bytes[at] ?? 0) & 0xc0) === 0x80) at += 1;
  return at;
}

test('a waiting permission and what follows are separate rows', () => {
  const conversation = begun([prompt(1, 'go'), message(2, 'text'), permission(3), message(4, 'more')]);
  expect(texts(conversation)).toEqual(['> go', 'text', 'permission', 'more']);
});
