import { expect, test } from 'vitest';
import type { ConversationItem, ProjectedItem } from '../../../protocol/conversation.ts';
import { projectEvent } from '../../../protocol/conversation-projection.ts';
import type { SessionEvent } from '../../../protocol/entities.ts';
import { FRAME_LIMITS } from '../../../protocol/wire/limits.ts';
import { ITEM_OF_KEY, ITEMS_IN_QUEUE } from '../../../supervisor/conversation/item-rows.ts';
import { EventLog } from '../../../supervisor/history/event-log.ts';
import { conversationObjects } from '../../fixtures/conversation/conversation-fixture.ts';
import { RandomHistory } from '../../fixtures/conversation/random-history.ts';
import { seededRandom } from '../../fixtures/protocol/seeded-random.ts';
import {
  sessionId,
  sessionRow,
  temporaryDatabase,
  temporaryHome,
  turnId,
} from '../../fixtures/store/temporary-home.ts';
import { soakCount } from '../../setup/run-length.ts';

const SEED = Number(process.env['HOLDFAST_SEED'] ?? Date.now() % 1_000_000);

/** The items that follow from events, kept in memory. */
function fold(events: readonly SessionEvent[]): ProjectedItem[] {
  const items = new Map<number, ProjectedItem>();
  const keys = new Map<string, number>();
  for (const event of events) {
    for (const { key, item } of projectEvent(event, (wanted) => items.get(keys.get(wanted) ?? -1))) {
      items.set(item.id, item);
      if (key !== null) keys.set(key, item.id);
    }
  }
  return inOrder([...items.values()]);
}

function inOrder<T extends ProjectedItem>(items: readonly T[]): T[] {
  return items.toSorted((a, b) => a.at - b.at || a.id - b.id);
}

function withoutText({ text: _text, cut: _cut, ...item }: ConversationItem): ProjectedItem {
  // Readers take the beginning of a prompt from its content.
  return item.type === 'prompt' ? { ...item, preview: '' } : item;
}

test(`what is stored, what a reader was sent and what the events say are the same (seed ${SEED})`, async () => {
  const home = temporaryHome();
  const database = temporaryDatabase(home);
  const objects = conversationObjects(home, database);
  const { conversations, reader, sessions, contents, warnings } = objects;
  // Appends without anybody listening, as a supervisor before this version did.
  const deaf = new EventLog(database);
  const random = seededRandom(SEED);
  for (let run = 0; run < soakCount(15, 20_000); run += 1) {
    const session = sessionId(run);
    sessions.insert(sessionRow(run));
    const history = new RandomHistory(SEED + run, (text) => contents.insert(session, Buffer.from(text)));
    const events: SessionEvent[] = [];
    const seen = new Map<number, ConversationItem>();
    let seq = 0;
    // Once an event was missed, the others of that session are as well: its log has another idea of the head.
    const deafFrom = random() < 0.3 ? random() * 6 : Infinity;
    for (let batch = 0; batch < 6; batch += 1) {
      const entries = Array.from({ length: 1 + Math.floor(random() * 10) }, () => history.next());
      database.transaction(() => {
        events.push(...(batch >= deafFrom ? deaf : objects.events).append(session, entries));
      });
      if (batch < deafFrom && random() < 0.5) {
        const changed = await reader.changedAfter(session, seq);
        for (const item of changed.items) seen.set(item.id, item);
        ({ seq } = changed);
      }
    }
    const fresh = deafFrom === Infinity ? objects : conversationObjects(home, database);
    const expected = fold(events);
    for (;;) {
      const changed = await fresh.reader.changedAfter(session, seq);
      for (const item of changed.items) seen.set(item.id, item);
      if (changed.items.length === 0) break;
      ({ seq } = changed);
    }
    const stored = [...fresh.conversations.rows.queued(session, 1000)].concat(
      [...fresh.conversations.rows.before(session, null, 1000)].reverse(),
    );
    expect(stored, `run ${run}`).toEqual(expected);
    expect(inOrder([...seen.values()]).map(withoutText), `run ${run}`).toEqual(expected);
    expect(fresh.conversations.rows.head(session)).toEqual({ seq: events.length, items: expected.length });
  }
  expect(warnings).toEqual([]);
  expect(conversations.isComplete).toBe(false);
});

test('an event of a long conversation, and its queue, are found without reading all of it', () => {
  const database = temporaryDatabase();
  const plan = (sql: string, value: string | number) =>
    database.all(`EXPLAIN QUERY PLAN ${sql}`, sessionId(0), value);
  expect(plan(ITEM_OF_KEY, 'tool:1')).toMatchObject([
    { detail: expect.stringMatching(/SEARCH .* INDEX .*\(sessionId=\? AND key=\?\)$/) as string },
  ]);
  expect(plan(ITEMS_IN_QUEUE, 10)).toMatchObject([
    { detail: expect.stringMatching(/SEARCH .* INDEX .*\(sessionId=\? AND at=\?\)$/) as string },
  ]);
});

