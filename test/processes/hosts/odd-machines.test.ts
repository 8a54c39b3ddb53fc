import { execFileSync, spawnSync } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { describe, expect, test } from 'vitest';
import type { TestContext } from 'vitest';
import { onPath } from '../../../scripts/setup/command.mjs';
import { otherBuild } from '../../faults/harness/other-build.ts';
import { NearMachine, farPath } from '../../fixtures/hosts/near-machine.ts';
import { SSHD, SshServer } from '../../fixtures/hosts/ssh-server.ts';
import type { SshServerOptions } from '../../fixtures/hosts/ssh-server.ts';

/** On a busy machine the end of a supervisor there takes long. */
const CLEAN_UP_MS = 60_000;

type OnTestFinished = TestContext['onTestFinished'];
const IS_ROOT = process.getuid?.() === 0;
const NOTHING_THERE = { code: 0, stdout: '{"profiles":[]}\n' };

function temporaryFolder(onTestFinished: OnTestFinished): string {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-odd-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

async function machine(
  onTestFinished: OnTestFinished,
  options: SshServerOptions = {},
  { stopsFar = true } = {},
): Promise<{ server: SshServer; near: NearMachine }> {
  const server = await SshServer.start(SSHD ?? '', {
    ...options,
    environment: { ...farPath(), ...options.environment },
  });
  const near = new NearMachine(server);
  onTestFinished(async () => {
    await near.dispose({ stopsFar });
    await server.stop();
  }, CLEAN_UP_MS);
  return { server, near };
}

/** What `holdfast profiles` says of a machine that cannot be used. */
async function refusal(onTestFinished: OnTestFinished, options: SshServerOptions): Promise<string> {
  const { near } = await machine(onTestFinished, options, { stopsFar: false });
  const { code, stdout, stderr } = await near.run('profiles', '--host', 'far');
  expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
  // One sentence.
  expect(stderr.trim().split('\n')).toHaveLength(1);
  return stderr;
}

/** A tmpfs that is unmounted after the test. */
function mountedFolder(onTestFinished: OnTestFinished, options: string): string {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-odd-home-'));
  execFileSync('mount', ['-t', 'tmpfs', '-o', options, 'holdfast-test', folder]);
  onTestFinished(() => {
    execFileSync('umount', ['-l', folder]);
    rmSync(folder, { recursive: true });
  });
  return folder;
}

/** A folder with a program of this text. */
function folderWith(onTestFinished: OnTestFinished, name: string, text: string): string {
  const folder = temporaryFolder(onTestFinished);
  writeFileSync(join(folder, name), text, { mode: 0o755 });
  return folder;
}

const inFarPath = (folder: string): Record<string, string> => ({
  PATH: `${folder}:${farPath()['PATH'] ?? ''}`,
});

describe.skipIf(SSHD === undefined).concurrent('an odd machine (needs sshd)', { timeout: 150_000 }, () => {
  // sshd runs `SHELL -c COMMAND`, also where it logs nobody in; each of these shells reads its configuration then.
  test.for([
    ['fish', 'XDG_CONFIG_HOME', 'fish/config.fish', 'echo welcome from fish; set -e PATH[-1]; stty sane'],
    ['tcsh', 'HOME', '.cshrc', 'echo welcome from tcsh\nstty erase ^H\nset prompt = "odd> "\n'],
    ['zsh', 'ZDOTDIR', '.zshenv', 'print -n "welcome from zsh> "\nstty sane\n'],
    ['dash', 'ENV', 'startup', 'echo welcome from dash\n'],
  ])(
    'with %s as the login shell, which prints, works',
    async ([shell = '', variable = '', file = '', text = ''], { onTestFinished, skip }) => {
      skip(onPath(shell) === undefined, `${shell} is not installed`);
      const folder = temporaryFolder(onTestFinished);
      mkdirSync(dirname(join(folder, file)), { recursive: true });
      writeFileSync(join(folder, file), text);
      const setting = variable === 'ENV' ? join(folder, file) : folder;
      const { near } = await machine(onTestFinished, {
        forceCommand: `#!/bin/sh\n${variable}=${setting}; export ${variable}\nexec ${shell} -c "$SSH_ORIGINAL_COMMAND"\n`,
      });
      expect(await near.run('profiles', '--host', 'far', '--json')).toMatchObject(NOTHING_THERE);
    },
  );

  test('with nothing but busybox and Node works, without bash (needs busybox)', async ({
    onTestFinished,
    skip,
  }) => {
    const busybox = process.env['HOLDFAST_BUSYBOX'];
    skip(busybox === undefined, 'there is no busybox');
    const folder = temporaryFolder(onTestFinished);
    const { stdout } = spawnSync(busybox ?? '', ['--list'], { encoding: 'utf8' });
    for (const applet of stdout.split('\n').filter((name) => /^[a-z0-9]+$/.test(name)))
      symlinkSync(busybox ?? '', join(folder, applet));
    symlinkSync(process.execPath, join(folder, 'node'));
    const { near } = await machine(onTestFinished, {
      forceCommand: `#!/bin/sh\nPATH=${folder}; export PATH\nexec ${folder}/sh -c "$SSH_ORIGINAL_COMMAND"\n`,
    });
    expect(await near.run('profiles', '--host', 'far', '--json')).toMatchObject(NOTHING_THERE);
  });

  test.for([
    ['Linux riscv64', 'far; its processor is riscv64; choose a machine with x86_64 or arm64'],
    ['Darwin arm64', 'far; it is Darwin; choose a Linux machine: sandboxes are Linux containers'],
  ])('that is %s is refused in one sentence', async ([names = '', sentence], { onTestFinished }) => {
    const [system = '', processor = ''] = names.split(' ');
    const uname = `#!/bin/sh\n[ "$1" = -m ] && echo ${processor} || echo ${system}\n`;
    const fake = folderWith(onTestFinished, 'uname', uname);
    expect(await refusal(onTestFinished, { environment: inFarPath(fake) })).toContain(sentence);
  });

  test.for([
    ['ro', 'cannot be written to; make the home directory writable there'],
    ['noexec', 'its disk is mounted with noexec; set HOLDFAST_HOME there to a directory on another disk'],
  ])(
    'whose home is mounted %s is refused in one sentence (needs root)',
    async ([option = '', sentence], { onTestFinished, skip }) => {
      skip(!IS_ROOT, 'only root mounts');
      const home = mountedFolder(onTestFinished, `size=64m,${option}`);
      expect(await refusal(onTestFinished, { environment: { HOLDFAST_HOME: home } })).toContain(sentence);
    },
  );

  test('whose home is full is refused in one sentence (needs root)', async ({ onTestFinished, skip }) => {
    skip(!IS_ROOT, 'only root mounts');
    const home = mountedFolder(onTestFinished, 'size=1m');
    mkdirSync(join(home, 'bin'));
    spawnSync('dd', ['if=/dev/zero', `of=${join(home, 'fill')}`, 'bs=4096']);
    expect(await refusal(onTestFinished, { environment: { HOLDFAST_HOME: home } })).toContain(
      `the disk of ${home} is full; make room on it`,
    );
  });

  test('without space for the program is refused before anything is sent (needs root)', async ({
    onTestFinished,
    skip,
  }) => {
    skip(!IS_ROOT, 'only root mounts');
    const home = mountedFolder(onTestFinished, 'size=8m');
    expect(await refusal(onTestFinished, { environment: { HOLDFAST_HOME: home } })).toContain(
      'MiB free and 32 MiB are needed; make room on it',
    );
    expect(readdirSync(join(home, 'bin'))).toEqual([]);
  });

  test('without an engine says so, and everything that needs none works', async ({ onTestFinished }) => {
    const { server, near } = await machine(onTestFinished);
    const added = await near.run('host', 'add', 'bare', server.destination);
    expect(added.code).toBe(1);
    expect(added.stderr).toContain(
      'bare was added, but cannot be used yet: bare has no Docker that this user can use; no Docker engine runs there; install Docker there, or start it; then `holdfast host update bare`',
    );
    // It is kept, so that it can be examined and tried again.
    const listed = await near.run('host', 'list');
    expect(listed.stdout).toMatch(/bare .*127\.0\.0\.1.* no Docker engine runs there/);
    expect((await near.run('host', 'doctor', 'bare')).stdout).toMatch(/host docker.*no engine runs there/);
    expect(await near.run('profiles', '--host', 'bare', '--json')).toMatchObject(NOTHING_THERE);
    expect(await near.run('profiles', '--host', 'far', '--json')).toMatchObject(NOTHING_THERE);
    const doctor = await near.run('host', 'doctor', 'far');
    expect(doctor.code).toBe(1);
    expect(doctor.stdout).toMatch(/host docker.*no engine runs there/);
  });

  test('where Docker needs sudo says what to do (needs root)', async ({ onTestFinished, skip }) => {
    skip(!IS_ROOT || onPath('setpriv') === undefined, 'another user is needed');
    const folder = temporaryFolder(onTestFinished);
    const [home, socket] = [join(folder, 'home'), join(folder, 'docker.sock')];
    chmodSync(folder, 0o755);
    mkdirSync(home);
    chownSync(home, 65534, 65534);
    const engine = createServer().listen(socket);
    onTestFinished(() => void engine.close());
    // Node where that user can read it.
    execFileSync('cp', [process.execPath, join(folder, 'node')]);
    const { server, near } = await machine(onTestFinished, {
      environment: {
        PATH: `${folder}:/usr/bin:/bin`,
        HOLDFAST_HOME: home,
        DOCKER_HOST: `unix://${socket}`,
      },
      forceCommand:
        '#!/bin/sh\nexec setpriv --reuid=65534 --regid=65534 --clear-groups sh -c "$SSH_ORIGINAL_COMMAND"\n',
    });
    // sshd runs the forced command as root; its folder is root's alone.
    chmodSync(server.folder, 0o711);
    const added = await near.run('host', 'add', 'other', server.destination);
    expect(added.code).toBe(1);
    expect(added.stderr).toMatch(
      /other was added, but cannot be used yet: other has no Docker that this user can use; \S+ may not use its socket; add the user to the group docker there \(`sudo usermod -aG docker \S+`\), or set up rootless Docker/,
    );
    expect(await near.run('profiles', '--host', 'far', '--json')).toMatchObject(NOTHING_THERE);
  });

  test('that two laptops reach for the first time at once gets one program, and both see the same', async ({
    onTestFinished,
  }) => {
    const { server, near } = await machine(onTestFinished);
    const second = new NearMachine(server);
    onTestFinished(() => second.dispose({ stopsFar: false }));
    const laptops = [near, second];
    const first = await Promise.all(laptops.map((one) => one.run('profiles', '--host', 'far', '--json')));
    for (const one of first) expect(one).toMatchObject(NOTHING_THERE);
    const names = readdirSync(join(server.farHome, 'bin')).filter((name) => !name.startsWith('.try-'));
    expect(names).toEqual([__BUILD_ID__]);
    const client = near.client();
    await client.call('secret/set', { name: 'SHARED' }, { bytes: Buffer.from('shared by both') });
    client.close();
    const listed = await second.run('secret', 'list', '--host', 'far', '--json');
    expect(listed.stdout).toContain('SHARED');
    const pids = await Promise.all(
      laptops.map(async (one) => {
        const { stdout } = await one.run('supervisor', 'status', '--host', 'far', '--json');
        return (JSON.parse(stdout) as { pid?: unknown }).pid;
      }),
    );
    expect(pids[0]).toBe(pids[1]);
  });

  test.for([
    ['older', '0.0.1', '2020-01-01T00:00:00.000Z', 'hands over'],
    ['newer', '99.0.0', '2040-01-01T00:00:00.000Z', 'is used as it is'],
  ])('a supervisor there that is $0 $3', async ([, version = '', time = ''], { onTestFinished }) => {
    const { server, near } = await machine(onTestFinished);
    const bundle = await otherBuild(temporaryFolder(onTestFinished), version, time);
    execFileSync(process.execPath, [bundle, 'supervisor', 'start'], {
      env: { ...farPath(), HOLDFAST_HOME: server.farHome },
      stdio: 'pipe',
    });
    // `host update` hands over first, although there is no engine to bring images to.
    const updated = await near.run('host', 'update', 'far');
    expect(updated.code).toBe(1);
    const now = version === '99.0.0' ? version : __VERSION__;
    expect(updated.stderr).toContain(`far runs Holdfast ${now} (build `);
    expect(updated.stderr).toContain('but its images could not be installed: far has no Docker');
    const status = await near.run('supervisor', 'status', '--host', 'far', '--json');
    expect(JSON.parse(status.stdout)).toMatchObject({ version: now });
  });
});
