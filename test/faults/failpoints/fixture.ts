import { HoldfastError } from '../../../protocol/errors.ts';
import type { MethodName, Params, Result } from '../../../protocol/methods.ts';
import type { SessionStatus } from '../../../protocol/entities.ts';
import { afterAll, expect } from 'vitest';
import { FAILPOINTS, type FailpointName } from '../../../supervisor/base/failpoints.ts';
import { shellProject } from '../../setup/profiles.ts';
import { expectSettled, expectWholeHistory, turnOutput } from '../harness/expectations.ts';
import type { FaultHome } from '../harness/fault-home.ts';
import { waitForTurn, waitUntil, useFaultFixture } from '../harness/fault-fixture.ts';
import { COUNTING_HANDLER } from './counting.ts';
import { SOAK, soakCount } from '../../setup/run-length.ts';

/** The operation that passes a failpoint, and what must be true once a supervisor was killed there and another came. */
export type Scenario = (point: FailpointName) => Promise<void>;

export const KILLED = { code: null, signal: 'SIGKILL' };
export const fixture = useFaultFixture(afterAll);
let serial = 0;
export const uniqueName = (word: string): string => `${word}-${(serial += 1)}`;

/** All variants in the full run; else one, so that neighbouring places of an operation get different ones. */
export function variants<const T>(point: FailpointName, all: readonly [T, T]): readonly T[] {
  return soakCount(1, all.length) === all.length ? all : [all[FAILPOINTS.indexOf(point) % 2 === 0 ? 0 : 1]];
}

let shared: Promise<FaultHome> | null = null;

/** One home serves all: with what earlier scenarios left in it, as a home of a person. */
export function sharedHome(): Promise<FaultHome> {
  shared ??= (async () => {
    const made = await fixture.createHome();
    await made.start();
    await fixture.deploy(made, shellProject('shell'));
    await fixture.deploy(made, COUNTING_HANDLER);
    await fixture.deploy(
      made,
      shellProject('volume', 'persistence: persistent\nworkspace: { backing: volume, seed: false }\n'),
    );
    await fixture.deploy(made, shellProject('passing', ''));
    await fixture.deploy(made, {
      ...shellProject('filled', 'persistence: persistent\nworkspace: { seed: start }\n'),
      'start/one': 'first',
      'start/two': 'second',
    });
    return made;
  })();
  return shared;
}

/** Ends whoever serves the home and starts one that dies, or fails, at `point`. */
export async function startWithFailpoint(
  at: FaultHome,
  point: FailpointName,
  how: 'kill' | 'error' = 'kill',
): Promise<{ died: () => Promise<void> }> {
  await killSupervisor(at);
  const supervisor = await at.start({ [point]: how });
  return {
    died: async () => {
      expect(await supervisor.waitForExit(30_000)).toEqual(KILLED);
    },
  };
}

/** A supervisor that dies at `point` is asked, and dies of it: its client is told nothing. */
export async function expectKilledDuring(
  at: FaultHome,
  point: FailpointName,
  ask: () => Promise<unknown>,
): Promise<void> {
  const { died } = await startWithFailpoint(at, point);
  await at.expectConnectionLost(ask());
  await died();
}

/** Nobody serves it, and nobody put anything in order. */
export async function killSupervisor(at: FaultHome): Promise<void> {
  const answered = await at.call('supervisor/status', {}).catch(() => null);
  if (answered === null) return;
  process.kill(answered.pid, 'SIGKILL');
  await waitUntil('the supervisor is gone', () => isGone(answered.pid));
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
export async function ensureSupervisor(at: FaultHome): Promise<void> {
  if ((await at.call('ping', {}).catch(() => null)) === null) await startNextSupervisor(at);
}

/** The next command of a person, which brings up the next supervisor. Most runs leave out the command, whose start is proved elsewhere. */
export async function startNextSupervisor(at: FaultHome): Promise<void> {
  if (!SOAK) {
    await at.start();
    return;
  }
  const { code, stderr } = await fixture.runHoldfast(at, ['session', 'list', '--json']);
  expect([code, stderr]).toEqual([0, '']);
}

/** Asks again with the same opId, as a client does that never heard the answer: until the first request is over. */
export async function retryRequest<M extends MethodName>(
  at: FaultHome,
  method: M,
  params: Params<M>,
): Promise<Result<M>> {
  return retryConflict(() => at.call(method, params));
}

/** Repeats a request while an earlier one with its opId is still running. */
export async function retryConflict<T>(request: () => Promise<T>): Promise<T> {
  const until = Date.now() + 15_000;
  for (;;) {
    try {
      return await request();
    } catch (error) {
      if (!(error instanceof HoldfastError) || error.code !== 'conflict' || Date.now() > until) throw error;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}

export async function createSession(
  at: FaultHome,
  profile = 'shell',
  name = uniqueName(profile),
): Promise<string> {
  await ensureSupervisor(at);
  return (await at.call('session/create', { profile, name })).session.id;
}

const warmed = new Map<string, string>();

/** A session that runs, which earlier scenarios may have used: for what needs none of its own, as starting one is what takes long. */
export async function sharedRunningSession(at: FaultHome, profile = 'shell'): Promise<string> {
  await ensureSupervisor(at);
  const id = warmed.get(profile) ?? (await createSession(at, profile));
  warmed.set(profile, id);
  await at.call('session/resume', { session: id });
  return id;
}

/** Runs it to its end, and gives what it wrote. */
export async function runTurn(at: FaultHome, id: string, prompt: string): Promise<string> {
  const { turn } = await at.call('turn/start', { session: id, prompt });
  expect(await waitForTurn(at, turn.turnId)).toMatchObject({ status: 'succeeded' });
  return (await turnOutput(at, turn.turnId, 'stdout')).toString();
}

export async function sessionStatus(at: FaultHome, id: string): Promise<SessionStatus> {
  return (await at.call('session/show', { session: id })).session.status;
}

export async function containerIds(at: FaultHome, id: string): Promise<string[]> {
  return (await at.listObjects())
    .filter(({ kind, labels }) => kind === 'container' && labels['dev.holdfast.session'] === id)
    .map((one) => one.id)
    .sort();
}

/** What is said of it, what the engine shows, and what its history tells are the same. */
export async function expectConsistent(at: FaultHome, id: string): Promise<void> {
  await expectSettled(at);
  await expectWholeHistory(at, id);
}

/** It can be stopped, nothing of it is left on the engine then, and its history tells all. */
export async function expectCleanStop(at: FaultHome, id: string): Promise<void> {
  await at.call('session/stop', { session: id });
  await expectConsistent(at, id);
}
