import { expect } from 'vitest';
import { abortMove, type Moved, moveSession } from '../../../protocol/client/move-session.ts';
import type { Session } from '../../../protocol/entities.ts';
import type { FailpointName } from '../../../supervisor/base/failpoints.ts';
import { shellProject } from '../../setup/profiles.ts';
import { expectSettled, expectWholeHistory } from '../harness/expectations.ts';
import type { FaultHome } from '../harness/fault-home.ts';
import {
  createSession,
  expectKilledDuring,
  fixture,
  runTurn,
  sharedHome,
  startNextSupervisor,
  uniqueName,
} from './fixture.ts';

let other: Promise<FaultHome> | null = null;

/** The host that sessions move to. */
export function otherHome(): Promise<FaultHome> {
  other ??= (async () => {
    const made = await fixture.createHome();
    await made.start();
    await fixture.deploy(made, shellProject('shell'));
    return made;
  })();
  return other;
}

export async function move(source: FaultHome, target: FaultHome, session: string): Promise<Moved> {
  const host = async (at: FaultHome, name: string) => ({ client: (await at.connect()).peer, name });
  return await moveSession({
    source: await host(source, 'near'),
    target: await host(target, 'far'),
    session,
    signal: new AbortController().signal,
    onProgress: () => undefined,
  });
}

/** The sessions of that name that can be used, wherever they are. */
export async function livingSessions(homes: readonly FaultHome[], name: string): Promise<Session[]> {
  const lists = await Promise.all(
    homes.map(async (at) => (await at.call('session/list', { limit: 1000 })).sessions),
  );
  return lists.flat().filter((one) => one.name === name && one.move === null);
}

/** A supervisor dies in the middle of a move: the same move again goes on, to one session with all of it. */
export async function expectMoveSurvives(point: FailpointName, side: 'source' | 'target'): Promise<void> {
  const [source, target] = await Promise.all([sharedHome(), otherHome()]);
  const name = uniqueName('moving');
  const id = await createSession(source, 'shell', name);
  if ((await target.call('ping', {}).catch(() => null)) === null) await target.start();
  await runTurn(source, id, 'echo one > one; head -c 300000 /dev/urandom > noise; cat one');
  const hurt = side === 'source' ? source : target;
  // `move/finish` is the last step: the session lives there already, and its answer is not waited for.
  await expectKilledDuring(hurt, point, async () => {
    const { peer } = await hurt.connect();
    await move(source, target, id);
    await peer.call('ping', {});
  });
  await startNextSupervisor(hurt);
  expect((await livingSessions([source, target], name)).length).toBeLessThanOrEqual(1);
  const moved = await move(source, target, id);
  const [living, ...more] = await livingSessions([source, target], name);
  expect(more).toEqual([]);
  expect(living?.id).toBe(moved.arrival.session?.id);
  const there = living?.id ?? '';
  expect(await runTurn(target, there, 'cat one; wc -c < noise')).toBe('one\n300000\n');
  expect((await target.call('turn/list', { session: there })).turns).toHaveLength(2);
  await target.call('session/stop', { session: there });
  await expectWholeHistory(target, there);
  await expect(source.call('session/show', { session: id })).rejects.toMatchObject({
    code: 'not_found',
    details: { movedTo: { session: there } },
  });
  // Every step again changes nothing.
  expect((await move(source, target, id)).arrival.session?.id).toBe(there);
  for (const at of [source, target]) {
    // Where bytes arrived without a row, they are garbage.
    await at.call('gc', {});
    await expectSettled(at);
  }
}

export async function moveScenario(point: FailpointName): Promise<void> {
  if (point === 'move.after-withdrawal') await expectAbortSurvives(point);
  else await expectMoveSurvives(point, point === 'move.after-activate' ? 'target' : 'source');
}

/** What was given up lives at its source, and never at the target. */
async function expectAbortSurvives(point: FailpointName): Promise<void> {
  const [source, target] = await Promise.all([sharedHome(), otherHome()]);
  const name = uniqueName('kept');
  const id = await createSession(source, 'shell', name);
  if ((await target.call('ping', {}).catch(() => null)) === null) await target.start();
  await runTurn(source, id, 'echo one > one');
  const to = await target.call('move/identity', {});
  const begun = await source.call('move/begin', { session: id, to: { ...to, name: 'far' } });
  await expect(source.call('turn/start', { session: id, prompt: 'true' })).rejects.toMatchObject({
    code: 'conflict',
  });
  await expectKilledDuring(source, point, () => source.call('move/abort', { session: id }));
  await startNextSupervisor(source);
  expect((await livingSessions([source, target], name)).map((one) => one.id)).toEqual([id]);
  const gaveUp = await abortMove({ client: (await source.connect()).peer, name: 'near' }, id, () => null);
  expect(gaveUp).toMatchObject({ discarded: null });
  expect(await runTurn(source, id, 'cat one')).toBe('one\n');
  await expect(source.call('move/export', { move: begun.move })).rejects.toMatchObject({ code: 'conflict' });
  await source.call('session/stop', { session: id });
  await expectWholeHistory(source, id);
  await expectSettled(source);
}
