import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, onTestFinished, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { ProfileSchema } from '../../../protocol/profile.ts';
import type { ReadySandbox } from '../../../supervisor/sandboxes/dispatches.ts';
import type { TurnRow } from '../../../supervisor/store/turns.ts';
import { TurnRun, type TurnRunOptions } from '../../../supervisor/turns/turn-run.ts';
import { waitUntil } from '../../fixtures/sidecar/turns.ts';
import { newTurn, sessionId, sessionRow, turnId } from '../../fixtures/store/temporary-home.ts';
import { silent, storedTurns } from '../../fixtures/turns/stored-turns.ts';
import { BUSYBOX, HostSandbox } from '../sidecar/host-sandbox.ts';

const SESSION = sessionId(0);
const TURN = turnId(0);
const COUNTING = 'for n in 1 2 3 4 5; do echo $n; sleep 0.2; done; cat';
const COUNTED = '1\n2\n3\n4\n5\ninput';

/** A fake: these turns are programs. */
const noAgents: TurnRunOptions['agentConversations'] = {
  begin: () => Promise.reject(new Error('this turn has no agent that stays')),
  hasBegun: () => false,
  outcomeOf: () => null,
  isOverLimit: () => false,
  storeFailure: () => null,
  cancel: () => Promise.resolve(),
  stop: () => Promise.resolve(),
  end: (_session, _turn, recordEnd) => recordEnd(),
};

/** A turn with a real database, sidecar and runner. The engine is a fake, because it has to fail on demand. */
async function given(script = COUNTING, row: Partial<TurnRow> = {}) {
  const stored = storedTurns();
  const { rows, turns, events, output } = stored;
  const profile = ProfileSchema.parse({
    name: 'counter',
    agent: { protocol: 'command', command: ['sh', '-c', script] },
  });
  const engine = {
    sandbox: null as HostSandbox | null,
    started: 0,
    ended: [] as string[],
    /** Errors of the next calls of `endAgent`. */
    failures: [] as HoldfastError[],
    onStart: (_: HostSandbox): void => undefined,
  };
  const lifecycle: TurnRunOptions['lifecycle'] = {
    row: () => rows.find(SESSION),
    environment: () => ({}),
    thaw: () => Promise.resolve(),
    attach: () =>
      engine.sandbox === null
        ? Promise.reject(new HoldfastError('sandbox_lost', 'There is no sandbox'))
        : Promise.resolve({ client: engine.sandbox.client, agentEnd: null }),
    async dispatch(): Promise<ReadySandbox> {
      if (engine.sandbox === null || engine.ended.includes(engine.sandbox.session)) {
        const sandbox = await HostSandbox.start();
        onTestFinished(() => sandbox.dispose());
        engine.sandbox = sandbox;
        engine.started += 1;
        engine.onStart(sandbox);
      }
      return {
        dispatched: { reused: false, case: 'create' },
        client: engine.sandbox.client,
        row: rows.find(SESSION),
        dispatchMs: 1,
      } as ReadySandbox;
    },
    async endAgent() {
      const failure = engine.failures.shift();
      if (failure !== undefined) throw failure;
      await engine.sandbox?.stopRunner();
      engine.ended.push(engine.sandbox?.session ?? '');
    },
  };
  rows.insert(sessionRow(0));
  turns.insert(newTurn(0, { input: Buffer.from('input'), ...row }));
  const options: TurnRunOptions = {
    ...stored,
    lifecycle,
    profileOf: () => profile,
    agentConversations: noAgents,
    promptFiles: { place: () => Promise.resolve() },
    isFrozen: () => false,
    pausedTime: () => 0,
    sweep: () => Promise.resolve(),
    beforeTurn: () => Promise.resolve(),
    log: silent,
  };
  return {
    engine,
    row: () => turns.getOrThrow(TURN),
    output: () => output.read(TURN, 'stdout', 0, 1000).toString(),
    countEvents: (type: string) =>
      events.read(SESSION, { limit: 1000 }).filter((one) => one.type === type).length,
    /** What a supervisor that finds the row begins with. */
    run: (changed = options) => new TurnRun(turns.getOrThrow(TURN), changed),
    options,
  };
}

