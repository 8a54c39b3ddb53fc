import { readFile, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import type { SessionStatus } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { MethodName, Params, Result } from '../../protocol/methods.ts';
import { FAILPOINTS, type FailpointName } from '../../supervisor/failpoints.ts';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { expectSettled, expectWholeHistory, outputOf } from './harness/expectations.ts';
import type { FaultHome } from './harness/fault-home.ts';
import { otherBuild } from './harness/other-build.ts';
import { endOfTurn, eventually, times, useWorkbench } from './harness/workbench.ts';

const LINES = 200;
const NUMBERED = Array.from({ length: LINES }, (_, at) => `line ${at + 1}\n`).join('');
/** Runs as its prompt says: leaves a mark in the workspace and prints numbered lines. */
const COUNTING = `
def handler(input):
    with open('/workspace/' + input['mark'], 'a') as f: f.write('ran\\n')
    for n in range(1, ${LINES + 1}): print('line', n, flush=True)
    return {'mark': input['mark']}
`;
const HANDLER = {
  'holdfast.yaml': 'name: handler\nagent: { protocol: handler, entry: agent.py }\npersistence: persistent\n',
  'agent.py': COUNTING,
};
const script = (mark: string): string =>
  `echo ran >> /workspace/${mark}; n=1; while [ $n -le ${LINES} ]; do echo line $n; n=$((n+1)); done`;

const KILLED = { code: null, signal: 'SIGKILL' };
const bench = useWorkbench(afterAll);
let serial = 0;
const fresh = (word: string): string => `${word}-${(serial += 1)}`;

/** The operation that passes a failpoint, and what must be true once a supervisor was killed there and another came. */
type Scenario = (point: FailpointName) => Promise<void>;

const SCENARIOS: Record<FailpointName, Scenario> = {
  'create.after-row': created,
  'create.after-workspace': created,
  'start.after-intent': started,
  'start.after-sidecar': started,
  'start.after-agent': started,
  'start.before-record': started,
  'turn.after-queued': turned,
  'turn.after-snapshot': turned,
  'turn.before-launch': turned,
  'turn.after-launch': turned,
  'turn.during-output': turned,
  'turn.before-end': turned,
  'turn.after-end': turned,
  'turn.before-forget': turned,
  'terminal.after-intent': terminalOpened,
  'terminal.after-launch': terminalOpened,
  'terminal.before-end': terminalEnded,
  'pause.after-intent': paused,
  'pause.after-engine': paused,
  'stop.after-intent': stopped,
  'stop.after-agent': stopped,
  'stop.after-removed': stopped,
  'delete.after-intent': deleted,
  'delete.after-sandbox': deleted,
  'delete.after-snapshot': deleted,
  'delete.after-clear': deleted,
  'delete.after-workspace': deleted,
  'delete.before-row': deleted,
  'deploy.after-intent': deployed,
  'deploy.after-copy': deployed,
  'deploy.after-publish': deployed,
  'deploy.before-row': deployed,
  'undeploy.after-intent': undeployed,
  'undeploy.after-sessions': undeployed,
  'handover.after-ack': handedOver,
  'handover.before-release': handedOver,
  'clean.after-intent': cleaned,
  'clean.after-clear': cleaned,
  'seed.after-part': seeded,
  'seed.before-end': seeded,
  'gc.after-copy': collected,
  'gc.after-publish': collected,
  'gc.after-intent': collected,
  'gc.after-pack': collected,
  'snapshot.after-scan': snapshotted,
  'snapshot.after-publish': snapshotted,
  'snapshot.after-row': snapshotted,
  'freeze.after-intent': frozen,
  'freeze.after-pause': frozen,
  'freeze.before-thaw': frozen,
  'restore.after-intent': restored,
  'restore.after-files': restored,
  'restore.after-end': restored,
  'fork.after-row': forked,
  'fork.after-files': forked,
};

describe('a supervisor killed at', () => {
  test.each(FAILPOINTS)('%s: all is finished or as if never asked', async (point) => {
    await SCENARIOS[point](point);
  });

  test('two places, the second while the next one puts right what the first left', async () => {
    const order: FailpointName[] = [
      'turn.before-launch',
      'turn.after-launch',
      'turn.during-output',
      'turn.before-end',
    ];
    const pairs = order.flatMap((first, at) => order.slice(at).map((second) => [first, second] as const));
    const seed = Number(process.env['HOLDFAST_SEED'] ?? Date.now() % 1000);
    const chosen = Array.from(
      { length: times(2, pairs.length) },
      (_, at) => pairs[(seed + at * 3) % pairs.length],
    );
    console.log(`seed ${seed}: ${chosen.map((pair) => pair?.join(' then ')).join(', ')}`);
    for (const pair of chosen) if (pair !== undefined) await turnedAgain('shell', ...pair);
  });
});

/** All variants in the full run; else one, so that neighbouring places of an operation get different ones. */
function variants<T>(point: FailpointName, all: readonly [T, T]): readonly T[] {
  return times(1, all.length) === all.length ? all : [all[FAILPOINTS.indexOf(point) % 2 === 0 ? 0 : 1]];
}

/** One home serves all: with what earlier scenarios left in it, as a home of a person. */
let shared: Promise<FaultHome> | null = null;
function home(): Promise<FaultHome> {
  shared ??= (async () => {
    const made = await bench.home();
    await made.start();
    await bench.deploy(made, shellProject('shell'));
    await bench.deploy(made, HANDLER);
    await bench.deploy(
      made,
      shellProject('volume', 'persistence: persistent\nworkspace: { backing: volume, seed: false }\n'),
    );
    await bench.deploy(made, shellProject('passing', ''));
    await bench.deploy(made, {
      ...shellProject('filled', 'persistence: persistent\nworkspace: { seed: start }\n'),
      'start/one': 'first',
      'start/two': 'second',
    });
    return made;
  })();
  return shared;
}

/** Ends whoever serves the home and starts one that dies at `point`. */
async function serveUntil(at: FaultHome, point: FailpointName): Promise<{ died: () => Promise<void> }> {
  await leave(at);
  const supervisor = await at.start({ [point]: 'kill' });
  return {
    died: async () => {
      expect(await supervisor.endsWithin(30_000)).toEqual(KILLED);
    },
  };
}

async function leave(at: FaultHome): Promise<void> {
  const answered = await at.call('supervisor/status', {}).catch(() => null);
  if (answered === null) return;
  process.kill(answered.pid, 'SIGKILL');
  await eventually('the supervisor is gone', () => isGone(answered.pid));
}

function isGone(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return false;
  } catch {
    return true;
  }
}

