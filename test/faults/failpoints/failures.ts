import { expect } from 'vitest';
import type { FailpointName } from '../../../supervisor/base/failpoints.ts';
import { shellProject, writeProject } from '../../setup/profiles.ts';
import { soakCount } from '../../setup/run-length.ts';
import { expectSettled } from '../harness/expectations.ts';
import {
  fixture,
  uniqueName,
  sharedHome,
  killSupervisor,
  startNextSupervisor,
  runTurn,
  startWithFailpoint,
  ensureSupervisor,
  createSession,
  expectCleanStop,
} from './fixture.ts';
import { deploy } from '../../setup/deploy.ts';

/** Where operations fail whose object has a name, or a workspace, that is used again afterwards. */
export const FAILURES = [
  'undeploy.after-intent',
  'undeploy.after-sessions',
  'deploy.after-intent',
  'deploy.after-publish',
  'deploy.before-row',
  'delete.after-intent',
  'delete.after-sandbox',
  'delete.after-snapshot',
  'delete.before-row',
  'clean.after-intent',
  'restore.after-intent',
  'restore.after-files',
] as const satisfies readonly FailpointName[];
type Failing = (typeof FAILURES)[number];

/** What was asked for failed and its caller was told so: later supervisors leave alone what people do with the same name then. */
export async function failThenReuseName(point: Failing): Promise<void> {
  const at = await sharedHome();
  await ensureSupervisor(at);
  const [operation] = point.split('.');
  const name = uniqueName('reused');
  const project = shellProject(name);
  await fixture.deploy(at, project);
  const before = await createSession(at, name, 'before');
  await runTurn(at, before, 'echo before > before');
  const { id: snapshot } = await at.call('snapshot/create', { session: before });
  const ask = async (): Promise<unknown> => {
    switch (operation) {
      case 'undeploy':
        return at.call('profile/undeploy', { profile: name, force: true });
      case 'deploy':
        return fixture.deploy(at, { ...project, other: 'other' });
      case 'delete':
        return at.call('session/delete', { session: before, force: true });
      case 'clean':
        return at.call('workspace/clean', { session: before, force: true });
      default:
        return at.call('snapshot/restore', { session: before, snapshot, cancel: true });
    }
  };
  await at.call('session/stop', { session: before });
  await startWithFailpoint(at, point, 'error');
  await expect(ask()).rejects.toMatchObject({ code: 'internal' });

  // What the person does next, with the same names: before another supervisor comes that could go on with what failed.
  if (operation === 'deploy') {
    await killSupervisor(at);
    await startNextSupervisor(at);
  }
  await deploy(at, await writeProject(await fixture.temporaryFolder(), project));
  const { sessions } = await at.call('session/list', { limit: 1000 });
  const there = sessions.find((one) => one.profile === name && one.name === 'before');
  const id = there?.id ?? (await createSession(at, name, 'before'));
  expect(await runTurn(at, id, 'echo work > work; cat work')).toBe('work\n');
  await at.call('session/stop', { session: id });

  for (let next = 0; next < soakCount(1, 2); next += 1) {
    await killSupervisor(at);
    await startNextSupervisor(at);
    await expectSettled(at);
    expect((await at.call('session/show', { session: id })).session.name).toBe('before');
    expect(await runTurn(at, id, 'cat work')).toBe('work\n');
    await at.call('session/stop', { session: id });
  }
  await expectCleanStop(at, id);
  // And what failed can be asked for again.
  if (operation === 'undeploy' || operation === 'delete') await expect(ask()).resolves.toBeDefined();
  else if (there !== undefined) await ask();
}
