import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'vitest';
import type { FailpointName } from '../../../supervisor/base/failpoints.ts';
import { soakCount } from '../../setup/run-length.ts';
import { expectSettled, expectWholeHistory } from '../harness/expectations.ts';
import type { FaultHome } from '../harness/fault-home.ts';
import { waitForTurn } from '../harness/fault-fixture.ts';
import {
  KILLED,
  createSession,
  fixture,
  killSupervisor,
  retryRequest,
  sharedHome,
  startNextSupervisor,
  uniqueName,
} from './fixture.ts';

const AGENT = join(import.meta.dirname, '../../fixtures/acp-agent/agent.mjs');
const PROMPT = ['say one,', 'permission make', 'say two,', 'sleep 700', 'say three'];
/** Of the points that a turn passes often: while it loads, while it asks, and later. */
const HITS: Partial<Record<FailpointName, readonly number[]>> = {
  'agent.after-output': [5, 1, 3, 7],
  'agent.after-store': [2, 1, 3],
};

let deployed: Promise<void> | null = null;

/** A turn in a new sandbox: the agent is started, loads its conversation, is prompted, asks and ends. */
export async function agentTurnScenario(point: FailpointName): Promise<void> {
  const at = await sharedHome();
  deployed ??= readFile(AGENT, 'utf8').then((agent) =>
    fixture.deploy(at, {
      'holdfast.yaml':
        'name: talks\npersistence: persistent\nworkspace: { seed: false }\n' +
        'agent: { protocol: acp, command: [node, /agent/agent.mjs, --load], state: [.acp-agent] }\n',
      'agent.mjs': agent,
    }),
  );
  await deployed;
  const hits = HITS[point] ?? [1];
  for (const hit of hits.slice(0, soakCount(1, hits.length))) await killedAt(at, point, hit);
}

async function killedAt(at: FaultHome, point: FailpointName, hit: number): Promise<void> {
  const id = await createSession(at, 'talks');
  const first = await at.call('turn/start', { session: id, prompt: 'say first' });
  expect(await waitForTurn(at, first.turn.turnId)).toMatchObject({ status: 'succeeded' });
  await at.call('session/stop', { session: id });
  await killSupervisor(at);
  const supervisor = await at.start({ [point]: `kill@${hit}` });
  const request = { session: id, opId: uniqueName('op-agent'), prompt: PROMPT.join('\n') };
  const death = supervisor.waitForExit(60_000);
  await at.call('turn/start', request).catch(() => undefined);
  const answering = new AbortController();
  void answerPermissions(at, id, answering.signal);
  expect(await death).toEqual(KILLED);
  await startNextSupervisor(at);
  const { turn } = await retryRequest(at, 'turn/start', request);
  expect(await waitForTurn(at, turn.turnId)).toMatchObject({ status: 'succeeded' });
  answering.abort();
  expect(await said(at, id, turn.turnId)).toBe('one,[make: once]two,three');
  for (const [type, count] of [
    ['permission.asked', 1],
    ['permission.answered', 1],
    ['turn.ended', 1],
  ] as const) {
    const { events } = await at.call('session/events', { session: id, type, limit: 1000 });
    expect(events.filter(({ data }) => data['turnId'] === turn.turnId)).toHaveLength(count);
  }
  // The agent itself remembers each prompt once.
  const next = await at.call('turn/start', { session: id, prompt: 'recall' });
  expect(await waitForTurn(at, next.turn.turnId)).toMatchObject({ status: 'succeeded' });
  expect(await said(at, id, next.turn.turnId)).toBe(`say first|${PROMPT.join('\n')}|recall`);
  await expectSettled(at);
  await expectWholeHistory(at, id);
  await at.call('session/stop', { session: id });
}

/** As a person who waits at the screen, whichever supervisor serves. */
async function answerPermissions(at: FaultHome, session: string, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    try {
      const { permissions } = await at.call('permission/list', { session });
      for (const { id } of permissions)
        await at.call('permission/answer', { permission: id, answer: 'allow_once' });
    } catch {
      // It was killed, or another answer came first.
    }
    await sleep(100);
  }
}

async function said(at: FaultHome, session: string, turn: string): Promise<string> {
  const { items } = await at.call('conversation/read', { session, limit: 200 });
  return items
    .filter((item) => item.type === 'message' && item.role === 'agent' && item.turnId === turn)
    .map(({ text }) => text)
    .join('');
}
