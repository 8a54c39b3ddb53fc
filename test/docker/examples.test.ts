import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { NameServer } from '../egress-harness/name-server.ts';
import { Origin } from '../egress-harness/origin.ts';
import { TestHome } from '../setup/test-home.ts';

const EXAMPLES = join(import.meta.dirname, '../../examples');
const RunSchema = z.object({
  sessionId: z.string(),
  status: z.literal('succeeded'),
  output: z.unknown(),
  sandbox: z.object({ reused: z.boolean(), case: z.string() }),
});

describe('the examples, as a person runs them', () => {
  let home: TestHome;
  beforeAll(async () => {
    home = await TestHome.create();
  });
  afterAll(async () => {
    await home.dispose();
  });

  const deploy = (name: string) => home.runOk(['deploy', join(EXAMPLES, name)]);
  const run = async (profile: string, input: object | string, ...options: string[]) => {
    const text = typeof input === 'string' ? input : JSON.stringify(input);
    return RunSchema.parse(await home.runJson(['run', profile, text, ...options]));
  };
  const destroySandbox = (sessionId: string) => home.runOk(['session', 'stop', sessionId]);

  test('counter keeps counting although its sandbox is destroyed after each turn', async () => {
    await deploy('counter');
    for (const count of [1, 2, 3]) {
      const turn = await run('counter', {});
      expect(turn.output).toEqual({ count });
      expect(turn.sandbox.reused).toBe(false);
      await destroySandbox(turn.sessionId);
    }
    await deploy('counter');
    expect((await run('counter', {})).output).toEqual({ count: 4 });
  });

  test('conversation remembers in the worker, and in the workspace when the worker is gone; sessions do not mix', async () => {
    await deploy('conversation');
    const ada = (query: string) => run('conversation', { query }, '--session', 'ada');
    expect((await ada('My name is Ada')).output).toMatchObject({ turn: 1, found: 'nowhere' });
    const second = await ada('What is my name?');
    expect(second.output).toMatchObject({
      turn: 2,
      found: 'memory',
      response: expect.stringContaining('My name is Ada') as string,
    });
    const other = await run('conversation', { query: 'Who am I?' }, '--session', 'bob');
    expect(other.output).toMatchObject({ turn: 1, found: 'nowhere' });
    await destroySandbox(second.sessionId);
    expect((await ada('And now?')).output).toMatchObject({
      turn: 3,
      found: 'file',
      response: expect.stringContaining('My name is Ada') as string,
    });
  });

  test('api-cache asks once', async () => {
    await deploy('api-cache');
    const query = 'how long is this?';
    const first = await run('api-cache', { query });
    expect(first.output).toMatchObject({ cached: false, answer: '17 letters, 4 words' });
    await destroySandbox(first.sessionId);
    expect((await run('api-cache', { query })).output).toMatchObject({
      cached: true,
      answer: '17 letters, 4 words',
    });
  });

  test('sqlite-log keeps its rows', async () => {
    await deploy('sqlite-log');
    const first = await run('sqlite-log', { message: 'one' });
    expect(first.output).toEqual({ total: 1, last: 'one' });
    await destroySandbox(first.sessionId);
    expect((await run('sqlite-log', { message: 'two' })).output).toEqual({ total: 2, last: 'two' });
  });

  test('research-state continues at the stage where the last sandbox stopped', async () => {
    await deploy('research-state');
    const first = await run('research-state', { topic: 'tides' });
    expect(first.output).toEqual({ topic: 'tides', done: ['collect'], next: 'read' });
    await destroySandbox(first.sessionId);
    expect((await run('research-state', {})).output).toMatchObject({
      done: ['collect', 'read'],
      next: 'compare',
    });
    await run('research-state', {});
    expect((await run('research-state', {})).output).toMatchObject({ next: null });
    expect(await home.runOk(['exec', first.sessionId, '--', 'cat', 'findings.md'])).toBe(
      '- collect: tides\n- read: tides\n- compare: tides\n- write: tides\n',
    );
  });

  test('word-count, a handler in Node, keeps one total in memory and one in the workspace', async () => {
    await deploy('word-count');
    await run('word-count', { text: 'one two' });
    const second = await run('word-count', { text: 'three' });
    expect(second.output).toEqual({ words: 1, sinceStart: 3, total: 3 });
    await destroySandbox(second.sessionId);
    expect((await run('word-count', { text: 'four' })).output).toEqual({ words: 1, sinceStart: 1, total: 4 });
  });

  test('web-reader reads what it may, and says of the rest what would allow it', async () => {
    const names = await NameServer.start({ 'pages.test': ['127.0.0.1'] });
    const origin = await Origin.start();
    const reader = await TestHome.create({ HOLDFAST_DNS: names.address });
    try {
      await reader.runOk(['deploy', join(EXAMPLES, 'web-reader')]);
      const url = `http://pages.test:${String(origin.port)}/hello`;
      const read = async () =>
        RunSchema.parse(await reader.runJson(['run', 'web-reader', JSON.stringify({ url })])).output;
      const denied = z.object({ denied: z.literal('no_rule'), 'to allow': z.string() }).parse(await read());
      const command = denied['to allow'].replaceAll("'", '').split(' ').slice(1);
      await reader.runOk(command);
      // Its address is one of this machine's: that, too, has to be allowed by its name.
      expect(await read()).toMatchObject({ denied: 'private_address' });
      await reader.runOk(['policy', 'allow', 'default', `127.0.0.1:${String(origin.port)}`]);
      expect(await read()).toEqual({ url, letters: 6, begins: 'hello\n' });
      const told = await reader.runOk(['session', 'events', 'default', '--type', 'egress']);
      expect(told).toContain(
        `denied GET pages.test:${String(origin.port)} · no_rule\n        to allow it: holdfast policy allow ses-`,
      );
      expect(told).toMatch(
        / allowed GET pages\.test:\d+ \(127\.0\.0\.1\) · rule pages\.test:\d+ \(session\)\n/,
      );
    } finally {
      await reader.dispose();
      await origin.dispose();
      await names.dispose();
    }
  });

  test('notes, a plain command, reads its prompt on stdin', async () => {
    await deploy('notes');
    expect(await home.runOk(['run', 'notes', 'buy bread'])).toBe('buy bread\n');
    expect(await home.runOk(['run', 'notes', '-'], 'and milk')).toBe('buy bread\nand milk\n');
  });
});
