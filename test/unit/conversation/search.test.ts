import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import type { EventEntry } from '../../../protocol/events.ts';
import { excerptOf } from '../../../supervisor/conversation/conversation-search.ts';
import { conversationObjects } from '../../fixtures/conversation/conversation-fixture.ts';
import {
  sessionId,
  sessionRow,
  temporaryDatabase,
  temporaryHome,
} from '../../fixtures/store/temporary-home.ts';

const TURN = 'turn-aaaaaaaaaaaaaaaa';

function given() {
  const home = temporaryHome();
  const database = temporaryDatabase(home);
  const objects = conversationObjects(home, database);
  const { sessions, contents, events, search } = objects;
  let message = 0;
  const say = (n: number, text: string, type: 'message' | 'output' = 'message') => {
    const session = sessionId(n);
    if (sessions.get(session) === null) sessions.insert(sessionRow(n));
    const content = contents.insert(session, Buffer.from(text));
    message += 1;
    const entry: EventEntry =
      type === 'message'
        ? { type: 'agent.message', data: { turnId: TURN, message, role: 'agent', content } }
        : {
            type: 'turn.output',
            data: { turnId: TURN, stream: 'stdout', offset: 0, bytes: content.bytes, content },
          };
    events.append(session, [entry]);
  };
  const find = async (text: string, more: { n?: number; limit?: number; cursor?: string } = {}) =>
    search.search({
      text,
      sessionId: more.n === undefined ? null : sessionId(more.n),
      limit: more.limit,
      cursor: more.cursor,
    });
  return { ...objects, home, say, find };
}

test('words are found in any case, without accents, and as beginnings', async () => {
  const { say, find } = given();
  say(0, 'The Größe of the invoice is wrong');
  say(1, 'An invoicing program', 'output');
  const foundIn = async (text: string) => (await find(text)).results.map(({ sessionName }) => sessionName);
  expect(await foundIn('invoi')).toEqual(['session 1', 'session 0']);
  expect(await foundIn('INVOICE ')).toEqual(['session 0']);
  expect(await foundIn('wrong grosse')).toEqual([]);
  expect(await foundIn('wrong große')).toEqual(['session 0']);
  expect(await foundIn('nothing')).toEqual([]);
});

test('of an edited prompt only the new words are found', async () => {
  const { say, find, contents, events } = given();
  say(0, 'the earlier words are said by somebody else too');
  const session = sessionId(0);
  const prompt = (text: string) => ({
    turnId: TURN,
    inputBytes: text.length,
    content: contents.insert(session, Buffer.from(text)),
  });
  events.append(session, [
    { type: 'turn.queued', data: { ...prompt('the earlier words'), kind: 'command', timeoutMs: 1 } },
  ]);
  expect((await find('earlier')).results).toHaveLength(2);
  events.append(session, [{ type: 'turn.edited', data: prompt('what counts now') }]);
  expect((await find('earlier')).results.map(({ excerpt }) => excerpt)).toEqual([
    'the earlier words are said by somebody else too',
  ]);
  expect((await find('counts')).results).toHaveLength(1);
});

test('what people type is never a query', async () => {
  const { say, find } = given();
  say(0, 'alpha beta');
  for (const text of [
    'alpha" OR "x',
    'alpha NEAR beta',
    'session:alpha',
    '*',
    '"',
    '^alpha',
    '-alpha',
    '(',
    'NOT',
    '\0',
  ])
    await expect(find(text), text).resolves.toBeDefined();
  expect((await find('alpha OR gamma')).results).toEqual([]);
  expect((await find('alpha beta')).results).toHaveLength(1);
});

test('results are newest first, in pages, and each leads to its item', async () => {
  const { say, find, reader } = given();
  for (let n = 0; n < 30; n += 1) say(n % 3, `needle number${n}`);
  const all: string[] = [];
  let cursor: string | undefined;
  do {
    const page = await find('needle', { limit: 7, ...(cursor === undefined ? {} : { cursor }) });
    all.push(...page.results.map(({ excerpt }) => excerpt));
    cursor = page.cursor ?? undefined;
  } while (cursor !== undefined);
  expect(all).toEqual(Array.from({ length: 30 }, (_, n) => `needle number${29 - n}`));

  const { results } = await find('number28', { n: 1 });
  expect(results).toHaveLength(1);
  const { items } = await reader.page(sessionId(1), { after: results[0]?.cursor ?? '' });
  expect(items).toEqual([]);
  const before = await reader.page(sessionId(1), { before: results[0]?.cursor ?? '', limit: 1 });
  expect(before.items[0]?.text).toBe('needle number25');
  expect((await find('number28', { n: 2 })).results).toEqual([]);
});

test('a deleted session is not found, and no word of it stays in the database file', async () => {
  const { say, find, sessions, conversations, contents, home, database } = given();
  say(0, 'the unforgettable word');
  say(1, 'another text');
  sessions.update(sessionId(0), { status: 'deleted' });
  expect((await find('unforgettable')).results).toEqual([]);
  await conversations.remove(sessionId(0));
  contents.removeAll(sessionId(0), 1);
  database.get('PRAGMA wal_checkpoint(TRUNCATE)');
  expect(readFileSync(home.database).includes('unforgettable')).toBe(false);
  expect((await find('another')).results).toHaveLength(1);
});

test('sessions from before the index are found once they have been read', async () => {
  const { say, find, database, home } = given();
  say(0, 'an old text');
  database.run('DROP TABLE conversation_words');
  const next = conversationObjects(home, database);
  expect((await find('old').catch(() => null))?.results ?? []).toEqual([]);
  await next.conversations.start();
  expect((await next.search.search({ text: 'old', sessionId: null })).results).toHaveLength(1);
});

test('an excerpt shows the place of the first word', () => {
  const text = `${'x'.repeat(500)} the Çedilla\nis here ${'y'.repeat(500)}`;
  expect(excerptOf(text, 'cedilla')).toMatch(/^…x+ the Çedilla is here y+…$/);
  expect(excerptOf('short', 'absent')).toBe('short');
  expect(excerptOf(`${'x'.repeat(60_000)} The End`, 'end')).toMatch(/^…x+ The End$/);
  // Other letters than ASCII are compared one by one: only so many of them.
  expect(excerptOf(`${'é'.repeat(10_000)} The End`, 'end')).toMatch(/^…é+ The End$/);
  expect(excerptOf(`${'é'.repeat(60_000)} The End`, 'end')).toMatch(/^é+…$/);
});
