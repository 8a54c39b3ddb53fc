import { expect, test } from 'vitest';
import { TEXT } from '../../../protocol/contents.ts';
import { ConversationLive } from '../../../supervisor/conversation/conversation-live.ts';
import { EventLog } from '../../../supervisor/history/event-log.ts';
import { sessionId, temporaryDatabase } from '../../fixtures/store/temporary-home.ts';

const SESSION = sessionId(0);
const TURN = 'turn-aaaaaaaaaaaaaaaa';

function given({ stored = 0 } = {}) {
  const log = new EventLog(temporaryDatabase());
  const live = new ConversationLive({ events: log, storedBytes: () => stored });
  const say = (text: string) => live.append(SESSION, TURN, 1, 'agent', text);
  const store = (bytes: number) =>
    log.append(SESSION, [
      {
        type: 'agent.message',
        data: {
          turnId: TURN,
          message: 1,
          role: 'agent',
          content: { sha256: '0'.repeat(64), bytes, mediaType: TEXT },
        },
      },
    ]);
  const texts = () => live.texts(SESSION).map(({ offset, text }) => ({ offset, text }));
  return { log, live, say, store, texts };
}

test('text is there until its event is', () => {
  const { say, store, texts } = given();
  say('grün');
  say(' und');
  expect(texts()).toEqual([{ offset: 0, text: 'grün und' }]);
  store(5);
  expect(texts()).toEqual([{ offset: 5, text: ' und' }]);
  store(4);
  expect(texts()).toEqual([]);
});

test('a message continues behind what the history has of it', () => {
  const { say, texts } = given({ stored: 70 });
  say('more');
  expect(texts()).toEqual([{ offset: 70, text: 'more' }]);
});

test('what does not fit leaves no gap: nothing follows it until it is stored', () => {
  const { say, store, texts } = given();
  say('a'.repeat(200_000));
  say('b'.repeat(100_000));
  say('c');
  expect(texts()[0]?.text).toHaveLength(200_000);
  store(300_000);
  say('d');
  expect(texts()).toEqual([]);
  store(2);
  expect(texts()).toEqual([]);
});

test('readers hear of new text, and not of what they no longer follow', () => {
  const { live, say } = given();
  let heard = 0;
  const stop = live.subscribe(SESSION, () => (heard += 1));
  say('a');
  stop();
  say('b');
  expect(heard).toBe(1);
});

test('a turn that ends takes its text along', () => {
  const { live, say, texts } = given();
  say('never stored');
  live.endTurn(SESSION, TURN);
  expect(texts()).toEqual([]);
});
