import { setImmediate } from 'node:timers/promises';
import { expect, test } from 'vitest';
import type { ConversationItem } from '../../../protocol/conversation.ts';
import { ConversationSubscription } from '../../../supervisor/conversation/conversation-subscription.ts';
import type { LiveText } from '../../../supervisor/conversation/conversation-live.ts';
import { conversationObjects } from '../../fixtures/conversation/conversation-fixture.ts';
import {
  sessionId,
  sessionRow,
  temporaryDatabase,
  temporaryHome,
} from '../../fixtures/store/temporary-home.ts';

const SESSION = sessionId(0);
const TURN = 'turn-aaaaaaaaaaaaaaaa';

function given() {
  const home = temporaryHome();
  const objects = conversationObjects(home, temporaryDatabase(home));
  const { sessions, contents, events, live, reader } = objects;
  sessions.insert(sessionRow(0));
  const store = (text: string, message = 1) => {
    const content = contents.insert(SESSION, Buffer.from(text));
    events.append(SESSION, [
      { type: 'agent.message', data: { turnId: TURN, message, role: 'agent', content } },
    ]);
  };
  const say = (text: string, message = 1) => live.append(SESSION, TURN, message, 'agent', text);
  const follow = (after = 0, ready: () => Promise<unknown> = () => Promise.resolve()) => {
    const items: ConversationItem[][] = [];
    const chunks: LiveText[] = [];
    const subscription = new ConversationSubscription({
      ...{ events, reader, live, after },
      sessionId: SESSION,
      sink: {
        changed: async (changed) => {
          items.push(changed);
          await ready();
        },
        chunk: async (chunk) => {
          chunks.push(chunk);
          await ready();
        },
      },
    });
    const running = subscription.run();
    const stop = async () => {
      subscription.stop();
      await running;
    };
    return { items, chunks, stop };
  };
  return { ...objects, store, say, follow };
}

async function settle(): Promise<void> {
  for (let turn = 0; turn < 20; turn += 1) await setImmediate();
}

test('a reader gets what is stored, then what is being said, and never a text twice', async () => {
  const { store, say, follow } = given();
  store('Hello');
  say(' wor');
  const reader = follow();
  await settle();
  expect(reader.items.flat().map(({ text }) => text)).toEqual(['Hello']);
  say('ld');
  await settle();
  expect(reader.chunks.map(({ offset, text }) => ({ offset, text }))).toEqual([
    { offset: 5, text: ' wor' },
    { offset: 9, text: 'ld' },
  ]);
  store(' world');
  say('!');
  await settle();
  expect(reader.items.flat().at(-1)?.text).toBe('Hello world');
  expect(reader.chunks.at(-1)).toMatchObject({ offset: 11, text: '!' });
  await reader.stop();
});

test('a reader that does not read delays nothing, and gets the rest in one piece', async () => {
  const { store, say, follow } = given();
  const gate = Promise.withResolvers<undefined>();
  const reader = follow(0, () => gate.promise);
  store('first');
  await settle();
  for (let n = 0; n < 1000; n += 1) say('x', 2);
  for (let n = 0; n < 20; n += 1) store('y', 3);
  await settle();
  expect(reader.items).toHaveLength(1);
  expect(reader.chunks).toEqual([]);
  gate.resolve(undefined);
  await settle();
  expect(reader.items).toHaveLength(2);
  expect(reader.items[1]?.map(({ text }) => text)).toEqual(['y'.repeat(20)]);
  expect(reader.chunks.map(({ text }) => text)).toEqual(['x'.repeat(1000)]);
  await reader.stop();
});

test('after a lost connection it continues after the last event that was read', async () => {
  const { store, follow, events } = given();
  store('one', 1);
  const first = follow();
  await settle();
  await first.stop();
  const { seq } = events.head(SESSION);
  store('two', 2);
  store('three', 3);
  const second = follow(seq);
  await settle();
  expect(second.items.flat().map(({ text }) => text)).toEqual(['two', 'three']);
  await second.stop();
});

test('half a character waits for its other half', async () => {
  const { say, follow } = given();
  const reader = follow();
  say('a\ud83d');
  await settle();
  say('\ude00b');
  await settle();
  expect(reader.chunks.map(({ text }) => text).join('')).toBe('a😀b');
  await reader.stop();
});
