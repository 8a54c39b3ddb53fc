import { execFile } from 'node:child_process';
import { mkdir, open, readdir, readFile, rm, stat, statfs, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Container } from 'dockerode';
import { afterAll, describe, expect, test } from 'vitest';
import { HoldfastError } from '../../protocol/errors.ts';
import { hasErrorCode } from '../../supervisor/store/storage-error.ts';
import { soakCount } from '../setup/run-length.ts';
import { shellProject } from '../setup/profiles.ts';
import { expectSettled, expectWholeHistory, turnOutput } from './harness/expectations.ts';
import { FaultHome } from './harness/fault-home.ts';
import { waitForTurn, waitUntil, useFaultFixture, type FaultFixture } from './harness/fault-fixture.ts';

const run = promisify(execFile);
const MIB = 2 ** 20;
const bench: FaultFixture = useFaultFixture(afterAll);
let shared: Promise<FaultHome> | null = null;

/** A new session in the home of this suite. */
async function begun(): Promise<{ home: FaultHome; id: string }> {
  shared ??= (async () => {
    const home = await bench.createHome();
    await home.start();
    await bench.deploy(home, shellProject('shell'));
    return home;
  })();
  const home = await shared;
  return { home, id: (await home.call('session/create', { profile: 'shell' })).session.id };
}

/** Runs a turn to its end. */
async function prompt(home: FaultHome, session: string, text: string): Promise<string> {
  const { turn } = await home.call('turn/start', { session, prompt: text });
  expect(await waitForTurn(home, turn.turnId)).toMatchObject({ status: 'succeeded' });
  return (await turnOutput(home, turn.turnId, 'stdout')).toString();
}

async function codeOf(promise: Promise<unknown>): Promise<string> {
  const error: unknown = await promise.then(
    () => null,
    (reason: unknown) => reason,
  );
  return error instanceof HoldfastError ? error.code : String(error);
}

/** The store of the lineage on an ext4 of its own, made on a file; null where that cannot be. */
async function smallStore(home: FaultHome, lineage: string, inodes: number): Promise<string | null> {
  const folder = await bench.temporaryFolder();
  const image = join(folder, 'image');
  const store = join(home.path, 'store', lineage);
  await writeFile(image, '');
  await truncate(image, 160 * MIB);
  await mkdir(store, { recursive: true });
  try {
    await run('mkfs.ext4', ['-q', '-N', String(inodes), image]);
    await run('mount', ['-o', 'loop', image, store]);
  } catch {
    return null;
  }
  bench.onCleanup(() => run('umount', ['-l', store]));
  return store;
}

const NO_DISK = 'a disk needs the right to mount one';

/** Uses up all that is left, in bytes or in inodes. Returns how that is undone. */
async function fill(folder: string, what: 'bytes' | 'inodes'): Promise<() => Promise<void>> {
  const place = join(folder, 'filler');
  await mkdir(place);
  const full = async (act: () => Promise<unknown>): Promise<boolean> =>
    act().then(
      () => false,
      (error: unknown) => {
        if (hasErrorCode(error, 'ENOSPC')) return true;
        throw error;
      },
    );
  if (what === 'inodes') for (let n = 0; !(await full(() => writeFile(join(place, `${n}`), ''))); n += 1);
  else {
    const file = await open(join(place, 'big'), 'w');
    for (const size of [MIB, 4096]) while (!(await full(() => file.appendFile(Buffer.alloc(size)))));
    await file.sync().catch(() => undefined);
    await file.close();
  }
  return () => rm(place, { recursive: true });
}

