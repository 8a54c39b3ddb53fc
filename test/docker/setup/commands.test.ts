import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { SetupStatusSchema } from '../../../protocol/setup.ts';
import { TestHome } from '../../setup/test-home.ts';
import { writeProject } from '../../setup/profiles.ts';

const TOKEN = 'token-51b0c7d2aa9e';

let home: TestHome;
beforeAll(async () => {
  home = await TestHome.create();
});
afterAll(() => home.dispose());

/** A profile whose turns are shell scripts, and whose setup runs these commands. */
function project(name: string, run: readonly string[], more = '', files: Record<string, string> = {}) {
  return writeProject(home.projects, {
    'holdfast.yaml': `name: ${name}
persistence: persistent
agent: { protocol: command, command: [sh], state: [.memory] }
setup:
  egress: []
  run: ${JSON.stringify(run)}
${more}`,
    'source.txt': 'of the project\n',
    ...files,
  });
}

async function setupsOf(profile: string) {
  return z
    .object({ setups: z.array(SetupStatusSchema) })
    .parse(JSON.parse(await home.runOk(['setup', 'status', profile, '--json']))).setups;
}

async function snapshotsOf(session: string): Promise<string[]> {
  const { snapshots } = z
    .object({ snapshots: z.array(z.object({ reason: z.string() })) })
    .parse(JSON.parse(await home.runOk(['snapshot', 'list', session, '--json'])));
  return snapshots.map(({ reason }) => reason);
}

test('every session begins with what the commands left in the workspace and in HOME', async () => {
  const folder = await project('made', [
    'id -u > uid; pwd > where; tr a-z A-Z < source.txt > made; ln -s made link; mkdir empty; mkfifo pipe',
    'mkdir -p ~/.local/bin ~/.memory; printf "#!/bin/sh\\necho tool\\n" > ~/.local/bin/tool; chmod 755 ~/.local/bin/tool',
    'echo remembered > ~/.memory/fact; echo "export FROM_SETUP=yes" >> ~/.bashrc; setsid sleep 300 > /dev/null 2>&1 &',
  ]);
  const deployed = await home.run(['deploy', folder]);
  expect(deployed, await home.runOk(['setup', 'log', 'made'])).toMatchObject({ code: 0 });
  const [setup, ...others] = await setupsOf('made');
  expect(others).toEqual([]);
  expect(setup).toMatchObject({ state: 'done', step: 'run', current: true });
  expect(setup?.template?.workspace.files).toBe(6);
  expect(setup?.template?.home.files).toBeGreaterThanOrEqual(4);
  for (const place of ['workspaces', 'homes', 'run'])
    expect((await readdir(join(home.path, place))).filter((name) => name === setup?.id)).toEqual([]);

  const look =
    'cat made where source.txt; readlink link; test -d empty && test -p pipe && echo kinds; ~/.local/bin/tool; cat ~/.memory/fact; tail -n 1 ~/.bashrc';
  const begun =
    'OF THE PROJECT\n/workspace\nof the project\nmade\nkinds\ntool\nremembered\nexport FROM_SETUP=yes\n';
  expect(await home.runOk(['run', 'made', look, '--session', 'one'])).toBe(begun);
  expect((await snapshotsOf('one')).at(-1)).toBe('after-setup');
  expect(await home.runOk(['run', 'made', 'test "$(cat uid)" != 0 && stat -c %u made; id -u'])).toMatch(
    /^(\d+)\n\1\n$/,
  );

  // Another session has its own files, and no setup ran for it.
  await home.runOk([
    'run',
    'made',
    'echo mine > made; rm ~/.memory/fact; echo x > ~/.local/bin/tool',
    '--session',
    'one',
  ]);
  expect(await home.runOk(['run', 'made', look, '--session', 'two'])).toBe(begun);
  expect(await setupsOf('made')).toHaveLength(1);

  // A new sandbox: the agent's state stays as the agent left it, the rest of HOME is as it was prepared.
  await home.runOk(['session', 'stop', 'one']);
  expect(
    await home.runOk(['run', 'made', 'cat made; ls ~/.memory; ~/.local/bin/tool', '--session', 'one']),
  ).toBe('mine\ntool\n');

  // The same again is found. Other files of the project are another setup.
  await home.runOk(['deploy', folder]);
  expect(await setupsOf('made')).toHaveLength(1);
  await home.runOk([
    'deploy',
    await project('made', ['cat source.txt > copy'], '', { 'source.txt': 'new\n' }),
  ]);
  expect(await home.runOk(['run', 'made', 'ls; cat copy', '--session', 'three'])).toBe(
    'copy\nsource.txt\nnew\n',
  );
  await home.runOk(['session', 'stop', 'one']);
  await home.runOk(['session', 'stop', 'two']);
  await home.runOk(['session', 'stop', 'default']);
  await home.runOk(['gc']);
  expect((await setupsOf('made')).map(({ state }) => state)).toEqual(['done', 'removed']);
  const stores = await readdir(join(home.path, 'store'));
  expect(stores.filter((name) => name.startsWith(setup?.id ?? 'none'))).toEqual([]);
  // Its own history does not need that of the setup.
  expect(await home.runOk(['snapshot', 'list', 'one'])).toContain('after-setup');
});

test('a command that fails, or keeps a secret, ends the deploy with the reason and leaves nothing', async () => {
  const failed = await home.run([
    'deploy',
    await project('failing', ['echo begun', 'echo broken >&2; exit 3']),
  ]);
  expect(failed.code).toBe(1);
  expect(failed.stderr).toContain('setup_failed: The setup failed at run');
  expect(failed.stderr).toContain('ended with 3; it said: ');
  expect(await home.runOk(['setup', 'log', 'failing'])).toContain('broken');
  expect(await setupsOf('failing')).toMatchObject([{ state: 'failed', image: null, template: null }]);

  await home.runOk(['secret', 'set', 'TOKEN'], TOKEN);
  const secrets = '  secrets: [TOKEN]\n';
  const kept = [
    ['base64 < /run/secrets/TOKEN > ~/.kept', 'TOKEN in /home/agent/.kept'],
    [
      'printf %s "$TOKEN" | od -An -tx1 | tr -d " \\n" > deep; mkdir d; mv deep d',
      'TOKEN in /workspace/d/deep',
    ],
    ['ln -s "$TOKEN" link', 'TOKEN in /workspace/link'],
  ] as const;
  for (const [command, where] of kept) {
    const refused = await home.run([
      'deploy',
      await project('keeping', [`echo "it is $TOKEN"; ${command}`], secrets),
    ]);
    expect(refused.code).toBe(1);
    expect(refused.stderr).toContain(where);
    expect(refused.stderr).not.toContain(TOKEN);
  }
  const log = await home.runOk(['setup', 'log', 'keeping']);
  expect(log).toContain('it is [secret TOKEN]');
  expect(log).not.toContain(TOKEN);
  expect((await readdir(join(home.path, 'store'))).filter((name) => name.startsWith('setup-'))).toHaveLength(
    2,
  );

  const used = 'test "$(cat /run/secrets/TOKEN)" = "$TOKEN" && printf %s "$TOKEN" | sha256sum > sum';
  await home.runOk(['deploy', await project('keeping', [used], secrets)]);
  const seen = await home.runOk(['run', 'keeping', 'wc -c < sum; env; cat /run/secrets/TOKEN 2>&1 || true']);
  expect(seen).toMatch(/^68\n/);
  expect(seen).not.toContain(TOKEN);
});
