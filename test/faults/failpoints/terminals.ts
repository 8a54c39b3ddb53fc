import { expect } from 'vitest';
import type { FailpointName } from '../../../supervisor/base/failpoints.ts';
import { expectSettled, expectWholeHistory } from '../harness/expectations.ts';
import { waitUntil } from '../harness/fault-fixture.ts';
import {
  sharedHome,
  expectKilledDuring,
  startNextSupervisor,
  runTurn,
  startWithFailpoint,
  createSession,
  sessionStatus,
  expectCleanStop,
} from './fixture.ts';

/** Its client never heard of it: it is open and listed, or it never began and is over. */
export async function terminalOpenScenario(point: FailpointName): Promise<void> {
  const at = await sharedHome();
  const id = await createSession(at);
  await runTurn(at, id, ': > f');
  const command = ['sh', '-c', 'echo ran >> f; sleep 600'];
  const request = { session: id, command, columns: 80, rows: 24, opId: point.replaceAll('.', '-') };
  await expectKilledDuring(at, point, () => at.call('terminal/open', request));
  await startNextSupervisor(at);
  const began = point === 'terminal.after-launch';
  await waitUntil('what became of it is known', async () => {
    const { terminals } = await at.call('terminal/list', { session: id });
    return terminals.length === 1 && terminals[0]?.status === (began ? 'running' : 'ended');
  });
  // Its client asks again: no second one is opened.
  const again = await at.call('terminal/open', request);
  const { terminals } = await at.call('terminal/list', { session: id });
  expect(terminals.map(({ terminalId }) => terminalId)).toEqual([again.terminal.terminalId]);
  expect(again.terminal.status).toBe(began ? 'running' : 'ended');
  await waitUntil(
    'it is live, or not',
    async () => (await sessionStatus(at, id)) === (began ? 'active' : 'idle'),
  );
  expect(await runTurn(at, id, 'cat f')).toBe(began ? 'ran\n' : '');
  await at.call('session/stop', { session: id, force: true });
  await expectSettled(at);
  await expectWholeHistory(at, id);
}

export async function terminalEndScenario(point: FailpointName): Promise<void> {
  const at = await sharedHome();
  const id = await createSession(at);
  const { died } = await startWithFailpoint(at, point);
  const command = ['sh', '-c', 'read line; exit 3'];
  const { terminal } = await at.call('terminal/open', { session: id, command, columns: 80, rows: 24 });
  await at.call('terminal/write', { terminal: terminal.terminalId }, Buffer.from('x\r'));
  await died();
  await startNextSupervisor(at);
  await waitUntil('its end is on record', async () => {
    const { terminals } = await at.call('terminal/list', { session: id });
    return terminals[0]?.status === 'ended' && terminals[0].exitCode === 3;
  });
  await waitUntil('it is live no longer', async () => (await sessionStatus(at, id)) === 'idle');
  await expectCleanStop(at, id);
}
