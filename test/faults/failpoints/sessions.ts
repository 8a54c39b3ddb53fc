import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'vitest';
import type { FailpointName } from '../../../supervisor/failpoints.ts';
import { expectSettled, expectWholeHistory, outputOf } from '../harness/expectations.ts';
import { endOfTurn, eventually } from '../harness/workbench.ts';
import {
  askAgain,
  containers,
  fresh,
  home,
  isWhole,
  killedDuring,
  nextCommand,
  run,
  session,
  status,
  stopsWhole,
  variants,
  warm,
} from './stage.ts';

export async function created(point: FailpointName): Promise<void> {
  const at = await home();
  for (const profile of variants(point, ['shell', 'volume'])) {
    const request = { profile, name: fresh('made'), opId: fresh('op-create') };
    await killedDuring(at, point, () => at.call('session/create', request));
    await nextCommand(at);
    await expectSettled(at);
    const { session: made } = await askAgain(at, 'session/create', request);
    const again = await at.call('session/create', request);
    expect(again.session.id).toBe(made.id);
    const { sessions } = await at.call('session/list', { limit: 1000 });
    expect(sessions.filter(({ name }) => name === request.name)).toHaveLength(1);
    expect(await run(at, made.id, 'echo here > f; cat f')).toBe('here\n');
    await at.call('session/stop', { session: made.id });
    await expectWholeHistory(at, made.id);
  }
  await createdByTurn(point);
}

/** A session that its first turn makes: both are there or neither, and the turn runs without being asked for again. */
async function createdByTurn(point: FailpointName): Promise<void> {
  const at = await home();
  const name = fresh('first');
  const request = { profile: 'shell', name, prompt: 'echo ran >> f; cat f', opId: fresh('op-first') };
  await killedDuring(at, point, () => at.call('turn/start', request));
  await nextCommand(at);
  const { sessions } = await at.call('session/list', { limit: 1000 });
  const [made] = sessions.filter((one) => one.name === name);
  if (made === undefined) throw new Error('the session was stored before the supervisor died');
  const { turns } = await at.call('turn/list', { session: made.id });
  expect(turns).toHaveLength(1);
  const again = await at.call('turn/start', request);
  expect(again.turn.turnId).toBe(turns[0]?.turnId);
  expect(await endOfTurn(at, again.turn.turnId)).toMatchObject({ status: 'succeeded' });
  expect((await outputOf(at, again.turn.turnId, 'stdout')).toString()).toBe('ran\n');
  await at.call('session/stop', { session: made.id });
  await expectSettled(at);
  await expectWholeHistory(at, made.id);
}

export async function started(point: FailpointName): Promise<void> {
  const at = await home();
  for (const before of variants(point, ['nothing', 'a stopped one'])) {
    const id = await session(at);
    if (before === 'a stopped one') {
      await run(at, id, 'echo kept > f');
      await at.call('session/stop', { session: id });
    }
    await killedDuring(at, point, () => at.call('session/resume', { session: id }));
    await nextCommand(at);
    await expectSettled(at);
    await expectWholeHistory(at, id);
    if ((await status(at, id)) !== 'idle')
      await eventually('nothing is left of the sandbox', async () => (await containers(at, id)).length === 0);
    const { session: resumed } = await at.call('session/resume', { session: id });
    expect(resumed.status).toBe('idle');
    expect(await containers(at, id)).toHaveLength(2);
    expect(await run(at, id, 'cat f 2>/dev/null; true')).toBe(before === 'nothing' ? '' : 'kept\n');
    await stopsWhole(at, id);
  }
}

export async function paused(point: FailpointName): Promise<void> {
  const at = await home();
  const id = await warm(at);
  await run(at, id, 'echo kept > f');
  const before = await containers(at, id);
  await killedDuring(at, point, () => at.call('session/pause', { session: id }));
  await nextCommand(at);
  await expectSettled(at);
  expect(await status(at, id)).toBe(point === 'pause.after-engine' ? 'paused' : 'idle');
  expect((await at.call('session/pause', { session: id })).session.status).toBe('paused');
  expect(await run(at, id, 'cat f')).toBe('kept\n');
  expect(await containers(at, id)).toEqual(before);
  await isWhole(at, id);
}

export async function stopped(point: FailpointName): Promise<void> {
  const at = await home();
  for (const profile of variants(point, ['shell', 'passing'])) {
    const id = await session(at, profile);
    await run(at, id, 'echo kept > f');
    await killedDuring(at, point, () => at.call('session/stop', { session: id }));
    await nextCommand(at);
    await expectSettled(at);
    await at.call('session/stop', { session: id });
    expect(await containers(at, id)).toEqual([]);
    expect(await run(at, id, 'cat f 2>/dev/null; true')).toBe(profile === 'shell' ? 'kept\n' : '');
    await stopsWhole(at, id);
  }
}

export async function deleted(point: FailpointName): Promise<void> {
  const at = await home();
  for (const profile of variants(point, ['shell', 'volume'])) {
    const id = await session(at, profile);
    await run(at, id, 'mkdir -p a/b; echo gone > a/b/f');
    const request = { session: id, force: true, opId: fresh('op-delete') };
    await killedDuring(at, point, () => at.call('session/delete', request));
    await nextCommand(at);
    await eventually('the session is gone', async () => {
      const { sessions } = await at.call('session/list', { limit: 1000 });
      return !sessions.some((one) => one.id === id);
    });
    await expectSettled(at);
    await expect(askAgain(at, 'session/delete', request)).resolves.toEqual({});
    await expect(at.call('session/show', { session: id })).rejects.toMatchObject({ code: 'not_found' });
    expect((await at.objects()).filter(({ labels }) => labels['dev.holdfast.session'] === id)).toEqual([]);
    expect(await readdir(join(at.path, 'workspaces'))).not.toContain(id);
    // What it was last is kept for a while, whole, however often the deletion was begun.
    const { snapshots } = await at.call('snapshot/list', { session: id });
    expect(snapshots).toMatchObject([{ reason: 'before-delete', files: 1, directories: 2 }]);
  }
}
