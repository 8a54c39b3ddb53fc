import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, readdir, rm, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import type { Session } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { shellProject } from '../setup/profiles.ts';
import { expectSettled, expectWholeHistory, turnOutput } from './harness/expectations.ts';
import type { FaultHome } from './harness/fault-home.ts';
import {
  waitForTurn,
  waitUntil,
  waitForProcessExit,
  useFaultFixture,
  type FaultFixture,
} from './harness/fault-fixture.ts';

const run = promisify(execFile);
const MIB = 2 ** 20;
/** So many that filling takes a while, and of next to no bytes. */
const FILES = 3000;
/** What a busy machine may need for several sandboxes. */
const LONG = { timeout: 240_000 };
const bench: FaultFixture = useFaultFixture();

async function prompt(home: FaultHome, session: string, text: string): Promise<string> {
  const { turn } = await home.call('turn/start', { session, prompt: text });
  expect(await waitForTurn(home, turn.turnId)).toMatchObject({ status: 'succeeded', error: null });
  return (await turnOutput(home, turn.turnId, 'stdout')).toString();
}

async function shown(home: FaultHome, session: string): Promise<Session> {
  return (await home.call('session/show', { session })).session;
}

const filled = (home: FaultHome, session: string): Promise<void> =>
  waitUntil('its files are there', async () => (await shown(home, session)).hydration === null, 60_000);

/** Its files are being made. */
async function untilWritten(home: FaultHome, session: string): Promise<void> {
  await waitUntil('it writes', async () => {
    const names = await readdir(join(home.path, 'workspaces', session)).catch(() => []);
    return names.some((name) => name.startsWith('.holdfast-restore-'));
  });
}

async function failure(asked: Promise<unknown>): Promise<HoldfastError> {
  return await asked.then(
    () => new HoldfastError('internal', 'It was done'),
    (error: unknown) => HoldfastError.from(error),
  );
}

/** A session with files, and a snapshot of it. */
async function source(
  home: FaultHome,
  files: string,
): Promise<{ readonly id: string; readonly snapshot: string }> {
  await bench.deploy(home, shellProject('shell'));
  const { id } = (await home.call('session/create', { profile: 'shell' })).session;
  await prompt(home, id, files);
  const { id: snapshot } = await home.call('snapshot/create', { session: id });
  return { id, snapshot };
}

test(
  'a fork returns before its files are there and says so; the snapshot is protected, and a use hydrates at once',
  LONG,
  async () => {
    const home = await bench.createHome();
    // Whoever brings them for nobody comes too late for this test.
    await home.start({ 'fork.before-files': 'delay:600000' });
    const { id, snapshot } = await source(home, 'mkdir d; echo one > d/f; head -c 300000 /dev/urandom > big');
    const fork = (await home.call('snapshot/fork', { snapshot, name: 'fork' })).session;
    expect(fork).toMatchObject({ status: 'created', hydration: { snapshotId: snapshot, failed: null } });
    const begun = (await home.call('session/create', { profile: 'shell', from: `snapshot:${snapshot}` }))
      .session;
    expect(begun.hydration).toEqual({ snapshotId: snapshot, failed: null });
    const { sessions } = await home.call('session/list', {});
    expect(
      sessions
        .filter(({ hydration }) => hydration !== null)
        .map((one) => one.id)
        .sort(),
    ).toEqual([fork.id, begun.id].sort());
    const listed = await bench.runHoldfast(home, ['session', 'list']);
    expect(listed.stdout).toMatch(/fork .*copying files/);

    // What it begins with stays, whatever goes.
    await home.call('session/delete', { session: id, force: true });
    expect(await failure(home.call('snapshot/delete', { snapshot, force: true }))).toMatchObject({
      code: 'conflict',
    });
    await home.call('gc', {});

    expect(await prompt(home, fork.id, 'cat d/f; wc -c < big')).toBe('one\n300000\n');
    expect((await shown(home, fork.id)).hydration).toBeNull();
    const read = await home.call('files/read', { session: begun.id, path: '/workspace/d/f' });
    expect(read.size).toBe(4);
    expect((await shown(home, begun.id)).hydration).toBeNull();
    for (const session of [fork.id, begun.id]) {
      const { events } = await home.call('session/events', { session, type: 'workspace.restored' });
      expect(events.map(({ data }) => data)).toMatchObject([{ snapshotId: snapshot, undo: null }]);
      await home.call('session/stop', { session });
      await expectWholeHistory(home, session);
    }
    await expectSettled(home);
  },
);

test('a partial restore, a reset and a restore before hydration lose no files', LONG, async () => {
  const home = await bench.createHome();
  await home.start({ 'fork.before-files': 'delay:600000' });
  const { snapshot } = await source(home, 'mkdir d; echo one > d/f; echo two > g');
  const fork = async (): Promise<string> => (await home.call('snapshot/fork', { snapshot })).session.id;

  const part = await fork();
  await home.call('snapshot/restore', { session: part, snapshot, path: '/workspace/d' });
  expect(await prompt(home, part, 'cat d/f g')).toBe('one\ntwo\n');

  // What it would have been is the way back.
  const emptied = await fork();
  const { undo } = await home.call('session/resume', { session: emptied, from: 'clean' });
  expect(undo).toBe(snapshot);
  expect((await shown(home, emptied)).hydration).toBeNull();
  expect(await prompt(home, emptied, 'ls')).toBe('');
  await home.call('snapshot/restore', { session: emptied, snapshot, cancel: true });
  expect(await prompt(home, emptied, 'cat g')).toBe('two\n');

  const other = await fork();
  const taken = await home.call('snapshot/create', { session: other });
  expect(taken.files).toBe(2);
});

