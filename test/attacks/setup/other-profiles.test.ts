import { copyFile, readFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import Docker from 'dockerode';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { SetupStatusSchema } from '../../../protocol/setup.ts';
import { SnapshotSchema } from '../../../protocol/snapshots.ts';
import { writeProject } from '../../setup/profiles.ts';
import { TestHome } from '../../setup/test-home.ts';

const AGENT = resolve(import.meta.dirname, '../../fixtures/acp-agent/agent.mjs');
const PRIVATE = 'private-of-the-victim';
const docker = new Docker();

let home: TestHome;
/** The `after-setup` snapshot of a session of the victim, and the image of its profile. */
let theirs: string;
let image: string;
beforeAll(async () => {
  home = await TestHome.create();
  await home.runOk(['deploy', await project('victim', `echo ${PRIVATE} > secret.txt`)]);
  await home.runOk(['run', 'victim', 'say hello']);
  await home.runOk(['deploy', await project('thief', 'echo mine > own.txt')]);
  await home.runOk(['run', 'thief', 'say hello']);
  theirs = await afterSetup('victim/default');
  const status = await home.runJson(['setup', 'status', 'victim']);
  image = z.object({ setups: z.array(SetupStatusSchema) }).parse(status).setups[0]?.image ?? '';
});
afterAll(() => home.dispose());

/** A profile with a scripted agent, a package that every image has, and a command. */
async function project(name: string, run: string, more = ''): Promise<string> {
  const folder = await writeProject(home.projects, {
    'holdfast.yaml': `name: ${name}
persistence: persistent
workspace: { seed: false }
agent: { protocol: acp, command: [node, /agent/agent.mjs] }
permissions: allow
setup: { packages: { pip: [pip] }, run: ${JSON.stringify(run)}, egress: [] }
${more}`,
  });
  await copyFile(AGENT, join(folder, 'agent.mjs'));
  return folder;
}

async function afterSetup(session: string): Promise<string> {
  const page = await home.runJson(['snapshot', 'list', session, '--reason', 'after-setup']);
  const [snapshot] = z.object({ snapshots: z.array(SnapshotSchema) }).parse(page).snapshots;
  return snapshot?.id ?? '';
}

describe('what the setup of one profile left, seen from another', () => {
  test('its after-setup snapshot is unknown to the agent of the other, whatever the agent asks', async () => {
    const ask = (tool: string, input: unknown): Promise<string> =>
      home.runOk(['run', 'thief', `tool-of ${tool} ${JSON.stringify(input)}`]);
    const own = await afterSetup('thief/default');
    expect(await ask('snapshot_list', {})).toContain(own);
    expect(await ask('snapshot_list', {})).not.toContain(theirs);
    for (const input of [{ from: theirs }, { from: own, to: theirs }, { from: theirs, to: own }])
      expect(await ask('snapshot_diff', input)).toContain(`There is no snapshot ${theirs}`);
    const found = await home.runOk([
      ...['exec', 'thief/default', '--', 'sh', '-c'],
      `grep -rsl private-of-the-"victim" / --exclude-dir=proc --exclude-dir=sys --exclude-dir=dev; true`,
    ]);
    expect(found).toBe('');
  });

  test('no request about a session of the other takes it, and nothing changes', async () => {
    const about = 'thief/default';
    for (const command of [
      ['snapshot', 'restore', about, theirs],
      ['snapshot', 'restore', about, theirs, '--path', 'secret.txt'],
      ['session', 'resume', about, '--from', `snapshot:${theirs}`],
      ['workspace', 'ls', about, '--snapshot', theirs],
      ['workspace', 'cat', about, 'secret.txt', '--snapshot', theirs],
      ['snapshot', 'diff', theirs, 'now', '--session', about],
      ['review', about, '--base', `snapshot:${theirs}`],
    ]) {
      const refused = await home.run(command);
      expect(refused.code, command.join(' ')).not.toBe(0);
      expect(refused.stderr, command.join(' ')).toMatch(/^error (not_found|invalid_params): /m);
      expect(refused.stdout + refused.stderr).not.toContain(PRIVATE);
    }
    const own = await afterSetup(about);
    expect((await home.run(['snapshot', 'diff', own, theirs])).stderr).toContain('cannot be compared');
    expect(await home.runOk(['exec', about, '--', 'ls'])).toBe('own.txt\n');
  });

  test('the person, whose both are, may look at it; a fork is a session of its own profile', async () => {
    expect(await home.runOk(['workspace', 'cat', 'victim/default', 'secret.txt', '--snapshot', theirs])).toBe(
      `${PRIVATE}\n`,
    );
    const file = join(home.projects, 'bundle.tar.zst');
    await home.runOk(['snapshot', 'export', theirs, file]);
    expect((await readFile(file)).length).toBeGreaterThan(0);
    await home.runOk(['snapshot', 'fork', theirs, '--name', 'copy']);
    const shown = await home.runJson(['session', 'show', 'victim/copy']);
    expect(shown).toMatchObject({ session: { profile: 'victim' } });
    expect((await home.run(['session', 'show', 'thief/copy'])).stderr).toMatch(/^error not_found: /m);
  });

  test('no profile is built from it: not by the snapshot, not by the image, its id, or another name of it', async () => {
    const { Id } = await docker.getImage(image).inspect();
    const borrowed = `borrowed-${home.id}`;
    await docker.getImage(image).tag({ repo: borrowed, tag: 'latest' });
    try {
      for (const name of [image, Id, borrowed, `${borrowed}:latest`]) {
        const refused = await home.run(['deploy', await project('other', 'true', `image: "${name}"\n`)]);
        expect(refused.code, name).toBe(1);
        expect(refused.stderr, name).toContain('it was prepared for a profile');
      }
    } finally {
      await docker.getImage(`${borrowed}:latest`).remove({ noprune: true });
    }
    for (const from of [theirs, `snapshot:${theirs}`, join(home.path, 'store')]) {
      await home.run(['deploy', await seeded(from)]);
      const filled = await home.run(['run', 'seeded', 'cat * */* 2>/dev/null; true']);
      expect(filled.code, from).not.toBe(0);
      expect(filled.stdout + filled.stderr).not.toContain(PRIVATE);
    }
  });

  test('an equal setup of another profile runs by itself: its time says nothing', async () => {
    const twin = await home.run(['deploy', await project('twin', `echo ${PRIVATE} > secret.txt`)]);
    expect(twin, twin.stderr).toMatchObject({ code: 0 });
    const status = await home.runJson(['setup', 'status', 'twin']);
    const { setups } = z.object({ setups: z.array(SetupStatusSchema) }).parse(status);
    expect(setups).toHaveLength(1);
    expect(setups[0]?.image).not.toBe(image);
    expect(await home.runOk(['setup', 'log', 'twin'])).toMatch(/== pip\n[^]*== run\n/);
  });
});

/** A profile whose workspaces are to begin with the files at `path`. */
function seeded(path: string): Promise<string> {
  return writeProject(home.projects, {
    'holdfast.yaml': `name: seeded\npersistence: persistent\nagent: { protocol: command, command: [sh] }\nworkspace: { seed: { path: "${path}" } }\n`,
  });
}
