import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { forPager, Pager, pagerOf, spawnPager } from '../../../cli/pager.ts';
import { runToEnd } from '../../fixtures/cli/cli-run.ts';
import { startFakeSupervisor } from '../../fixtures/cli/start-fake-supervisor.ts';

const EVENT = {
  sessionId: 'ses-aaaaaaaaaaaaaaaa',
  seq: 1,
  at: '2026-03-01T12:00:00.000Z',
  type: 'session.status',
  data: { from: 'idle', to: 'active', why: 'evil \u001b[2J\u001b]0;title\u0007' },
  prevHash: '',
  hash: '',
};

test('the person chooses the pager: ours, then that of all programs, then less', () => {
  expect([
    pagerOf({}),
    pagerOf({ PAGER: 'more' }),
    pagerOf({ PAGER: 'more', HOLDFAST_PAGER: 'bat -p' }),
    pagerOf({ PAGER: 'more', HOLDFAST_PAGER: '' }),
    pagerOf({ PAGER: 'cat' }),
    pagerOf({ TERM: 'dumb' }),
  ]).toEqual(['less -FRX', 'more', 'bat -p', null, null, null]);
});

test('a pager gets colours and no other command', () => {
  expect(forPager('\u001b[1;31mred\u001b[39m\n\ttab')).toBe('\u001b[1;31mred\u001b[39m\n\ttab');
  expect(forPager('\u001b[2J\u001b]0;t\u0007\u001b(0\r\b\u009b1m')).toBe(
    '\\e[2J\\e]0;t\\u{7}\\e(0\\u{d}\\u{8}\\u{9b}1m',
  );
});

describe('output on a terminal', () => {
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'holdfast-pager-'));
  });
  afterAll(() => rm(folder, { recursive: true }));

  /** Runs `session events` with a pager that is this line for a shell. */
  const events = async (line: string, ...more: string[]) => {
    const { home } = await startFakeSupervisor({
      'session/events': () => ({ events: [EVENT], lastSeq: 1 }),
    });
    const env = { PATH: process.env['PATH'] ?? '', HOLDFAST_PAGER: line };
    const openPager = (command: string) => spawnPager(command, env);
    return await runToEnd(['session', 'events', 'default', ...more], { home, terminal: 80, env, openPager });
  };

  test('goes through the pager, without what an agent wrote to move the cursor', async () => {
    const shown = join(folder, 'shown');
    const { code, stdout } = await events(`cat > '${shown}'`);
    expect([code, stdout]).toEqual([0, '']);
    const text = await readFile(shown, 'utf8');
    expect(text).toContain('session.status');
    expect(text).toContain('\\e[2J');
    expect(text).not.toContain('\u001b[2J');
    expect(text).not.toContain('\u0007');
  });

  test('is left early, and that is no failure', async () => {
    expect(await events('exit 0')).toMatchObject({ code: 0, stderr: '' });
  });

  test('is printed as ever where the pager cannot be started', async () => {
    for (const line of ['exec 2>&-; /nonexistent/pager -R', 'exec 2>&-; /dev/null']) {
      const { code, stdout } = await events(line);
      expect([code, stdout.split('session.status').length], line).toEqual([0, 2]);
    }
    // More than a pipe holds.
    const pages = Array.from({ length: 20 }, (_, at) => `${at}${'x'.repeat(100_000)}`);
    const printed: string[] = [];
    const pager = new Pager(
      (line) => spawnPager(line, {}),
      'exec 2>&-; /nonexistent/pager',
      (text) => {
        printed.push(text);
        return Promise.resolve();
      },
    );
    for (const page of pages) await pager.write(page);
    pager.note('said beside it');
    expect(await pager.end()).toEqual(['said beside it']);
    expect(printed).toEqual(pages);
  });

  test('does not go through it with --no-pager and --json, or without a terminal', async () => {
    const shown = join(folder, 'never');
    for (const option of ['--no-pager', '--json'])
      expect((await events(`cat > '${shown}'`, option)).stdout).toContain('session.status');
    const { home } = await startFakeSupervisor({
      'session/events': () => ({ events: [EVENT], lastSeq: 1 }),
    });
    const piped = await runToEnd(['session', 'events', 'default'], {
      home,
      openPager: () => {
        throw new Error('nobody asked for it');
      },
    });
    expect(piped.stdout).toContain('session.status');
    await expect(readFile(shown)).rejects.toThrow('ENOENT');
  });
});
