import { duplexPair } from 'node:stream';
import type { Duplex } from 'node:stream';
import { expect, test } from 'vitest';
import { METHODS, NOTIFICATIONS } from '../../../protocol/methods.ts';
import { Peer } from '../../../protocol/wire/peer.ts';
import { EMPTY_MAP } from '../../../protocol/wire/shapes.ts';
import { SeededRandom, seedOfRun } from '../../fixtures/protocol/seeded-random.ts';
import { soakCount } from '../../setup/run-length.ts';

const IDS = [
  '1',
  '2',
  '"a"',
  'null',
  '1.5',
  '-1',
  '{}',
  '[]',
  '""',
  `"${'x'.repeat(101)}"`,
  '9007199254740993',
  'true',
] as const;
const NAMES = [
  'ping',
  'session/list',
  'session/show',
  'turn/output',
  'hello',
  'cancel',
  'progress',
  'session/event',
  'exec/output',
  'constructor',
  '__proto__',
  'toString',
  'rpc.discover',
  '',
] as const;
const VALUES = [
  '{}',
  '[]',
  'null',
  '1',
  '"x"',
  'true',
  '{"session":"a"}',
  '{"session":"a/b"}',
  '{"request":1}',
  '{"request":{}}',
  '{"limit":-1}',
  '{"turn":"turn-aaaaaaaaaaaaaaaa","stream":"stdout","offset":0}',
  '{"constructor":{"a":1}}',
  '{"toString":null}',
] as const;

/** A line that is JSON, and of which any part may be wrong or missing. */
function randomLine(random: SeededRandom): string {
  const members: string[] = [];
  const maybe = (chance: number, member: string): void => {
    if (random.next() < chance) members.push(member);
  };
  maybe(0.97, `"jsonrpc":${random.next() < 0.97 ? '"2.0"' : random.pick(VALUES)}`);
  maybe(0.8, `"id":${random.next() < 0.7 ? String(random.below(5)) : random.pick(IDS)}`);
  maybe(0.85, `"method":${random.next() < 0.95 ? JSON.stringify(random.pick(NAMES)) : random.pick(VALUES)}`);
  maybe(0.8, `"params":${random.pick(VALUES)}`);
  maybe(0.05, `"result":${random.pick(VALUES)}`);
  maybe(
    0.05,
    `"error":${random.pick(['{}', 'null', '{"code":1,"message":"x"}', '{"code":"x","message":{}}'])}`,
  );
  const bytes = random.next() < 0.1 ? random.below(20) : undefined;
  if (bytes !== undefined) members.push(`"bytes":${bytes}`);
  return `{${members.join(',')}}\n${'b'.repeat(bytes ?? 0)}`;
}

function served(stream: Duplex, internal: unknown[]) {
  return new Peer({
    stream,
    name: 'fuzzer',
    serves: METHODS,
    calls: METHODS,
    sends: EMPTY_MAP,
    receives: NOTIFICATIONS,
    partial: true,
    handlers: {
      ping: () => ({}),
      'session/list': () => ({ sessions: [], nextCursor: null }),
      'session/show': (_params, { signal }) =>
        new Promise((_resolve, reject) =>
          signal.addEventListener('abort', () => reject(new Error('stopped'))),
        ),
      'turn/output': () => {
        throw new Error('broken');
      },
    },
    onInternalError: (error) => internal.push(error),
    limits: { lingerMs: 20 },
  });
}

test('an error whose data has the names that every object has ends the connection alone', async () => {
  const [near, far] = duplexPair();
  const internal: unknown[] = [];
  const peer = served(far, internal);
  near.on('error', () => undefined).resume();
  const data = { code: 'nope', constructor: 1, toString: 2 };
  near.write(`${JSON.stringify({ jsonrpc: '2.0', id: null, error: { code: 1, message: 'm', data } })}\n`);
  expect(await peer.closed).toMatchObject({ code: 'internal', message: 'm' });
  expect(internal).toEqual([]);
});

test(
  'for any input a peer responds to each request once or closes with a reason, and leaks nothing',
  { timeout: 600_000 },
  async () => {
    const seed = seedOfRun('peers');
    const cases = soakCount(600, 100_000);
    let ended = 0;
    let answered = 0;
    for (let n = 0; n < cases; n++) {
      const random = new SeededRandom(seed + n);
      const [near, far] = duplexPair();
      const internal: unknown[] = [];
      const peer = served(far, internal);
      let text = '';
      near.on('data', (chunk: Buffer) => (text += chunk.toString()));
      near.on('error', () => undefined);
      near.on('end', () => near.end());
      for (let lines = 1 + random.below(12); lines > 0; lines--) near.write(randomLine(random));
      await new Promise((resolve) => setImmediate(resolve));
      await new Promise((resolve) => setImmediate(resolve));
      if (!peer.isClosed) near.end();
      const reason = await peer.closed;
      const said = `case ${n}, HOLDFAST_SEED=${seed + n}`;
      expect(peer.runningRequests, said).toBe(0);
      for (const error of internal) expect(String(error), said).toBe('Error: broken');
      const answers = text
        .split('\n')
        .filter((line) => line !== '')
        .map((line) => JSON.parse(line) as { id: unknown; error?: { data: { code: string } } });
      for (const { error } of answers)
        expect(JSON.stringify(error ?? {}), said).not.toMatch(/broken|stopped|\.ts/);
      answered += answers.length;
      if (reason !== undefined) {
        ended += 1;
        // Either we say why we end it, or the other side has said so.
        const complaints = answers.filter(({ id }) => id === null);
        expect(complaints.length, said).toBeLessThanOrEqual(1);
      }
    }
    expect(answered).toBeGreaterThan(cases);
    expect(ended).toBeGreaterThan(cases / 10);
    expect(cases - ended).toBeGreaterThan(cases / 10);
  },
);
