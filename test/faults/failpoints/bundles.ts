import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import type { FailpointName } from '../../../supervisor/base/failpoints.ts';
import { expectSettled, expectWholeHistory } from '../harness/expectations.ts';
import type { FaultHome } from '../harness/fault-home.ts';
import {
  createSession,
  expectKilledDuring,
  runTurn,
  sharedHome,
  startNextSupervisor,
  uniqueName,
} from './fixture.ts';

/** The bytes of an export. */
async function exportSession(at: FaultHome, session: string): Promise<Buffer> {
  const { peer } = await at.connect();
  const { bundle } = await peer.call('bundle/export', { session });
  const parts: Buffer[] = [];
  for (;;) {
    const { result, bytes } = await peer.callWithBytes('bundle/read', { bundle });
    parts.push(Buffer.from(bytes));
    if (result.end) return Buffer.concat(parts);
  }
}

async function importSession(at: FaultHome, file: Buffer, name: string): Promise<string> {
  const { bundle } = await at.call('bundle/import', { profile: 'shell', name });
  await at.call('bundle/append', { bundle }, file);
  const { session } = await at.call('bundle/commit', { bundle, opId: uniqueName('op-import') });
  return session.id;
}

export async function importScenario(point: FailpointName): Promise<void> {
  const at = await sharedHome();
  const id = await createSession(at);
  const seen = await runTurn(at, id, 'echo one > one; head -c 400000 /dev/zero | tr "\\0" x; cat one');
  const file = await exportSession(at, id);
  const name = uniqueName('imported');
  const named = async (): Promise<string[]> => {
    const { sessions } = await at.call('session/list', { limit: 1000 });
    return sessions.flatMap((one) => (one.name === name ? [one.id] : []));
  };
  const atFirst = stored(at);
  await expectKilledDuring(at, point, () => importSession(at, file, name));
  await startNextSupervisor(at);
  const before = await named();
  expect(before).toHaveLength(point === 'import.after-row' ? 1 : 0);
  const imported = before[0] ?? (await importSession(at, file, name));
  expect(await named()).toEqual([imported]);
  expect(await runTurn(at, imported, 'cat one')).toBe('one\n');
  const { turns } = await at.call('turn/list', { session: imported });
  expect(turns).toHaveLength(2);
  expect(seen).toContain('one');
  await at.call('session/stop', { session: imported });
  await expectWholeHistory(at, imported);
  await at.call('gc', {});
  // What the killed import left is gone.
  const left = stored(at).filter((one) => !atFirst.includes(one) && !one.endsWith(imported));
  expect(left).toEqual([]);
  await expectSettled(at);
}

/** The sessions that have objects or outputs on disk. */
function stored(at: FaultHome): string[] {
  return ['store', 'artifacts'].flatMap((part) =>
    readdirSync(join(at.path, part)).map((name) => `${part}/${name}`),
  );
}
