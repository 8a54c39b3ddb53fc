import { readFile, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'vitest';
import type { FailpointName } from '../../../supervisor/base/failpoints.ts';
import { expectSettled, expectWholeHistory, turnOutput } from '../harness/expectations.ts';
import type { FaultHome } from '../harness/fault-home.ts';
import { waitForTurn, waitUntil } from '../harness/fault-fixture.ts';
import {
  retryRequest,
  uniqueName,
  sharedHome,
  expectConsistent,
  expectKilledDuring,
  startNextSupervisor,
  runTurn,
  startWithFailpoint,
  createSession,
  sessionStatus,
  expectCleanStop,
  variants,
  sharedRunningSession,
} from './fixture.ts';

const TREE =
  'rm -rf *; mkdir -p a/b; echo one > a/one; echo two > a/b/two; ln a/one a/linked; ln -s one a/link';
const SHOWN = 'find . ! -name . | sort; cat a/one a/b/two a/link; [ a/one -ef a/linked ] && echo linked';

/** Writes as fast as it can, so that no look at the workspace sees it at rest. */
const RESTLESS =
  'for d in 1 2 3 4 5 6 7 8; do mkdir d$d; for f in $(seq 300); do : > d$d/$f; done; done; ' +
  'write() { n=0; while [ ! -e stop ]; do n=$((n+1)); echo $n > d$((n%8+1))/last$1; done; }; ' +
  'write 1 & write 2 & write 3; wait; echo stopped';

/** A warm session with files of every kind, and how they look from within. */
async function withTree(at: FaultHome, profile: string): Promise<{ id: string; seen: string }> {
  const id = await sharedRunningSession(at, profile);
  await runTurn(at, id, TREE);
  return { id, seen: await runTurn(at, id, SHOWN) };
}

export async function snapshotScenario(point: FailpointName): Promise<void> {
  const at = await sharedHome();
  for (const profile of variants(point, ['shell', 'volume'])) {
    const { id, seen } = await withTree(at, profile);
    const mark = uniqueName('label');
    const request = { session: id, label: mark, opId: uniqueName('op-snapshot') };
    await expectKilledDuring(at, point, () => at.call('snapshot/create', request));
    await startNextSupervisor(at);
    const labelled = async (): Promise<number> =>
      (await at.call('snapshot/list', { session: id })).snapshots.filter(({ label }) => label === mark)
        .length;
    expect(await labelled()).toBe(point === 'snapshot.after-row' ? 1 : 0);
    expect(await readdir(join(at.path, 'store', id))).not.toContain('incoming');
    const taken = await retryRequest(at, 'snapshot/create', request);
    expect(await labelled()).toBe(1);
    await runTurn(at, id, 'rm -rf *; echo other > a');
    await at.call('snapshot/restore', { session: id, snapshot: taken.id });
    expect(await runTurn(at, id, SHOWN)).toBe(seen);
    await expectConsistent(at, id);
  }
}

/** Dies between the end of a turn and the time when what it changed is stored. */
export async function turnChangesScenario(point: FailpointName): Promise<void> {
  const at = await sharedHome();
  const id = await sharedRunningSession(at, 'shell');
  await runTurn(at, id, TREE);
  const request = { session: id, prompt: 'printf "2\n3\n" > a/one; rm a/b/two', opId: uniqueName('op-turn') };
  const { died } = await startWithFailpoint(at, point);
  // It dies later than it answers.
  await at.call('turn/start', request);
  await died();
  await startNextSupervisor(at);
  const { turn } = await retryRequest(at, 'turn/start', request);
  expect(await waitForTurn(at, turn.turnId)).toMatchObject({ status: 'succeeded' });
  const { changes, paths } = await at.call('turn/changes', { turn: turn.turnId });
  expect(changes).toMatchObject({ state: 'known', failure: null, totals: { deleted: 1 } });
  expect(paths.find(({ path }) => path === '/workspace/a/b/two')).toMatchObject({
    kind: 'deleted',
    lines: { removed: 1 },
  });
  await expectSettled(at);
  await expectWholeHistory(at, id);
}

export async function scanScenario(point: FailpointName): Promise<void> {
  const at = await sharedHome();
  for (const profile of variants(point, ['shell', 'volume'])) {
    const id = await createSession(at, profile);
    await runTurn(at, id, `${TREE}; head -c 3000000 /dev/urandom > big`);
    const seen = await runTurn(at, id, SHOWN);
    const first = await at.call('snapshot/create', { session: id });
    await expectKilledDuring(at, point, () => at.call('session/stop', { session: id }));
    const scans = join(at.path, 'store', id, 'scans');
    // What was not sealed is nothing, and goes with the next one.
    expect(await readdir(scans)).toEqual([`${id}.incoming`]);
    await startNextSupervisor(at);
    await runTurn(at, id, 'echo other > a/one');
    const { undo } = await at.call('snapshot/restore', { session: id, snapshot: first.id, cancel: true });
    expect(await runTurn(at, id, SHOWN)).toBe(seen);
    await expectCleanStop(at, id);
    expect(await readdir(scans)).toEqual([id]);
    await at.call('snapshot/restore', { session: id, snapshot: undo ?? '' });
    expect(await runTurn(at, id, 'cat a/linked')).toBe('other\n');
    await expectCleanStop(at, id);
  }
}

export async function freezeScenario(point: FailpointName): Promise<void> {
  const at = await sharedHome();
  const id = await createSession(at);
  await at.call('session/resume', { session: id });
  const { died } = await startWithFailpoint(at, point);
  const { turn } = await at.call('turn/start', { session: id, prompt: RESTLESS });
  const restless = join(at.path, 'workspaces', id, 'd8/last3');
  await waitUntil('it writes', async () => (await readFile(restless, 'utf8').catch(() => '')) !== '', 60_000);
  // On a busy machine a look may be over before a writer comes to its next line.
  const taking = async (): Promise<never> => {
    for (;;) await at.call('snapshot/create', { session: id });
  };
  await at.expectConnectionLost(taking());
  await died();
  // The guard does not wait for anybody to come back.
  await waitUntil(
    'its agent goes on',
    async () =>
      (await at.listObjects()).some(
        ({ labels, state }) =>
          labels['dev.holdfast.session'] === id &&
          labels['dev.holdfast.role'] === 'agent' &&
          state === 'running',
      ),
    30_000,
  );
  await startNextSupervisor(at);
  await expectSettled(at);
  expect(await sessionStatus(at, id)).toBe('active');
  expect(await at.call('snapshot/create', { session: id })).toMatchObject({ created: true });
  expect(await sessionStatus(at, id)).toBe('active');
  await writeFile(join(at.path, 'workspaces', id, 'stop'), '');
  expect(await waitForTurn(at, turn.turnId)).toMatchObject({ status: 'succeeded' });
  expect((await turnOutput(at, turn.turnId, 'stdout')).toString()).toBe('stopped\n');
  await expectCleanStop(at, id);
}

export async function restoreScenario(point: FailpointName): Promise<void> {
  const at = await sharedHome();
  for (const profile of variants(point, ['shell', 'volume'])) {
    const { id, seen } = await withTree(at, profile);
    const { id: snapshot } = await at.call('snapshot/create', { session: id });
    await runTurn(at, id, 'rm -rf *; mkdir a; echo other > a/one; echo mine > n');
    const brought = async (): Promise<number> =>
      (await at.call('session/events', { session: id, type: 'workspace.restored' })).events.length;
    const before = await brought();
    const request = { session: id, snapshot, opId: uniqueName('op-restore') };
    await expectKilledDuring(at, point, () => at.call('snapshot/restore', request));
    await startNextSupervisor(at);
    // Nothing may run in it before the restore is whole.
    expect(await runTurn(at, id, SHOWN)).toBe(seen);
    const answer = await retryRequest(at, 'snapshot/restore', request);
    expect(answer.snapshot).toBe(snapshot);
    await at.call('snapshot/restore', { session: id, snapshot: answer.undo ?? '' });
    expect(await runTurn(at, id, 'find . -type f | sort; cat n')).toBe('./a/one\n./n\nmine\n');
    expect(await brought()).toBe(before + 2);
    await expectConsistent(at, id);
  }
}

export async function forkScenario(point: FailpointName): Promise<void> {
  const at = await sharedHome();
  for (const profile of variants(point, ['shell', 'volume'])) {
    const id = await createSession(at, profile);
    await runTurn(at, id, TREE);
    const seen = await runTurn(at, id, SHOWN);
    const { id: snapshot } = await at.call('snapshot/create', { session: id });
    await runTurn(at, id, 'rm -rf *');
    const request = { snapshot, name: uniqueName('fork'), opId: uniqueName('op-fork') };
    await expectKilledDuring(at, point, async () => {
      const answered = await at.call('snapshot/fork', request);
      await at.call('workspace/wait', { session: answered.session.id });
    });
    // The next supervisor goes on by itself: nobody uses the fork.
    await startNextSupervisor(at);
    const { session: fork } = await retryRequest(at, 'snapshot/fork', request);
    await waitUntil(
      'its files are there',
      async () => (await at.call('session/show', { session: fork.id })).session.hydration === null,
      30_000,
    );
    const { sessions } = await at.call('session/list', { limit: 1000 });
    expect(sessions.filter(({ name }) => name === request.name)).toHaveLength(1);
    const { turns } = await at.call('turn/list', { session: fork.id });
    expect(turns.map(({ status: how }) => how)).toEqual(['succeeded', 'succeeded']);
    expect((await turnOutput(at, turns[0]?.turnId ?? '', 'stdout')).toString()).toBe(seen);
    expect(await runTurn(at, fork.id, SHOWN)).toBe(seen);
    expect(await runTurn(at, id, 'ls -A')).toBe('');
    for (const one of [id, fork.id]) {
      await at.call('session/stop', { session: one });
      await expectWholeHistory(at, one);
    }
    await expectSettled(at);
  }
}

export async function gcScenario(point: FailpointName): Promise<void> {
  const at = await sharedHome();
  const id = await createSession(at);
  // One pack with much that the second snapshot does not need, and a little that it does.
  await runTurn(at, id, 'head -c 900000 /dev/urandom > old; head -c 200000 /dev/urandom > both');
  const first = await at.call('snapshot/create', { session: id });
  await runTurn(at, id, 'rm old; head -c 900000 /dev/urandom > new');
  const second = await at.call('snapshot/create', { session: id });
  // Nothing but what was asked for keeps anything.
  const { snapshots } = await at.call('snapshot/list', { session: id });
  for (const { id: snapshot } of snapshots) {
    if (snapshot !== second.id) await at.call('snapshot/delete', { snapshot, force: true });
  }
  expect(snapshots.map((one) => one.id)).toContain(first.id);
  await expectKilledDuring(at, point, () => at.call('gc', {}));
  await at.start();
  expect(await at.call('snapshot/verify', { snapshot: second.id })).toMatchObject({ ok: true, damages: [] });
  await at.call('gc', {});
  const { usage } = await at.call('snapshot/list', { session: id });
  expect(usage.bytes).toBeGreaterThan(1_100_000);
  expect(usage.bytes).toBeLessThan(1_200_000);
  expect(await at.call('snapshot/verify', { snapshot: second.id })).toMatchObject({ ok: true, damages: [] });
  const store = join(at.path, 'store', id);
  expect((await readdir(store)).filter((name) => name !== 'incoming')).toEqual(['packs']);
  expect(await readdir(join(store, 'incoming')).catch(() => [])).toEqual([]);
  await at.call('session/stop', { session: id });
  await expectSettled(at);
}
