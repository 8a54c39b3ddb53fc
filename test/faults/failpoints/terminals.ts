import { expect } from 'vitest';
import type { FailpointName } from '../../../supervisor/failpoints.ts';
import { expectSettled, expectWholeHistory } from '../harness/expectations.ts';
import { eventually } from '../harness/workbench.ts';
import { home, killedDuring, nextCommand, run, serveUntil, session, status, stopsWhole } from './stage.ts';

/** Its client never heard of it: it is open and listed, or it never began and is over. */
export async function terminalOpened(point: FailpointName): Promise<void> {
  const at = await home();
  const id = await session(at);
  await run(at, id, ': > f');
  const command = ['sh', '-c', 'echo ran >> f; sleep 600'];
  const request = { session: id, command, columns: 80, rows: 24, opId: point.replaceAll('.', '-') };
  await killedDuring(at, point, () => at.call('terminal/open', request));
  await nextCommand(at);
  const began = point === 'terminal.after-launch';
  await eventually('what became of it is known', async () => {
    const { terminals } = await at.call('terminal/list', { session: id });
    return terminals.length === 1 && terminals[0]?.status === (began ? 'running' : 'ended');
  });
  // Its client asks again: no second one is opened.
  const again = await at.call('terminal/open', request);
  const { terminals } = await at.call('terminal/list', { session: id });
  expect(terminals.map(({ terminalId }) => terminalId)).toEqual([again.terminal.terminalId]);
  expect(again.terminal.status).toBe(began ? 'running' : 'ended');
  await eventually('it is live, or not', async () => (await status(at, id)) === (began ? 'active' : 'idle'));
  expect(await run(at, id, 'cat f')).toBe(began ? 'ran\n' : '');
  await at.call('session/stop', { session: id, force: true });
  await expectSettled(at);
  await expectWholeHistory(at, id);
}

export async function terminalEnded(point: FailpointName): Promise<void> {
  const at = await home();
  const id = await session(at);
  const { died } = await serveUntil(at, point);
  const command = ['sh', '-c', 'read line; exit 3'];
  const { terminal } = await at.call('terminal/open', { session: id, command, columns: 80, rows: 24 });
  await at.call('terminal/write', { terminal: terminal.terminalId }, Buffer.from('x\r'));
  await died();
  await nextCommand(at);
  await eventually('its end is on record', async () => {
    const { terminals } = await at.call('terminal/list', { session: id });
    return terminals[0]?.status === 'ended' && terminals[0].exitCode === 3;
  });
  await eventually('it is live no longer', async () => (await status(at, id)) === 'idle');
  await stopsWhole(at, id);
}
