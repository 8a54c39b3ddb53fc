// What the durable history costs beside the bare disk: node bench/events.ts [--json] [--rounds N]
import { randomBytes } from 'node:crypto';
import { closeSync, fdatasyncSync, mkdtempSync, openSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import type { EventEntry } from '../protocol/events.ts';
import { Artifacts } from '../supervisor/history/artifacts.ts';
import { Contents } from '../supervisor/history/contents.ts';
import { EventLog } from '../supervisor/history/event-log.ts';
import { TurnOutput } from '../supervisor/history/turn-output.ts';
import { openDatabase } from '../supervisor/store/database.ts';
import { Home } from '../supervisor/store/home.ts';
import { Sessions } from '../supervisor/store/sessions.ts';
import { Turns, UNSTARTED_TURN } from '../supervisor/store/turns.ts';
import { Report, interleave, median, p99 } from './measure.ts';
import { benchSession, sessionId } from './sessions.ts';

const APPENDS = 200;
const BATCH = 1000;
const BATCHES = 5;
const MIB = 2 ** 20;
const OUTPUT_MIB = 100;

const wanted = process.argv.indexOf('--rounds');
const rounds = wanted < 0 ? 21 : Number(process.argv[wanted + 1]);

const SESSION = sessionId(0);
const TURN = 'turn-aaaaaaaaaaaaaaaa';

function sqliteVersion(): string {
  const database = new DatabaseSync(':memory:');
  const row = database.prepare('SELECT sqlite_version() AS version').get();
  database.close();
  return String(row?.['version']);
}

const directory = mkdtempSync(join(tmpdir(), 'holdfast-bench-'));
const home = Home.open(join(directory, 'home'));
const database = openDatabase(home);
try {
  const log = new EventLog(database);
  const sessions = new Sessions(database);
  const report = new Report('history and store', { sqlite: sqliteVersion() });
  const entry: EventEntry = {
    type: 'turn.output',
    data: {
      turnId: TURN,
      stream: 'stdout',
      offset: 0,
      bytes: 40,
      content: { sha256: '0'.repeat(64), bytes: 40, mediaType: 'text/plain; charset=utf-8' },
    },
  };
  // What an event has in all, so that the bare append writes as much.
  const raw = Buffer.from(`${JSON.stringify(log.append(SESSION, [entry])[0])}\n`);

  const file = openSync(join(directory, 'raw.jsonl'), 'a', 0o600);
  const appends = await interleave(rounds, {
    ours: () => {
      for (let i = 0; i < APPENDS; i += 1) log.append(SESSION, [entry]);
      return undefined;
    },
    raw: () => {
      for (let i = 0; i < APPENDS; i += 1) {
        writeSync(file, raw);
        fdatasyncSync(file);
      }
      return undefined;
    },
  });
  closeSync(file);
  const perSecond = (ms: number, count: number): number => (count * 1000) / ms;
  const [ours, peer] = [perSecond(median(appends.ours), APPENDS), perSecond(median(appends.raw), APPENDS)];
  report.add({
    name: 'durable single append',
    ours,
    unit: 'events/s',
    peer: { name: 'append + fdatasync', value: peer },
    ratio: ours / peer,
    target: { atLeast: 0.7 },
    samples: rounds,
  });

  const batch = Array.from({ length: BATCH }, () => entry);
  const batches = await interleave(rounds, {
    together: () => {
      for (let i = 0; i < BATCHES; i += 1) log.append(SESSION, batch);
      return undefined;
    },
    inTransaction: () => {
      for (let i = 0; i < BATCHES; i += 1) {
        database.transaction(() => {
          for (const one of batch) log.append(SESSION, [one]);
        });
      }
      return undefined;
    },
  });
  report.add({
    name: `batches of ${BATCH}`,
    ours: perSecond(median(batches.together), BATCH * BATCHES),
    unit: 'events/s',
    target: { atLeast: 50_000 },
    samples: rounds,
  });
  report.add({
    name: `${BATCH} appends in one transaction`,
    ours: perSecond(median(batches.inTransaction), BATCH * BATCHES),
    unit: 'events/s',
    samples: rounds,
  });

  database.transaction(() => {
    for (let n = 0; n < 1000; n += 1) sessions.insert(benchSession(n));
  });
  const lists = await interleave(Math.max(rounds, 21), {
    list: () => {
      if (sessions.list({ limit: 1000 }).rows.length !== 1000)
        throw new Error('not all sessions were listed');
      return undefined;
    },
  });
  report.add({
    name: 'listing 1,000 sessions',
    ours: median(lists.list),
    unit: 'ms',
    p99: p99(lists.list),
    target: { atMost: 20 },
    samples: lists.list.length,
  });

  const turns = new Turns(database);
  turns.insert({
    ...UNSTARTED_TURN,
    id: TURN,
    sessionId: SESSION,
    status: 'running',
    kind: 'command',
    createdAt: Date.now(),
    timeoutMs: 60_000,
    input: Buffer.alloc(0),
  });
  const artifacts = new Artifacts(home);
  const output = new TurnOutput(database, log, new Contents(database, artifacts), artifacts);
  const piece = randomBytes(MIB);
  const bare = openSync(join(directory, 'bare'), 'w', 0o600);
  let offset = 0;
  const before = process.memoryUsage().rss;
  const stored = await interleave(OUTPUT_MIB, {
    ours: () => {
      offset = output.store(TURN, 'stdout', offset, piece);
      return undefined;
    },
    raw: () => {
      writeSync(bare, piece);
      fdatasyncSync(bare);
      return undefined;
    },
  });
  closeSync(bare);
  const sum = (samples: readonly number[]): number => samples.reduce((total, one) => total + one, 0);
  const speed = (samples: readonly number[]): number => (OUTPUT_MIB * MIB) / 1000 / sum(samples);
  report.add({
    name: `${OUTPUT_MIB} MiB of one turn's output`,
    ours: speed(stored.ours),
    unit: 'MB/s',
    peer: { name: 'write + fdatasync', value: speed(stored.raw) },
    target: { atLeast: 50 },
  });
  report.add({
    name: 'memory that took',
    ours: Math.max(0, process.memoryUsage().rss - before) / MIB,
    unit: 'MiB',
    target: { atMost: 32 },
  });
  const verified = performance.now();
  const verification = await log.verify(SESSION);
  if (!verification.ok) throw new Error(`the log does not hold at ${String(verification.firstInvalid)}`);
  report.add({
    name: 'verifying the chain',
    ours: perSecond(performance.now() - verified, verification.events),
    unit: 'events/s',
  });
  if (!report.finish()) process.exitCode = 1;
} finally {
  database.close();
  rmSync(directory, { recursive: true, force: true });
}
