import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { rm, statfs, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import type { Turn } from '../../protocol/entities.ts';
import { handlerProject, shellProject } from '../setup/profiles.ts';
import { turnOutput } from './harness/expectations.ts';
import type { FaultHome } from './harness/fault-home.ts';
import { waitForTurn, waitUntil, useFaultFixture } from './harness/fault-fixture.ts';

const execute = promisify(execFile);
const bench = useFaultFixture();
const FULL = 'cat /dev/zero > fill 2>/dev/null';
const LONG = { timeout: 180_000 };

interface SmallDisk {
  readonly home: FaultHome;
  /** Fills the remaining space. */
  readonly fillRest: () => Promise<void>;
  readonly isFull: () => Promise<boolean>;
  /** Frees space without the supervisor. */
  readonly makeRoom: (session: string) => Promise<void>;
}

async function smallDisk(): Promise<SmallDisk> {
  const folder = await bench.temporaryFolder();
  await execute('mount', ['-t', 'tmpfs', '-o', 'size=48m,mode=0755', 'holdfast-test', folder]);
  bench.onCleanup(() => execute('umount', ['-l', folder]));
  const home = await bench.createHome({ path: join(folder, 'home') });
  await home.start();
  const isFull = async (): Promise<boolean> => (await statfs(folder)).bavail < 16;
  return {
    home,
    isFull,
    async fillRest() {
      await waitUntil('the disk is full', isFull, 60_000);
      await writeFile(join(folder, 'last'), Buffer.alloc(64 * 1024)).catch(() => undefined);
    },
    async makeRoom(session) {
      await rm(join(folder, 'last'), { force: true });
      await rm(join(home.path, 'workspaces', session, 'fill'));
    },
  };
}

async function shown(home: FaultHome, turn: string): Promise<Turn> {
  return (await home.call('turn/show', { turn })).turn;
}

const untilWaiting = (home: FaultHome, turn: string): Promise<void> =>
  waitUntil(
    'it says that it waits for disk space',
    async () => (await shown(home, turn)).waitingFor === 'disk_space',
  );

describe.skipIf(process.getuid?.() !== 0)('turns on a full disk (needs root)', () => {
  test(
    'a program that exits on a full disk keeps its exit code; its clients are notified, and the turn ends once there is space',
    LONG,
    async () => {
      const { home, fillRest, makeRoom } = await smallDisk();
      await bench.deploy(home, shellProject('sh'));
      for (const code of [0, 3]) {
        const { turn, session } = await home.call('turn/start', {
          profile: 'sh',
          prompt: `echo first; sleep 1; ${FULL}; exit ${String(code)}`,
        });
        const following = bench.runHoldfast(home, ['turn', 'wait', turn.turnId]);
        await fillRest();
        await untilWaiting(home, turn.turnId);
        // Longer than the supervisor waits before it tries again.
        await new Promise((resolve) => setTimeout(resolve, 4000));
        expect(await shown(home, turn.turnId)).toMatchObject({ status: 'running', waitingFor: 'disk_space' });
        await makeRoom(session.id);
        expect(await waitForTurn(home, turn.turnId)).toMatchObject({
          status: code === 0 ? 'succeeded' : 'failed',
          exitCode: code,
          waitingFor: null,
        });
        const said = await following;
        expect(said.stdout).toBe('first\n');
        expect(said.stderr).toContain(`The disk of the Holdfast home is full: ${turn.turnId} cannot finish`);
        expect((await turnOutput(home, turn.turnId, 'stdout')).toString()).toBe('first\n');
      }
    },
  );

  test('the result of a handler waits for disk space', LONG, async () => {
    const { home, fillRest, makeRoom } = await smallDisk();
    const body = `def handler(i):
    if i.get("fill"):
        with open("fill", "wb", buffering=0) as f:
            try:
                while True: f.write(bytes(4096))
            except OSError: pass
    return {"kept": i["n"]}
`;
    await bench.deploy(home, handlerProject('py', body));
    const ask = async (input: object) =>
      await home.call('turn/start', { profile: 'py', prompt: JSON.stringify(input) });
    const before = await ask({ n: 1 });
    const first = await waitForTurn(home, before.turn.turnId);
    expect(first).toMatchObject({ status: 'succeeded', output: { kept: 1 } });
    const { turn, session } = await ask({ n: 2, fill: true });
    await fillRest();
    await untilWaiting(home, turn.turnId);
    await new Promise((resolve) => setTimeout(resolve, 3000));
    await makeRoom(session.id);
    const second = await waitForTurn(home, turn.turnId);
    expect(second).toMatchObject({ status: 'succeeded', output: { kept: 2 } });
    const after = await ask({ n: 3 });
    const third = await waitForTurn(home, after.turn.turnId);
    // The worker has survived.
    expect(third).toMatchObject({
      status: 'succeeded',
      output: { kept: 3 },
      worker: { id: first.worker?.id },
    });
  });

  test('cancelling works on a full disk for running, ended and waiting turns', LONG, async () => {
    const { home, fillRest, isFull, makeRoom } = await smallDisk();
    await bench.deploy(home, shellProject('sh'));
    const start = async (prompt: string) => await home.call('turn/start', { profile: 'sh', prompt });
    const running = await start(`echo begun; ${FULL}; sleep 600`);
    const queued = await start('echo never');
    await fillRest();
    for (const { turn } of [queued, running]) {
      await home.call('turn/cancel', { turn: turn.turnId });
      expect(await waitForTurn(home, turn.turnId)).toMatchObject({ status: 'cancelled', waitingFor: null });
    }
    expect((await turnOutput(home, running.turn.turnId, 'stdout')).toString()).toBe('begun\n');
    await makeRoom(running.session.id);

    const ended = await start(`${FULL}; exit 4`);
    await waitUntil('the disk is full', isFull, 60_000);
    await fillRest();
    await untilWaiting(home, ended.turn.turnId);
    await home.call('turn/cancel', { turn: ended.turn.turnId });
    expect((await waitForTurn(home, ended.turn.turnId)).exitCode).toBe(4);
    await makeRoom(ended.session.id);
    const { turn } = await start('echo works');
    expect(await waitForTurn(home, turn.turnId)).toMatchObject({ status: 'succeeded', exitCode: 0 });
    // The reserve exists again for the next time.
    await waitUntil('the reserve', () => existsSync(join(home.path, 'reserve')));
  });
});
