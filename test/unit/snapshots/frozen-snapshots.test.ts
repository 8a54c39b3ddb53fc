import { expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { Freezing } from '../../../supervisor/sandboxes/freezing.ts';
import { rejectedError } from '../../fixtures/store/temporary-home.ts';
import { OTHER, snapshotFixture, SESSION } from '../../fixtures/snapshots/snapshot-fixture.ts';

test('a workspace that changes during the scan is scanned again while the agent is frozen, with the intent on disk', async () => {
  const { sidecar, take, agent, freezes } = snapshotFixture();
  sidecar.tree = { a: 'one' };
  const during: unknown[] = [];
  sidecar.onScan = ({ frozen, budgetBytes }) => {
    during.push([frozen, budgetBytes !== null, agent.state, freezes.list()]);
    return Promise.resolve({ changedDuringScan: !frozen });
  };
  const { row } = await take();
  expect(during).toEqual([
    [false, false, 'running', []],
    [true, true, 'paused', [SESSION]],
  ]);
  expect([agent.asked, agent.state, freezes.list()]).toEqual([['pause', 'unpause'], 'running', []]);
  expect(agent.guards).toBe(0);
  expect(row.frozenMs).toBeGreaterThan(0);
});

test('content that exceeds the freeze budget is read while the agent runs, then the agent is frozen again', async () => {
  const { sidecar, take, agent } = snapshotFixture();
  sidecar.tree = { a: 'one' };
  const budgets: (number | null)[] = [];
  sidecar.onScan = ({ frozen, budgetBytes }) => {
    budgets.push(budgetBytes);
    return Promise.resolve({ changedDuringScan: !frozen, complete: !frozen || agent.asked.length > 2 });
  };
  await take();
  expect(agent.asked).toEqual(['pause', 'unpause', 'pause', 'unpause']);
  expect(budgets).toEqual([null, expect.any(Number), null, expect.any(Number)]);
  sidecar.tree = { a: 'faster than it can be read' };
  sidecar.onScan = ({ frozen }) => Promise.resolve({ changedDuringScan: true, complete: !frozen });
  expect((await rejectedError(take())).code).toBe('conflict');
  expect(agent.state).toBe('running');
});

test('a failed scan thaws the agent; a failed thaw is repeated at the next use, also by the next supervisor', async () => {
  const { sidecar, take, agent, freezes, freezing, log } = snapshotFixture();
  sidecar.tree = { a: 'one' };
  sidecar.onScan = ({ frozen }) =>
    frozen
      ? Promise.reject(new HoldfastError('file_unavailable', 'Broken on purpose'))
      : Promise.resolve({ changedDuringScan: true });
  expect((await rejectedError(take())).code).toBe('file_unavailable');
  expect([agent.state, freezes.list()]).toEqual(['running', []]);
  agent.failsToThaw = true;
  expect((await rejectedError(take())).code).toBe('file_unavailable');
  expect([agent.state, freezes.list()]).toEqual(['paused', [SESSION]]);
  agent.failsToThaw = false;
  const next = new Freezing({
    engine: agent.engine,
    observations: { invalidate: () => undefined },
    freezes,
    log,
  });
  await next.thawIfLeftFrozen(OTHER);
  expect(agent.state).toBe('paused');
  await next.thawIfLeftFrozen(SESSION);
  expect([agent.state, freezes.list()]).toEqual(['running', []]);
  await freezing.thawIfLeftFrozen(SESSION);
  expect(agent.asked.filter((what) => what === 'unpause').length).toBe(2);
});

test('an agent that a person paused stays paused, and a missing agent is no error', async () => {
  const { sidecar, take, agent } = snapshotFixture();
  sidecar.onScan = ({ frozen }) =>
    Promise.resolve({ changedDuringScan: sidecar.scans.length < 2 && !frozen });
  agent.state = 'paused';
  sidecar.tree = { a: 'one' };
  expect((await take()).row.frozenMs).toBe(0);
  expect(sidecar.scans.map(({ frozen }) => frozen)).toEqual([false, true]);
  agent.state = null;
  sidecar.scans.length = 0;
  sidecar.tree = { a: 'two' };
  expect((await take()).row.frozenMs).toBe(0);
  expect(sidecar.scans.map(({ frozen }) => frozen)).toEqual([false, false]);
  expect([agent.asked, agent.state]).toEqual([[], null]);
});

test('a scan waits for leased files while the agent runs, then while it is frozen; files still unreadable are listed', async () => {
  const { sidecar, take, agent, told } = snapshotFixture();
  sidecar.tree = { a: 'one' };
  const during: unknown[] = [];
  const missingPaths = ['/workspace/leased'];
  sidecar.onScan = ({ frozen, awaitsLeases }) => {
    during.push([frozen, awaitsLeases, agent.state]);
    return Promise.resolve({ missing: 1, missingPaths });
  };
  const { row } = await take();
  expect(during).toEqual([
    [false, false, 'running'],
    [false, true, 'running'],
    [true, true, 'paused'],
  ]);
  expect(agent.state).toBe('running');
  expect(row).toMatchObject({ missing: 1, missingPaths });
  expect(told('snapshot.created')).toMatchObject([{ missing: 1, missingPaths }]);
  // Given up by then: nobody is frozen for it.
  agent.asked.length = 0;
  sidecar.onScan = ({ awaitsLeases }) => Promise.resolve(awaitsLeases ? {} : { missing: 1, missingPaths });
  sidecar.tree = { a: 'two' };
  expect((await take()).row.missing).toBe(0);
  expect(agent.asked).toEqual([]);
});
