import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { z } from 'zod';
import { EgressFixture, ALLOWED_HOST } from './egress-fixture.ts';
import { printInSoak, soakCount } from '../../setup/run-length.ts';

/** Memory that the maximum of connections per session may cost each program, beyond its idle memory. */
const MOST_BYTES = 400 * 2 ** 20;
const HeldSchema = z.object({ held: z.number(), failed: z.number(), reset: z.number(), read: z.number() });
const AnswersSchema = z.object({ answers: z.record(z.string(), z.number()), ms: z.number() });

let fixture: EgressFixture;
let workspace: string;
beforeAll(async () => {
  fixture = await EgressFixture.create();
  // Both programs must be warm before their idle memory is measured.
  await ask();
  const info = await fixture.home.runJson(['workspace', 'info', 'attack/default']);
  workspace = z.object({ path: z.string() }).parse(info).path;
});
beforeEach(async () => {
  for (const name of ['holding', 'let-go']) await rm(join(workspace, name), { force: true });
});
afterAll(async () => {
  await fixture.dispose();
});

const target = () => `${ALLOWED_HOST}:${fixture.port}`;
const get = (path = '/hello') => `GET http://${target()}${path} HTTP/1.1\r\nHost: ${target()}\r\n\r\n`;
const encoded = (text: string) => Buffer.from(text).toString('base64');
const ask = () => fixture.sendRequests([get()]);

/**
 * Lets the agent hold `count` connections on which it has sent `first`, samples memory meanwhile, and releases them.
 */
async function whileHolding(
  count: number,
  first: string,
  work: () => Promise<void>,
  read = 0,
): Promise<{ deed: z.infer<typeof HeldSchema>; supervisor: number; sidecar: number }> {
  const before = await fixture.residentMemory();
  const deed = fixture.runAttack(HeldSchema, {
    deed: 'hold',
    count,
    first: encoded(first),
    seconds: 40,
    read,
  });
  // It is awaited at the end; until then a rejection is not unhandled.
  deed.catch(() => undefined);
  const most = { supervisor: 0, sidecar: 0 };
  try {
    await expect
      .poll(() => readFile(join(workspace, 'holding'), 'utf8').catch(() => ''), { timeout: 30_000 })
      .not.toBe('');
    await work();
    for (let looks = 0; looks < 10; looks += 1) {
      const { supervisor, sidecar } = await fixture.residentMemory();
      most.supervisor = Math.max(most.supervisor, supervisor - before.supervisor);
      most.sidecar = Math.max(most.sidecar, sidecar - before.sidecar);
      await sleep(100);
    }
  } finally {
    await writeFile(join(workspace, 'let-go'), '');
  }
  return { deed: await deed, ...most };
}

test('1,000 concurrent requests are all answered', async () => {
  const { answers, ms } = await fixture.runAttack(AnswersSchema, {
    deed: 'parallel',
    count: 1000,
    request: encoded(get()),
    seconds: 30,
  });
  expect(answers).toEqual({ 'HTTP/1.1 200': 1000 });
  printInSoak(`1,000 requests at once: ${String(ms)} ms`);
});

test('1,000 denied requests are denied at once and reported together', async () => {
  const { answers } = await fixture.runAttack(AnswersSchema, {
    deed: 'parallel',
    count: 1000,
    request: encoded('CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n'),
    seconds: 30,
  });
  expect(answers).toEqual({ 'HTTP/1.1 403': 1000 });
  // The count of repeats is reported when the next turn begins.
  await ask();
  const told = async () => (await fixture.decisions()).filter(({ host }) => host === 'evil.test');
  await expect
    .poll(async () => (await told()).reduce((sum, { count }) => sum + count, 0), { timeout: 20_000 })
    .toBe(1000);
  expect((await told()).length).toBeLessThan(8);
});

test('1,000 half-open connections cost little, do not affect other sessions, and time out', async () => {
  const before = await fixture.openDescriptors();
  await fixture.deploy('neighbour', [`${ALLOWED_HOST}:${fixture.port}`, `127.0.0.3:${fixture.port}`]);
  const { deed, supervisor, sidecar } = await whileHolding(
    1000,
    'GET http://open.test/ HTTP/1.1\r\nX: ',
    async () => {
      const shape = z.array(z.object({ answer: z.string(), ms: z.number() }));
      const order = { deed: 'say', requests: [encoded(get())] };
      const [said] = await fixture.runAttack(shape, order, 'neighbour');
      expect(Buffer.from(said?.answer ?? '', 'base64').toString()).toContain('200 OK');
      // Far below the ten seconds that an unaccepted connection waits.
      expect(said?.ms).toBeLessThan(3000);
      // Beyond the time limit for headers each gets a response and is closed.
      await expect
        .poll(() => fixture.openDescriptors(), { timeout: 30_000, interval: 200 })
        .toBeLessThan(before + 100);
    },
  );
  expect(deed).toMatchObject({ held: 1000, failed: 0 });
  printInSoak(`1,000 half-open connections: supervisor +${mb(supervisor)} MB, sidecar +${mb(sidecar)} MB`);
  expect([supervisor < MOST_BYTES, sidecar < MOST_BYTES]).toEqual([true, true]);
  expect((await ask())[0]?.status).toBe(200);
});

test('connections beyond the limit are reset and reported, and later ones are accepted again', async () => {
  const { deed } = await whileHolding(1500, '', () => sleep(500));
  expect(deed.reset + deed.failed).toBeGreaterThanOrEqual(1500 - 1024);
  const told = async () => (await fixture.decisions()).filter(({ reason }) => reason === 'too_many');
  await expect.poll(async () => (await told()).length, { timeout: 15_000 }).toBeGreaterThan(0);
  await expect.poll(async () => (await ask())[0]?.status, { timeout: 15_000 }).toBe(200);
});

test('1,000 stalled readers pause their source: memory stays bounded', async () => {
  const before = await fixture.openDescriptors();
  const { deed, supervisor, sidecar } = await whileHolding(1000, get('/endless'), () =>
    sleep(soakCount(2500, 6000)),
  );
  expect(deed.held).toBe(1000);
  printInSoak(`1,000 readers that do not read: supervisor +${mb(supervisor)} MB, sidecar +${mb(sidecar)} MB`);
  expect([supervisor < MOST_BYTES, sidecar < MOST_BYTES]).toEqual([true, true]);
  // Sockets to the server and the sidecar, and files: all closed.
  await expect.poll(() => fixture.openDescriptors(), { timeout: 60_000 }).toBeLessThan(before + 20);
});

test('200 readers of 100 bytes at a time keep memory bounded too', async () => {
  const { deed, supervisor, sidecar } = await whileHolding(
    200,
    get('/endless'),
    () => sleep(soakCount(2500, 6000)),
    100,
  );
  expect(deed.read).toBeGreaterThan(1000);
  printInSoak(`200 slow readers: supervisor +${mb(supervisor)} MB, sidecar +${mb(sidecar)} MB`);
  expect([supervisor < MOST_BYTES, sidecar < MOST_BYTES]).toEqual([true, true]);
});

function mb(bytes: number): string {
  return (bytes / 2 ** 20).toFixed(0);
}
