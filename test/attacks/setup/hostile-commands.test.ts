import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { z } from 'zod';
import { SetupStatusSchema } from '../../../protocol/setup.ts';
import { TestHome } from '../../setup/test-home.ts';
import { writeProject } from '../../setup/profiles.ts';

let home: TestHome;
/** A file of the host's that the sandbox can name and must not reach. */
let outside: string;
beforeAll(async () => {
  home = await TestHome.create();
  outside = join(home.projects, 'outside.txt');
  await mkdir(home.projects, { recursive: true });
  await writeFile(outside, 'of the host\n');
});
afterAll(() => home.dispose());

async function deploy(name: string, run: readonly string[], more = '') {
  const folder = await writeProject(home.projects, {
    'holdfast.yaml': `name: ${name}
persistence: persistent
agent: { protocol: command, command: [sh] }
${more}setup: { egress: [], run: ${JSON.stringify(run)} }
`,
  });
  return await home.run(['deploy', folder]);
}

async function newest(profile: string) {
  const status = await home.runOk(['setup', 'status', profile, '--json']);
  return z.object({ setups: z.array(SetupStatusSchema) }).parse(JSON.parse(status)).setups[0];
}

test('what commands leave reaches nothing outside, neither when it is kept nor in a session', async () => {
  const attack = [
    `ln -s ${outside} /workspace/out; ln -s ${home.path} ~/host; ln -s / ~/root; ln -s ../../../etc /workspace/up`,
    'mkfifo ~/.bashrc2 pipe; ln -s loop loop; ln -sf /dev/zero ~/.profile; rm -f ~/.bashrc; mkfifo ~/.bashrc',
    'cp /bin/busybox suid 2>/dev/null || cp /bin/sh suid; chmod 6755 suid; mknod disk b 8 0 2>/dev/null && echo made > device; true',
    'mkdir -p locked/in; echo x > locked/in/f; chmod 000 locked/in/f locked/in locked; chmod 000 ~',
  ];
  const capability =
    'grep CapEff /proc/self/status; ls /var/run/docker.sock /ctl /agent/* 2>/dev/null || touch /opt/x 2>/dev/null && echo written; true';
  const deployed = await deploy('hostile', [capability, ...attack]);
  expect(deployed, deployed.stderr + (await home.runOk(['setup', 'log', 'hostile']))).toMatchObject({
    code: 0,
  });
  const log = await home.runOk(['setup', 'log', 'hostile']);
  expect(log).toMatch(/CapEff:\s*0+\n/);
  expect(log).not.toMatch(/docker\.sock|written|\/ctl|\/agent/);

  const look = `cat out ~/host/id 2>&1; readlink out; test -e device || echo no device; test -p pipe && echo pipe
./suid -c 'id -u' 2>/dev/null || ./suid sh -c 'id -u'; id -u; chmod 700 locked locked/in; chmod 600 locked/in/f; cat locked/in/f`;
  const seen = await home.runOk(['run', 'hostile', look]);
  expect(seen).not.toContain('of the host');
  expect(seen).toContain(`${outside}\nno device\npipe\n`);
  // The bit of the file's mode gives nobody another user.
  expect(seen).toMatch(/\n(\d+)\n\1\nx\n$/);
  await home.runOk(['session', 'delete', 'default', '--force']);
  // What was made ahead for the next session goes too, whatever the commands left in it.
  await home.runOk(['supervisor', 'stop']);
  await vi.waitFor(
    async () => {
      for (const folder of ['run', 'workspaces', 'homes'])
        expect(
          (await readdir(join(home.path, folder))).filter((name) => /^(setup|ses)-/.test(name)),
          folder,
        ).toEqual([]);
    },
    { timeout: 20_000, interval: 100 },
  );
});

test('commands cannot fill the disk, keep a setup from ending, or change what others begin with', async () => {
  const filled = await deploy(
    'filler',
    ['head -c 40000000 /dev/zero > zeros'],
    'workspace: { limit: 10MiB }\n',
  );
  expect(filled.stderr).toContain('The setup wrote too much');
  const homely = await deploy(
    'homely',
    ['head -c 40000000 /dev/zero > ~/zeros; sleep 60'],
    'limits: { home: 10MiB }\n',
  );
  expect(homely.stderr).toContain('The setup wrote too much');
  const hidden = await deploy(
    'hidden',
    ['mkdir d; head -c 40000000 /dev/urandom > d/f; chmod 000 d'],
    'workspace: { limit: 10MiB }\n',
  );
  expect(hidden.stderr).toContain('The setup wrote too much');
  for (const name of ['filler', 'homely', 'hidden'])
    expect(await newest(name)).toMatchObject({ state: 'failed', image: null, template: null });
  expect((await readdir(join(home.path, 'store'))).filter((one) => one.startsWith('setup-'))).toHaveLength(
    // That of the first test.
    2,
  );

  // It gets its rights back.
  const closed = await deploy('closed', ['chmod 000 /workspace']);
  expect(closed, closed.stderr).toMatchObject({ code: 0 });

  // What goes on in the background ends with the setup, and is in no session.
  const lasting = 'trap "" TERM HUP; (while :; do date > alive; sleep 0.1; done) > /dev/null 2>&1 &';
  const deployed = await deploy('lasting', [lasting, 'sleep 0.5; echo done > done']);
  expect(deployed, deployed.stderr).toMatchObject({ code: 0 });
  expect(
    await home.runOk(['run', 'lasting', 'a=$(cat alive); sleep 1; test "$a" = "$(cat alive)" && cat done']),
  ).toBe('done\n');
  // Another profile with the same commands has a setup of its own.
  await deploy('twin', [lasting, 'sleep 0.5; echo done > done']);
  expect((await newest('twin'))?.id).not.toBe((await newest('lasting'))?.id);
});
