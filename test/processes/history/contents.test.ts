import { hash } from 'node:crypto';
import {
  appendFileSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { expect, test } from 'vitest';
import { JSON_TEXT } from '../../../protocol/contents.ts';
import { parseEvent } from '../../../protocol/events.ts';
import { INLINE_OUTPUT_BYTES } from '../../../protocol/turn-events.ts';
import { Artifacts } from '../../../supervisor/history/artifacts.ts';
import { Contents } from '../../../supervisor/history/contents.ts';
import { EventLog } from '../../../supervisor/history/event-log.ts';
import { verifyHistory } from '../../../supervisor/history/history-verification.ts';
import { TurnOutput } from '../../../supervisor/history/turn-output.ts';
import type { Home } from '../../../supervisor/store/home.ts';
import { migrate } from '../../../supervisor/store/migrate.ts';
import { MIGRATIONS } from '../../../supervisor/store/migrations/index.ts';
import { Sessions } from '../../../supervisor/store/sessions.ts';
import { Turns } from '../../../supervisor/store/turns.ts';
import { seededRandom } from '../../fixtures/protocol/seeded-random.ts';
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

const SESSION = sessionId(0);
const TURN = turnId(1);

function given(home: Home = temporaryHome()) {
  const database = temporaryDatabase(home);
  const sessions = new Sessions(database);
  const turns = new Turns(database);
  const log = new EventLog(database);
  const artifacts = new Artifacts(home);
  const contents = new Contents(database, artifacts);
  const output = new TurnOutput(database, log, contents, artifacts);
  const verify = () => verifyHistory({ events: log, contents, checkpoints: { verify: () => null } }, SESSION);
  return { home, database, sessions, turns, log, artifacts, contents, output, verify };
}

/** A session with a prompt, a small output (events 1 and 2) and a large one (event 3). */
function givenHistory() {
  const all = given();
  const { sessions, turns, log, output, home } = all;
  sessions.insert(sessionRow(0));
  const content = turns.insert(newTurn(1, { input: Buffer.from('a prompt') }));
  log.append(SESSION, [
    {
      type: 'turn.queued',
      data: { turnId: TURN, kind: 'command', inputBytes: 8, preview: 'a', content, timeoutMs: 1 },
    },
  ]);
  output.store(TURN, 'stdout', 0, Buffer.from('small'));
  output.store(TURN, 'stdout', 5, Buffer.alloc(2 * INLINE_OUTPUT_BYTES, 'large'));
  return { ...all, file: home.artifact(SESSION, `${TURN}.output`) };
}

test('verifying a history reads every content', async () => {
  const { verify } = givenHistory();
  expect(await verify()).toMatchObject({
    ok: true,
    events: 3,
    contents: { intact: 3, removed: 0, damaged: [] },
  });
});

test('verifying finds an altered and a missing content at its event', async () => {
  const { verify, database, file, contents } = givenHistory();
  database.run("UPDATE contents SET inline = CAST('smale' AS BLOB) WHERE inline = CAST('small' AS BLOB)");
  expect(await verify()).toMatchObject({
    ok: false,
    firstInvalid: null,
    contents: { intact: 2, damaged: [{ seq: 2, sha256: hash('sha256', 'small'), problem: 'altered' }] },
  });
  const bytes = readFileSync(file);
  bytes[40_000] = 1;
  writeFileSync(file, bytes);
  database.run("DELETE FROM contents WHERE inline = CAST('a prompt' AS BLOB)");
  expect((await verify()).contents.damaged.map(({ seq, problem }) => [seq, problem])).toEqual([
    [1, 'missing'],
    [2, 'altered'],
    [3, 'altered'],
  ]);
  rmSync(file);
  const { damaged } = (await verify()).contents;
  expect(damaged.at(-1)).toMatchObject({ seq: 3, problem: 'missing' });
  const id = damaged.at(-1)?.sha256 ?? '';
  expect(thrownError(() => contents.read(SESSION, id, 0, 1)).code).toBe('home_damaged');
});

test('contents that were removed on purpose do not break a history', async () => {
  const { verify, contents, turns } = givenHistory();
  contents.removeFiles(SESSION);
  contents.recordFilesRemoved(SESSION, 77);
  expect(await verify()).toMatchObject({ ok: true, contents: { intact: 2, removed: 1, damaged: [] } });
  contents.removeAll(SESSION, 78);
  expect(await verify()).toMatchObject({ ok: true, contents: { intact: 0, removed: 3, damaged: [] } });
  const error = thrownError(() => contents.read(SESSION, hash('sha256', 'small'), 0, 1));
  expect([error.code, error.message]).toEqual(['not_found', expect.stringContaining('was removed')]);
  expect(turns.getOrThrow(TURN).input.length).toBe(0);
});

test('equal bytes are stored once per session, and other sessions cannot read them', () => {
  const { output, database, contents, file, turns } = givenHistory();
  const before = statSync(file).size;
  output.store(TURN, 'stderr', 0, Buffer.alloc(2 * INLINE_OUTPUT_BYTES, 'large'));
  expect(statSync(file).size).toBe(before);
  expect(output.read(TURN, 'stderr', 0, 10).toString()).toBe('largelarge');
  // A prompt with the bytes of an output in a file.
  turns.insert(newTurn(2, { input: Buffer.alloc(2 * INLINE_OUTPUT_BYTES, 'large') }));
  expect(turns.getOrThrow(turnId(2)).input.length).toBe(2 * INLINE_OUTPUT_BYTES);
  expect(output.read(TURN, 'stdout', 3, 7).toString()).toBe('lllarge');
  expect(database.all('SELECT 1 AS one FROM contents')).toHaveLength(3);
  expect(thrownError(() => contents.read(sessionId(1), hash('sha256', 'small'), 0, 1)).code).toBe(
    'not_found',
  );
});

test('bytes that a crash left in a file without their event are collected, and nothing else', async () => {
  const { contents, file, home, output, sessions, verify } = givenHistory();
  appendFileSync(file, 'left over');
  writeFileSync(join(home.artifactsDirectory(SESSION), `${turnId(9)}.output`), 'left over');
  // The files of a fork arrive before its row.
  new Artifacts(home).append(sessionId(5), 'fork.output', 0, Buffer.from('x'));
  expect(await contents.collect()).toBe(2);
  expect(readdirSync(home.artifactsDirectory(SESSION))).toEqual([`${TURN}.output`]);
  expect(statSync(file).size).toBe(2 * INLINE_OUTPUT_BYTES);
  expect(readdirSync(home.artifactsDirectory(sessionId(5)))).toEqual(['fork.output']);
  expect(await verify()).toMatchObject({ ok: true });
  expect(await contents.collect()).toBe(0);
  output.store(TURN, 'stdout', 5 + 2 * INLINE_OUTPUT_BYTES, Buffer.from('next'));
  expect(await verify()).toMatchObject({ ok: true, contents: { intact: 4 } });
  expect(sessions.get(SESSION)).not.toBeNull();
});

test('a copy for a fork has the contents that its events name, and lives without the source', async () => {
  const { contents, sessions, database } = givenHistory();
  const [to, ids] = [sessionId(1), [hash('sha256', 'small'), largeHash()]];
  await contents.copyFiles(SESSION, to, ids);
  sessions.insert(sessionRow(1));
  contents.copyRows(SESSION, to, ids);
  contents.removeAll(SESSION, 1);
  expect(contents.read(to, ids[0] ?? '', 0, 100).part.toString()).toBe('small');
  expect(contents.read(to, ids[1] ?? '', 5, 5).part.toString()).toBe('large');
  expect(await contents.check(to, { sha256: largeHash(), bytes: 65_536, mediaType: '' })).toBe('intact');
  expect(database.all('SELECT 1 AS one FROM contents WHERE sessionId = ?', to)).toHaveLength(2);
});

function largeHash(): string {
  return hash('sha256', Buffer.alloc(2 * INLINE_OUTPUT_BYTES, 'large'));
}

test('a disk error while a file is read is reported, not called damage', async () => {
  const { contents, file, verify } = givenHistory();
  rmSync(file);
  // A link is never followed.
  symlinkSync('/etc/hostname', file);
  expect((await rejectedError(verify())).code).not.toBe('home_damaged');
  expect(() => contents.read(SESSION, largeHash(), 0, 1)).toThrow();
});

test.each([1, 2, 3, 4])('random histories keep every content of their events (seed %i)', async (seed) => {
  const { sessions, turns, log, database, output, contents, verify, home } = given();
  const random = seededRandom(seed);
  const below = (limit: number): number => Math.floor(random() * limit);
  sessions.insert(sessionRow(0));
  let prompts = 0;
  const truth = Buffer.alloc(4 * 2 ** 20);
  let length = 0;
  const queue = (): void => {
    prompts += 1;
    const input = Buffer.from(`prompt ${below(5)}`);
    const content = turns.insert(newTurn(prompts, { input }));
    const data = { turnId: turnId(prompts), kind: 'command', inputBytes: input.length } as const;
    log.append(SESSION, [{ type: 'turn.queued', data: { ...data, preview: '', content, timeoutMs: 1 } }]);
  };
  const write = (): void => {
    const piece = Buffer.alloc(1 + below(20_000), `${below(3)}`);
    piece.copy(truth, length);
    output.store(TURN, 'stdout', length, piece);
    length += piece.length;
  };
  const end = (): void => {
    const content = contents.insert(SESSION, Buffer.from(`{"n":${below(3)}}`), JSON_TEXT);
    const nothing = { turnMs: null, workerStartMs: null, workerId: null, workerReused: null };
    log.append(SESSION, [
      {
        type: 'turn.ended',
        data: {
          turnId: TURN,
          status: 'succeeded',
          exitCode: 0,
          error: null,
          content,
          outputArtifact: false,
          ...nothing,
        },
      },
    ]);
  };
  queue();
  for (let n = 0; n < 80; n += 1) {
    const change = [queue, write, write, write, end][below(5)] ?? write;
    if (below(6) > 0) change();
    else {
      const [beforePrompts, beforeLength] = [prompts, length];
      const undone = (): void => {
        change();
        throw new Error('undone');
      };
      expect(() => database.transaction(undone)).toThrow('undone');
      [prompts, length] = [beforePrompts, beforeLength];
    }
    if (below(20) === 0) await contents.collect();
  }
  expect(await verify()).toMatchObject({ ok: true, contents: { removed: 0, damaged: [] } });
  expect(output.read(TURN, 'stdout', 0, 2 ** 22).equals(truth.subarray(0, length))).toBe(true);
  await contents.collect();
  const { total } = database.get(
    'SELECT coalesce(sum(bytes), 0) AS total FROM contents WHERE artifact IS NOT NULL',
  ) as { total: number };
  const names = new Artifacts(home).names(SESSION);
  expect(names.reduce((sum, name) => sum + statSync(home.artifact(SESSION, name)).size, 0)).toBe(total);
});

test('histories of an earlier version stay readable and verifiable', async () => {
  const home = temporaryHome();
  const old = new DatabaseSync(join(home.root, 'holdfast.db'));
  migrate(old, home, MIGRATIONS.slice(0, 6));
  // Later versions added columns.
  const known = new Set(
    old
      .prepare('PRAGMA table_info(sessions)')
      .all()
      .map(({ name }) => name),
  );
  const row = Object.entries(sessionRow(0)).filter(([column]) => known.has(column));
  const columns = row.map(([column]) => column);
  const values = row.map(([, value]) =>
    Array.isArray(value) ? '[]' : typeof value === 'boolean' ? Number(value) : value,
  );
  old
    .prepare(`INSERT INTO sessions (${columns.join()}) VALUES (${columns.map(() => '?').join()})`)
    .run(...values);
  const insertTurn = old.prepare(
    `INSERT INTO turns (id, sessionId, status, kind, createdAt, timeoutMs, inputBytes, outputArtifact, stdoutBytes,
       stderrBytes, resultBytes, cancelRequested) VALUES (?, ?, 'running', 'command', 1, 1, 3, 0, 9, 4, 0, 0)`,
  );
  insertTurn.run(TURN, SESSION);
  old.prepare('INSERT INTO turn_inputs VALUES (?, ?)').run(TURN, Buffer.from('ask'));
  // Its standard output went to a file after 5 bytes; its standard error is in events.
  const streams = old.prepare('INSERT INTO turn_streams VALUES (?, ?, ?, ?)');
  streams.run(TURN, 'stdout', 5, `${TURN}.stdout`);
  streams.run(TURN, 'stderr', 4, null);
  const pieces = old.prepare('INSERT INTO turn_pieces VALUES (?, ?, ?, ?, ?)');
  pieces.run(TURN, 'stdout', 0, 5, 2);
  pieces.run(TURN, 'stderr', 0, 4, 4);
  new Artifacts(home).append(SESSION, `${TURN}.stdout`, 0, Buffer.from('hello you, not acknowledged'));
  const queued = { turnId: TURN, kind: 'command', inputBytes: 3, preview: 'ask', timeoutMs: 1 };
  const stdout = { turnId: TURN, stream: 'stdout', offset: 0, bytes: 5, text: 'hello' };
  const later = { turnId: TURN, stream: 'stdout', offset: 5, bytes: 4, artifact: `${TURN}.stdout` };
  const stderr = { turnId: TURN, stream: 'stderr', offset: 0, bytes: 4, base64: 'AAECAw==' };
  const failed = { snapshotId: 'snp-aaaaaaaaaaaaaaaa', code: 'internal', why: 'w' };
  insertOldEvents(old, [
    ['turn.queued', queued],
    ['turn.output', stdout],
    ['turn.output', { ...later, sha256: hash('sha256', ' you') }],
    ['turn.output', stderr],
    ['workspace.fill-failed', failed],
  ]);
  old.close();

  const { turns, log, output, contents, verify } = given(home);
  expect(turns.getOrThrow(TURN).input.toString()).toBe('ask');
  expect(output.read(TURN, 'stdout', 3, 100).toString()).toBe('lo you');
  expect([...output.read(TURN, 'stderr', 1, 100)]).toEqual([1, 2, 3]);
  expect(log.read(SESSION).map((event) => parseEvent(event)?.data)).toMatchObject([
    { preview: 'ask', content: null },
    { text: 'hello', content: null },
    { artifact: `${TURN}.stdout`, content: null },
    { base64: 'AAECAw==', content: null },
    failed,
  ]);
  // The filter takes the type of today.
  expect(log.read(SESSION, { type: 'workspace.hydration-failed' }).map(({ seq }) => seq)).toEqual([5]);
  expect(contents.read(SESSION, hash('sha256', 'ask'), 0, 10).part.toString()).toBe('ask');
  // The running turn goes on, and nothing of the old file is collected.
  output.store(TURN, 'stdout', 9, Buffer.alloc(INLINE_OUTPUT_BYTES, 'x'));
  await contents.collect();
  expect(output.read(TURN, 'stdout', 5, 8).toString()).toBe(' youxxxx');
  expect(await verify()).toMatchObject({ ok: true, events: 6 });
});

/** Events as an earlier version stored them, with their hash chain. */
function insertOldEvents(database: DatabaseSync, events: readonly (readonly [string, object])[]): void {
  let previous = '0'.repeat(64);
  for (const [at, [type, data]] of events.entries()) {
    const sorted = Object.fromEntries(Object.entries(data).sort(([a], [b]) => (a < b ? -1 : 1)));
    const [text, time] = [JSON.stringify(sorted), new Date(at).toISOString()];
    const own = hash('sha256', `["${SESSION}",${at + 1},"${time}","${type}",${text},"${previous}"]`);
    const insert = database.prepare('INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)');
    insert.run(SESSION, at + 1, at, type, text, previous, own);
    previous = own;
  }
}
