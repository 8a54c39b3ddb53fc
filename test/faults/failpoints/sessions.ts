import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'vitest';
import type { FailpointName } from '../../../supervisor/base/failpoints.ts';
import { expectSettled, expectWholeHistory, turnOutput } from '../harness/expectations.ts';
import { waitForTurn, waitUntil } from '../harness/fault-fixture.ts';
import {
  retryRequest,
  containerIds,
  uniqueName,
  sharedHome,
  expectConsistent,
  expectKilledDuring,
  startNextSupervisor,
  runTurn,
  createSession,
  sessionStatus,
  expectCleanStop,
  variants,
  sharedRunningSession,
} from './fixture.ts';

export async function createScenario(point: FailpointName): Promise<void> {
  const at = await sharedHome();
  for (const profile of variants(point, ['shell', 'volume'])) {
    const request = { profile, name: uniqueName('made'), opId: uniqueName('op-create') };
    await expectKilledDuring(at, point, () => at.call('session/create', request));
    await startNextSupervisor(at);
    await expectSettled(at);
    const { session: made } = await retryRequest(at, 'session/create', request);
    const again = await at.call('session/create', request);
    expect(again.session.id).toBe(made.id);
    const { sessions } = await at.call('session/list', { limit: 1000 });
    expect(sessions.filter(({ name }) => name === request.name)).toHaveLength(1);
    expect(await runTurn(at, made.id, 'echo here > f; cat f')).toBe('here\n');
    await at.call('session/stop', { session: made.id });
    await expectWholeHistory(at, made.id);
  }
  await createdByTurn(point);
}

/** A session that its first turn makes: both are there or neither, and the turn runs without being asked for again. */
async function createdByTurn(point: FailpointName): Promise<void> {
  const at = await sharedHome();
  const name = uniqueName('first');
  const request = { profile: 'shell', name, prompt: 'echo ran >> f; cat f', opId: uniqueName('op-first') };
  await expectKilledDuring(at, point, () => at.call('turn/start', request));
  await startNextSupervisor(at);
  const { sessions } = await at.call('session/list', { limit: 1000 });
  const [made] = sessions.filter((one) => one.name === name);
  if (made === undefined) throw new Error('the session was stored before the supervisor died');
  const { turns } = await at.call('turn/list', { session: made.id });
  expect(turns).toHaveLength(1);
  const again = await at.call('turn/start', request);
  expect(again.turn.turnId).toBe(turns[0]?.turnId);
  expect(await waitForTurn(at, again.turn.turnId)).toMatchObject({ status: 'succeeded' });
  expect((await turnOutput(at, again.turn.turnId, 'stdout')).toString()).toBe('ran\n');
  await at.call('session/stop', { session: made.id });
  await expectSettled(at);
  await expectWholeHistory(at, made.id);
}

export async function startScenario(point: FailpointName): Promise<void> {
  const at = await sharedHome();
  for (const before of variants(point, ['nothing', 'a stopped one'])) {
    const id = await createSession(at);
    if (before === 'a stopped one') {
      await runTurn(at, id, 'echo kept > f');
      await at.call('session/stop', { session: id });
    }
    await expectKilledDuring(at, point, () => at.call('session/resume', { session: id }));
    await startNextSupervisor(at);
    await expectSettled(at);
    await expectWholeHistory(at, id);
    if ((await sessionStatus(at, id)) !== 'idle')
      await waitUntil(
        'nothing is left of the sandbox',
        async () => (await containerIds(at, id)).length === 0,
      );
    const { session: resumed } = await at.call('session/resume', { session: id });
    expect(resumed.status).toBe('idle');
    expect(await containerIds(at, id)).toHaveLength(2);
    expect(await runTurn(at, id, 'cat f 2>/dev/null; true')).toBe(before === 'nothing' ? '' : 'kept\n');
    await expectCleanStop(at, id);
  }
}

export async function pauseScenario(point: FailpointName): Promise<void> {
  const at = await sharedHome();
  const id = await sharedRunningSession(at);
  await runTurn(at, id, 'echo kept > f');
  const before = await containerIds(at, id);
  await expectKilledDuring(at, point, () => at.call('session/pause', { session: id }));
  await startNextSupervisor(at);
  await expectSettled(at);
  expect(await sessionStatus(at, id)).toBe(point === 'pause.after-engine' ? 'paused' : 'idle');
  expect((await at.call('session/pause', { session: id })).session.status).toBe('paused');
  expect(await runTurn(at, id, 'cat f')).toBe('kept\n');
  expect(await containerIds(at, id)).toEqual(before);
  await expectConsistent(at, id);
}

export async function stopScenario(point: FailpointName): Promise<void> {
  const at = await sharedHome();
  for (const profile of variants(point, ['shell', 'passing'])) {
    const id = await createSession(at, profile);
    await runTurn(at, id, 'echo kept > f');
    await expectKilledDuring(at, point, () => at.call('session/stop', { session: id }));
    await startNextSupervisor(at);
    await expectSettled(at);
    await at.call('session/stop', { session: id });
    expect(await containerIds(at, id)).toEqual([]);
    expect(await runTurn(at, id, 'cat f 2>/dev/null; true')).toBe(profile === 'shell' ? 'kept\n' : '');
    await expectCleanStop(at, id);
  }
}

export async function deleteScenario(point: FailpointName): Promise<void> {
  const at = await sharedHome();
  for (const profile of variants(point, ['shell', 'volume'])) {
    const id = await createSession(at, profile);
    await runTurn(at, id, 'mkdir -p a/b; echo gone > a/b/f');
    const request = { session: id, force: true, opId: uniqueName('op-delete') };
    await expectKilledDuring(at, point, () => at.call('session/delete', request));
    await startNextSupervisor(at);
    await waitUntil('the session is gone', async () => {
      const { sessions } = await at.call('session/list', { limit: 1000 });
      return !sessions.some((one) => one.id === id);
    });
    await expectSettled(at);
    await expect(retryRequest(at, 'session/delete', request)).resolves.toEqual({});
    await expect(at.call('session/show', { session: id })).rejects.toMatchObject({ code: 'not_found' });
    expect((await at.listObjects()).filter(({ labels }) => labels['dev.holdfast.session'] === id)).toEqual(
      [],
    );
    expect(await readdir(join(at.path, 'workspaces'))).not.toContain(id);
    // What it was last is kept for a while, whole, however often the deletion was begun.
    const { snapshots } = await at.call('snapshot/list', { session: id });
    expect(snapshots).toMatchObject([{ reason: 'before-delete', files: 1, directories: 2 }]);
  }
}
