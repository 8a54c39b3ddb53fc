import { expect } from 'vitest';
import type { FailpointName } from '../../../supervisor/base/failpoints.ts';
import {
  retryRequest,
  uniqueName,
  sharedHome,
  expectKilledDuring,
  startNextSupervisor,
  runTurn,
  createSession,
  expectCleanStop,
  sharedRunningSession,
} from './fixture.ts';

export async function seedScenario(point: FailpointName): Promise<void> {
  const at = await sharedHome();
  const id = await createSession(at, 'filled');
  await expectKilledDuring(at, point, () => at.call('session/resume', { session: id }));
  await startNextSupervisor(at);
  // Whatever was there when it died: all of it is, before anything can see less.
  expect(await runTurn(at, id, 'ls -A; cat one two; echo mine > one')).toBe('one\ntwo\nfirstsecond');
  await at.call('session/stop', { session: id });
  expect(await runTurn(at, id, 'cat one')).toBe('mine\n');
  const { events } = await at.call('session/events', { session: id, type: 'workspace.seeded' });
  expect(events).toHaveLength(1);
  await expectCleanStop(at, id);
}

export async function cleanScenario(point: FailpointName): Promise<void> {
  const at = await sharedHome();
  const [id, other] = [await createSession(at), await sharedRunningSession(at)];
  await runTurn(at, id, 'mkdir d; echo 1 > d/f; echo 2 > g');
  await runTurn(at, other, 'echo kept > f');
  const request = { session: id, force: true, opId: uniqueName('op-clean') };
  await expectKilledDuring(at, point, () => at.call('workspace/clean', request));
  // The next one is slow to finish the clean; what is written meanwhile was written after it.
  await at.start({ 'clean.after-intent': 'delay:1500' });
  await runTurn(at, id, 'echo new > new');
  await retryRequest(at, 'workspace/clean', request);
  expect(await runTurn(at, id, 'ls')).toBe('new\n');
  await at.call('workspace/clean', request);
  expect(await runTurn(at, id, 'ls; cat new')).toBe('new\nnew\n');
  expect(await runTurn(at, other, 'cat f')).toBe('kept\n');
  const { events } = await at.call('session/events', { session: id, type: 'workspace.cleaned' });
  expect(events).toHaveLength(1);
  await expectCleanStop(at, id);
}
