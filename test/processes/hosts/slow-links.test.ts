import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import type { TestContext } from 'vitest';
import { randomOf } from '../../fixtures/hosts/cuts.ts';
import { NearMachine, farPath } from '../../fixtures/hosts/near-machine.ts';
import { SSHD, SshServer } from '../../fixtures/hosts/ssh-server.ts';
import type { SlowLink } from '../../fixtures/hosts/ssh-server.ts';
import { soakCount } from '../../setup/run-length.ts';

/** Stopping the supervisor over there takes a few round trips. */
const CLEAN_UP_MS = 60_000;

/** A server, and a machine that reaches it over such a network. */
async function overLink(
  onTestFinished: TestContext['onTestFinished'],
  link: SlowLink,
): Promise<{ server: SshServer; near: NearMachine }> {
  const server = await SshServer.start(SSHD ?? '', { environment: farPath() });
  const near = new NearMachine(server, server.overLink(link));
  onTestFinished(async () => {
    await near.dispose();
    await server.stop();
  }, CLEAN_UP_MS);
  return { server, near };
}

describe.skipIf(SSHD === undefined).concurrent('a host behind a slow network (needs sshd)', () => {
  test.for([
    { delayMs: 25, jitterMs: 0 },
    { delayMs: 100, jitterMs: 60 },
  ])('answers in order with $delayMs ms and $jitterMs ms of jitter', async (link, { onTestFinished }) => {
    const { server, near } = await overLink(onTestFinished, link);
    const client = near.client();
    const names = Array.from({ length: 20 }, (_, number) => `NAME_${number}`);
    await Promise.all(
      names.map((name) => client.call('secret/set', { name }, { bytes: Buffer.alloc(20_000, name) })),
    );
    const { secrets } = await client.call('secret/list', {});
    expect(secrets.map(({ name }) => name).sort()).toEqual([...names].sort());
    expect((await client.call('supervisor/status', {})).home).toBe(server.farHome);
    client.close();
  });

  test('that is cut while the program is brought gets all of it with the next connection', async ({
    onTestFinished,
  }) => {
    const { server, near } = await overLink(onTestFinished, { delayMs: 1, cutAfterBytes: [300_000, 20_000] });
    expect(await near.run('profiles', '--host', 'far', '--json')).toMatchObject({
      code: 0,
      stdout: '{"profiles":[]}\n',
    });
    // What was cut stays below a name that nothing uses, until a later login collects it.
    const used = readdirSync(join(server.farHome, 'bin')).filter((name) => !name.startsWith('.incoming-'));
    expect(used).toEqual([__BUILD_ID__]);
  });

  test('that is cut again and again keeps what it acknowledged', async ({ onTestFinished }) => {
    const random = randomOf(Number(process.env['HOLDFAST_SEED'] ?? 7));
    const cuts = soakCount(4, 100);
    const { server, near } = await overLink(onTestFinished, {
      delayMs: 1,
      jitterMs: 5,
      // The first connection brings the program.
      cutAfterBytes: [40e6, ...Array.from({ length: cuts }, () => 8_000 + Math.floor(random() * 60_000))],
    });
    await near.run('profiles', '--host', 'far');
    // A connection of its own, so that the cuts begin.
    await near.disconnect();
    const client = near.client();
    // Each is safe to repeat: what was cut is asked again on the next connection, so that every answer means that it is there.
    const names = Array.from({ length: cuts * 8 }, (_, number) => `NAME_${number}`);
    for (const name of names) await client.call('secret/set', { name }, { bytes: Buffer.alloc(6_000, 'x') });
    const { secrets } = await client.call('secret/list', {});
    client.close();
    expect(secrets.map(({ name }) => name).sort()).toEqual([...names].sort());
    expect(server.connectionsOverLinks).toBeGreaterThan(cuts / 2);
  }, 600_000);
});
