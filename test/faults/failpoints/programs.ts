import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'vitest';
import type { FailpointName } from '../../../supervisor/failpoints.ts';
import { shellProject } from '../../setup/profiles.ts';
import { expectSettled, expectWholeHistory, outputOf } from '../harness/expectations.ts';
import { otherBuild } from '../harness/other-build.ts';
import { endOfTurn, eventually } from '../harness/workbench.ts';
import { NUMBERED, script } from './counting.ts';
import { KILLED, bench, session } from './stage.ts';

/** In a home of its own: the program that takes over is another one. */
export async function handedOver(point: FailpointName): Promise<void> {
  const at = await bench.home();
  const first = await at.start({ [point]: 'kill' });
  await bench.deploy(at, shellProject('shell'));
  const id = await session(at);
  const slow = script('mark').replace('echo line $n;', 'echo line $n; sleep 0.01;');
  const { turn } = await at.call('turn/start', { session: id, prompt: slow });
  await eventually('the turn writes', async () => {
    return (await at.call('turn/show', { turn: turn.turnId })).turn.bytes.stdout > 0;
  });
  const bundle = await otherBuild(join(await bench.folder(), 'newer'), '9.9.9', '2035-01-01T00:00:00.000Z');
  const { code } = await bench.holdfast(at, ['session', 'list', '--json'], { bundle });
  expect(code).toBe(0);
  expect(await first.endsWithin(30_000)).toEqual(KILLED);
  expect(await at.call('supervisor/status', {})).toMatchObject({ version: '9.9.9', epoch: 2 });
  expect(await endOfTurn(at, turn.turnId)).toMatchObject({ status: 'succeeded' });
  expect((await outputOf(at, turn.turnId, 'stdout')).toString()).toBe(NUMBERED);
  expect(await readFile(join(at.path, 'workspaces', id, 'mark'), 'utf8')).toBe('ran\n');
  await expectSettled(at);
  await expectWholeHistory(at, id);
}