test('pages in both directions have every item once, and fit into messages', async () => {
  const home = temporaryHome();
  const objects = conversationObjects(home, temporaryDatabase(home));
  const { reader, sessions, contents } = objects;
  const session = sessionId(0);
  sessions.insert(sessionRow(0));
  const history = new RandomHistory(SEED, (text) => contents.insert(session, Buffer.from(text)));
  const events: SessionEvent[] = [];
  for (let batch = 0; batch < 20; batch += 1)
    events.push(
      ...objects.events.append(
        session,
        Array.from({ length: 60 }, () => history.next()),
      ),
    );
  const expected = fold(events).filter(({ at }) => at > 0);

  const backwards: ConversationItem[] = [];
  let before: string | undefined;
  for (;;) {
    const page = await reader.page(session, { before, limit: 37 });
    expect(Buffer.byteLength(JSON.stringify(page))).toBeLessThan(FRAME_LIMITS.lineBytes);
    backwards.unshift(...page.items);
    if (page.before === null) break;
    before = page.before;
  }
  expect(backwards.map(withoutText)).toEqual(expected);

  const forwards: ConversationItem[] = [];
  let after: string | undefined = '0.0';
  while (after !== undefined) {
    const page: Awaited<ReturnType<typeof reader.page>> = await reader.page(session, { after, limit: 41 });
    forwards.push(...page.items);
    after = page.after ?? undefined;
  }
  expect(forwards).toEqual(backwards);
});

test('a page of items as large as items can be fits into a message', async () => {
  const home = temporaryHome();
  const { reader, sessions, contents, events } = conversationObjects(home, temporaryDatabase(home));
  const session = sessionId(0);
  sessions.insert(sessionRow(0));
  // JSON needs six characters for each of these.
  const content = contents.insert(session, Buffer.alloc(300_000, 1));
  const turnId = 'turn-aaaaaaaaaaaaaaaa';
  events.append(session, [
    {
      type: 'turn.queued',
      data: { turnId, kind: 'command', inputBytes: 300_000, content, timeoutMs: 1 },
    },
    {
      type: 'turn.ended',
      data: {
        ...{ turnId, status: 'failed', exitCode: 1, error: null, content, outputArtifact: false, turnMs: 1 },
        ...{ workerStartMs: null, workerId: null, workerReused: null },
      },
    },
  ]);
  const { items, seq } = await reader.changedAfter(session, 0);
  expect(items.map(({ type, cut }) => ({ type, cut }))).toEqual([
    { type: 'prompt', cut: true },
    { type: 'end', cut: true },
  ]);
  expect(seq).toBe(2);
  expect(Buffer.byteLength(JSON.stringify(items))).toBeLessThan(FRAME_LIMITS.lineBytes - 1000);
});

test('the beginning of a prompt is read from its content, and taken from an old event where there is none', async () => {
  const home = temporaryHome();
  const { reader, sessions, contents, events } = conversationObjects(home, temporaryDatabase(home));
  const session = sessionId(0);
  sessions.insert(sessionRow(0));
  const queued = { kind: 'command', timeoutMs: 1 } as const;
  const add = (n: number, bytes: Uint8Array) => {
    const content = contents.insert(session, bytes);
    const data = { ...queued, turnId: turnId(n), inputBytes: content.bytes, content };
    events.append(session, [{ type: 'turn.queued', data }]);
    return content;
  };
  add(0, Buffer.from(`fix\n the  parser ${'ä'.repeat(40_000)}`));
  add(1, Buffer.from('print'));
  const content = contents.insert(session, Buffer.from('mend the printer'));
  const edited = { turnId: turnId(1), inputBytes: content.bytes, content };
  events.append(session, [{ type: 'turn.edited', data: edited }]);
  add(2, Buffer.from([0xff, ...Buffer.from(' not text')]));
  const old = { ...queued, turnId: turnId(3), inputBytes: 3, preview: 'ask', content: null };
  events.append(session, [{ type: 'turn.queued', data: old }]);
  const previews = async () =>
    (await reader.page(session, {})).queued.map((item) => (item.type === 'prompt' ? item.preview : null));
  const first = `fix the parser ${'ä'.repeat(184)}…`;
  expect(await previews()).toEqual([first, 'mend the printer', '\ufffd not text', 'ask']);
  contents.removeAll(session, 1);
  expect(await previews()).toEqual(['', '', '', 'ask']);
});

test('a check that ended is a mark, and its output is what it has', () => {
  const content = { sha256: 'b'.repeat(64), bytes: 7, mediaType: 'text/plain' };
  const data = {
    ...{ checkId: 'chk-aaaaaaaaaaaaaaaa', name: 'tests', command: 'npm test', of: 'accepted' },
    ...{ tree: 'a'.repeat(64), review: null, exitCode: 1, ms: 820, content, outputBytes: 7, key: null },
  };
  const at = '2026-01-01T10:00:00.000Z';
  const event = { sessionId: sessionId(1), seq: 4, at, actor: 'person', type: 'check.ended', data };
  expect(fold([event as unknown as SessionEvent])).toMatchObject([
    { type: 'mark', mark: 'check', name: 'tests', of: 'accepted', exitCode: 1, ms: 820, contents: [content] },
  ]);
});