/** Somebody serves: the one that the last scenario ended with, if there is one. */
async function served(at: FaultHome): Promise<void> {
  if ((await at.call('ping', {}).catch(() => null)) === null) await nextCommand(at);
}

/** The next command of a person, which brings up the next supervisor. */
async function nextCommand(at: FaultHome): Promise<void> {
  const { code, stderr } = await bench.holdfast(at, ['session', 'list', '--json']);
  expect([code, stderr]).toEqual([0, '']);
}

/** Asks again with the same opId, as a client does that never heard the answer: until the first request is over. */
async function askAgain<M extends MethodName>(
  at: FaultHome,
  method: M,
  params: Params<M>,
): Promise<Result<M>> {
  const until = Date.now() + 15_000;
  for (;;) {
    try {
      return await at.call(method, params);
    } catch (error) {
      if (!(error instanceof HoldfastError) || error.code !== 'conflict' || Date.now() > until) throw error;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}

async function session(at: FaultHome, profile = 'shell', name = fresh(profile)): Promise<string> {
  return (await at.call('session/create', { profile, name })).session.id;
}

async function run(at: FaultHome, id: string, prompt: string): Promise<string> {
  const { turn } = await at.call('turn/start', { session: id, prompt });
  expect(await endOfTurn(at, turn.turnId)).toMatchObject({ status: 'succeeded' });
  return (await outputOf(at, turn.turnId, 'stdout')).toString();
}

async function status(at: FaultHome, id: string): Promise<SessionStatus> {
  return (await at.call('session/show', { session: id })).session.status;
}

async function containers(at: FaultHome, id: string): Promise<string[]> {
  return (await at.objects())
    .filter(({ kind, labels }) => kind === 'container' && labels['dev.holdfast.session'] === id)
    .map((one) => one.id)
    .sort();
}

async function created(point: FailpointName): Promise<void> {
  const at = await home();
  for (const profile of variants(point, ['shell', 'volume'])) {
    const request = { profile, name: fresh('made'), opId: fresh('op-create') };
    const { died } = await serveUntil(at, point);
    await at.lost(at.call('session/create', request));
    await died();
    await nextCommand(at);
    await expectSettled(at);
    const { session: made } = await askAgain(at, 'session/create', request);
    const again = await at.call('session/create', request);
    expect(again.session.id).toBe(made.id);
    const { sessions } = await at.call('session/list', { limit: 1000 });
    expect(sessions.filter(({ name }) => name === request.name)).toHaveLength(1);
    expect(await run(at, made.id, 'echo here > f; cat f')).toBe('here\n');
    await at.call('session/stop', { session: made.id });
    await expectWholeHistory(at, made.id);
  }
  await createdByTurn(point);
}

/** A session that its first turn makes: both are there or neither, and the turn runs without being asked for again. */
async function createdByTurn(point: FailpointName): Promise<void> {
  const at = await home();
  const name = fresh('first');
  const request = { profile: 'shell', name, prompt: 'echo ran >> f; cat f', opId: fresh('op-first') };
  const { died } = await serveUntil(at, point);
  await at.lost(at.call('turn/start', request));
  await died();
  await nextCommand(at);
  const { sessions } = await at.call('session/list', { limit: 1000 });
  const [made] = sessions.filter((one) => one.name === name);
  if (made === undefined) throw new Error('the session was stored before the supervisor died');
  const { turns } = await at.call('turn/list', { session: made.id });
  expect(turns).toHaveLength(1);
  const again = await at.call('turn/start', request);
  expect(again.turn.turnId).toBe(turns[0]?.turnId);
  expect(await endOfTurn(at, again.turn.turnId)).toMatchObject({ status: 'succeeded' });
  expect((await outputOf(at, again.turn.turnId, 'stdout')).toString()).toBe('ran\n');
  await at.call('session/stop', { session: made.id });
  await expectSettled(at);
  await expectWholeHistory(at, made.id);
}

async function started(point: FailpointName): Promise<void> {
  const at = await home();
  await served(at);
  const [first, again] = [await session(at), await session(at)];
  await run(at, again, 'echo kept > f');
  await at.call('session/stop', { session: again });
  for (const id of variants(point, [first, again])) {
    const { died } = await serveUntil(at, point);
    await at.lost(at.call('session/resume', { session: id }));
    await died();
    await nextCommand(at);
    await expectSettled(at);
    await expectWholeHistory(at, id);
    if ((await status(at, id)) !== 'idle')
      await eventually('nothing is left of the sandbox', async () => (await containers(at, id)).length === 0);
    const { session: resumed } = await at.call('session/resume', { session: id });
    expect(resumed.status).toBe('idle');
    expect(await containers(at, id)).toHaveLength(2);
    expect(await run(at, id, 'cat f 2>/dev/null; true')).toBe(id === again ? 'kept\n' : '');
    await at.call('session/stop', { session: id });
    await expectSettled(at);
    await expectWholeHistory(at, id);
  }
}

async function seeded(point: FailpointName): Promise<void> {
  const at = await home();
  await served(at);
  const id = await session(at, 'filled');
  const { died } = await serveUntil(at, point);
  await at.lost(at.call('session/resume', { session: id }));
  await died();
  await nextCommand(at);
  // Whatever was there when it died: all of it is, before anything can see less.
  expect(await run(at, id, 'ls -A; cat one two; echo mine > one')).toBe('one\ntwo\nfirstsecond');
  await at.call('session/stop', { session: id });
  expect(await run(at, id, 'cat one')).toBe('mine\n');
  const { events } = await at.call('session/events', { session: id, type: 'workspace.seeded' });
  expect(events).toHaveLength(1);
  await at.call('session/stop', { session: id });
  await expectSettled(at);
  await expectWholeHistory(at, id);
}

async function turned(point: FailpointName): Promise<void> {
  await turnedAgain('shell', point);
  await turnedAgain('handler', point);
}

const warm = new Map<string, string>();

/** A turn whose supervisor is killed at each of `points` in turn. */
async function turnedAgain(profile: 'shell' | 'handler', ...points: FailpointName[]): Promise<void> {
  const at = await home();
  await served(at);
  const id = warm.get(profile) ?? (await session(at, profile));
  warm.set(profile, id);
  await at.call('session/resume', { session: id });
  const mark = fresh('mark');
  const request = {
    session: id,
    opId: fresh('op-turn'),
    ...(profile === 'shell' ? { prompt: script(mark) } : { input: { mark } }),
  };
  for (const [nth, point] of points.entries()) {
    await leave(at);
    // The second one dies while it puts right what the first left, perhaps before anybody can ask it anything.
    const supervisor = nth === 0 ? await at.start({ [point]: 'kill' }) : at.spawn({ [point]: 'kill' });
    if (nth === 0) {
      const answer = at.call('turn/start', request);
      // Before the queue is worked on it was acknowledged or not; afterwards it always was, though the answer may be lost.
      if (point === 'turn.after-queued') await at.lost(answer);
      else await answer.catch(expectLost);
    }
    expect(await supervisor.endsWithin(30_000)).toEqual(KILLED);
  }
  await nextCommand(at);
  const { turn } = await askAgain(at, 'turn/start', request);
  expect(await endOfTurn(at, turn.turnId)).toMatchObject({
    status: 'succeeded',
    exitCode: profile === 'shell' ? 0 : null,
    output: profile === 'shell' ? null : { mark },
  });
  expect((await outputOf(at, turn.turnId, 'stdout')).toString()).toBe(NUMBERED);
  expect(await readFile(join(at.path, 'workspaces', id, mark), 'utf8')).toBe('ran\n');
  const { turns } = await at.call('turn/list', { session: id, limit: 1000 });
  expect(turns.filter(({ turnId }) => turnId === turn.turnId)).toHaveLength(1);
  expect(turns.filter(({ endedAt }) => endedAt === null)).toEqual([]);
  const { events } = await at.call('session/events', { session: id, type: 'turn.ended', limit: 5000 });
  expect(events.filter(({ data }) => data['turnId'] === turn.turnId)).toHaveLength(1);
  await expectSettled(at);
  await expectWholeHistory(at, id);
}

function expectLost(error: unknown): void {
  expect(error).toMatchObject({ code: 'connection_closed' });
}

/** Its client never heard of it: it is open and listed, or it never began and is over. */
async function terminalOpened(point: FailpointName): Promise<void> {
  const at = await home();
  await served(at);
  const id = await session(at);
  await run(at, id, ': > f');
  const { died } = await serveUntil(at, point);
  const command = ['sh', '-c', 'echo ran >> f; sleep 600'];
  await at.lost(at.call('terminal/open', { session: id, command, columns: 80, rows: 24 }));
  await died();
  await nextCommand(at);
  const began = point === 'terminal.after-launch';
  await eventually('what became of it is known', async () => {
    const { terminals } = await at.call('terminal/list', { session: id });
    return terminals.length === 1 && terminals[0]?.status === (began ? 'running' : 'ended');
  });
  await eventually('it is live, or not', async () => (await status(at, id)) === (began ? 'active' : 'idle'));
  expect(await run(at, id, 'cat f')).toBe(began ? 'ran\n' : '');
  await at.call('session/stop', { session: id, force: true });
  await expectSettled(at);
  await expectWholeHistory(at, id);
}

async function terminalEnded(point: FailpointName): Promise<void> {
  const at = await home();
  await served(at);
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
  await at.call('session/stop', { session: id });
  await expectSettled(at);
  await expectWholeHistory(at, id);
}

async function paused(point: FailpointName): Promise<void> {
  const at = await home();
  await served(at);
  const id = await session(at);
  await run(at, id, 'echo kept > f');
  const before = await containers(at, id);
  const { died } = await serveUntil(at, point);
  await at.lost(at.call('session/pause', { session: id }));
  await died();
  await nextCommand(at);
  await expectSettled(at);
  expect(await status(at, id)).toBe(point === 'pause.after-engine' ? 'paused' : 'idle');
  expect((await at.call('session/pause', { session: id })).session.status).toBe('paused');
  expect(await run(at, id, 'cat f')).toBe('kept\n');
  expect(await containers(at, id)).toEqual(before);
  await at.call('session/stop', { session: id });
  await expectWholeHistory(at, id);
}

async function stopped(point: FailpointName): Promise<void> {
  const at = await home();
  for (const profile of variants(point, ['shell', 'passing'])) {
    await served(at);
    const id = await session(at, profile);
    await run(at, id, 'echo kept > f');
    const { died } = await serveUntil(at, point);
    await at.lost(at.call('session/stop', { session: id }));
    await died();
    await nextCommand(at);
    await expectSettled(at);
    await at.call('session/stop', { session: id });
    expect(await containers(at, id)).toEqual([]);
    expect(await run(at, id, 'cat f 2>/dev/null; true')).toBe(profile === 'shell' ? 'kept\n' : '');
    await at.call('session/stop', { session: id });
    await expectSettled(at);
    await expectWholeHistory(at, id);
  }
}

async function deleted(point: FailpointName): Promise<void> {
  const at = await home();
  for (const profile of variants(point, ['shell', 'volume'])) {
    await served(at);
    const id = await session(at, profile);
    await run(at, id, 'mkdir -p a/b; echo gone > a/b/f');
    const request = { session: id, force: true, opId: fresh('op-delete') };
    const { died } = await serveUntil(at, point);
    await at.lost(at.call('session/delete', request));
    await died();
    await nextCommand(at);
    await eventually('the session is gone', async () => {
      const { sessions } = await at.call('session/list', { limit: 1000 });
      return !sessions.some((one) => one.id === id);
    });
    await expectSettled(at);
    await expect(askAgain(at, 'session/delete', request)).resolves.toEqual({});
    await expect(at.call('session/show', { session: id })).rejects.toMatchObject({ code: 'not_found' });
    expect((await at.objects()).filter(({ labels }) => labels['dev.holdfast.session'] === id)).toEqual([]);
    expect(await readdir(join(at.path, 'workspaces'))).not.toContain(id);
    // What it was last is kept for a while, whole, however often the deletion was begun.
    const { snapshots } = await at.call('snapshot/list', { session: id });
    expect(snapshots).toMatchObject([{ reason: 'before-delete', files: 1, directories: 2 }]);
  }
}

const TREE =
  'rm -rf *; mkdir -p a/b; echo one > a/one; echo two > a/b/two; ln a/one a/linked; ln -s one a/link';
const SHOWN = 'find . ! -name . | sort; cat a/one a/b/two a/link; [ a/one -ef a/linked ] && echo linked';

async function snapshotted(point: FailpointName): Promise<void> {
  const at = await home();
  await served(at);
  for (const profile of variants(point, ['shell', 'volume'])) {
    await served(at);
    const id = await session(at, profile);
    await run(at, id, TREE);
    const seen = await run(at, id, SHOWN);
    const request = { session: id, label: fresh('label'), opId: fresh('op-snapshot') };
    const { died } = await serveUntil(at, point);
    await at.lost(at.call('snapshot/create', request));
    await died();
    await nextCommand(at);
    const labelled = async (): Promise<number> =>
      (await at.call('snapshot/list', { session: id })).snapshots.filter(({ label }) => label !== null)
        .length;
    expect(await labelled()).toBe(point === 'snapshot.after-row' ? 1 : 0);
    expect(await readdir(join(at.path, 'store', id))).not.toContain('incoming');
    const taken = await askAgain(at, 'snapshot/create', request);
    expect(await labelled()).toBe(1);
    await run(at, id, 'rm -rf *; echo other > a');
    await at.call('snapshot/restore', { session: id, snapshot: taken.id });
    expect(await run(at, id, SHOWN)).toBe(seen);
    await at.call('session/stop', { session: id });
    await expectSettled(at);
    await expectWholeHistory(at, id);
  }
}

/** Writes as fast as it can, so that no look at the workspace sees it at rest. */
const RESTLESS =
  'for d in 1 2 3 4 5 6 7 8; do mkdir d$d; for f in $(seq 300); do : > d$d/$f; done; done; ' +
  'write() { n=0; while [ ! -e stop ]; do n=$((n+1)); echo $n > d$((n%8+1))/last$1; done; }; ' +
  'write 1 & write 2 & write 3; wait; echo stopped';

async function frozen(point: FailpointName): Promise<void> {
  const at = await home();
  await served(at);
  const id = await session(at);
  await at.call('session/resume', { session: id });
  const { died } = await serveUntil(at, point);
  const { turn } = await at.call('turn/start', { session: id, prompt: RESTLESS });
  const restless = join(at.path, 'workspaces', id, 'd8/last3');
  await eventually(
    'it writes',
    async () => (await readFile(restless, 'utf8').catch(() => '')) !== '',
    60_000,
  );
  // On a busy machine a look may be over before a writer comes to its next line.
  const taking = async (): Promise<never> => {
    for (;;) await at.call('snapshot/create', { session: id });
  };
  await at.lost(taking());
  await died();
  // The guard does not wait for anybody to come back.
  await eventually(
    'its agent goes on',
    async () =>
      (await at.objects()).some(
        ({ labels, state }) =>
          labels['dev.holdfast.session'] === id &&
          labels['dev.holdfast.role'] === 'agent' &&
          state === 'running',
      ),
    30_000,
  );
  await nextCommand(at);
  await expectSettled(at);
  expect(await status(at, id)).toBe('active');
  expect(await at.call('snapshot/create', { session: id })).toMatchObject({ created: true });
  expect(await status(at, id)).toBe('active');
  await writeFile(join(at.path, 'workspaces', id, 'stop'), '');
  expect(await endOfTurn(at, turn.turnId)).toMatchObject({ status: 'succeeded' });
  expect((await outputOf(at, turn.turnId, 'stdout')).toString()).toBe('stopped\n');
  await at.call('session/stop', { session: id });
  await expectSettled(at);
  await expectWholeHistory(at, id);
}

async function restored(point: FailpointName): Promise<void> {
  const at = await home();
  for (const profile of variants(point, ['shell', 'volume'])) {
    await served(at);
    const id = await session(at, profile);
    await run(at, id, TREE);
    const seen = await run(at, id, SHOWN);
    const { id: snapshot } = await at.call('snapshot/create', { session: id });
    await run(at, id, 'rm -rf *; mkdir a; echo other > a/one; echo mine > n');
    const request = { session: id, snapshot, opId: fresh('op-restore') };
    const { died } = await serveUntil(at, point);
    await at.lost(at.call('snapshot/restore', request));
    await died();
    await nextCommand(at);
    // Nothing may run in it before the restore is whole.
    expect(await run(at, id, SHOWN)).toBe(seen);
    const answer = await askAgain(at, 'snapshot/restore', request);
    expect(answer.snapshot).toBe(snapshot);
    await at.call('snapshot/restore', { session: id, snapshot: answer.undo ?? '' });
    expect(await run(at, id, 'find . -type f | sort; cat n')).toBe('./a/one\n./n\nmine\n');
    const { events } = await at.call('session/events', { session: id, type: 'workspace.restored' });
    expect(events).toHaveLength(2);
    await at.call('session/stop', { session: id });
    await expectSettled(at);
    await expectWholeHistory(at, id);
  }
}

async function forked(point: FailpointName): Promise<void> {
  const at = await home();
  for (const profile of variants(point, ['shell', 'volume'])) {
    await served(at);
    const id = await session(at, profile);
    await run(at, id, TREE);
    const seen = await run(at, id, SHOWN);
    const { id: snapshot } = await at.call('snapshot/create', { session: id });
    await run(at, id, 'rm -rf *');
    const request = { snapshot, name: fresh('fork'), opId: fresh('op-fork') };
    const { died } = await serveUntil(at, point);
    await at.lost(at.call('snapshot/fork', request));
    await died();
    await nextCommand(at);
    const { session: fork } = await askAgain(at, 'snapshot/fork', request);
    const { sessions } = await at.call('session/list', { limit: 1000 });
    expect(sessions.filter(({ name }) => name === request.name)).toHaveLength(1);
    const { turns } = await at.call('turn/list', { session: fork.id });
    expect(turns.map(({ status: how }) => how)).toEqual(['succeeded', 'succeeded']);
    expect((await outputOf(at, turns[0]?.turnId ?? '', 'stdout')).toString()).toBe(seen);
    expect(await run(at, fork.id, SHOWN)).toBe(seen);
    expect(await run(at, id, 'ls -A')).toBe('');
    for (const one of [id, fork.id]) {
      await at.call('session/stop', { session: one });
      await expectWholeHistory(at, one);
    }
    await expectSettled(at);
  }
}

async function deployed(point: FailpointName): Promise<void> {
  const at = await home();
  await served(at);
  const name = fresh('code');
  const project = { ...shellProject(name), 'which.txt': 'first' };
  await bench.deploy(at, project);
  const id = await session(at, name);
  expect(await run(at, id, 'cat /agent/which.txt')).toBe('first');

  const known = await writeProject(await bench.folder(), { ...project, 'which.txt': 'second' });
  const unknown = await writeProject(await bench.folder(), shellProject(`${name}-new`));
  for (const [directory, profile] of variants(point, [
    [known, name],
    [unknown, `${name}-new`],
  ] as const)) {
    const request = { directory, opId: fresh('op-deploy') };
    const { died } = await serveUntil(at, point);
    await at.lost(at.call('profile/deploy', request));
    await died();
    await nextCommand(at);
    await expectSettled(at);
    const { profiles } = await at.call('profile/list', {});
    expect(profiles.find((one) => one.name === profile)?.version ?? 0).toBe(profile === name ? 1 : 0);
    await eventually('no code of the cut off deploy is left', async () => {
      const versions = await readdir(join(at.path, 'deploys', profile)).catch(() => []);
      return versions.join() === (profile === name ? '1' : '');
    });
    if (profile === name) expect(await run(at, id, 'cat /agent/which.txt')).toBe('first');
    const answer = await askAgain(at, 'profile/deploy', request);
    expect(answer).toMatchObject({ replaced: profile === name, unchanged: false });
    expect(await at.call('profile/deploy', request)).toEqual(answer);
    if (profile === name) expect(await run(at, id, 'cat /agent/which.txt')).toBe('second');
  }
  await at.call('session/stop', { session: id });
}

async function undeployed(point: FailpointName): Promise<void> {
  const at = await home();
  await served(at);
  const name = fresh('gone');
  await bench.deploy(at, shellProject(name));
  const [running] = [await session(at, name), await session(at, name)];
  await run(at, running, 'echo 1 > f');
  const request = { profile: name, force: true, opId: fresh('op-undeploy') };
  const { died } = await serveUntil(at, point);
  await at.lost(at.call('profile/undeploy', request));
  await died();
  await nextCommand(at);
  await eventually('the profile is gone', async () => {
    const { profiles } = await at.call('profile/list', {});
    return !profiles.some((one) => one.name === name);
  });
  await expectSettled(at);
  expect(await askAgain(at, 'profile/undeploy', request)).toEqual({ sessionsDeleted: 2 });
  const { sessions } = await at.call('session/list', { limit: 1000 });
  expect(sessions.filter(({ profile }) => profile === name)).toEqual([]);
  await eventually('its code is gone', async () => {
    return (await readdir(join(at.path, 'deploys', name)).catch(() => [])).length === 0;
  });
}

/** In a home of its own: the program that takes over is another one. */
async function handedOver(point: FailpointName): Promise<void> {
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
  expect(await first.endsWithin(5000)).toEqual(KILLED);
  expect(await at.call('supervisor/status', {})).toMatchObject({ version: '9.9.9', epoch: 2 });
  expect(await endOfTurn(at, turn.turnId)).toMatchObject({ status: 'succeeded' });
  expect((await outputOf(at, turn.turnId, 'stdout')).toString()).toBe(NUMBERED);
  expect(await readFile(join(at.path, 'workspaces', id, 'mark'), 'utf8')).toBe('ran\n');
  await expectSettled(at);
  await expectWholeHistory(at, id);
}

async function collected(point: FailpointName): Promise<void> {
  const at = await home();
  await served(at);
  const id = await session(at);
  // One pack with much that the second snapshot does not need, and a little that it does.
  await run(at, id, 'head -c 900000 /dev/urandom > old; head -c 200000 /dev/urandom > both');
  const first = await at.call('snapshot/create', { session: id });
  await run(at, id, 'rm old; head -c 900000 /dev/urandom > new');
  const second = await at.call('snapshot/create', { session: id });
  // Nothing but what was asked for keeps anything.
  const { snapshots } = await at.call('snapshot/list', { session: id });
  for (const { id: snapshot } of snapshots) {
    if (snapshot !== second.id) await at.call('snapshot/delete', { snapshot, force: true });
  }
  expect(snapshots.map((one) => one.id)).toContain(first.id);
  const { died } = await serveUntil(at, point);
  await at.lost(at.call('gc', {}));
  await died();
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

async function cleaned(point: FailpointName): Promise<void> {
  const at = await home();
  await served(at);
  const [id, other] = [await session(at), await session(at)];
  await run(at, id, 'mkdir d; echo 1 > d/f; echo 2 > g');
  await run(at, other, 'echo kept > f');
  const request = { session: id, force: true, opId: fresh('op-clean') };
  const { died } = await serveUntil(at, point);
  await at.lost(at.call('workspace/clean', request));
  await died();
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
  for (const one of [id, other]) await at.call('session/stop', { session: one });
  await expectSettled(at);
}
