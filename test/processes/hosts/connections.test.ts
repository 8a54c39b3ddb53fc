import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import type { TestContext } from 'vitest';
import { HostReach, openHostStream, surveyHost } from '../../../hosts/connector/connect-host.ts';
import { connectSupervisor } from '../../../protocol/client/connect.ts';
import { soakCount } from '../../setup/run-length.ts';
import { NearMachine, farPath, pidsWith, pidsWithVariable } from '../../fixtures/hosts/near-machine.ts';
import { SSHD, SshServer } from '../../fixtures/hosts/ssh-server.ts';
import type { SshServerOptions } from '../../fixtures/hosts/ssh-server.ts';

/** On a busy machine the end of a supervisor there takes long. */
const CLEAN_UP_MS = 60_000;

/** A real sshd on this machine, and a client with a home of its own. */
type OnTestFinished = TestContext['onTestFinished'];

async function machines(
  onTestFinished: OnTestFinished,
  options: SshServerOptions = {},
  { stopsFar = true, near: nearEnvironment = {} } = {},
): Promise<{ server: SshServer; near: NearMachine }> {
  const server = await SshServer.start(SSHD ?? '', {
    ...options,
    environment: { ...farPath(), ...options.environment },
  });
  const near = new NearMachine(server, nearEnvironment);
  onTestFinished(async () => {
    await near.dispose({ stopsFar });
    await server.stop();
  }, CLEAN_UP_MS);
  return { server, near };
}

function failureOf(promise: Promise<unknown>): Promise<unknown> {
  return promise.then(
    () => undefined,
    (error: unknown) => error,
  );
}

