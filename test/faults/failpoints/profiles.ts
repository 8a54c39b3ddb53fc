import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'vitest';
import type { FailpointName } from '../../../supervisor/base/failpoints.ts';
import { gitSite } from '../../egress-harness/git-site.ts';
import { Origin } from '../../egress-harness/origin.ts';
import { deploy } from '../../setup/deploy.ts';
import { shellProject, writeProject } from '../../setup/profiles.ts';
import { expectSettled } from '../harness/expectations.ts';
import { waitUntil } from '../harness/fault-fixture.ts';
import {
  retryConflict,
  retryRequest,
  fixture,
  uniqueName,
  sharedHome,
  expectKilledDuring,
  startNextSupervisor,
  startWithFailpoint,
  runTurn,
  ensureSupervisor,
  createSession,
  variants,
} from './fixture.ts';

export async function deployScenario(point: FailpointName): Promise<void> {
  const at = await sharedHome();
  await ensureSupervisor(at);
  for (const kind of variants(point, ['known', 'new'])) {
    const profile = uniqueName('code');
    const isKnown = kind === 'known';
    const project = { ...shellProject(profile), 'which.txt': 'first' };
    if (isKnown) await fixture.deploy(at, project);
    const id = isKnown ? await createSession(at, profile) : null;
    if (id !== null) expect(await runTurn(at, id, 'cat /agent/which.txt')).toBe('first');
    const directory = await writeProject(await fixture.temporaryFolder(), {
      ...project,
      'which.txt': 'second',
    });
    const opId = uniqueName('op-deploy');
    const request = () => deploy(at, directory, opId);
    await expectKilledDuring(at, point, request);
    await startNextSupervisor(at);
    await expectSettled(at);
    const { profiles } = await at.call('profile/list', {});
    expect(profiles.find((one) => one.name === profile)?.version ?? 0).toBe(isKnown ? 1 : 0);
    await waitUntil('no code of the cut off deploy is left', async () => {
      const versions = await readdir(join(at.path, 'deploys', profile)).catch(() => []);
      return versions.sort().join() === (isKnown ? '1,1.source.jsonl' : '');
    });
    if (id !== null) expect(await runTurn(at, id, 'cat /agent/which.txt')).toBe('first');
    const answer = await retryConflict(request);
    expect(answer).toMatchObject({ replaced: isKnown, unchanged: false });
    expect(await request()).toEqual(answer);
    if (id === null) continue;
    expect(await runTurn(at, id, 'cat /agent/which.txt')).toBe('second');
    await at.call('session/stop', { session: id });
  }
}

/** A package that the image has: installing it needs no network. */
const PRESENT =
  'setup: { packages: { pip: [pip] }, run: "echo made > made; echo home > ~/.made", egress: [] }\n';

export function setupScenario(point: FailpointName): Promise<void> {
  return preparedScenario(point, PRESENT, {}, ['cat made ~/.made', 'made\nhome\n']);
}

/** Its workspaces begin with a clone, which is made before the packages are installed. */
export async function cloneScenario(point: FailpointName): Promise<void> {
  const origin = await Origin.start({
    sites: [await gitSite(await fixture.temporaryFolder(), 'project', { 'main.txt': 'cloned\n' })],
  });
  try {
    const url = `http://host.holdfast.internal:${origin.port}/git/project.git`;
    const more = `${PRESENT}workspace: { repository: { url: "${url}" } }\n`;
    await preparedScenario(point, more, {}, [
      'cat main.txt made; git status --short',
      'cloned\nmade\n?? made\n',
    ]);
  } finally {
    await origin.dispose();
  }
}

async function expectNothingLeft(home: string, setup: string, folders: readonly string[]): Promise<void> {
  for (const folder of folders) {
    const left = await readdir(join(home, folder));
    expect(left.filter((name) => name.startsWith(setup))).toEqual([]);
  }
}

/** Once the end is recorded, nothing of what its commands wrote lies about, whoever dies. */
export async function setupEndScenario(point: FailpointName): Promise<void> {
  const at = await sharedHome();
  await ensureSupervisor(at);
  const profile = uniqueName('ended');
  const directory = await writeProject(
    await fixture.temporaryFolder(),
    shellProject(profile, `persistence: persistent\n${PRESENT}`),
  );
  const opId = uniqueName('op-deploy');
  const request = () => deploy(at, directory, opId);
  await expectKilledDuring(at, point, request);
  for (const folder of ['workspaces', 'homes']) {
    const left = await readdir(join(at.path, folder));
    expect(left.filter((name) => name.startsWith('setup-'))).toEqual([]);
  }
  await startNextSupervisor(at);
  await expectSettled(at);
  expect(await retryConflict(request)).toMatchObject({ unchanged: false });
  const { setups } = await at.call('setup/status', { profile });
  expect(setups.map(({ state, current }) => [state, current])).toEqual([['done', true]]);
  const id = await createSession(at, profile);
  expect(await runTurn(at, id, 'cat made ~/.made')).toBe('made\nhome\n');
  await at.call('session/delete', { session: id, force: true });
  await at.call('profile/undeploy', { profile, force: true });
}

export function buildScenario(point: FailpointName): Promise<void> {
  const dockerfile = 'FROM holdfast/agent:latest\nUSER root\nCOPY file /opt/\nRUN echo built >> /opt/file\n';
  const files = { Dockerfile: dockerfile, file: 'copied\n' };
  return preparedScenario(point, 'dockerfile: Dockerfile\n', files, ['cat /opt/file', 'copied\nbuilt\n']);
}

