import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'vitest';
import type { FailpointName } from '../../../supervisor/failpoints.ts';
import { shellProject, writeProject } from '../../setup/profiles.ts';
import { expectSettled } from '../harness/expectations.ts';
import { eventually } from '../harness/workbench.ts';
import {
  askAgain,
  bench,
  fresh,
  home,
  killedDuring,
  nextCommand,
  run,
  served,
  session,
  variants,
} from './stage.ts';

export async function deployed(point: FailpointName): Promise<void> {
  const at = await home();
  await served(at);
  for (const kind of variants(point, ['known', 'new'])) {
    const profile = fresh('code');
    const isKnown = kind === 'known';
    const project = { ...shellProject(profile), 'which.txt': 'first' };
    if (isKnown) await bench.deploy(at, project);
    const id = isKnown ? await session(at, profile) : null;
    if (id !== null) expect(await run(at, id, 'cat /agent/which.txt')).toBe('first');
    const directory = await writeProject(await bench.folder(), { ...project, 'which.txt': 'second' });
    const request = { directory, opId: fresh('op-deploy') };
    await killedDuring(at, point, () => at.call('profile/deploy', request));
    await nextCommand(at);
    await expectSettled(at);
    const { profiles } = await at.call('profile/list', {});
    expect(profiles.find((one) => one.name === profile)?.version ?? 0).toBe(isKnown ? 1 : 0);
    await eventually('no code of the cut off deploy is left', async () => {
      const versions = await readdir(join(at.path, 'deploys', profile)).catch(() => []);
      return versions.join() === (isKnown ? '1' : '');
    });
    if (id !== null) expect(await run(at, id, 'cat /agent/which.txt')).toBe('first');
    const answer = await askAgain(at, 'profile/deploy', request);
    expect(answer).toMatchObject({ replaced: isKnown, unchanged: false });
    expect(await at.call('profile/deploy', request)).toEqual(answer);
    if (id === null) continue;
    expect(await run(at, id, 'cat /agent/which.txt')).toBe('second');
    await at.call('session/stop', { session: id });
  }
}

export async function undeployed(point: FailpointName): Promise<void> {
  const at = await home();
  await served(at);
  const name = fresh('gone');
  await bench.deploy(at, shellProject(name));
  const [running] = [await session(at, name), await session(at, name)];
  await run(at, running, 'echo 1 > f');
  const request = { profile: name, force: true, opId: fresh('op-undeploy') };
  await killedDuring(at, point, () => at.call('profile/undeploy', request));
  await nextCommand(at);
  await eventually('the profile is gone', async () => {
    const { profiles } = await at.call('profile/list', {});
    return !profiles.some((one) => one.name === name);
  });
  await expectSettled(at);
  expect(await askAgain(at, 'profile/undeploy', request)).toEqual({ sessionsDeleted: 2 });
  const { sessions } = await at.call('session/list', { limit: 1000 });
  expect(sessions.filter(({ profile }) => profile === name)).toEqual([]);
  await eventually('its code is gone', async () => {
    return (await readdir(join(at.path, 'deploys', name)).catch(() => [])).length === 0;
  });
}