describe.skipIf(SSHD === undefined).concurrent('a host that is reached by ssh (needs sshd)', () => {
  test('gets the program once, and all commands share one login', async ({ onTestFinished }) => {
    const { server, near } = await machines(onTestFinished);
    const first = await near.run('session', 'list', '--host', 'far', '--json');
    expect(first).toMatchObject({ code: 0, stdout: '{"sessions":[],"nextCursor":null}\n' });
    const programs = readdirSync(join(server.farHome, 'bin'));
    expect(programs).toEqual([__BUILD_ID__]);
    const all = await Promise.all([1, 2, 3].map(() => near.run('profiles', '--host', 'far', '--json')));
    for (const one of all) expect(one).toMatchObject({ code: 0, stdout: '{"profiles":[]}\n' });
    expect(pidsWith(`${server.folder}/ssh_config -T`)).toHaveLength(1);
    // The far supervisor has the far home: nothing is started here.
    expect(existsSync(join(near.home, 'holdfast.db'))).toBe(false);
  });

  test('what a command proposes next is for the same machine', async ({ onTestFinished }) => {
    const { near } = await machines(onTestFinished);
    const none = await near.run('profiles', '--host', 'far');
    expect(none).toMatchObject({ code: 0 });
    expect(none.stderr).toContain('holdfast deploy DIR --host far\n');
    const missing = await near.run('session', 'show', 'nobody', '--host', 'far');
    expect(missing).toMatchObject({ code: 1 });
    expect(missing.stderr).toContain('see `holdfast session list --host far`');
    await near.run('supervisor', 'stop', '--host', 'far');
    const stopped = await near.run('supervisor', 'status', '--host', 'far');
    expect(stopped.stderr).toContain('holdfast supervisor start --host far\n');
  });

  test('a supervisor that does not answer is named with its machine', async ({ onTestFinished }) => {
    const { server, near } = await machines(onTestFinished);
    await near.run('profiles', '--host', 'far');
    const status = await near.run('supervisor', 'status', '--host', 'far', '--json');
    const { pid } = JSON.parse(status.stdout) as { pid: number };
    expect(pidsWithVariable('HOLDFAST_HOME', server.farHome)).toContain(pid);
    process.kill(pid, 'SIGSTOP');
    try {
      const failure = await failureOf(
        connectSupervisor({
          home: undefined,
          reach: new HostReach(near.options(), 'never'),
          start: 'never',
          program: { name: 'test', version: __VERSION__, build: __BUILD_ID__, builtAt: 0 },
          timeoutMs: 700,
        }),
      );
      expect(failure).toMatchObject({
        code: 'timeout',
        sentence:
          'The supervisor on far does not answer; it did not say hello within 1 s; try again, or see `holdfast host doctor far`',
      });
    } finally {
      process.kill(pid, 'SIGCONT');
    }
  });

  test('clients that begin at the same time share one connector', async ({ onTestFinished }) => {
    const { server, near } = await machines(onTestFinished);
    const all = await Promise.all(
      Array.from({ length: 5 }, () => near.run('profiles', '--host', 'far', '--json')),
    );
    expect(all.map(({ code, stderr }) => ({ code, stderr }))).toEqual(
      Array.from({ length: 5 }, () => ({ code: 0, stderr: '' })),
    );
    expect(pidsWith(`${server.folder}/ssh_config -T`)).toHaveLength(1);
  });

  test('no supervisor is started by a command that only looks', async ({ onTestFinished }) => {
    const { near } = await machines(onTestFinished, {}, { stopsFar: false });
    const status = await near.run('supervisor', 'status', '--host', 'far', '--json');
    expect(JSON.parse(status.stdout)).toMatchObject({ running: false });
  });

  test.for([
    [
      'prints before our script runs',
      'printf "Welcome, no line break"; echo; echo more; exec sh -c "$SSH_ORIGINAL_COMMAND"',
    ],
    ['prints without a line break right before it', 'printf "motd> "; exec sh -c "$SSH_ORIGINAL_COMMAND"'],
    ['writes to standard error', 'echo "quota exceeded" >&2; exec sh -c "$SSH_ORIGINAL_COMMAND"'],
  ])('a login shell that %s does no harm', async ([, script], { onTestFinished }) => {
    const { near } = await machines(onTestFinished, { forceCommand: `#!/bin/sh\n${script}\n` });
    expect(await near.run('profiles', '--host', 'far', '--json')).toMatchObject({
      code: 0,
      stdout: '{"profiles":[]}\n',
    });
  });

  test('a forced command gets one clear sentence', async ({ onTestFinished }) => {
    const { near } = await machines(
      onTestFinished,
      { forceCommand: '#!/bin/sh\necho "This account only serves backups."\n' },
      { stopsFar: false },
    );
    const { code, stderr } = await near.run('profiles', '--host', 'far');
    expect(code).toBe(1);
    expect(stderr).toMatch(
      /^error not_supported: far did not run our script; it ran something else, .*This account only serves backups\./,
    );
  });

  test('a home that cannot be written to is named', async ({ onTestFinished }) => {
    const { near } = await machines(
      onTestFinished,
      { environment: { HOLDFAST_HOME: '/proc/holdfast' } },
      { stopsFar: false },
    );
    const { code, stderr } = await near.run('profiles', '--host', 'far');
    expect({ code, stderr }).toMatchObject({ code: 1 });
    expect(stderr).toContain('/proc/holdfast cannot be written to');
  });

  test('an unknown host key is shown to the person, and accepted only by their answer', async ({
    onTestFinished,
  }) => {
    const { near } = await machines(onTestFinished, { isUnknown: true });
    const refused = await near.run('profiles', '--host', 'far');
    expect(refused.code).toBe(1);
    expect(refused.stderr).toMatch(/^error permission_denied: far .* its host key is not known/);
    const asked: { text: string; isSecret: boolean }[] = [];
    const stream = await openHostStream(
      near.options({
        ask: (question) => {
          asked.push(question);
          return Promise.resolve('yes');
        },
      }),
      '/supervisor',
      { start: 'auto' },
    );
    stream?.destroy();
    expect(asked).toHaveLength(1);
    expect(asked[0]?.text).toMatch(/SHA256:.*\(yes\/no/s);
    expect(asked[0]?.isSecret).toBe(false);
  });

  test('a passphrase is asked for once, hidden, and shared by all clients', async ({ onTestFinished }) => {
    const { near } = await machines(onTestFinished, { passphrase: 'open sesame' });
    const asked: boolean[] = [];
    const survey = await surveyHost(
      near.options({
        ask: ({ isSecret }) => {
          asked.push(isSecret);
          return Promise.resolve('open sesame');
        },
      }),
    );
    expect(survey['system']).toBe('Linux');
    expect(asked).toEqual([true]);
    expect(await near.run('profiles', '--host', 'far')).toMatchObject({ code: 0 });
  });

  test('a changed host key is refused, with what to do', async ({ onTestFinished }) => {
    const { server, near } = await machines(onTestFinished, {}, { stopsFar: false });
    rmSync(join(server.folder, 'other'), { force: true });
    execFileSync('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-f', join(server.folder, 'other')]);
    const key = execFileSync('cat', [join(server.folder, 'other.pub')], { encoding: 'utf8' });
    writeFileSync(join(server.folder, 'known_hosts'), `[127.0.0.1]:${server.port} ${key}`);
    const { code, stderr } = await near.run('profiles', '--host', 'far');
    expect(code).toBe(1);
    expect(stderr).toMatch(/its host key is not the one that ssh knows.*ssh-keygen -R far/);
  });

  test('a host that does not answer is an error at once', async ({ onTestFinished }) => {
    const { server, near } = await machines(onTestFinished, {}, { stopsFar: false });
    const list = await near.run('host', 'add', 'gone', `ssh://127.0.0.1:1`);
    expect(list.code).toBe(1);
    expect(list.stderr).toMatch(/^error connection_closed: gone .* nothing listens on its ssh port/);
    // A typing error is not kept.
    const { stdout } = await near.run('host', 'list', '--json');
    expect(JSON.parse(stdout)).toMatchObject({ hosts: [{ name: 'far', destination: server.destination }] });
  });

  test('the connector leaves when nobody needs it', async ({ expect, onTestFinished }) => {
    const { server, near } = await machines(
      onTestFinished,
      {},
      { stopsFar: false, near: { HOLDFAST_HOST_IDLE_MS: '300' } },
    );
    await near.run('supervisor', 'status', '--host', 'far');
    await expect.poll(() => pidsWith(`host-connector far ${near.home}`)).toEqual([]);
    expect(pidsWith(`${server.folder}/ssh_config -T`)).toEqual([]);
  });

  test('what was asked is answered, however often the connection is cut', async ({ onTestFinished }) => {
    const { server, near } = await machines(onTestFinished);
    const client = near.client();
    const { home } = await client.call('supervisor/status', {});
    expect(home).toBe(server.farHome);
    const cuts = soakCount(5, 100);
    for (let cut = 0; cut < cuts; cut += 1) {
      const calls = Promise.all(Array.from({ length: 5 }, () => client.call('supervisor/status', {})));
      // Either end may be cut.
      const victims =
        cut % 2 === 0
          ? pidsWith(`${server.folder}/ssh_config -T`)
          : pidsWith(`host-connector far ${near.home}`);
      for (const pid of victims) process.kill(pid, 'SIGKILL');
      for (const { home: found } of await calls) expect(found).toBe(server.farHome);
    }
    client.close();
  }, 600_000);

  test('connecting can be cancelled', async ({ onTestFinished }) => {
    const { near } = await machines(
      onTestFinished,
      { forceCommand: '#!/bin/sh\nsleep 30\n' },
      { stopsFar: false },
    );
    const controller = new AbortController();
    const waiting = failureOf(surveyHost(near.options(), controller.signal));
    setTimeout(() => controller.abort(), 300);
    expect(await waiting).toMatchObject({ code: 'cancelled' });
  });
});
