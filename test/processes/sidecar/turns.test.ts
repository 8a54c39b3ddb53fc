import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { mkdir, open, rename, rm, symlink, truncate, writeFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { SIDECAR_PROTOCOL } from '../../../sidecar/wire.ts';
import { BUSYBOX, HostSandbox } from './host-sandbox.ts';
import { followTurn, turnLaunch, randomId, runTurn, waitUntil } from '../../fixtures/sidecar/turns.ts';

/** Ids of living processes whose environment carries `mark`. */
function alive(mark: string): number[] {
  return readdirSync('/proc')
    .filter((name) => /^[0-9]+$/.test(name))
    .filter((pid) => {
      try {
        return readFileSync(`/proc/${pid}/environ`).includes(mark);
      } catch {
        return false; // gone meanwhile
      }
    })
    .map(Number);
}

describe.skipIf(BUSYBOX === null)(
  'command turns (needs a busybox, or Docker with the image of the sidecar)',
  { timeout: 60_000 },
  () => {
    let pair: HostSandbox;
    beforeEach(async () => {
      pair = await HostSandbox.start();
    });
    afterEach(async () => {
      await pair.dispose();
    });

    test('a program gets its input, arguments, environment and folder, and its output and exit code come back', async () => {
      const input = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));
      const echoed = await runTurn(pair.client, { argv: ['cat'] }, input);
      expect(echoed.stdout).toEqual(input);
      expect(echoed.progress).toMatchObject({ state: 'ended', exitCode: 0, worker: null, workerDied: false });

      const script =
        'printf "%s|" "$ODD" "$PWD" "$HOLDFAST_SESSION" "$@"; echo "turn $HOLDFAST_TURN" >&2; exit 9';
      const launch = turnLaunch({
        argv: ['sh', '-c', script, 'sh', '', 'a\nb', "it's"],
        env: { ODD: 'x\n"y' },
      });
      await pair.client.launchTurn(launch, Buffer.alloc(0));
      const told = await followTurn(pair.client, launch.turnId);
      expect(told.stdout.toString()).toBe(
        ['x\n"y', pair.path('workspace'), pair.agentSession, '', 'a\nb', "it's", ''].join('|'),
      );
      expect(told.stderr.toString()).toBe(`turn ${launch.turnId}\n`);
      expect(told.progress.exitCode).toBe(9);
    });

    test('an argument may be as long as the kernel lets it', async () => {
      const long = 'x'.repeat(128 * 1024 - 1);
      const { stdout } = await runTurn(pair.client, { argv: ['printf', '%s', long] });
      expect(stdout.toString()).toBe(long);
    });

    test('what cannot be run says so and has the code that shells use', async () => {
      await writeFile(pair.path('workspace/plain'), 'text');
      const missing = await runTurn(pair.client, { argv: ['no-such-program', 'x'] });
      expect([missing.progress.exitCode, missing.stderr.toString()]).toEqual([
        127,
        'holdfast: no-such-program: not found\n',
      ]);
      const denied = await runTurn(pair.client, { argv: ['./plain'] });
      expect([denied.progress.exitCode, denied.stderr.toString()]).toEqual([
        126,
        'holdfast: ./plain: not executable\n',
      ]);
      const folder = await runTurn(pair.client, { argv: ['./'] });
      expect(folder.progress.exitCode).toBe(126);
      // Not busybox's own applet of that name, which is not in this PATH.
      const hidden = await runTurn(pair.client, { argv: ['ls'], env: { PATH: '/nonexistent' } });
      expect(hidden.progress.exitCode).toBe(127);
    });

    test('a turn ended by a signal has 128 and its number', async () => {
      const { progress } = await runTurn(pair.client, { argv: ['sh', '-c', 'kill -SEGV $$'] });
      expect(progress.exitCode).toBe(139);
    });

    test('asking twice for one turn starts it once', async () => {
      const launch = turnLaunch({ argv: ['sh', '-c', 'echo once >> ran; sleep 0.3'] });
      await Promise.all([1, 2, 3].map(() => pair.client.launchTurn(launch, Buffer.alloc(0))));
      await writeFile(pair.path('run/requests'), `start ${launch.turnId}\n`.repeat(5));
      await followTurn(pair.client, launch.turnId);
      await pair.client.launchTurn(launch, Buffer.alloc(0));
      await runTurn(pair.client, { argv: ['true'] });
      expect(readFileSync(pair.path('workspace/ran'), 'utf8')).toBe('once\n');
    });

    test('lines that are no requests stop nothing', async () => {
      const garbage = [
        '',
        ' ',
        'start',
        'start ../../etc',
        'start turn-; reboot',
        'kill',
        'kill turn-a',
        'kill turn-aaaaaaaaaaaaaaaa -1',
      ];
      garbage.push(
        'worker',
        'worker start',
        'worker start w-$(id) turn-x',
        'check',
        'execkill exec-a KILL',
        '$(touch pwned)',
        'x'.repeat(70_000),
      );
      await writeFile(
        pair.path('run/requests'),
        Buffer.concat([Buffer.from([0, 255, 10]), Buffer.from(`${garbage.join('\n')}\n`)]),
      );
      const { stdout } = await runTurn(pair.client, { argv: ['echo', 'still here'] });
      expect(stdout.toString()).toBe('still here\n');
      expect(existsSync(pair.path('pwned'))).toBe(false);
    });

    test('output comes while the turn runs, in steps and not line by line', async () => {
      const launch = turnLaunch({ argv: ['sh', '-c', 'while :; do echo line; sleep 0.001; done'] });
      await pair.client.launchTurn(launch, Buffer.alloc(0));
      let seen = 0;
      let answers = 0;
      const began = performance.now();
      while (performance.now() - began < 1000 || answers <= 5) {
        const progress = await pair.client.turnProgress({
          turnId: launch.turnId,
          stdout: seen,
          stderr: 0,
          waitMs: 2000,
        });
        expect(progress.stdout).toBeGreaterThan(seen);
        seen = progress.stdout;
        answers += 1;
      }
      expect(answers).toBeLessThanOrEqual(2 + (performance.now() - began) / 10);
      await pair.client.killTurn(launch.turnId, 0);
      expect((await followTurn(pair.client, launch.turnId)).progress.exitCode).toBe(137);
    });

    test('killing reaches what left the process group, and what ignores TERM', async () => {
      const script = `trap '' TERM; setsid sh -c 'trap "" TERM; sleep 1000 & sleep 1000' & setsid sleep 1000 & echo up; sleep 1000; sleep 1000`;
      const launch = turnLaunch({ argv: ['sh', '-c', script] });
      await pair.client.launchTurn(launch, Buffer.alloc(0));
      await pair.client.turnProgress({ turnId: launch.turnId, stdout: 0, stderr: 0, waitMs: 5000 });
      const mark = `HOLDFAST_TURN=${launch.turnId}`;
      await waitUntil('all of it runs', () => alive(mark).length >= 5);
      await pair.client.killTurn(launch.turnId, 100);
      await waitUntil('nothing of it is left', () => alive(mark).length === 0);
      expect((await followTurn(pair.client, launch.turnId)).progress).toMatchObject({
        state: 'ended',
        exitCode: 137,
      });
    });

    test('a turn that heeds TERM ends in its own way before the grace is over', async () => {
      const launch = turnLaunch({
        argv: ['sh', '-c', 'trap "echo bye; exit 5" TERM; echo up; while :; do sleep 0.05; done'],
      });
      await pair.client.launchTurn(launch, Buffer.alloc(0));
      await pair.client.turnProgress({ turnId: launch.turnId, stdout: 0, stderr: 0, waitMs: 5000 });
      const began = performance.now();
      await pair.client.killTurn(launch.turnId, 20_000);
      const ended = await followTurn(pair.client, launch.turnId);
      expect(ended.progress.exitCode).toBe(5);
      expect(ended.stdout.toString()).toBe('up\nbye\n');
      expect(performance.now() - began).toBeLessThan(5000);
    });

    test('an exec is killed by its mark', async () => {
      const exec = randomId('exec');
      const launch = turnLaunch({ argv: ['sh', '-c', `HOLDFAST_EXEC=${exec} setsid sleep 1000 & wait`] });
      await pair.client.launchTurn(launch, Buffer.alloc(0));
      await waitUntil('it runs', () => alive(`HOLDFAST_EXEC=${exec}`).length > 0);
      await pair.client.killExec(exec, 'SIGKILL');
      await waitUntil('it is gone', () => alive(`HOLDFAST_EXEC=${exec}`).length === 0);
      expect((await followTurn(pair.client, launch.turnId)).progress.exitCode).toBe(0);
      await expect(pair.client.killExec('exec-x', 'KILL')).rejects.toMatchObject({ code: 'invalid_params' });
      await expect(pair.client.killExec(exec, 'KILL; reboot')).rejects.toMatchObject({
        code: 'invalid_params',
      });
    });

    test('/tmp is emptied before a turn that asks for it, whatever is in it', async () => {
      await mkdir(pair.path('tmp/.hidden/deep'), { recursive: true });
      await writeFile(pair.path('tmp/.hidden/deep/file'), '');
      await writeFile(pair.path('tmp/file'), '');
      await symlink(pair.path('workspace'), pair.path('tmp/link'));
      await writeFile(pair.path('workspace/kept'), '');
      await runTurn(pair.client, { argv: ['true'] });
      expect(readdirSync(pair.path('tmp')).length).toBe(3);
      await runTurn(pair.client, { argv: ['true'], freshTmp: true });
      expect(readdirSync(pair.path('tmp'))).toEqual([]);
      expect(readdirSync(pair.path('workspace'))).toEqual(['kept']);
    });

    test('kill -9 of the sidecar loses nothing of a running turn', async () => {
      const launch = turnLaunch({
        argv: ['sh', '-c', 'for i in 1 2 3 4 5 6; do echo line $i; sleep 0.1; done; exit 3'],
      });
      await pair.client.launchTurn(launch, Buffer.from('x'));
      const { stdout } = await pair.client.turnProgress({
        turnId: launch.turnId,
        stdout: 0,
        stderr: 0,
        waitMs: 5000,
      });
      expect(stdout).toBeGreaterThan(0);
      await pair.replaceSidecar();
      const ended = await followTurn(pair.client, launch.turnId);
      expect(ended.stdout.toString()).toBe([1, 2, 3, 4, 5, 6].map((n) => `line ${String(n)}\n`).join(''));
      expect(ended.progress.exitCode).toBe(3);
      expect(await pair.client.listTurns()).toEqual([launch.turnId]);
      await pair.client.forgetTurn(launch.turnId);
      expect(await pair.client.listTurns()).toEqual([]);
    });

    test('a turn whose keeper was killed ends all the same', async () => {
      const launch = turnLaunch({ argv: ['sh', '-c', 'kill -9 $PPID; sleep 0.2'] });
      await pair.client.launchTurn(launch, Buffer.alloc(0));
      expect((await followTurn(pair.client, launch.turnId)).progress).toMatchObject({
        state: 'ended',
        exitCode: null,
      });
    });

    test('a FIFO that the agent replaced is found again', async () => {
      await runTurn(pair.client, {
        argv: ['sh', '-c', 'rm "$HOLDFAST_RUN/requests"; echo no > "$HOLDFAST_RUN/requests"'],
      });
      const { stdout } = await runTurn(pair.client, { argv: ['echo', 'again'] });
      expect(stdout.toString()).toBe('again\n');
    });

    test('streams that the agent replaced by links, FIFOs, folders or holes harm nobody else', async () => {
      const hostile = async (
        name: string,
        spoil: (path: string) => Promise<unknown>,
        restart: boolean,
      ): Promise<string> => {
        const launch = turnLaunch({ argv: ['sh', '-c', 'echo start; cat; sleep 0.2'] });
        await pair.client.launchTurn(launch, Buffer.from('input'));
        await waitUntil('it writes', () => readFileSync(pair.turn(launch.turnId, 'stdout')).length > 0);
        await rm(pair.turn(launch.turnId, name), { force: true });
        await spoil(pair.turn(launch.turnId, name));
        if (restart) await pair.replaceSidecar();
        const ended = await followTurn(pair.client, launch.turnId, 5000);
        await pair.client.forgetTurn(launch.turnId);
        return ended.stdout.toString();
      };
      const secret = pair.path('control/secret');
      await writeFile(secret, 'of the sidecar');
      const spoils: [string, (path: string) => Promise<unknown>][] = [
        ['a link', (path) => symlink(secret, path)],
        ['a FIFO', async (path) => execFileSync('mkfifo', [path])],
        ['a folder', (path) => mkdir(path)],
      ];
      for (const [what, spoil] of spoils) {
        expect(await hostile('stdout', spoil, false), what).toBe('startinput'.replace('start', 'start\n'));
        expect(await hostile('stdout', spoil, true), what).toBe('');
        expect(await hostile('stderr', spoil, true), what).toBe('start\ninput');
        expect(await hostile('started', spoil, true), what).toBe('start\ninput');
        expect(await hostile('worker', spoil, true), what).toBe('start\ninput');
        expect(await hostile('exit', spoil, true), what).toBe('start\ninput');
      }
      // What was forgotten is removed in the background.
      await waitUntil('nothing is left', () => readdirSync(pair.path('run/turns')).length === 0);

      const launch = turnLaunch({ argv: ['sleep', '0.2'] });
      await pair.client.launchTurn(launch, Buffer.alloc(0));
      await truncate(pair.turn(launch.turnId, 'stdout'), 2 ** 42);
      const progress = await pair.client.turnProgress({
        turnId: launch.turnId,
        stdout: 0,
        stderr: 0,
        waitMs: 1000,
      });
      expect(progress.stdout).toBe(2 ** 42);
      const bytes = await pair.client.readTurn({
        turnId: launch.turnId,
        stream: 'stdout',
        offset: 2 ** 41,
        limit: 2 ** 30,
      });
      expect(bytes.length).toBe(2 ** 20);
    });

    test('a turn directory that the agent took away ends the turn, and a link in its place leads nowhere', async () => {
      for (const target of [null, '/proc/self', '/etc'] as const) {
        const launch = turnLaunch({ argv: ['sleep', '1000'] });
        await pair.client.launchTurn(launch, Buffer.alloc(0));
        const mark = `HOLDFAST_TURN=${launch.turnId}`;
        await waitUntil(
          'it runs',
          () => alive(mark).length > 0 && existsSync(pair.turn(launch.turnId, 'pid')),
        );
        await rename(pair.turn(launch.turnId), pair.path('run/turns/elsewhere'));
        if (target !== null) await symlink(target, pair.path('run/turns', launch.turnId));
        expect((await followTurn(pair.client, launch.turnId, 5000)).progress.state).toBe('absent');
        await pair.replaceSidecar();
        expect((await followTurn(pair.client, launch.turnId, 5000)).progress.state).toBe('absent');
        await expect(
          pair.client.readTurn({ turnId: launch.turnId, stream: 'stdout', offset: 0, limit: 10 }),
        ).rejects.toMatchObject({ code: 'not_found' });
        await pair.client.killTurn(launch.turnId, 0);
        await waitUntil('it is gone', () => alive(mark).length === 0);
        await rm(pair.path('run/turns/elsewhere'), { recursive: true });
        await rm(pair.path('run/turns', launch.turnId), { force: true });
      }
    });

    test('folders of the run directory that were replaced are created again', async () => {
      await pair.replaceSidecar(async () => {
        await rm(pair.path('run/turns'), { recursive: true });
        await rm(pair.path('run/worker'), { recursive: true });
        await symlink('/etc', pair.path('run/turns'));
        execFileSync('mkfifo', [pair.path('run/worker')]);
      });
      const { stdout } = await runTurn(pair.client, { argv: ['echo', 'fine'] });
      expect(stdout.toString()).toBe('fine\n');
      expect(existsSync('/etc/launch')).toBe(false);
    });

    test('a turn that was never picked up is started when the runner comes back to its FIFO, and killing it before is its end', async () => {
      await rm(pair.path('run/requests'));
      const launch = turnLaunch({ argv: ['echo', 'late'] });
      expect((await pair.client.launchTurn(launch, Buffer.alloc(0))).state).toBe('accepted');
      await expect(pair.client.killTurn(launch.turnId, 0)).rejects.toMatchObject({ code: 'sandbox_lost' });
      expect((await followTurn(pair.client, launch.turnId)).stdout.toString()).toBe('late\n');

      await pair.client.forgetTurn(launch.turnId);
      const never = turnLaunch({ argv: ['touch', 'ran'] });
      await mkdir(pair.turn(never.turnId));
      await writeFile(pair.path('run/requests'), `kill ${never.turnId} 0\nstart ${never.turnId}\n`);
      expect((await followTurn(pair.client, never.turnId)).progress.exitCode).toBe(143);
      expect(existsSync(pair.path('workspace/ran'))).toBe(false);
    });

    test('a turn that was forgotten before anybody took it can be handed over again, and runs once', async () => {
      const launch = turnLaunch({ argv: ['sh', '-c', 'echo ran >> handed-over; sleep 0.5'] });
      pair.signalRunner('SIGSTOP');
      try {
        expect((await pair.client.launchTurn(launch, Buffer.alloc(0))).state).toBe('accepted');
        await pair.client.forgetTurn(launch.turnId);
        expect((await pair.client.launchTurn(launch, Buffer.alloc(0))).state).toBe('accepted');
      } finally {
        pair.signalRunner('SIGCONT');
      }
      expect((await followTurn(pair.client, launch.turnId)).progress).toMatchObject({
        state: 'ended',
        exitCode: 0,
      });
      expect(readFileSync(pair.path('workspace/handed-over'), 'utf8')).toBe('ran\n');
    });

    test('a request that arrives slowly is not cut in two, and an empty line is no request', async () => {
      const launch = turnLaunch({ argv: ['echo', 'whole'] });
      await mkdir(pair.turn(launch.turnId));
      const pipe = await open(pair.path('run/requests'), 'r+');
      try {
        for (const piece of ['\nki', 'll ', `${launch.turnId} 0\n`]) {
          await pipe.write(piece);
          // Longer than the runner waits for the beginning of a line.
          await sleep(2500);
        }
      } finally {
        await pipe.close();
      }
      expect((await followTurn(pair.client, launch.turnId)).progress.exitCode).toBe(143);
    });

    test('100 MB of output come whole, in bounded pieces', async () => {
      const total = 100_000_000;
      const launch = turnLaunch({ argv: ['head', '-c', String(total), '/dev/zero'] });
      await pair.client.launchTurn(launch, Buffer.alloc(0));
      let read = 0;
      for (;;) {
        const progress = await pair.client.turnProgress({
          turnId: launch.turnId,
          stdout: read,
          stderr: 0,
          waitMs: 5000,
        });
        while (read < progress.stdout) {
          const bytes = await pair.client.readTurn({
            turnId: launch.turnId,
            stream: 'stdout',
            offset: read,
            limit: 2 ** 20,
          });
          expect(bytes.length).toBeLessThanOrEqual(2 ** 20);
          read += bytes.length;
        }
        if (progress.state === 'ended') break;
      }
      expect(read).toBe(total);
    });

    test('TERM ends everything soon, and the turn that ran has its exit code', async () => {
      const launch = turnLaunch({ argv: ['sh', '-c', 'echo up; sleep 1000'] });
      await pair.client.launchTurn(launch, Buffer.alloc(0));
      await pair.client.turnProgress({ turnId: launch.turnId, stdout: 0, stderr: 0, waitMs: 5000 });
      // Far below what an engine waits for before it kills, 10 s.
      expect(await pair.stopRunner()).toBeLessThan(4000);
      // Without a container around it, its processes end a moment after the runner.
      await waitUntil('nothing of it is left', () => alive(`HOLDFAST_TURN=${launch.turnId}`).length === 0);
      expect((await followTurn(pair.client, launch.turnId)).progress).toMatchObject({
        state: 'ended',
        exitCode: 143,
      });
      expect(await pair.client.agentReady(50)).toBe(false);
    });

    test('another session is refused, and so is an id that is none', async () => {
      await expect(pair.connectAs(randomId('ses'))).rejects.toMatchObject({ code: 'conflict' });
      expect(pair.client.hello).toMatchObject({
        protocol: SIDECAR_PROTOCOL,
        session: pair.session,
        watch: 'inotify',
      });
      await expect(
        pair.client.turnProgress({ turnId: '../etc', stdout: 0, stderr: 0, waitMs: 0 }),
      ).rejects.toMatchObject({
        code: 'invalid_params',
      });
    });
  },
);
