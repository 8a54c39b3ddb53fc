import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'vitest';
import type { FailpointName } from '../../../supervisor/base/failpoints.ts';
import { shellProject } from '../../setup/profiles.ts';
import { expectSettled, expectWholeHistory, turnOutput } from '../harness/expectations.ts';
import { otherBuild } from '../harness/other-build.ts';
import { waitForTurn, waitUntil } from '../harness/fault-fixture.ts';
import { NUMBERED_LINES, countingScript } from './counting.ts';
import { KILLED, fixture, createSession } from './fixture.ts';

/** In a home of its own: the program that takes over is another one. */
export async function handoverScenario(point: FailpointName): Promise<void> {
  const at = await fixture.createHome();
  const first = await at.start({ [point]: 'kill' });
  await fixture.deploy(at, shellProject('shell'));
  const id = await createSession(at);
  const slow = countingScript('mark').replace('echo line $n;', 'echo line $n; sleep 0.01;');
  const { turn } = await at.call('turn/start', { session: id, prompt: slow });
  await waitUntil('the turn writes', async () => {
    return (await at.call('turn/show', { turn: turn.turnId })).turn.bytes.stdout > 0;
  });
  const bundle = await otherBuild(
    join(await fixture.temporaryFolder(), 'newer'),
    '9.9.9',
    '2035-01-01T00:00:00.000Z',
  );
  const { code } = await fixture.runHoldfast(at, ['session', 'list', '--json'], { bundle });
  expect(code).toBe(0);
  expect(await first.waitForExit(30_000)).toEqual(KILLED);
  expect(await at.call('supervisor/status', {})).toMatchObject({ version: '9.9.9', epoch: 2 });
  expect(await waitForTurn(at, turn.turnId)).toMatchObject({ status: 'succeeded' });
  expect((await turnOutput(at, turn.turnId, 'stdout')).toString()).toBe(NUMBERED_LINES);
  expect(await readFile(join(at.path, 'workspaces', id, 'mark'), 'utf8')).toBe('ran\n');
  await expectSettled(at);
  await expectWholeHistory(at, id);
}