describe.skipIf(BUSYBOX === null)('the run of a turn', { timeout: 60_000 }, () => {
  test('a damaged run directory: the turn gets another sandbox, although the engine fails at first', async () => {
    const { engine, row, output, countEvents, run } = await given();
    engine.failures.push(new HoldfastError('engine_unavailable', 'The engine does not answer'));
    engine.onStart = ({ client }) => {
      if (engine.started > 1) return;
      const details = { runDirectory: 'damaged' };
      client.launchTurn = () =>
        Promise.reject(new HoldfastError('sandbox_lost', 'The turn cannot be handed over', { details }));
    };
    await run().run();
    expect(row()).toMatchObject({ status: 'succeeded', exitCode: 0, error: null });
    expect(output()).toBe(COUNTED);
    expect(engine).toMatchObject({ started: 2, failures: [] });
    expect(engine.ended).toHaveLength(1);
    expect(['turn.started', 'turn.restarted', 'turn.ended'].map(countEvents)).toEqual([1, 1, 1]);
  });

  test('it continues in another supervisor from the stored offsets, also when the sidecar was killed meanwhile', async () => {
    const { engine, row, output, countEvents, run } = await given();
    const first = run();
    const settled = first.run();
    await waitUntil('some output is stored', () => row().stdoutBytes > 0);
    first.detach();
    await settled;
    expect(row().status).toBe('running');
    await engine.sandbox?.replaceSidecar();
    await run().run();
    expect(row()).toMatchObject({ status: 'succeeded', exitCode: 0 });
    expect(output()).toBe(COUNTED);
    expect(['turn.started', 'turn.ended'].map(countEvents)).toEqual([1, 1]);
    expect(engine.started).toBe(1);
  });

  test('it connects again when the sidecar is killed while it is followed', async () => {
    const { engine, row, output, run } = await given();
    const settled = run().run();
    await waitUntil('some output is stored', () => row().stdoutBytes > 0);
    await engine.sandbox?.replaceSidecar();
    await settled;
    expect(row()).toMatchObject({ status: 'succeeded', exitCode: 0 });
    expect(output()).toBe(COUNTED);
  });

  test('a cancel ends a program that ignores TERM, within its grace', async () => {
    const { row, countEvents, run } = await given("trap '' TERM; echo ready; while :; do sleep 0.1; done");
    const turn = run();
    const settled = turn.run();
    await waitUntil('the program runs', () => row().stdoutBytes > 0);
    turn.cancel();
    turn.cancel();
    await settled;
    expect(row()).toMatchObject({ status: 'cancelled', error: { data: { code: 'cancelled' } } });
    await sleep(50);
    expect(countEvents('turn.ended')).toBe(1);
  });

  test('a cancel during the snapshot ends the turn without a launch', async () => {
    const { row, countEvents, run, options } = await given();
    const turn = run({
      ...options,
      beforeTurn: (_, __, signal) =>
        new Promise((resolve) => {
          signal.addEventListener('abort', () => resolve());
          turn.cancel();
        }),
    });
    await turn.run();
    expect(row()).toMatchObject({ status: 'cancelled', launchedAt: null });
    expect(countEvents('turn.ended')).toBe(1);
  });

  test('a cancelled prompt that no supervisor has begun ends without its agent', async () => {
    const found = { kind: 'acp', status: 'running', startedAt: Date.now(), cancelRequested: true } as const;
    const { row, countEvents, run, options } = await given(COUNTING, found);
    await options.lifecycle.dispatch(SESSION, TURN);
    // `begin` of these agents fails, and so would the turn.
    await run().run();
    expect(row()).toMatchObject({ status: 'cancelled', launchedAt: null });
    expect(countEvents('turn.ended')).toBe(1);
  });

  test('a turn whose launch a killed supervisor did not record has run, although it is cancelled at once', async () => {
    const { row, run, options } = await given('echo ready; exec sleep 60');
    const first = run();
    const settled = first.run();
    await waitUntil('the program runs', () => row().stdoutBytes > 0);
    first.detach();
    await settled;
    options.turns.update(TURN, { launchedAt: null, cancelRequested: true });
    await run().run();
    expect(row()).toMatchObject({ status: 'cancelled', launchedAt: row().startedAt });
    expect(row().turnMs).toBeGreaterThan(0);
  });
});
