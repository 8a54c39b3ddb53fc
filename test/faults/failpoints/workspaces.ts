import { expect } from 'vitest';
import type { FailpointName } from '../../../supervisor/failpoints.ts';
import { askAgain, fresh, home, killedDuring, nextCommand, run, session, stopsWhole, warm } from './stage.ts';

export async function seeded(point: FailpointName): Promise<void> {
  const at = await home();
  const id = await session(at, 'filled');
  await killedDuring(at, point, () => at.call('session/resume', { session: id }));
  await nextCommand(at);
  // Whatever was there when it died: all of it is, before anything can see less.
  expect(await run(at, id, 'ls -A; cat one two; echo mine > one')).toBe('one\ntwo\nfirstsecond');
  await at.call('session/stop', { session: id });
  expect(await run(at, id, 'cat one')).toBe('mine\n');
  const { events } = await at.call('session/events', { session: id, type: 'workspace.seeded' });
  expect(events).toHaveLength(1);
  await stopsWhole(at, id);
}

export async function cleaned(point: FailpointName): Promise<void> {
  const at = await home();
  const [id, other] = [await session(at), await warm(at)];
  await run(at, id, 'mkdir d; echo 1 > d/f; echo 2 > g');
  await run(at, other, 'echo kept > f');
  const request = { session: id, force: true, opId: fresh('op-clean') };
  await killedDuring(at, point, () => at.call('workspace/clean', request));
  // The next one is slow to finish the clean; what is written meanwhile was written after it.
  await at.start({ 'clean.after-intent': 'delay:1500' });
  await run(at, id, 'echo new > new');
  await askAgain(at, 'workspace/clean', request);
  expect(await run(at, id, 'ls')).toBe('new\n');
  await at.call('workspace/clean', request);
  expect(await run(at, id, 'ls; cat new')).toBe('new\nnew\n');
  expect(await run(at, other, 'cat f')).toBe('kept\n');
  const { events } = await at.call('session/events', { session: id, type: 'workspace.cleaned' });
  expect(events).toHaveLength(1);
  await stopsWhole(at, id);
}
