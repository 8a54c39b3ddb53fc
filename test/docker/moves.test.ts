import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { tmpdir } from 'node:os';
import { describe, expect, test } from 'vitest';
import type { TestContext } from 'vitest';
import { z } from 'zod';
import { NearMachine } from '../fixtures/hosts/near-machine.ts';
import { SSHD, SshServer, type SlowLink } from '../fixtures/hosts/ssh-server.ts';
import { registerHome } from '../setup/run-homes.ts';
import { connectTo } from '../setup/test-client.ts';
import { soakCount } from '../setup/run-length.ts';

const PROFILE = 'name: shell\nagent: { protocol: command, command: [sh] }\npersistence: persistent\n';
const BUNDLE = join(import.meta.dirname, '../../dist/holdfast.cjs');
const CLEAN_UP_MS = 120_000;

const MovedSchema = z.object({
  to: z.string(),
  session: z.object({ id: z.string(), name: z.string() }),
  lacks: z.array(z.string()),
});
const ListSchema = z.object({
  sessions: z.array(z.object({ id: z.string(), name: z.string(), move: z.unknown() })),
});

/** Two machines with the same profile: this one, and one behind sshd and such a network. */
async function twoMachines(
  onTestFinished: TestContext['onTestFinished'],
  link: SlowLink,
): Promise<{ near: NearMachine; server: SshServer }> {
  const server = await SshServer.start(SSHD ?? '', {
    environment: { PATH: `${dirname(process.execPath)}:/usr/bin:/bin` },
  });
  const near = new NearMachine(server, server.overLink(link));
  const project = mkdtempSync(join(tmpdir(), 'holdfast-moving-'));
  onTestFinished(async () => {
    await near.run('purge', '--force', '--host', 'far');
    await near.disconnect();
    await near.run('purge', '--force');
    await near.dispose({ stopsFar: false });
    await server.stop();
    rmSync(project, { recursive: true });
  }, CLEAN_UP_MS);
  writeFileSync(join(project, 'holdfast.yaml'), PROFILE);
  for (const host of ['far', 'local'])
    expect(await near.run('deploy', project, '--host', host)).toMatchObject({ code: 0 });
  for (const home of [server.farHome, near.home]) registerHome(readFileSync(join(home, 'id'), 'utf8').trim());
  return { near, server };
}

async function prompt(near: NearMachine, host: string, session: string, text: string): Promise<string> {
  const { code, stdout, stderr } = await near.run('prompt', session, text, '--host', host);
  expect([code, stderr]).toEqual([0, '']);
  return stdout;
}

/** Where sessions of that name can be used. */
async function placesOf(near: NearMachine, name: string): Promise<string[]> {
  const places: string[] = [];
  for (const host of ['local', 'far']) {
    const { stdout } = await near.run('session', 'list', '--json', '--host', host);
    const { sessions } = ListSchema.parse(JSON.parse(stdout));
    places.push(...sessions.flatMap((one) => (one.name === name && one.move === null ? [host] : [])));
  }
  return places;
}

/** From 0 up to 1, the same for the same seed. */
function randomOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

