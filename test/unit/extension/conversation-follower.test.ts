import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { Connection } from '../../../extension/connection/connection.ts';
import { ConversationFollower } from '../../../extension/page/conversation-follower.ts';
import type { ConversationItem } from '../../../protocol/conversation.ts';
import type { LiveChunk } from '../../../webview/messages.ts';
import { TURN, message, page } from '../../editor/session-page/conversations.ts';

const SESSION = 'ses-aaaaaaaaaaaaaaaa';
const OPENING = ['conversation/read', 'conversation/subscribe'];
type Notify = (value: { subscription: string } & Record<string, unknown>) => void;

interface Batch {
  readonly number: number;
  readonly items: readonly ConversationItem[];
  readonly chunks: readonly LiveChunk[];
}

/** A fake: the connection to a supervisor that answers at once, and remembers what it was asked. */
function fakeSupervisor() {
  const calls: string[] = [];
  const listeners = new Map<string, Notify>();
  let subscriptions = 0;
  const peer = {
    isClosed: false,
    call: (method: string) => {
      calls.push(method);
      if (method === 'conversation/read') return Promise.resolve(page([message(1, 'The end')]));
      if (method !== 'conversation/subscribe') return Promise.resolve({});
      subscriptions += 1;
      return Promise.resolve({ subscription: `sub-${subscriptions}` });
    },
    onNotification: (name: string, listener: Notify) => listeners.set(name, listener),
  };
  const connection = {
    of: () => ({ peer, ensureConnecting: () => undefined }),
    onDidConnect: () => ({ dispose: () => undefined }),
  };
  const say = (name: string, value: Record<string, unknown>): void =>
    listeners.get(name)?.({ subscription: `sub-${subscriptions}`, ...value });
  return { connection: connection as unknown as Connection, calls, say };
}

/** A page that has drawn nothing yet of what it was sent. */
async function given() {
  const supervisor = fakeSupervisor();
  const batches: Batch[] = [];
  let begun = 0;
  const follower = new ConversationFollower({
    connection: supervisor.connection,
    session: SESSION,
    begin: () => (begun += 1),
    send: (number, items, chunks) => batches.push({ number, items, chunks }),
  });
  await vi.advanceTimersByTimeAsync(0);
  const changed = (...ids: number[]): void =>
    supervisor.say('conversation/changed', { items: ids.map((id) => message(id, `Event ${id}`)) });
  const chunk = (text: string): void =>
    supervisor.say('conversation/chunk', { turnId: TURN, message: 1, role: 'agent', offset: 0, text });
  return { ...supervisor, batches, follower, changed, chunk, begun: () => begun };
}

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test('a page that draws slowly gets one batch at a time, with the newest state of each item', async () => {
  const { batches, follower, changed } = await given();
  changed(2);
  for (let round = 0; round < 100; round += 1) changed(3, 4);
  expect(batches.map(({ items }) => items.map(({ id }) => id))).toEqual([[2]]);
  // An answer to an earlier batch changes nothing.
  follower.confirm(0);
  expect(batches).toHaveLength(1);
  follower.confirm(1);
  expect(batches.map(({ items }) => items.map(({ id }) => id))).toEqual([[2], [3, 4]]);
});

test.each([
  ['items', 1001],
  ['characters', 3],
] as const)(
  'what waits for a page is bounded: with too many %s the page begins again',
  async (what, count) => {
    const { batches, calls, changed, chunk, begun, follower } = await given();
    changed(2);
    for (let n = 0; n < count; n += 1) {
      if (what === 'items') changed(10 + n);
      else chunk('x'.repeat(2 ** 20));
    }
    expect(batches).toHaveLength(1);
    await vi.advanceTimersByTimeAsync(0);
    expect(begun()).toBe(2);
    expect(calls).toEqual([...OPENING, 'conversation/unsubscribe', ...OPENING]);
    // Nothing of what waited comes afterwards.
    follower.confirm(1);
    expect(batches).toHaveLength(1);
    changed(5000);
    expect(batches.at(-1)?.items.map(({ id }) => id)).toEqual([5000]);
  },
);

test('a page that is hidden or closed is subscribed to nothing, and what still comes is left out', async () => {
  const { batches, calls, changed, follower } = await given();
  follower.dispose();
  expect(calls).toEqual([...OPENING, 'conversation/unsubscribe']);
  changed(2);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(batches).toEqual([]);
  expect(calls).toHaveLength(3);
});

test('a page that is hidden while it begins is not subscribed either', async () => {
  const supervisor = fakeSupervisor();
  let begun = 0;
  const { connection, calls } = supervisor;
  const send = (): void => undefined;
  const follower = new ConversationFollower({
    connection,
    session: SESSION,
    begin: () => (begun += 1),
    send,
  });
  follower.dispose();
  await vi.advanceTimersByTimeAsync(0);
  expect(begun).toBe(0);
  expect(calls).toEqual([...OPENING, 'conversation/unsubscribe']);
});