test(
  'a supervisor that shuts down does not wait for a hydration, and the next one continues it',
  LONG,
  async () => {
    const home = await bench.createHome();
    const first = await home.start();
    const { snapshot } = await source(home, `seq ${FILES} | xargs touch; echo one > f`);
    const forks: string[] = [];
    for (let n = 0; n < 2; n += 1) forks.push((await home.call('snapshot/fork', { snapshot })).session.id);
    await home.call('supervisor/stop', {});
    await first.waitForExit(40_000);
    await waitForProcessExit(first.pid);

    await home.start();
    for (const fork of forks) {
      await filled(home, fork);
      expect((await readdir(join(home.path, 'workspaces', fork))).length).toBe(FILES + 1);
      const { events } = await home.call('session/events', {
        session: fork,
        type: 'workspace.hydration-failed',
      });
      expect(events).toEqual([]);
    }
    await expectSettled(home);
  },
);

test('deleting a session during its hydration keeps the snapshot', LONG, async () => {
  const home = await bench.createHome();
  await home.start();
  const { id, snapshot } = await source(home, `seq ${FILES} | xargs touch; echo one > f`);
  const { id: fork } = (await home.call('snapshot/fork', { snapshot })).session;
  await untilWritten(home, fork);
  // Whoever waits for the files is told, too.
  const waiting = failure(home.call('workspace/wait', { session: fork }));
  await home.call('session/delete', { session: fork, force: true });
  expect(['not_found', 'internal']).toContain((await waiting).code);
  expect(await readdir(join(home.path, 'workspaces'))).not.toContain(fork);
  expect((await home.call('snapshot/list', { session: fork })).snapshots).toEqual([]);
  expect((await home.call('snapshot/verify', { snapshot })).ok).toBe(true);
  expect(await prompt(home, id, 'ls | wc -l; cat f')).toBe(`${FILES + 1}\none\n`);
  await home.call('session/stop', { session: id });
  await expectSettled(home);
});

test('a purge during hydrations removes everything', LONG, async () => {
  const home = await bench.createHome();
  const supervisor = await home.start();
  const { snapshot } = await source(home, `seq ${FILES} | xargs touch; echo one > f`);
  const forks: string[] = [];
  for (let n = 0; n < 3; n += 1) forks.push((await home.call('snapshot/fork', { snapshot })).session.id);
  await untilWritten(home, forks[0] ?? '');
  const id = await home.readId();
  await home.call('purge', { force: true });
  await supervisor.waitForExit(40_000);
  expect(await home.listObjects(id)).toEqual([]);
  expect(existsSync(home.path)).toBe(false);
});

/** Each with files that fit in once the filler is gone, and the options of a file system for them. */
const FULL = [
  {
    of: 'bytes',
    files: 'head -c 9000000 /dev/urandom > big; echo one > f',
    options: [],
    fill: (folder: string) => writeFile(join(folder, 'big'), Buffer.alloc(8 * MIB)),
  },
  {
    of: 'inodes',
    files: 'seq 400 | xargs touch; head -c 9000000 /dev/urandom > big; echo one > f',
    options: ['-N', '608'],
    fill: async (folder: string) => {
      for (let n = 0; n < 300; n += 1) await writeFile(join(folder, `${n}`), '');
    },
  },
] as const;

test.for(FULL)(
  'a disk full of $of: the fork and its next use report it, and the files follow when there is space',
  LONG,
  async ({ files, options, fill }, { skip }) => {
    const home = await bench.createHome();
    await home.start();
    const { snapshot } = await source(home, files);
    // From here on workspaces lie on a disk of their own, which has no room.
    const image = join(await bench.temporaryFolder(), 'image');
    await writeFile(image, '');
    await truncate(image, 16 * MIB);
    const workspaces = join(home.path, 'workspaces');
    try {
      await run('mkfs.ext4', ['-q', '-O', '^has_journal', ...options, image]);
      await run('mount', ['-o', 'loop', image, workspaces]);
    } catch {
      skip('a small disk needs the right to mount one');
      return;
    }
    bench.onCleanup(() => run('umount', ['-l', workspaces]));
    await mkdir(join(workspaces, 'filler'));
    await fill(join(workspaces, 'filler'));

    const fork = (await home.call('snapshot/fork', { snapshot, name: 'fork' })).session;
    await waitUntil(
      'it is told',
      async () => (await shown(home, fork.id)).hydration?.failed?.code !== undefined,
      60_000,
    );
    expect((await shown(home, fork.id)).hydration).toMatchObject({
      snapshotId: snapshot,
      failed: { code: 'no_space' },
    });
    const { events } = await home.call('session/events', {
      session: fork.id,
      type: 'workspace.hydration-failed',
    });
    expect(events.map(({ data }) => data)).toMatchObject([{ snapshotId: snapshot, code: 'no_space' }]);
    const used = failure(home.call('files/list', { session: fork.id, path: '/workspace' }));
    expect(await used).toMatchObject({ code: 'no_space', message: 'The files of fork are incomplete' });
    await rm(join(workspaces, 'filler'), { recursive: true });
    expect((await home.call('workspace/wait', { session: fork.id })).session.hydration).toBeNull();
    expect(await prompt(home, fork.id, 'cat f; wc -c < big')).toBe('one\n9000000\n');
    await home.call('session/delete', { session: fork.id, force: true });
  },
);
