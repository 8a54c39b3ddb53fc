import { describe, expect, test } from 'vitest';
import { cli } from './driver.ts';
import { session } from './fake-supervisor.ts';
import { serve } from './served.ts';

describe('for people', () => {
  test('an empty list says what to do next', async () => {
    const { home } = await serve({
      'session/list': () => ({ sessions: [], nextCursor: null }),
      'profile/list': () => ({ profiles: [] }),
    });
    const list = await cli(['session', 'list'], { home });
    expect(list.stdout).toBe('There are no sessions yet.\n');
    expect(list.stderr).toContain('holdfast run PROFILE');
    expect((await cli(['session', 'list', '--pinned'], { home })).stdout).toBe('No session is like that.\n');
    expect((await cli(['profiles'], { home })).stderr).toContain('holdfast deploy DIR');
  });

  test('the filters of session list reach the supervisor', async () => {
    const { home, asked } = await serve({ 'session/list': () => ({ sessions: [], nextCursor: null }) });
    const filters = [
      '--status',
      'idle',
      '--search',
      'x',
      '--pinned',
      '--archived',
      '--tag',
      't',
      '--limit',
      '5',
    ];
    await cli(['session', 'list', ...filters, '--cursor', 'c'], { home });
    expect(asked[0]?.params).toEqual({
      status: 'idle',
      search: 'x',
      pinned: true,
      archived: true,
      tag: 't',
      limit: 5,
      cursor: 'c',
    });
  });

  test('session update turns its flags into one change', async () => {
    const { home, asked } = await serve({ 'session/update': () => ({ session: session() }) });
    const flags = ['--name', 'b', '--unpin', '--star', '--tag', 'x', '--tag', 'y', '--model', ''];
    await cli(['session', 'update', 'a', ...flags], { home });
    expect(asked[0]?.params).toEqual({
      session: 'a',
      name: 'b',
      pinned: false,
      starred: true,
      tags: ['x', 'y'],
      model: null,
    });
  });

  test('a table is cut to the terminal, and whole in a pipe', async () => {
    const about = 'a question that goes on and on and does not fit into eighty columns at all';
    const { home } = await serve({
      'session/list': () => ({ sessions: [session({ about, name: 'x'.repeat(60) })], nextCursor: null }),
    });
    const narrow = await cli(['session', 'list'], { home, terminal: 100, env: { NO_COLOR: '1' } });
    for (const line of narrow.stdout.split('\n')) expect(line.length).toBeLessThanOrEqual(100);
    expect((await cli(['session', 'list'], { home })).stdout).toContain(about);
  });

  test('doctor ends with 1 when there is a problem', async () => {
    const { home } = await serve({
      'supervisor/doctor': () => ({
        checks: [{ name: 'engine', status: 'problem', found: 'nobody answers', next: 'start it' }],
      }),
    });
    const { code, stdout } = await cli(['doctor'], { home });
    expect(code).toBe(1);
    expect(stdout).toContain('→ start it');
  });
});
