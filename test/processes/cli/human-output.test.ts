import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { CliRun, runToEnd } from '../../fixtures/cli/cli-run.ts';
import { profile, session } from '../../fixtures/cli/fake-supervisor.ts';
import { startFakeSupervisor } from '../../fixtures/cli/start-fake-supervisor.ts';

const EXAMPLE = join(import.meta.dirname, '../../../examples/counter');

describe('for people', () => {
  test('an empty list suggests the next command', async () => {
    const { home } = await startFakeSupervisor({
      'session/list': () => ({ sessions: [], nextCursor: null }),
      'profile/list': () => ({ profiles: [] }),
    });
    const list = await runToEnd(['session', 'list'], { home });
    expect(list.stdout).toBe('There are no sessions yet.\n');
    expect(list.stderr).toContain('holdfast run PROFILE');
    expect((await runToEnd(['session', 'list', '--pinned'], { home })).stdout).toBe('No sessions match.\n');
    expect((await runToEnd(['profiles'], { home })).stderr).toContain('holdfast deploy DIR');
  });

  test('archived sessions are hidden unless the user searches or asks for them', async () => {
    const { home, requests } = await startFakeSupervisor({
      'session/list': () => ({ sessions: [], nextCursor: null }),
    });
    for (const options of [['--pinned'], ['--archived'], ['--search', 'x']])
      await runToEnd(['session', 'list', ...options], { home });
    expect(requests.map(({ params }) => params)).toEqual([
      { archived: false, pinned: true },
      { archived: true },
      { search: 'x' },
    ]);
  });

  test('if all sessions are archived, the list says so', async () => {
    const { home } = await startFakeSupervisor({
      'session/list': ({ archived }) => ({
        sessions: archived === true ? [session({ archived: true })] : [],
        nextCursor: null,
      }),
    });
    const run = await runToEnd(['session', 'list'], { home });
    expect(run.stdout).toBe('All sessions are archived.\n');
    expect(run.stderr).toContain('holdfast session list --archived');
  });

  test('a chosen model is stored, and the output says for which agents', async () => {
    const { home } = await startFakeSupervisor({
      'session/update': () => ({ session: session({ model: 'm-1' }) }),
    });
    const run = await runToEnd(['session', 'update', 'default', '--model', 'm-1'], { home });
    expect(run.stdout).toMatch(/Model +m-1 \(for agents that let it be chosen\)/);
    const json = await runToEnd(['session', 'update', 'default', '--model', 'm-1', '--json'], { home });
    expect(JSON.parse(json.stdout)).toMatchObject({ session: { model: 'm-1' } });
    const help = await runToEnd(['session', 'update', '--help'], { home });
    expect(help.stdout.replace(/\s+/g, ' ')).toContain('if the agent supports it');
  });

  test('deploy prints warnings on standard error, also with --json', async () => {
    const warnings = ['the egress rule *.co is too broad: it is'];
    const biggest = [
      { path: 'out', files: 2, bytes: 1950 },
      { path: 'a.log', files: 1, bytes: 50 },
    ];
    const ignored = { files: 3, bytes: 2000, complete: false, largest: biggest };
    const seed = { files: 7, bytes: 200_000_000 };
    const { home } = await startFakeSupervisor({
      'profile/deploy/begin': () => ({
        upload: null,
        history: false,
        result: { profile: profile(), replaced: false, unchanged: false, warnings, ignored, seed },
      }),
    });
    const run = await runToEnd(['deploy', EXAMPLE], { home });
    expect(run.stderr).toContain(
      'Ignored by .gitignore and .holdfastignore: at least 3 files, 2.0 KiB; the largest: out (2 files, 1.9 KiB), a.log (50 B)\n',
    );
    expect(run.stderr).toContain('warning: every new workspace starts with 191 MiB (7 files). List what');
    expect(run.stderr).toContain('warning: the egress rule *.co is too broad: it is\n');
    expect(JSON.parse((await runToEnd(['deploy', EXAMPLE, '--json'], { home })).stdout)).toMatchObject({
      warnings,
    });
  });

  test('deploy asks before secrets for all profiles go to hosts of the project, and sends nothing without a yes', async () => {
    const destinations = [
      { secret: 'KEY', host: 'collect.example\u001b[2J', by: 'sessions' as const },
      { secret: 'TOKEN', host: 'collect.example', by: 'setup' as const },
    ];
    const committed: unknown[] = [];
    const nothing = { files: 0, bytes: 0, complete: true, largest: [] };
    const { home, requests } = await startFakeSupervisor({
      'profile/deploy/begin': () => ({ upload: 'u', history: false, result: null, destinations }),
      'profile/deploy/append': () => ({}),
      'profile/deploy/abort': () => ({}),
      'profile/deploy/commit': (params) => {
        committed.push(params.destinations);
        const how = { replaced: false, unchanged: false, warnings: [], ignored: nothing, seed: null };
        return { profile: profile(), ...how };
      },
    });
    const sent = () => requests.filter(({ method }) => method === 'profile/deploy/append').length;
    const unasked = await runToEnd(['deploy', EXAMPLE], { home });
    expect(unasked.code).toBe(1);
    expect(unasked.stderr).toContain('confirmation_required: Nothing was deployed');
    expect(unasked.stderr).toContain('the setup has TOKEN and may reach collect.example');
    expect(unasked.stderr).not.toContain('\u001b[2J');
    const answered = async (answer: string) => {
      const run = new CliRun(['deploy', EXAMPLE], { home, terminal: 80 });
      await run.waitForText('Deploy it? [y/N]');
      run.stdin.write(answer);
      return await run.result;
    };
    expect((await answered('n\r')).stderr).toContain('Nothing was deployed');
    expect(sent()).toBe(0);
    expect(await answered('y\r')).toMatchObject({ code: 0 });
    expect((await runToEnd(['deploy', EXAMPLE, '--yes'], { home })).code).toBe(0);
    expect(committed).toEqual([destinations, destinations]);
  });

  test('policy allow warns of a rule that is too broad', async () => {
    const policy = { sessionId: 'ses-aaaaaaaaaaaaaaaa', profile: 'p', rules: [], open: true };
    const { home } = await startFakeSupervisor({
      'policy/allow': () => ({ policy }),
      'policy/deny': () => ({ policy }),
    });
    expect((await runToEnd(['policy', 'allow', 'default', '*.co'], { home })).stderr).toContain(
      'warning: the rule *.co',
    );
    expect((await runToEnd(['policy', 'deny', 'default', '*.co'], { home })).stderr).not.toContain('warning');
  });

  test('policy show says what a rule carries, and warns of hosts behind shared front ends', async () => {
    const rule = {
      effect: 'allow',
      from: 'file',
      quiet: false,
      tcp: false,
      ech: false,
      addedAt: null,
    } as const;
    const rules = [
      { ...rule, host: 'd1.cloudfront.net' },
      { ...rule, host: 'd2.cloudfront.net', effect: 'deny' as const },
      { ...rule, host: 'db.example.com:5432', tcp: true },
      { ...rule, host: 'api.example.com', ech: true },
    ];
    const policy = { sessionId: 'ses-aaaaaaaaaaaaaaaa', profile: 'p', rules, open: true };
    const { home } = await startFakeSupervisor({ 'policy/show': () => ({ policy }) });
    const { stdout, stderr } = await runToEnd(['policy', 'show', 'default'], { home });
    expect(stdout).toMatch(/db\.example\.com:5432 +allow, any protocol/);
    expect(stdout).toMatch(/api\.example\.com +allow, with ECH/);
    expect(stderr.match(/warning: .*/g)).toEqual([
      expect.stringContaining('the rule d1.cloudfront.net may reach more'),
    ]);
  });

  test.each(['/', '/etc/passwd', '/work'])('%s is reported as outside the workspace', async (path) => {
    const { home, requests } = await startFakeSupervisor({});
    const run = await runToEnd(['workspace', 'ls', 'default', path], { home });
    expect(run).toMatchObject({ code: 1, stdout: '' });
    expect(run.stderr).toMatch(/^error file_not_found: ".*" is not in the workspace; .*\/workspace/);
    expect(requests).toEqual([]);
  });

  test('the filters of session list reach the supervisor', async () => {
    const { home, requests } = await startFakeSupervisor({
      'session/list': () => ({ sessions: [], nextCursor: null }),
    });
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
    await runToEnd(['session', 'list', ...filters, '--cursor', 'c'], { home });
    expect(requests[0]?.params).toEqual({
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
    const { home, requests } = await startFakeSupervisor({
      'session/update': () => ({ session: session() }),
    });
    const flags = ['--name', 'b', '--unpin', '--star', '--tag', 'x', '--tag', 'y', '--model', ''];
    await runToEnd(['session', 'update', 'a', ...flags], { home });
    expect(requests[0]?.params).toEqual({
      session: 'a',
      name: 'b',
      pinned: false,
      starred: true,
      tags: ['x', 'y'],
      model: null,
    });
  });

  test('session settings and set show what an agent offers, without what would act on a terminal', async () => {
    const values = [
      { value: 'ask', name: 'Ask' },
      { value: 'plan', name: 'Plan' },
    ];
    const mode = {
      id: 'mode',
      name: 'Mode\u001b[31m',
      category: 'mode',
      value: 'ask\u001b[31m',
      chosen: null,
      values,
    };
    const setting = { ...mode, value: 'ask', chosen: 'plan' };
    const { home, requests } = await startFakeSupervisor({
      'agent/settings': () => ({ known: true, settings: [mode] }),
      'agent/set': () => ({ setting }),
    });
    const { stdout } = await runToEnd(['session', 'settings', 'a'], { home });
    expect(stdout).toMatch(/^SETTING +VALUE +VALUES\nmode +ask\S* +ask, plan\n$/);
    expect(stdout).not.toContain('\u001b');
    const set = ['session', 'set', 'a', 'mode', 'plan'];
    expect((await runToEnd(set, { home })).stdout).toBe('mode: plan, as soon as the agent can take it\n');
    expect(requests.at(-1)?.params).toEqual({ session: 'a', option: 'mode', value: 'plan' });
    expect(JSON.parse((await runToEnd([...set, '--json'], { home })).stdout)).toEqual({ setting });
  });

  test('a table is cut to the terminal, and whole in a pipe', async () => {
    const about = 'a question that goes on and on and does not fit into eighty columns at all';
    const { home } = await startFakeSupervisor({
      'session/list': () => ({ sessions: [session({ about, name: 'x'.repeat(60) })], nextCursor: null }),
    });
    const narrow = await runToEnd(['session', 'list'], { home, terminal: 100, env: { NO_COLOR: '1' } });
    for (const line of narrow.stdout.split('\n')) expect(line.length).toBeLessThanOrEqual(100);
    expect((await runToEnd(['session', 'list'], { home })).stdout).toContain(about);
  });

  test('doctor ends with 1 when there is a problem', async () => {
    const { home } = await startFakeSupervisor({
      'supervisor/doctor': () => ({
        checks: [{ name: 'engine', status: 'problem', found: 'nobody answers', next: 'start it' }],
      }),
    });
    const { code, stdout } = await runToEnd(['doctor'], { home });
    expect(code).toBe(1);
    expect(stdout).toContain('→ start it');
  });
});
