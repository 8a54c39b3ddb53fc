import { PassThrough } from 'node:stream';
import { describe, expect, test } from 'vitest';
import type { Context } from '../../../cli/context.ts';
import { promptHidden } from '../../../cli/terminal/questions.ts';
import { CliRun, runToEnd } from '../../fixtures/cli/cli-run.ts';
import { startFakeSupervisor } from '../../fixtures/cli/start-fake-supervisor.ts';

const SECRET = {
  name: 'TOKEN',
  profile: null,
  version: 1,
  setAt: '2026-03-01T11:00:00.000Z',
  expiresAt: null,
  lastUsedAt: null,
  state: 'usable' as const,
};

describe('holdfast secret', () => {
  test('set takes the value from standard input, without the end of its line', async () => {
    const values: string[] = [];
    const { home, requests } = await startFakeSupervisor({
      'secret/set': (_params, { bytes }) => {
        values.push(bytes.toString());
        return { secret: SECRET };
      },
    });
    const run = await runToEnd(['secret', 'set', 'TOKEN'], { home, stdin: 'a value of a secret\r\n' });
    expect(run).toMatchObject({ code: 0, stdout: 'TOKEN is set, version 1\n' });
    expect(values).toEqual(['a value of a secret']);
    expect(JSON.stringify(requests.map(({ params }) => params))).not.toContain('a value');
    const json = await runToEnd(['secret', 'set', 'TOKEN', '--json'], { home, stdin: 'a value of a secret' });
    expect(JSON.parse(json.stdout)).toEqual(SECRET);
  });

  test('set asks on a terminal and shows nothing of the answer', async () => {
    const values: string[] = [];
    const { home } = await startFakeSupervisor({
      'secret/set': (_params, { bytes }) => {
        values.push(bytes.toString());
        return { secret: SECRET };
      },
    });
    const run = new CliRun(['secret', 'set', 'TOKEN'], { home, terminal: 80 });
    await run.waitForText('(not shown)');
    run.stdin.write('typed wronf\u007fg\u0015the hidden väl\u007f\u007fälue\r');
    const { code, stdout, stderr } = await run.result;
    expect({ code, stdout }).toEqual({ code: 0, stdout: 'TOKEN is set, version 1\n' });
    expect(values).toEqual(['the hidden välue']);
    expect(stdout + stderr).not.toContain('hidden v');
    expect(run.isRawMode).toBe(false);
  });

  test('the terminal stops echoing before the question is shown', async () => {
    const happened: string[] = [];
    const stdin = Object.assign(new PassThrough(), {
      setRawMode: (on: boolean) => void happened.push(on ? 'hidden' : 'shown'),
    });
    const context = {
      io: { stdin },
      progress: { hide: () => undefined },
      stderr: { write: (text: string) => Promise.resolve(void happened.push(text)) },
      interrupted: new AbortController().signal,
    } as unknown as Context;
    const answer = promptHidden(context, 'Question: ');
    stdin.write('the answer\n');
    expect(await answer).toBe('the answer');
    expect(happened).toEqual(['hidden', 'Question: ', 'shown', '\n']);
  });

  test('^C at the question changes nothing and gives the terminal back', async () => {
    const { home, requests } = await startFakeSupervisor({});
    const run = new CliRun(['secret', 'set', 'TOKEN'], { home, terminal: 80 });
    await run.waitForText('(not shown)');
    run.stdin.write('half of a val\u0003');
    const { code, stderr } = await run.result;
    expect(code).toBe(130);
    expect(stderr).not.toContain('half');
    expect(run.isRawMode).toBe(false);
    expect(requests.filter(({ method }) => method === 'secret/set')).toEqual([]);
  });

  test('a value in the place of the name is not repeated', async () => {
    const run = await runToEnd(['secret', 'set', 'sk-ant-0123456789'], { home: '/nonexistent' });
    expect(run.code).toBe(2);
    expect(run.stderr).not.toContain('0123456789');
  });

  test('the scope and the expiry reach the supervisor', async () => {
    const { home, requests } = await startFakeSupervisor({
      'secret/set': () => ({ secret: SECRET }),
      'secret/remove': () => ({ removed: true }),
    });
    const options = ['--profile', 'coder', '--expires', '30d'];
    await runToEnd(['secret', 'set', 'TOKEN', ...options], { home, stdin: 'a value of a secret' });
    await runToEnd(['secret', 'rm', 'TOKEN', '--profile', 'coder'], { home });
    expect(requests.map(({ params }) => params)).toMatchObject([
      { name: 'TOKEN', profile: 'coder', expiresAt: expect.stringMatching(/^20\d\d-.*Z$/) as string },
      { name: 'TOKEN', profile: 'coder' },
    ]);
    const wrong = await runToEnd(['secret', 'set', 'TOKEN', '--expires', 'soon'], { home, stdin: 'x' });
    expect(wrong.code).toBe(2);
  });

  test('list shows names and never values; rm of a missing one fails', async () => {
    const { home } = await startFakeSupervisor({
      'secret/list': () => ({
        secrets: [SECRET, { ...SECRET, profile: 'coder', state: 'expired' as const }],
      }),
      'secret/remove': () => ({ removed: false }),
    });
    const list = await runToEnd(['secret', 'list'], { home });
    expect(list.stdout).toMatch(/TOKEN +all profiles +1 +usable/);
    expect(list.stdout).toMatch(/TOKEN +coder +1 +expired/);
    const json = await runToEnd(['secret', 'list', '--json'], { home });
    expect(Object.keys((JSON.parse(json.stdout) as { secrets: object[] }).secrets[0] ?? {})).toEqual([
      ...['name', 'profile', 'version', 'setAt', 'expiresAt', 'lastUsedAt', 'state'],
    ]);
    const removed = await runToEnd(['secret', 'rm', 'TOKEN'], { home });
    expect(removed.stderr).toMatch(/^error not_found: There is no secret TOKEN/);
  });
});
