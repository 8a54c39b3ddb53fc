import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { TestHome } from '../../setup/test-home.ts';
import { shellProject, writeProject } from '../../setup/profiles.ts';
import { connectTo } from '../../setup/test-client.ts';
import { waitUntil } from '../../fixtures/sidecar/turns.ts';
import { openTerminal, AttachedTerminal } from './attached-terminal.ts';

const ListSchema = z.object({
  terminals: z.array(
    z.object({
      terminalId: z.string(),
      sessionId: z.string(),
      status: z.string(),
      exitCode: z.number().nullable(),
      why: z.string().nullable(),
    }),
  ),
});
const MoveSchema = z.object({ at: z.coerce.date(), data: z.object({ to: z.string() }) });
const StatusSchema = z.object({ session: z.object({ status: z.string() }) });

describe('terminals', () => {
  let home: TestHome;
  beforeAll(async () => {
    home = await TestHome.create();
    const more = 'persistence: persistent\nenv: { COLOUR: blue }\nidle: { pause: 1s, stop: 1h }\n';
    await home.runOk(['deploy', await writeProject(home.projects, shellProject('seat', more))]);
  });
  afterAll(async () => {
    await home.dispose();
  });

  const status = async (session: string): Promise<string> =>
    StatusSchema.parse(await home.runJson(['session', 'show', session])).session.status;
  const listed = async (id: string) =>
    ListSchema.parse(await home.runJson(['terminal', 'list'])).terminals.find(
      ({ terminalId }) => terminalId === id,
    );
  const session = async (name: string): Promise<string> => {
    await home.runOk(['session', 'create', 'seat', '--name', name]);
    return name;
  };

  test('client, supervisor and sidecar are killed one after another: program and scrollback survive, and nobody has to attach again', async () => {
    const { id, sessionId } = await openTerminal(home, await session('hard'));
    const first = new AttachedTerminal(home, id);
    first.type('x=kept; echo on""ce\r');
    await first.waitFor('once');
    await first.kill();

    const seat = new AttachedTerminal(home, id);
    await seat.waitFor('once');
    const keysArrive = (nth: number) =>
      waitUntil(
        'keys arrive again',
        async () => {
          seat.type(`echo ${String(nth)} $x\r`);
          return await seat.waitFor(`${String(nth)} kept`, 1000).then(
            () => true,
            () => false,
          );
        },
        30_000,
      );
    process.kill(await home.supervisorPid(), 'SIGKILL');
    await keysArrive(1);
    expect(await listed(id)).toMatchObject({ status: 'running' });

    await home.killContainer(sessionId, 'sidecar');
    await waitUntil(
      'a new sidecar',
      async () => (await home.containerId(sessionId, 'sidecar')) !== null,
      30_000,
    );
    await keysArrive(2);
    // Stopped on purpose: nobody starts it again, and the client waits.
    await home.runOk(['supervisor', 'stop']);
    expect(await home.runJson(['supervisor', 'status'])).toMatchObject({ running: false });
    await home.runOk(['profiles']);
    await keysArrive(3);
    expect(seat.output.match(/\ronce\r\n/g)).toHaveLength(1);
    await home.runOk(['terminal', 'close', id]);
    expect(await seat.exited).toBe(129);
  });

  // The others wait most of their time; each has a session of its own.
  test.concurrent(
    'a silent terminal without a client lets its session stop; an attached or busy terminal does not',
    async () => {
      const idle = 'persistence: persistent\nidle: { pause: 1s, stop: 6s }\n';
      await home.runOk(['deploy', await writeProject(home.projects, shellProject('quiet', idle))]);
      await home.runOk(['session', 'create', 'quiet', '--name', 'silent']);
      const { id, sessionId } = await openTerminal(home, 'silent');
      const history = home.spawn([
        'session',
        'events',
        'silent',
        '--follow',
        '--json',
        '--type',
        'session.status',
      ]);
      let told = '';
      history.stdout.setEncoding('utf8').on('data', (text: string) => (told += text));
      const moves = () =>
        told
          .split('\n')
          .slice(0, -1)
          .map((line) => MoveSchema.parse(JSON.parse(line)));
      const movedTo = (status: string) => moves().find(({ data }) => data.to === status);
      const seat = new AttachedTerminal(home, id, '--detach-keys', 'ctrl-],d');
      seat.type('x=kept; echo he""re\r');
      await seat.waitFor('here');
      await sleep(8000);
      expect(await status('silent')).toBe('active');
      // Left to itself, but at work for longer than it may be silent.
      seat.type('for n in $(seq 35); do sleep 0.2; echo ti""ck; done; date +%s%3N > last\r');
      await seat.waitFor('tick');
      seat.type('\x1dd');
      await seat.exited;
      await waitUntil('it is paused', () => movedTo('paused') !== undefined, 40_000);
      expect(told).toMatch(/silent for long/);
      const last = Number(readFileSync(join(home.path, 'workspaces', sessionId, 'last'), 'utf8'));
      // It was held until its silence was over, and idle for as long as that is allowed, a second.
      expect(Number(movedTo('idle')?.at) - last).toBeGreaterThan(5900);
      expect(Number(movedTo('paused')?.at) - last).toBeGreaterThan(6900);
      const again = new AttachedTerminal(home, id);
      again.type('echo still $x\r');
      await again.waitFor('still kept');
      expect(await status('silent')).toBe('active');
      await again.kill();
      await waitUntil('it is stopped', () => movedTo('resumable') !== undefined, 40_000);
      history.kill();
      const late = await home.run(['terminal', 'attach', id]);
      expect(late.stderr).toMatch(/^error not_found: /m);
    },
    120_000,
  );

  test.concurrent('a shell has /workspace, the environment of turns and an exit code', async () => {
    const { id } = await openTerminal(home, await session('keys'));
    const seat = new AttachedTerminal(home, id);
    await seat.waitFor('$ ');
    seat.type('pwd; echo $COLOUR $HOLDFAST_SESSION_NAME; touch a-file; stty size\r');
    await seat.waitFor(/\r\/workspace\r\nblue keys\r\n24 80/);
    expect(await home.runOk(['workspace', 'ls', 'keys'])).toContain('a-file');
    seat.type('exit 9\r');
    expect(await seat.exited).toBe(9);
    expect(await listed(id)).toMatchObject({ status: 'ended', exitCode: 9, why: null });
    // Its end can be looked at again.
    const again = new AttachedTerminal(home, id);
    expect(await again.exited).toBe(9);
    expect(again.output).toContain('blue keys');
  });

  test.concurrent(
    'an open terminal keeps its session active past the idle time, refuses a stop without --force, and leaves the session idle',
    async () => {
      const name = await session('live');
      const { id } = await openTerminal(home, name);
      await sleep(2500);
      expect(await status(name)).toBe('active');
      const refused = await home.run(['session', 'stop', name]);
      expect(refused.code).toBe(1);
      expect(refused.stderr).toMatch(/^error conflict: .*1 terminal still running/m);
      const reset = await home.run(['session', 'resume', name, '--from', 'clean']);
      expect(reset.stderr).toMatch(/^error conflict: .*1 terminal still running/m);
      await home.runOk(['terminal', 'close', id]);
      expect(['idle', 'paused']).toContain(await status(name));

      const other = await openTerminal(home, name);
      const seat = new AttachedTerminal(home, other.id);
      await seat.waitFor('$ ');
      await home.runOk(['session', 'stop', name, '--force']);
      expect(await seat.exited).not.toBe(0);
      expect(seat.stderr).toMatch(
        /The terminal was ended: its session was stopped|^error (sandbox_lost|not_found)/m,
      );
      expect(await listed(other.id)).toBeUndefined();
      expect(await status(name)).toBe('resumable');
      const late = await home.run(['terminal', 'attach', other.id]);
      expect(late.stderr).toMatch(/^error not_found: .*(has ended|There is no terminal)/m);
    },
  );

  test.concurrent('a paused terminal keeps typed input; attaching resumes the session', async () => {
    const name = await session('pause');
    const { id } = await openTerminal(home, name);
    const seat = new AttachedTerminal(home, id, '--detach-keys', 'ctrl-],d');
    await seat.waitFor('$ ');
    await home.runOk(['session', 'pause', name]);
    seat.type('echo wo""ken\r');
    await sleep(500);
    expect(seat.output).not.toContain('woken');
    expect(await status(name)).toBe('paused');
    const other = new AttachedTerminal(home, id);
    await seat.waitFor('woken');
    await other.waitFor('woken');
    expect(await status(name)).toBe('active');
    seat.type('\x1dd');
    expect(await seat.exited).toBe(0);
    await home.runOk(['terminal', 'close', id]);
    await other.exited;
  });

  test.concurrent(
    'the agent’s container is killed: the terminal ends and says why, and the next one gets a new sandbox',
    async () => {
      const name = await session('killed');
      const { id, sessionId } = await openTerminal(home, name);
      const seat = new AttachedTerminal(home, id);
      await seat.waitFor('$ ');
      await home.killContainer(sessionId, 'agent');
      expect(await seat.exited).toBe(1);
      expect(seat.stderr).toMatch(/^error (sandbox_lost|not_found): /m);
      await waitUntil('the end is on record', async () => (await listed(id))?.status !== 'running');
      const next = await openTerminal(home, name);
      const again = new AttachedTerminal(home, next.id);
      await again.waitFor('$ ');
      await home.runOk(['terminal', 'close', next.id]);
      await again.exited;
    },
  );

  test.concurrent(
    'two requests with one opId open one terminal, and a paused terminal can be resized',
    async () => {
      const name = await session('once');
      const { peer, close } = await connectTo(home.path);
      try {
        const open = () =>
          peer.call('terminal/open', { session: name, columns: 80, rows: 24, opId: 'open-it-once' });
        const [first, second] = await Promise.all([open(), open()]);
        const { terminalId: id, sessionId } = first.terminal;
        expect(second.terminal.terminalId).toBe(id);
        expect((await open()).terminal).toMatchObject({ terminalId: id, status: 'running' });
        const mine = await peer.call('terminal/list', { session: name });
        expect(mine.terminals).toHaveLength(1);

        const seat = new AttachedTerminal(home, id);
        await seat.waitFor('$ ');
        await peer.call('session/pause', { session: name });
        for (const columns of [111, 99])
          await peer.call('terminal/resize', { terminal: id, columns, rows: 37 });
        expect(await status(name)).toBe('paused');
        await peer.call('terminal/attach', { terminal: id });
        // Told a moment after it has been woken.
        seat.type('until test "$(stty size)" = "37 99"; do sleep 0.1; done; echo la""st\r');
        await seat.waitFor('last');

        await peer.call('terminal/close', { terminal: id });
        await seat.exited;
        expect((await open()).terminal).toMatchObject({ terminalId: id, status: 'ended' });
        await peer.call('terminal/close', { terminal: id });
        await expect(open()).rejects.toMatchObject({ code: 'not_found' });
        await waitUntil('nothing is live', async () => (await status(name)) !== 'active');
        expect(sessionId).toMatch(/^ses-/);
      } finally {
        close();
      }
    },
  );

  test.concurrent('an open terminal refuses a restore; --cancel ends the terminal and says why', async () => {
    const name = await session('restored');
    const { id } = await openTerminal(home, name);
    const seat = new AttachedTerminal(home, id);
    await seat.waitFor('$ ');
    seat.type('echo first > kept; echo ma""de\r');
    await seat.waitFor('made');
    const snapshot = /snp-[a-z2-7]+/.exec(await home.runOk(['snapshot', 'create', name]))?.[0] ?? '';
    seat.type('echo second > kept; echo ma""de\r');
    await seat.waitFor('made');
    const refused = await home.run(['snapshot', 'restore', name, snapshot]);
    expect(refused.stderr).toMatch(/^error conflict: .*1 terminal still running/m);
    await home.runOk(['snapshot', 'restore', name, snapshot, '--cancel']);
    // Its shell got a HUP.
    expect(await seat.exited).toBe(129);
    expect(seat.stderr).toContain(
      'The terminal was ended: the workspace of its session was restored from a snapshot',
    );
    expect(await home.runOk(['workspace', 'cat', name, 'kept'])).toBe('first\n');
  });

  test.concurrent('runs a given program, and refuses too many terminals', async () => {
    const name = await session('many');
    const { id, sessionId } = await openTerminal(
      home,
      name,
      '--cwd',
      '/tmp',
      '--env',
      'A=b c',
      '--',
      'sh',
      '-c',
      'pwd; echo "$A"; exit 2',
    );
    const seat = new AttachedTerminal(home, id);
    expect(await seat.exited).toBe(2);
    expect(seat.output).toBe('/tmp\r\nb c\r\n');
    const { peer, close } = await connectTo(home.path);
    const asleep = { session: name, command: ['sleep', '600'], columns: 80, rows: 24 };
    await Promise.all(Array.from({ length: 16 }, () => peer.call('terminal/open', asleep))).finally(close);
    const refused = await home.run(['terminal', 'open', name, '--detach']);
    expect(refused.stderr).toMatch(/^error overloaded: .*16 are open/m);
    await home.runOk(['session', 'delete', name, '--force']);
    expect(
      ListSchema.parse(await home.runJson(['terminal', 'list'])).terminals.filter(
        ({ status: one, sessionId: of }) => one === 'running' && of === sessionId,
      ),
    ).toEqual([]);
  });
});