async function preparedScenario(
  point: FailpointName,
  more: string,
  files: Readonly<Record<string, string>>,
  [script, printed]: readonly [string, string],
): Promise<void> {
  const at = await sharedHome();
  await ensureSupervisor(at);
  const profile = uniqueName('prepared');
  const directory = await writeProject(await fixture.temporaryFolder(), {
    ...shellProject(profile, `persistence: persistent\n${more}`),
    ...files,
  });
  const opId = uniqueName('op-deploy');
  const request = () => deploy(at, directory, opId);
  await expectKilledDuring(at, point, request);
  await startNextSupervisor(at);
  await expectSettled(at);
  await waitUntil('the setup has ended', async () => {
    const { setups } = await at.call('setup/status', { profile });
    return setups.map(({ state }) => state).join() === 'failed';
  });
  expect(await retryConflict(request)).toMatchObject({ unchanged: false });
  const { setups } = await at.call('setup/status', { profile });
  expect(setups.map(({ state, current }) => [state, current])).toEqual([
    ['done', true],
    ['failed', false],
  ]);
  const id = await createSession(at, profile);
  expect(await runTurn(at, id, script)).toBe(printed);
  await at.call('session/stop', { session: id });
  // What the killed one had committed already is garbage; the image in use is not.
  const { removed } = await at.call('gc', {});
  const images = removed.filter(({ kind }) => kind === 'image').map(({ name }) => name);
  expect(images).not.toContain(setups[0]?.image);
  expect(images.length).toBe(
    /(?:image|build|run|template|clear)$/.test(point) && point !== 'setup.before-image' ? 1 : 0,
  );
  await expectNothingLeft(at.path, setups[1]?.id ?? '', ['store', 'workspaces', 'homes', 'run']);
  await at.call('profile/undeploy', { profile, force: true });
  const again = await at.call('gc', {});
  expect(again.removed.map(({ name }) => name)).toContain(setups[0]?.image);
}

export async function templateScenario(point: FailpointName): Promise<void> {
  const at = await sharedHome();
  await ensureSupervisor(at);
  const profile = uniqueName('template');
  const agent = 'agent: { protocol: command, command: [sh], state: [.memory] }\n';
  const run = 'setup: { run: "echo made > made; mkdir ~/.memory; echo it > ~/.memory/f", egress: [] }\n';
  await fixture.deploy(at, { 'holdfast.yaml': `name: ${profile}\npersistence: persistent\n${agent}${run}` });
  const id = await createSession(at, profile);
  await expectKilledDuring(at, point, () => at.call('session/resume', { session: id }));
  await startNextSupervisor(at);
  expect(await runTurn(at, id, 'cat made ~/.memory/f; rm made ~/.memory/f')).toBe('made\nit\n');
  const { snapshots } = await at.call('snapshot/list', { session: id, reason: 'after-setup' });
  expect(snapshots).toHaveLength(1);
  await at.call('session/stop', { session: id });
  // It began once.
  expect(await runTurn(at, id, 'ls -A . ~/.memory')).toBe('.:\n\n/home/agent/.memory:\n');
  await at.call('session/delete', { session: id, force: true });
  await at.call('profile/undeploy', { profile, force: true });
}

/** It dies while it makes ahead what the next session needs: nothing of that is left, and the next session begins as the first did. */
export async function spareScenario(point: FailpointName): Promise<void> {
  const at = await sharedHome();
  await ensureSupervisor(at);
  const profile = uniqueName('spared');
  const run = 'setup: { run: "echo made > made; echo it > ~/.made", egress: [] }\n';
  await fixture.deploy(at, shellProject(profile, `persistence: persistent\n${run}`));
  const { died } = await startWithFailpoint(at, point);
  const first = await createSession(at, profile);
  await at.call('session/resume', { session: first });
  await died();
  await startNextSupervisor(at);
  await expectSettled(at);
  const second = await createSession(at, profile);
  expect(await runTurn(at, second, 'cat made ~/.made')).toBe('made\nit\n');
  for (const session of [first, second]) await at.call('session/delete', { session, force: true });
  await at.call('profile/undeploy', { profile, force: true });
  await expectSettled(at);
}

export async function undeployScenario(point: FailpointName): Promise<void> {
  const at = await sharedHome();
  await ensureSupervisor(at);
  const name = uniqueName('gone');
  await fixture.deploy(at, shellProject(name));
  const [running] = [await createSession(at, name), await createSession(at, name)];
  await runTurn(at, running, 'echo 1 > f');
  const request = { profile: name, force: true, opId: uniqueName('op-undeploy') };
  await expectKilledDuring(at, point, () => at.call('profile/undeploy', request));
  await startNextSupervisor(at);
  await waitUntil('the profile is gone', async () => {
    const { profiles } = await at.call('profile/list', {});
    return !profiles.some((one) => one.name === name);
  });
  await expectSettled(at);
  expect(await retryRequest(at, 'profile/undeploy', request)).toEqual({ sessionsDeleted: 2 });
  const { sessions } = await at.call('session/list', { limit: 1000 });
  expect(sessions.filter(({ profile }) => profile === name)).toEqual([]);
  await waitUntil('its code is gone', async () => {
    return (await readdir(join(at.path, 'deploys', name)).catch(() => [])).length === 0;
  });
}