describe('a full store', () => {
  test.for(['bytes', 'inodes'] as const)(
    'of %s: reported as such, nothing is damaged, turns continue, deletes work',
    async (what, { skip }) => {
      const { home, id } = await begun();
      const store = await smallStore(home, id, 64);
      if (store === null) {
        skip(NO_DISK);
        return;
      }
      await prompt(home, id, 'echo one > f; head -c 300000 /dev/urandom > big');
      const first = await home.call('snapshot/create', { session: id, label: 'first' });
      const free = await fill(store, what);
      await prompt(home, id, 'echo two > f; head -c 3000000 /dev/urandom > more');

      expect(await codeOf(home.call('snapshot/create', { session: id, label: 'second' }))).toBe('no_space');
      // A turn does not wait for space, and the history tells what it began without.
      expect(await prompt(home, id, 'cat f')).toBe('two\n');
      const { events } = await home.call('session/events', { session: id, type: 'snapshot.failed' });
      expect(events.at(-1)?.data).toMatchObject({ reason: 'before-turn', code: 'no_space' });
      const { ok } = await home.call('snapshot/verify', { snapshot: first.id });
      expect(ok).toBe(true);
      expect(await readdir(join(store, 'incoming')).catch(() => [])).toEqual([]);

      // Nothing is given up without a way back, unless that is what was asked for.
      const restore = { session: id, snapshot: first.id };
      expect(await codeOf(home.call('snapshot/restore', restore))).toBe('no_space');
      expect(await readFile(join(home.path, 'workspaces', id, 'f'), 'utf8')).toBe('two\n');
      const forced = await home.call('snapshot/restore', { ...restore, force: true });
      expect(forced.undo).toBeNull();
      expect(await prompt(home, id, 'cat f; ls')).toBe('one\nbig\nf\n');

      const { snapshots } = await home.call('snapshot/list', { session: id });
      for (const { id: snapshot } of snapshots) {
        if (snapshot !== first.id) await home.call('snapshot/delete', { snapshot, force: true });
      }
      await free();
      await prompt(home, id, 'echo three > f');
      expect((await home.call('snapshot/create', { session: id, label: 'third' })).created).toBe(true);
      await home.call('snapshot/restore', restore);
      expect(await prompt(home, id, 'cat f')).toBe('one\n');
      await free().catch(() => undefined);
      await fill(store, what);
      await home.call('session/delete', { session: id, force: true });
      expect(await readdir(join(home.path, 'workspaces'))).not.toContain(id);
      await expectSettled(home);
    },
  );

  test('without any free space: rejected before anything is sent', async ({ skip }) => {
    const { home, id } = await begun();
    const store = await smallStore(home, id, 64);
    if (store === null) {
      skip(NO_DISK);
      return;
    }
    const { bavail, bsize } = await statfs(store);
    expect(bavail * bsize).toBeLessThan(160 * MIB);
    await prompt(home, id, `head -c ${200 * MIB} /dev/urandom > big`);
    expect(await codeOf(home.call('snapshot/create', { session: id }))).toBe('no_space');
    expect(await readdir(join(store, 'incoming')).catch(() => [])).toEqual([]);
    await prompt(home, id, 'rm big; echo small > f');
    expect((await home.call('snapshot/create', { session: id, label: 'small' })).created).toBe(true);
  });
});

test('without an engine snapshot garbage is still collected, and the rest is reported as kept', async () => {
  const home = await bench.createHome();
  const supervisor = await home.start();
  await bench.deploy(home, shellProject('shell'));
  const { id } = (await home.call('session/create', { profile: 'shell' })).session;
  await prompt(home, id, `head -c ${2 * MIB} /dev/urandom > big`);
  const { id: big } = await home.call('snapshot/create', { session: id });
  await prompt(home, id, 'rm big');
  await home.call('snapshot/create', { session: id });
  await home.call('snapshot/delete', { snapshot: big, force: true });
  await home.call('session/stop', { session: id });
  await supervisor.kill();
  const env = { DOCKER_HOST: `unix://${join(await bench.temporaryFolder(), 'none.sock')}` };
  const without = await FaultHome.create({ path: home.path, env });
  const blind = await without.start();
  try {
    for (const [dryRun, said] of [
      [true, 'would be'],
      [false, 'was'],
    ] as const) {
      const error: unknown = await without.call('gc', { dryRun }).catch((reason: unknown) => reason);
      expect(error).toMatchObject({
        code: 'engine_unavailable',
        message: expect.stringContaining(`Only data that no snapshot needs ${said} removed`) as string,
        details: { bytes: expect.toSatisfy((bytes: number) => bytes > MIB) as number },
      });
    }
  } finally {
    await blind.kill();
  }
  await home.start();
  expect((await home.call('snapshot/list', { session: id })).usage.bytes).toBeLessThan(MIB);
});

