import { hash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import type { SessionEvent } from '../../../protocol/entities.ts';
import type { EventEntry } from '../../../protocol/events.ts';
import { Artifacts } from '../../../supervisor/history/artifacts.ts';
import { Checkpoints } from '../../../supervisor/history/checkpoints.ts';
import { HistoryCuts } from '../../../supervisor/history/history-cuts.ts';
import { verifyHistory } from '../../../supervisor/history/history-verification.ts';
import { projectionMismatches, replay } from '../../../supervisor/history/projection.ts';
import { TurnOutput } from '../../../supervisor/history/turn-output.ts';
import { openHostKey } from '../../../supervisor/manifests/host-key.ts';
import { Operations } from '../../../supervisor/store/operations.ts';
import { Snapshots } from '../../../supervisor/store/snapshots.ts';
import { Turns } from '../../../supervisor/store/turns.ts';
import { conversationObjects } from '../../fixtures/conversation/conversation-fixture.ts';
import { RandomHistory } from '../../fixtures/conversation/random-history.ts';
import { everything, randomRows } from '../../fixtures/history/random-rows.ts';
import {
  newTurn,
  rejectedError,
  sessionId,
  sessionRow,
  temporaryDatabase,
  temporaryHome,
  thrownError,
  turnId,
} from '../../fixtures/store/temporary-home.ts';
import { seededRandom } from '../../fixtures/protocol/seeded-random.ts';
import { silent } from '../../fixtures/turns/stored-turns.ts';
import { soakCount } from '../../setup/run-length.ts';

const SESSION = sessionId(0);
const SEED = Number(process.env['HOLDFAST_SEED'] ?? Date.now() % 1_000_000);
const { signal } = new AbortController();

type Home = ReturnType<typeof temporaryHome>;
type Parts = Pick<ReturnType<typeof conversationObjects>, 'database' | 'events' | 'contents'>;

function cutting({ database, events, contents }: Parts, home: Home, stepEvents?: number) {
  const clock = { now: Date.parse('2026-03-01T10:00:00Z') };
  const key = () => openHostKey(home.hostKey);
  const own = { database, events, contents, now: () => clock.now };
  const checkpoints = new Checkpoints({ ...own, homeId: home.id, key });
  const cuts = new HistoryCuts({
    ...{ ...own, checkpoints, log: silent },
    snapshots: new Snapshots(database),
    operations: new Operations(database),
    ...(stepEvents === undefined ? {} : { stepEvents }),
  });
  const keep = (count: number) => cuts.cut(sessionRow(0), { keep: count }, signal);
  const verify = () => verifyHistory({ events, contents, checkpoints }, SESSION);
  return { cuts, checkpoints, keep, verify, clock };
}

/** A conversation with a cut of it. */
function given(stepEvents?: number) {
  const home = temporaryHome();
  const objects = conversationObjects(home, temporaryDatabase(home));
  objects.sessions.insert(sessionRow(0));
  const { name, profile, persistent, throwaway, backing, uid, gid } = sessionRow(0);
  const append = (...entries: EventEntry[]) => objects.events.append(SESSION, entries);
  append({ type: 'session.created', data: { name, profile, persistent, throwaway, backing, uid, gid } });
  const turn = (n: number, prompt: string, result?: string) => {
    const content = objects.contents.insert(SESSION, Buffer.from(prompt));
    const ids = { turnId: turnId(n) };
    append({
      type: 'turn.queued',
      data: { ...ids, kind: 'command', inputBytes: content.bytes, content, timeoutMs: 1 },
    });
    if (result === undefined) return;
    const output = objects.contents.append(SESSION, `${turnId(n)}.output`, Buffer.from(result));
    append(
      {
        type: 'turn.output',
        data: { ...ids, stream: 'stdout', offset: 0, bytes: output.bytes, content: output },
      },
      {
        type: 'turn.ended',
        data: {
          ...{ ...ids, status: 'succeeded', exitCode: 0, error: null, content: null, outputArtifact: false },
          ...{ turnMs: 1, workerStartMs: null, workerId: null, workerReused: null },
        },
      },
    );
  };
  const remember = (version: number, text: string) =>
    append({
      type: 'memory.changed',
      data: { version, author: 'person', content: objects.contents.insert(SESSION, Buffer.from(text)) },
    });
  const seqs = () => objects.events.read(SESSION).map(({ seq }) => seq);
  const types = () => objects.events.read(SESSION).map(({ type }) => type);
  return { ...objects, ...cutting(objects, home, stepEvents), home, append, turn, remember, seqs, types };
}

describe('a checkpoint with the rest of a history', () => {
  test.each(Array.from({ length: soakCount(3, 300) }, (_, n) => SEED + n))(
    'replays to the same state as the whole history, and verifies (seed %i)',
    async (seed) => {
      const { database, log: events, contents, change, random, sessions, turns, home } = randomRows(seed);
      const { keep, verify, checkpoints } = cutting(
        { database, events, contents },
        home,
        1 + Math.floor(random() * 20),
      );
      const whole: SessionEvent[] = [];
      const note = () => void whole.push(...events.read(SESSION, { after: whole.at(-1)?.seq ?? 0 }));
      for (let round = 0; round < 5; round += 1) {
        for (let n = 0; n < 40; n += 1) database.transaction(change);
        note();
        const before = events.start(SESSION).seq;
        const { seq } = await keep(1 + Math.floor(random() * 50));
        note();
        expect(events.start(SESSION).seq).toBe(Math.max(seq, before));
        const rest = everything(events).filter((event) => event.seq > seq);
        const state = replay(rest, checkpoints.state(SESSION));
        expect(state).toEqual(replay(whole));
        expect(
          projectionMismatches(state, sessions.find(SESSION), turns.listBySession(SESSION, 1000)),
        ).toEqual([]);
        const { ok, checkpoint, contents: found } = await verify();
        expect({ ok, damaged: found.damaged, removed: found.removed }).toEqual({
          ok: true,
          damaged: [],
          removed: 0,
        });
        if (seq > 0) expect(checkpoint).toMatchObject({ seq, valid: true, why: null });
      }
    },
  );

  test(`has the items that its events give, of conversations at random (seed ${SEED})`, async () => {
    const random = seededRandom(SEED);
    for (let run = 0; run < soakCount(5, 1000); run += 1) {
      const all = given(1 + Math.floor(random() * 30));
      const { events, contents, database, conversations, home, keep, verify } = all;
      const history = new RandomHistory(SEED + run, (text) => contents.insert(SESSION, Buffer.from(text)));
      for (let n = 0; n < 150; n += 1) events.append(SESSION, [history.next()]);
      const { seq } = await keep(1 + Math.floor(random() * 140));
      expect(await verify()).toMatchObject({ ok: true, contents: { removed: 0, damaged: [] } });
      const stored = [...conversations.rows.after(SESSION, { at: 0, id: 0 }, 1000)];
      const marks = stored.filter(
        (item) => item.type === 'mark' && item.mark === 'note' && item.note.startsWith('Earlier'),
      );
      expect(marks.map(({ at }) => at)).toEqual(seq === 0 ? [] : [seq]);
      expect(stored.filter(({ id, at }) => id <= seq && at !== seq && !all.seqs().includes(id))).toEqual([]);
      // Projected again from the events that are left, the conversation is the same, without what is beside turns.
      conversations.rows.forgetAll();
      const again = conversationObjects(home, database);
      await again.conversations.catchUp(SESSION);
      const ofTurns = (items: typeof stored) => items.filter(({ turnId }) => turnId !== null);
      expect(ofTurns([...again.conversations.rows.after(SESSION, { at: 0, id: 0 }, 1000)])).toEqual(
        ofTurns(stored),
      );
    }
  });
});

describe('a cut', () => {
  test('removes whole turns with their texts; figures stay, and an old place says what happened', async () => {
    const { turn, keep, events, contents, conversations, reader, search, seqs, types, home, verify } =
      given();
    turn(0, 'the quetzal', 'an ocelot');
    turn(1, 'the tapir', 'an axolotl');
    const first = events.read(SESSION, { type: 'turn.queued' })[0];
    const file = home.artifact(SESSION, `${turnId(0)}.output`);
    expect(existsSync(file)).toBe(true);
    // The end of the first turn is event 4; a cut in the middle of the second goes back to it.
    expect(await keep(2)).toEqual({
      ...{ seq: 4, events: 3, kept: 1, turns: 1, contents: 2, bytes: 20, snapshots: 0 },
      limitedBy: `turn ${turnId(1)} ends after that`,
    });
    expect(seqs()).toEqual([1, 5, 6, 7, 8]);
    expect(types().at(-1)).toBe('history.cut');
    expect(existsSync(file)).toBe(false);
    const sha256 = (first?.data['content'] as { sha256: string }).sha256;
    expect(() => contents.read(SESSION, sha256, 0, 10)).toThrow('was removed');
    const page = await reader.page(SESSION, {});
    expect(page).toMatchObject({
      before: null,
      total: 4,
      items: [
        { mark: 'note', note: 'Earlier events were removed on 2026-03-01 (3 events)', at: 4 },
        { id: 6 },
        { id: 5 },
        { id: 7 },
      ],
    });
    const found = async (text: string) => (await search.search({ text, sessionId: SESSION })).results.length;
    expect([await found('quetzal'), await found('ocelot'), await found('tapir')]).toEqual([0, 0, 1]);
    expect(conversations.rows.head(SESSION)).toEqual({ seq: 8, items: 4 });
    const { checkpoint, unproven, ...rest } = await verify();
    expect(rest).toMatchObject({ ok: true, firstInvalid: null, events: 4 });
    expect(checkpoint).toMatchObject({ seq: 4, removed: 3, kept: 1, valid: true });
    expect(unproven[0]).toContain('3 removed events up to event 4');
    // Again: nothing is left to remove, and nothing is written.
    expect(await keep(4)).toMatchObject({ seq: 4, events: 0, limitedBy: null });
    expect(seqs()).toEqual([1, 5, 6, 7, 8]);
  });

  test('leaves turns that wait or run, and says which one', async () => {
    const { turn, keep, seqs } = given();
    turn(0, 'waits');
    turn(1, 'ended meanwhile', 'x');
    expect(await keep(1)).toMatchObject({ seq: 0, events: 0, limitedBy: `turn ${turnId(0)} has not ended` });
    expect(seqs()).toEqual([1, 2, 3, 4, 5]);
  });

  test('leaves what kept things need: the newest memory, a content that a later event names, handoffs', async () => {
    const { turn, remember, append, keep, types, contents, events, verify } = given();
    remember(1, 'use tabs');
    turn(0, 'again and again', 'out');
    remember(2, 'use spaces');
    const handoff = {
      ...{ handoffId: 'hand-aaaaaaaaaaaaaaaa', manifestId: 'man-aaaaaaaaaaaaaaaa', keyId: 'a'.repeat(64) },
      content: contents.insert(SESSION, Buffer.from('{}')),
    };
    append({ type: 'manifest.made', data: handoff });
    turn(1, 'again and again', 'use tabs');
    turn(2, 'another', 'x');
    expect(await keep(4)).toMatchObject({ kept: 3 });
    expect(types().slice(0, 4)).toEqual([
      'session.created',
      'memory.changed',
      'manifest.made',
      'turn.queued',
    ]);
    // A step further the first memory is gone, the prompt that a later turn has too is not.
    expect(events.read(SESSION, { type: 'memory.changed' })[0]?.data).toMatchObject({ version: 2 });
    expect(await verify()).toMatchObject({ ok: true, contents: { removed: 0, damaged: [] } });
    const again = await keep(1);
    expect(again).toMatchObject({ limitedBy: null });
    const left = ['session.created', 'memory.changed', 'manifest.made', 'history.cut', 'history.cut'];
    expect(types()).toEqual(left);
    // A cut that would only remove what says that there was one does nothing.
    expect(await keep(1)).toMatchObject({ events: 0 });
    expect(types()).toEqual(left);
  });

  test('removes what an earlier cut kept and nothing needs any more', async () => {
    const { remember, turn, append, keep, contents, types } = given();
    const last: EventEntry = { type: 'workspace.measured', data: { bytes: 1 } };
    remember(1, 'use tabs');
    turn(0, 'one', 'x');
    append(last);
    await keep(1);
    expect(types()).toEqual(['session.created', 'memory.changed', last.type, 'history.cut']);
    remember(2, 'use spaces');
    turn(1, 'two', 'y');
    append(last);
    expect(await keep(1)).toMatchObject({ contents: 3 });
    const has = (text: string) => contents.find(SESSION, hash('sha256', text)) !== null;
    expect({ tabs: has('use tabs'), spaces: has('use spaces') }).toEqual({ tabs: false, spaces: true });
  });

  test('removes what earlier versions stored beside the events of a turn', async () => {
    const { turn, append, keep, contents, database, events, home } = given();
    const turns = new Turns(database);
    const artifacts = new Artifacts(home);
    const output = new TurnOutput(database, events, contents, artifacts);
    const old = (n: number, prompt: string) => {
      const ids = { turnId: turnId(n) };
      turns.insert(newTurn(n, { status: 'succeeded', input: Buffer.from(prompt) }));
      const data = {
        ...ids,
        kind: 'command',
        inputBytes: prompt.length,
        content: null,
        timeoutMs: 1,
      } as const;
      append({ type: 'turn.queued', data });
      artifacts.append(SESSION, `${turnId(n)}.stdout`, 0, Buffer.from('old output'));
      database.run(
        "INSERT INTO turn_pieces (turnId, stream, start, bytes, artifact) VALUES (?, 'stdout', 0, 10, ?)",
        turnId(n),
        `${turnId(n)}.stdout`,
      );
      database.run('UPDATE turns SET stdoutBytes = 10 WHERE id = ?', turnId(n));
      append({
        type: 'turn.ended',
        data: {
          ...{ ...ids, status: 'succeeded', exitCode: 0, error: null, content: null, outputArtifact: false },
          ...{ turnMs: 1, workerStartMs: null, workerId: null, workerReused: null },
        },
      });
    };
    old(0, 'the quetzal');
    old(1, 'again');
    turn(2, 'again', 'x');
    old(3, 'the tapir');
    const has = (text: string) => contents.find(SESSION, hash('sha256', text)) !== null;
    const read = (n: number) => output.read(turnId(n), 'stdout', 0, 10).toString();
    const left = () => ({
      prompts: ['the quetzal', 'again', 'the tapir'].filter(has),
      files: artifacts.names(SESSION).filter((name) => name.endsWith('.stdout')),
    });
    expect(read(0)).toBe('old output');
    // The prompt of the second turn is that of the third one, too.
    expect(await keep(5)).toMatchObject({ turns: 2, contents: 1, bytes: 11 });
    expect(left()).toEqual({ prompts: ['again', 'the tapir'], files: [`${turnId(3)}.stdout`] });
    expect(thrownError(() => read(0))).toMatchObject({ code: 'not_found' });
    expect(read(3)).toBe('old output');
    await keep(1);
    expect(left()).toEqual({ prompts: [], files: [] });
  });

  test('by a time ends at the first event that is not older', async () => {
    const { append, cuts, seqs } = given();
    for (const [at, bytes] of [10, 20, 15, 30].entries())
      append({ type: 'workspace.measured', data: { bytes: at }, at: bytes });
    const cut = (before: number) =>
      cuts.cut(sessionRow(0), { before: new Date(before).toISOString() }, signal);
    // The session was created now: its first event is newer, and stays.
    expect(await cut(25)).toMatchObject({ events: 0 });
    expect(await cut(Date.now() + 10_000)).toMatchObject({ seq: 4, events: 3 });
    expect(seqs()).toEqual([1, 5, 6]);
  });

  test('is planned without being done, and done once for one opId', async () => {
    const { turn, cuts, seqs } = given();
    turn(0, 'one', 'x');
    turn(1, 'two', 'y');
    const before = seqs();
    const planned = await cuts.cut(sessionRow(0), { keep: 3, dryRun: true }, signal);
    expect(seqs()).toEqual(before);
    const request = { keep: 3, opId: 'op-cut-once' };
    expect(await cuts.cut(sessionRow(0), request, signal)).toEqual(planned);
    const after = seqs();
    turn(2, 'three', 'z');
    expect(await cuts.cut(sessionRow(0), request, signal)).toEqual(planned);
    expect(seqs().slice(0, after.length)).toEqual(after);
  });
});

test('a cut in steps says so at its beginning and at its end', async () => {
  const { turn, keep, types, verify, events } = given(3);
  for (let n = 0; n < 5; n += 1) turn(n, `prompt ${n}`, `result ${n}`);
  expect(await keep(3)).toMatchObject({ turns: 4, events: 12, contents: 8 });
  expect(types()).toEqual([
    ...['session.created', 'turn.queued', 'turn.output', 'turn.ended', 'history.cut', 'history.cut'],
  ]);
  expect(events.newest(SESSION, 'history.cut', 1)[0]?.data).toMatchObject({ seq: 13, removed: 12, kept: 1 });
  expect(await verify()).toMatchObject({ ok: true, checkpoint: { seq: 13, removed: 12 } });
});

describe('a checkpoint is not valid', () => {
  const damages: Record<string, (all: ReturnType<typeof given>) => void> = {
    'if its state was changed': ({ database }) =>
      void database.run(
        `UPDATE history_checkpoints SET state = replace(state, '"pinned":false', '"pinned":true')`,
      ),
    'if its place was changed': ({ database }) =>
      void database.run('UPDATE history_checkpoints SET seq = seq + 1'),
    'if what was signed was changed': ({ database }) =>
      void database.run(
        `UPDATE history_checkpoints SET envelope = replace(envelope, '"payload":"e', '"payload":"f')`,
      ),
    'if an event that stayed was changed': ({ database }) =>
      void database.run(`UPDATE events SET data = replace(data, 'user', 'root') || ' ' WHERE seq = 1`),
    'if an event that stayed was removed': ({ database }) =>
      void database.run('DELETE FROM events WHERE seq = 1'),
    'if it is gone': ({ database }) => void database.run('DELETE FROM history_checkpoints'),
  };
  test.each(Object.keys(damages))('%s', async (name) => {
    const all = given();
    all.turn(0, 'one', 'x');
    all.turn(1, 'two', 'y');
    await all.keep(3);
    expect(await all.verify()).toMatchObject({ ok: true });
    damages[name]?.(all);
    expect((await all.verify()).ok).toBe(false);
    // What is not intact is not signed again.
    all.turn(2, 'three', 'z');
    expect((await rejectedError(all.keep(1))).code).toBe('home_damaged');
  });
});