describe.skipIf(SSHD === undefined).concurrent('a session moves between machines (needs sshd)', () => {
  test('there and back with all of it, and says where it is', async ({ onTestFinished }) => {
    const { near } = await twoMachines(onTestFinished, { delayMs: 25 });
    const held = await near.run('session', 'create', 'shell', '--name', 'held');
    expect(held.code).toBe(0);
    const made = await near.run('session', 'create', 'shell', '--name', 'mine', '--json');
    const { id } = z.object({ session: z.object({ id: z.string() }) }).parse(JSON.parse(made.stdout)).session;
    expect(await prompt(near, 'local', 'mine', 'echo one > one; seq 200000 > many; echo made')).toBe(
      'made\n',
    );
    const { peer } = await connectTo(near.home, 10_000);
    await peer.call('secret/set', { name: 'TOKEN' }, { bytes: Buffer.from('a secret value') });
    peer.close();

    const there = await near.run('session', 'move', 'mine', '--to', 'far', '--json');
    expect([there.code, there.stderr]).toEqual([0, '']);
    const moved = MovedSchema.parse(JSON.parse(there.stdout));
    expect(moved).toMatchObject({ to: 'far', session: { name: 'mine' }, lacks: ['TOKEN'] });
    expect(there.stdout).not.toContain('a secret value');
    expect(await prompt(near, 'far', 'mine', 'cat one; tail -1 many; echo two > two')).toBe('one\n200000\n');
    expect(await placesOf(near, 'mine')).toEqual(['far']);
    const gone = await near.run('session', 'show', 'mine');
    expect(gone.code).toBe(1);
    expect(gone.stderr).toContain(`it has moved to far, where it is ${moved.session.id}`);
    // Should that machine be lost, there is a last snapshot.
    const kept = await near.run('snapshot', 'list', id, '--json');
    const { snapshots } = z
      .object({ snapshots: z.array(z.object({ id: z.string() })).min(1) })
      .parse(JSON.parse(kept.stdout));
    const rescued = await near.run('snapshot', 'fork', snapshots[0]?.id ?? '', '--name', 'rescued', '--wait');
    expect(rescued).toMatchObject({ code: 0 });
    expect(await prompt(near, 'local', 'rescued', 'cat one')).toBe('one\n');
    // The same again is no second move.
    const again = await near.run('session', 'move', 'mine', '--to', 'far', '--json');
    expect(MovedSchema.parse(JSON.parse(again.stdout)).session.id).toBe(moved.session.id);

    const unnamed = await near.run('session', 'move', 'mine', '--host', 'far', '--to', 'local');
    expect([unnamed.code, unnamed.stderr]).toEqual([2, expect.stringContaining('name the profile')]);
    const back = await near.run('session', 'move', 'shell/mine', '--host', 'far', '--to', 'local');
    expect([back.code, back.stdout]).toEqual([0, expect.stringContaining('shell/mine has moved to local')]);
    expect(await prompt(near, 'local', 'mine', 'cat one two')).toBe('one\ntwo\n');
    expect(await placesOf(near, 'mine')).toEqual(['local']);
    const turns = await near.run('session', 'show', 'mine', '--conversation');
    expect(turns.stdout).toContain('seq 200000');

    expect((await near.run('session', 'move', 'mine', '--abort')).stderr).toContain('not_found');
    const taken = await near.run('session', 'move', 'held', '--to', 'far', '--profile', 'none');
    expect(taken.stderr).toContain('far has no profile named none');
    // Nothing was stopped for it.
    expect(await prompt(near, 'local', 'held', 'echo here')).toBe('here\n');
  }, 300_000);

  test('a running turn is waited for, or said', async ({ onTestFinished }) => {
    const { near } = await twoMachines(onTestFinished, { delayMs: 1 });
    await near.run('session', 'create', 'shell', '--name', 'busy');
    expect((await near.run('prompt', 'busy', 'sleep 4; echo late > late', '--no-wait')).code).toBe(0);
    const refused = await near.run('session', 'move', 'busy', '--to', 'far');
    expect([refused.code, refused.stderr]).toEqual([
      1,
      expect.stringContaining('1 turn still running in it'),
    ]);
    expect(await near.run('session', 'move', 'busy', '--to', 'far', '--wait')).toMatchObject({ code: 0 });
    expect(await prompt(near, 'far', 'busy', 'cat late')).toBe('late\n');
  }, 300_000);

  test('while its command is killed again and again, and by two commands at once', async ({
    onTestFinished,
  }) => {
    const random = randomOf(Number(process.env['HOLDFAST_SEED'] ?? 11));
    const { near } = await twoMachines(onTestFinished, { delayMs: 10 });
    await near.run('session', 'create', 'shell', '--name', 'mine');
    await prompt(near, 'local', 'mine', 'head -c 3000000 /dev/urandom > noise; echo one > one');
    let [host, other] = ['local', 'far'];
    for (let round = 0; round < soakCount(2, 30); round += 1) {
      for (let attempt = 0; attempt < soakCount(3, 10); attempt += 1) {
        const child = spawn(
          process.execPath,
          [BUNDLE, 'session', 'move', 'shell/mine', '--host', host, '--to', other],
          {
            env: near.environment,
            stdio: 'ignore',
          },
        );
        const ended = once(child, 'exit');
        await new Promise((resolve) => setTimeout(resolve, 200 + random() * 2500));
        child.kill('SIGKILL');
        await ended;
        expect((await placesOf(near, 'mine')).length).toBeLessThanOrEqual(1);
      }
      const both = await Promise.all(
        [1, 2].map(() => near.run('session', 'move', 'shell/mine', '--host', host, '--to', other)),
      );
      if (both.every(({ code }) => code !== 0))
        expect(await near.run('session', 'move', 'shell/mine', '--host', host, '--to', other)).toMatchObject({
          code: 0,
        });
      [host, other] = [other, host];
      expect(await placesOf(near, 'mine')).toEqual([host]);
      expect(await prompt(near, host, 'mine', 'cat one; wc -c < noise')).toBe('one\n3000000\n');
    }
  }, 1_200_000);

  test('arrives over connections none of which carries all of it', async ({ onTestFinished }) => {
    const { near, server } = await twoMachines(onTestFinished, {
      ...{ delayMs: 5, seed: 3 },
      // The first connection brings the program and the profile.
      cutAfterBytes: [400e6, ...Array.from({ length: 60 }, () => 3_000_000)],
    });
    await near.run('session', 'create', 'shell', '--name', 'mine');
    await prompt(near, 'local', 'mine', 'head -c 20000000 /dev/urandom > noise; sha256sum < noise > sum');
    await near.disconnect();
    for (const [host, other] of [
      ['local', 'far'],
      ['far', 'local'],
    ] as const) {
      const moved = await near.run('session', 'move', 'shell/mine', '--host', host, '--to', other);
      expect([moved.code, moved.stderr]).toEqual([0, expect.any(String)]);
      expect(await placesOf(near, 'mine')).toEqual([other]);
    }
    expect(server.connectionsOverLinks).toBeGreaterThan(12);
    expect(await prompt(near, 'local', 'mine', 'sha256sum < noise | cmp - sum && echo same')).toBe('same\n');
  }, 300_000);

  test('over a network that is cut again and again it lives once', async ({ onTestFinished }) => {
    const seed = Number(process.env['HOLDFAST_SEED'] ?? 7);
    const random = randomOf(seed);
    const cuts = soakCount(5, 100);
    const { near, server } = await twoMachines(onTestFinished, {
      ...{ delayMs: 1, jitterMs: 5, seed },
      // The first connection brings the program and the profile.
      cutAfterBytes: [400e6, ...Array.from({ length: cuts }, () => 5_000 + Math.floor(random() * 900_000))],
    });
    await near.run('session', 'create', 'shell', '--name', 'mine');
    await prompt(near, 'local', 'mine', 'head -c 700000 /dev/urandom > noise; echo one > one');
    await near.disconnect();
    let [host, other] = ['local', 'far'];
    const rounds = soakCount(2, 40);
    for (let round = 0; round < rounds; round += 1) {
      for (let attempt = 1; ; attempt += 1) {
        const { code, stderr } = await near.run(
          'session',
          'move',
          'shell/mine',
          '--host',
          host,
          '--to',
          other,
        );
        if (code === 0) break;
        expect(stderr).toMatch(/^error (connection_closed|interrupted|timeout|cancelled)/);
        expect(attempt, stderr).toBeLessThan(20);
      }
      [host, other] = [other, host];
      expect(await placesOf(near, 'mine')).toEqual([host]);
      expect(await prompt(near, host, 'mine', 'cat one; wc -c < noise')).toBe('one\n700000\n');
    }
    expect(server.connectionsOverLinks).toBeGreaterThan(cuts / 2);
  }, 1_200_000);
});
