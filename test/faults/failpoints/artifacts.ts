import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import type { FailpointName } from '../../../supervisor/base/failpoints.ts';
import type { FaultHome } from '../harness/fault-home.ts';
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

const filesOf = (at: FaultHome): string[] => readdirSync(join(at.path, 'promoted')).sort();

async function artifactsOf(at: FaultHome, session: string): Promise<string[]> {
  const { artifacts } = await at.call('artifact/list', { session });
  return artifacts.map(({ id }) => id);
}

/** The supervisor dies when the contents are stored, or when the row is: the repeated request makes one artifact. */
export async function artifactScenario(point: FailpointName): Promise<void> {
  const at = await sharedHome();
  const session = await createSession(at);
  await runTurn(at, session, 'mkdir out; echo kept > out/report; echo other > other');
  const others = filesOf(at);
  const opId = uniqueName('op-artifact');
  const request = { session, kind: 'files' as const, paths: ['out'], opId };
  await expectKilledDuring(at, point, () => at.call('artifact/create', request));
  await startNextSupervisor(at);
  expect(await artifactsOf(at, session)).toHaveLength(point === 'artifact.after-row' ? 1 : 0);
  const { artifact } = await retryRequest(at, 'artifact/create', request);
  expect(await artifactsOf(at, session)).toEqual([artifact.id]);
  await at.call('gc', {});
  expect(filesOf(at)).toEqual([...others, artifact.id].sort());
  const { peer } = await at.connect();
  const { bytes } = await peer.callWithBytes('artifact/read', { artifact: artifact.id, offset: 0 });
  expect(Buffer.from(bytes).toString()).toBe('kept\n');
  await expectConsistent(at, session);
}

/** The supervisor dies between the row of a removed artifact and its contents. */
export async function artifactRemovalScenario(point: FailpointName): Promise<void> {
  const at = await sharedHome();
  const session = await createSession(at);
  await runTurn(at, session, 'echo kept > report');
  const others = filesOf(at);
  const { artifact } = await at.call('artifact/create', { session, kind: 'patch' });
  await expectKilledDuring(at, point, () => at.call('artifact/remove', { artifact: artifact.id }));
  await startNextSupervisor(at);
  expect(await artifactsOf(at, session)).toEqual([]);
  expect(await at.call('artifact/remove', { artifact: artifact.id })).toEqual({ removed: false });
  await at.call('gc', {});
  expect(filesOf(at)).toEqual(others);
}