test('a mount inside a workspace is rejected by its path, and the turn continues', async ({ skip }) => {
  const { home, id } = await begun();
  await prompt(home, id, 'mkdir -p deep/inside; echo ours > deep/file');
  // Containers see what was mounted when they began.
  await home.call('session/stop', { session: id });
  const inside = join(home.path, 'workspaces', id, 'deep/inside');
  try {
    await run('mount', ['-t', 'tmpfs', 'tmpfs', inside]);
  } catch {
    skip(NO_DISK);
  }
  const unmount = () => run('umount', ['-l', inside]);
  bench.onCleanup(() => unmount().catch(() => undefined));
  const error: unknown = await home
    .call('snapshot/create', { session: id })
    .catch((reason: unknown) => reason);
  expect(error).toMatchObject({
    code: 'not_supported',
    message: '/workspace/deep/inside cannot be part of a snapshot',
    why: 'another file system is mounted there',
  });
  expect(await prompt(home, id, 'cat deep/file')).toBe('ours\n');
  const { events } = await home.call('session/events', { session: id, type: 'snapshot.failed' });
  expect(events.at(-1)?.data).toMatchObject({ reason: 'before-turn', code: 'not_supported' });
  await home.call('session/stop', { session: id });
  await unmount();
  expect(await home.call('snapshot/create', { session: id })).toMatchObject({ created: true, files: 1 });
});

test(
  'stopping a session during the scan of an inaccessible directory restores its mode',
  { timeout: 240_000 },
  async () => {
    const { home, id } = await begun();
    await prompt(
      home,
      id,
      'mkdir closed; cd closed; head -c 200000000 /dev/urandom > large; for n in $(seq 2000); do echo $n > $n; done; chmod 000 .',
    );
    const closed = join(home.path, 'workspaces', id, 'closed');
    const modeOf = async (): Promise<number> => (await stat(closed)).mode & 0o777;
    // A stop waits for the agent, and this one has none.
    await home.call('session/stop', { session: id });
    const taking = codeOf(home.call('snapshot/create', { session: id }));
    await waitUntil('it has opened the folder', async () => (await modeOf()) !== 0, 60_000);
    await home.call('session/stop', { session: id });
    expect(['connection_closed', 'sandbox_lost']).toContain(await taking);
    expect(await modeOf()).toBe(0);
    await expectSettled(home);
  },
);

test('a hanging sidecar does not prevent stopping its session', { timeout: 120_000 }, async () => {
  const { home, id } = await begun();
  await prompt(home, id, 'head -c 3000000 /dev/urandom > f');
  await home.call('snapshot/create', { session: id });
  await (await sidecarOf(home, id)).kill({ signal: 'SIGSTOP' });
  const began = performance.now();
  await home.call('session/stop', { session: id });
  expect(performance.now() - began).toBeLessThan(30_000);
  await expectSettled(home);
  expect(await prompt(home, id, 'wc -c < f')).toBe('3000000\n');
});

