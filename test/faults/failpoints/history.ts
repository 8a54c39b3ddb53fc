import { expect } from 'vitest';
import type { FailpointName } from '../../../supervisor/base/failpoints.ts';
import {
  createSession,
  expectConsistent,
  expectKilledDuring,
  retryRequest,
  runTurn,
  sharedHome,
  startNextSupervisor,
  uniqueName,
} from './fixture.ts';

/** A history is cut behind its first turn; the supervisor dies before, in and after the transaction. */
export async function historyCutScenario(point: FailpointName): Promise<void> {
  const at = await sharedHome();
  const id = await createSession(at);
  // Larger than what is stored in the database.
  await runTurn(at, id, 'seq 1 20000');
  const { events: first, lastSeq } = await at.call('session/events', { session: id, limit: 5000 });
  await runTurn(at, id, 'echo second');
  const output = first.find(({ type }) => type === 'turn.output')?.data['content'];
  const sha256 = (output as { sha256: string }).sha256;
  const { lastSeq: end } = await at.call('session/events', { session: id });
  const request = { session: id, keep: end - lastSeq, opId: uniqueName('op-cut') };
  await expectKilledDuring(at, point, () => at.call('history/cut', request));
  await startNextSupervisor(at);

  // Either before or after, never half.
  const isCut = point === 'cut.after-step';
  const verified = await at.call('session/verify', { session: id });
  expect(verified).toMatchObject({ ok: true, checkpoint: isCut ? { seq: lastSeq, valid: true } : null });
  const read = () => at.call('content/read', { session: id, id: sha256, offset: 0, limit: 10 });
  if (isCut) await expect(read()).rejects.toThrow('was removed');
  else expect(await read()).toMatchObject({ offset: 0 });
  const { total } = await at.call('conversation/read', { session: id });

  const cut = await retryRequest(at, 'history/cut', request);
  expect(cut).toMatchObject({ seq: lastSeq, turns: 1, limitedBy: null });
  expect(await retryRequest(at, 'history/cut', request)).toEqual(cut);
  await expect(read()).rejects.toThrow('was removed');
  const { events } = await at.call('session/events', { session: id, limit: 5000 });
  expect(events.filter(({ type }) => type === 'history.cut')).toHaveLength(1);
  const { items, before, total: after } = await at.call('conversation/read', { session: id });
  expect(before).toBe(null);
  expect(
    items.filter(
      (item) => item.type === 'mark' && item.mark === 'note' && item.note.startsWith('Earlier events'),
    ),
  ).toHaveLength(1);
  expect(items.filter((item) => item.type === 'prompt').map(({ preview }) => preview)).toEqual([
    'echo second',
  ]);
  if (isCut) expect(after).toBe(total);
  expect(await runTurn(at, id, 'echo third')).toBe('third\n');
  await expectConsistent(at, id);
}