describe('kill -9 of the sidecar', () => {
  test('during a scan: no snapshot, nothing left over, and the next one is complete', async () => {
    const { home, id } = await begun();
    const incoming = join(home.path, 'store', id, 'incoming');
    const write = 'for n in $(seq 24); do head -c 2000000 /dev/urandom > f$n; done';
    const outcome = await killedDuringScan(home, id, write, 'something has come', async () => {
      return (await readdir(incoming).catch(() => [])).length > 0;
    });
    expect(['connection_closed', 'sandbox_lost']).toContain(outcome);
    expect(await readdir(incoming)).toEqual([]);
    const { snapshots } = await home.call('snapshot/list', { session: id });
    expect(snapshots.filter(({ reason }) => reason === 'manual')).toEqual([]);
    const taken = await home.call('snapshot/create', { session: id });
    expect(taken).toMatchObject({ created: true, files: 24 });
    expect((await home.call('snapshot/verify', { snapshot: taken.id })).ok).toBe(true);
  });

  test('just before a request: the request gets another sidecar', async () => {
    const { home, id } = await begun();
    const { id: snapshot } = await home.call('snapshot/create', { session: id });
    for (const ask of [
      () => home.call('snapshot/create', { session: id }),
      () => home.call('snapshot/restore', { session: id, snapshot, cancel: true }),
      () => home.call('files/list', { session: id, path: '/workspace' }),
    ]) {
      for (let round = 0; round < soakCount(3, 50); round += 1) {
        const { Pid } = (await (await sidecarOf(home, id)).inspect()).State;
        process.kill(Pid, 'SIGKILL');
        await ask();
      }
    }
  });

  test(
    'in an inaccessible directory: the next sidecar restores its mode at start, also after a stop',
    { timeout: 240_000 },
    async () => {
      const { home, id } = await begun();
      const files = (folder: string, count: number): string =>
        `mkdir ${folder}; cd ${folder}; for n in $(seq ${count}); do echo ${folder} $n > $n; done; cd ..`;
      await prompt(home, id, `${files('open', 100)}; ${files('closed', 1000)}`);
      const closed = join(home.path, 'workspaces', id, 'closed');
      const modeOf = async (): Promise<number> => (await stat(closed)).mode & 0o777;
      // Random bytes, so that it stays in there for a while.
      const long = 'for n in $(seq 10); do head -c 4000000 /dev/urandom > closed/long$n; done';
      const write = `chmod 700 closed; ${long}; chmod 000 closed`;
      const outcome = await killedDuringScan(home, id, write, 'it has opened the folder', async () => {
        return (await modeOf()) !== 0;
      });
      expect(['connection_closed', 'sandbox_lost']).toContain(outcome);
      // A stop takes everything that is the sandbox's alone.
      await home.call('session/stop', { session: id });
      expect(await modeOf()).not.toBe(0);
      await home.call('files/list', { session: id, path: '/workspace' });
      await waitUntil('it has closed the folder', async () => (await modeOf()) === 0, 60_000);
      await home.call('session/stop', { session: id });
      expect(await readdir(join(home.path, 'run'))).not.toContain(id);
      const taken = await home.call('snapshot/create', { session: id });
      expect(taken).toMatchObject({ created: true, files: 1110 });
      expect(await modeOf()).toBe(0);
      await prompt(home, id, 'chmod 700 closed; rm -rf closed open');
      await home.call('snapshot/restore', { session: id, snapshot: taken.id });
      expect(await modeOf()).toBe(0);
      expect(await prompt(home, id, 'ls open | wc -l; chmod 700 closed; ls closed | wc -l')).toBe(
        '100\n1010\n',
      );
      await expectSettled(home);
    },
  );

  test('during a restore: the next sidecar finishes it, and the caller gets the answer', async () => {
    const { home, id } = await begun();
    await prompt(
      home,
      id,
      'for n in $(seq 24); do head -c 2000000 /dev/urandom > f$n; done; sha256sum f* > sums',
    );
    const { id: snapshot } = await home.call('snapshot/create', { session: id });
    await prompt(home, id, 'rm -rf *; echo other > f1');
    const restoring = home.call('snapshot/restore', { session: id, snapshot });
    const workspace = join(home.path, 'workspaces', id);
    await waitUntil('it writes', async () =>
      (await readdir(workspace)).some((name) => name.startsWith('.holdfast-restore-')),
    );
    await killSidecar(home, id);
    expect((await restoring).undo).not.toBeNull();
    expect(await prompt(home, id, 'sha256sum -c sums | grep -c OK; ls -A | wc -l')).toBe('24\n25\n');
    await expectSettled(home);
    await expectWholeHistory(home, id);
  });
});

/**
 * Has files written, and kills the sidecar during the scan as soon as `begun` holds. Returns how the scan ended.
 */
async function killedDuringScan(
  home: FaultHome,
  id: string,
  write: string,
  what: string,
  begun: () => Promise<boolean>,
): Promise<string> {
  let outcome = 'null';
  // If this process has to wait, the scan can end before the sidecar does: then it tries again.
  for (let tries = 0; outcome === 'null' && tries < 5; tries += 1) {
    await prompt(home, id, ':');
    await writeBeside(home, id, write);
    // An engine takes its time.
    const { Pid } = (await (await sidecarOf(home, id)).inspect()).State;
    const looking = home.call('snapshot/create', { session: id });
    const look = { isOver: false };
    const taking = codeOf(looking).finally(() => (look.isOver = true));
    await waitUntil(what, async () => look.isOver || (await begun()), 60_000);
    if (!look.isOver) process.kill(Pid, 'SIGKILL');
    outcome = await taking;
    if (outcome === 'null') await home.call('snapshot/delete', { snapshot: (await looking).id, force: true });
  }
  return outcome;
}

/** Runs a script in the workspace as a person would: no snapshot follows by itself, as after a turn. */
async function writeBeside(home: FaultHome, id: string, script: string): Promise<void> {
  const cwd = join(home.path, 'workspaces', id);
  const { uid, gid } = await stat(cwd);
  await run('sh', ['-c', script], { cwd, uid, gid });
}

async function killSidecar(home: FaultHome, id: string): Promise<void> {
  await (await sidecarOf(home, id)).kill();
}

async function sidecarOf(home: FaultHome, id: string): Promise<Container> {
  const sidecar = (await home.listObjects()).find(
    ({ labels }) => labels['dev.holdfast.session'] === id && labels['dev.holdfast.role'] === 'sidecar',
  );
  if (sidecar === undefined) throw new Error(`${id} has no sidecar`);
  return home.docker.getContainer(sidecar.id);
}
