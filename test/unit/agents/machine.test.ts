import { expect, test } from 'vitest';
import { PERMISSION_LIMITS } from '../../../protocol/permissions.ts';
import type { Permissions } from '../../../protocol/profile.ts';
import { AcpMachine } from '../../../supervisor/agents/acp/machine.ts';
import { agentEndedOutcome } from '../../../supervisor/agents/acp/outcomes.ts';
import {
  type AcpState,
  type AgentTurnOutcome,
  type BudgetLimits,
  NO_CONVERSATION,
} from '../../../supervisor/agents/acp/state.ts';

const NO_BUDGET: BudgetLimits = { tokens: null, cost: null };

/** A machine whose turn waits for the answer to its prompt. */
function givenPrompted(
  limitBytes = 2 ** 30,
  opened: object = {},
  permissionPolicy: Permissions = 'ask',
  budget: BudgetLimits = NO_BUDGET,
): AcpMachine {
  let permissions = 0;
  const machine = new AcpMachine(NO_CONVERSATION, {
    version: '0.0.0',
    permissions: () => permissionPolicy,
    newPermissionId: () => `perm-${String(permissions++).padStart(16, 'a')}`,
  });
  machine.beginTurn({ id: 'turn-aaaaaaaaaaaaaaaa', model: null, choices: [], limitBytes, budget }, 0);
  machine.processStarted(0, false);
  receive(machine, { id: 1, result: { protocolVersion: 1 } });
  receive(machine, { id: 2, result: { sessionId: 'one', ...opened } });
  machine.sendPrompt([{ type: 'text', text: 'hi' }]);
  machine.takeCommit();
  return machine;
}

function receive(machine: AcpMachine, message: unknown): void {
  machine.receive(Buffer.from(JSON.stringify(message)), 0);
}

test('names that the agent makes up are cut before they stay in the state', () => {
  const machine = givenPrompted();
  for (let nth = 0; nth < 20; nth++) receive(machine, { method: `${nth}${'x'.repeat(100_000)}` });
  expect(machine.state.turn?.noticed).toHaveLength(20);
  expect(JSON.stringify(machine.state).length).toBeLessThan(10_000);
});

const update = (of: object) => ({
  method: 'session/update',
  params: { sessionId: 'one', update: { sessionUpdate: 'tool_call_update', toolCallId: 'call', ...of } },
});

test('an update of a call that changes nothing is no event', () => {
  const machine = givenPrompted();
  const call = { title: 'Edit', locations: [{ path: '/workspace/a' }], rawInput: { a: 1 } };
  receive(machine, update(call));
  expect(machine.takeCommit().events).toHaveLength(1);
  for (const same of [{}, call, { rawInput: { a: 1 } }, { status: 'pending' }])
    receive(machine, update(same));
  expect(machine.takeCommit().events).toEqual([]);
  receive(machine, update({ rawInput: { a: 2 } }));
  expect(machine.takeCommit().events).toHaveLength(1);
  receive(machine, update({ status: 'completed' }));
  expect(machine.takeCommit().events).toHaveLength(1);
});

test('what an event holds counts against the limit, and long locations are left out', () => {
  const machine = givenPrompted(50_000);
  const locations = Array.from({ length: 16 }, (_, nth) => ({ path: `/${nth}${'x'.repeat(1000)}` }));
  for (let nth = 0; nth < 20; nth++) {
    receive(machine, update({ toolCallId: `call${nth}`, locations }));
    const [event] = machine.takeCommit().events;
    if (event !== undefined) expect(JSON.stringify(event.data).length).toBeLessThan(5000);
  }
  expect(machine.state.turn?.isOverLimit).toBe(true);
  expect(Object.keys(machine.state.turn?.tools ?? {}).length).toBeLessThan(15);
  const toolCall = { toolCallId: 'other' };
  const options = [{ optionId: 'yes', name: 'Yes', kind: 'allow_once' }];
  receive(machine, { id: 9, method: 'session/request_permission', params: { toolCall, options } });
  const { asked, lines } = machine.takeCommit();
  expect(asked).toEqual([]);
  expect(lines).toHaveLength(1);
});

test('beyond the limit of a turn a permission is rejected without a row and without an event', () => {
  const machine = givenPrompted(2 ** 30, {}, 'allow');
  const options = [
    { optionId: 'yes', name: 'Yes', kind: 'allow_once' },
    { optionId: 'no', name: 'No', kind: 'reject_once' },
  ];
  const ask = (id: number) => {
    const params = { toolCall: { toolCallId: 'call' }, options };
    receive(machine, { id, method: 'session/request_permission', params });
    return machine.takeCommit();
  };
  for (let nth = 0; nth < PERMISSION_LIMITS.perTurn; nth++) expect(ask(nth).asked).toHaveLength(1);
  const first = ask(5000);
  expect(first.events.map(({ type }) => type)).toEqual(['agent.notice']);
  for (let nth = 5001; nth < 5100; nth++) {
    const { asked, settled, events, lines } = ask(nth);
    expect({ asked, settled, events }).toEqual({ asked: [], settled: [], events: [] });
    expect(String(lines[0])).toContain('"no"');
  }
});

const option = (id: string, currentValue: string, category = id) => ({
  ...{ id, category, type: 'select', currentValue },
  options: ['small', 'large', 'default', 'plan'].map((value) => ({ value, name: value })),
});
const changed = (...configOptions: object[]) => ({
  method: 'session/update',
  params: { sessionId: 'one', update: { sessionUpdate: 'config_option_update', configOptions } },
});
const optionsIn = (machine: AcpMachine) =>
  machine.takeCommit().events.flatMap(({ type, data }) => (type === 'agent.option' ? [data] : []));

test('settings that an agent changes again and again are reported as they are in the end', () => {
  const machine = givenPrompted(2 ** 30, { configOptions: [option('mode', 'default')] });
  const [turnId] = [machine.state.turn?.id];
  for (let nth = 0; nth <= 100; nth++)
    receive(machine, changed(option('mode', nth % 2 ? 'default' : 'plan')));
  expect(optionsIn(machine)).toEqual([{ turnId, option: 'mode', value: 'plan', by: 'agent' }]);
  machine.endTurn();
  machine.takeCommit();
  for (let nth = 0; nth < 100; nth++) {
    receive(machine, changed(option('mode', `between${nth}`)));
    expect(optionsIn(machine)).toEqual([]);
  }
  machine.beginTurn(
    { id: 'turn-bbbbbbbbbbbbbbbb', model: null, choices: [], limitBytes: 2000, budget: NO_BUDGET },
    0,
  );
  expect(optionsIn(machine)).toEqual([{ turnId: null, option: 'mode', value: 'between99', by: 'agent' }]);
  machine.sendPrompt([{ type: 'text', text: 'again' }]);
  for (let nth = 0; nth < 100; nth++) {
    receive(machine, changed(option('mode', `beyond${nth}`)));
    expect(optionsIn(machine).length).toBeLessThanOrEqual(nth < 3 ? 1 : 0);
  }
});

test('an answer of the agent says what it set, and not who wanted it', () => {
  const machine = givenPrompted(2 ** 30, {
    configOptions: [option('model', 'small'), option('mode', 'default')],
  });
  machine.endTurn();
  machine.beginTurn(
    { id: 'turn-bbbbbbbbbbbbbbbb', model: 'large', choices: [], limitBytes: 2 ** 30, budget: NO_BUDGET },
    0,
  );
  const id = machine.state.connection?.pending.find(({ what }) => what === 'set')?.id;
  receive(machine, { id, result: { configOptions: [option('model', 'large'), option('mode', 'plan')] } });
  expect(optionsIn(machine)).toMatchObject([
    { option: 'model', value: 'large', by: 'person' },
    { option: 'mode', value: 'plan', by: 'agent' },
  ]);
});

const usage = (used: number, amount: number) => ({
  method: 'session/update',
  params: {
    sessionId: 'one',
    update: { sessionUpdate: 'usage_update', used, size: 10 ** 6, cost: { amount, currency: 'USD' } },
  },
});
const answerOf = (id: string) => ({ id, name: id, kind: 'allow_once' }) as const;
const sent = (machine: AcpMachine): { method?: string }[] =>
  machine.takeCommit().lines.map((line) => JSON.parse(line.toString()) as { method?: string });

test('beyond its budget a turn stops with a question, whatever the profile allows, and continues with as much again', () => {
  const machine = givenPrompted(2 ** 30, {}, 'allow', { tokens: 1000, cost: null });
  receive(machine, usage(1000, 1));
  expect(machine.takeCommit().asked).toEqual([]);
  receive(machine, usage(1001, 1));
  const { asked, lines } = machine.takeCommit();
  expect(asked).toMatchObject([{ title: 'The turn has used 1,001 tokens of 1,000. Go on?' }]);
  expect(lines.map((line) => (JSON.parse(line.toString()) as { method: string }).method)).toEqual([
    'session/cancel',
  ]);
  // Asked once, and the agent gets nothing more allowed meanwhile.
  receive(machine, usage(1500, 1));
  receive(machine, {
    id: 9,
    method: 'session/request_permission',
    params: { sessionId: 'one', options: [] },
  });
  expect(machine.takeCommit().asked).toEqual([]);
  machine.answer(asked[0]?.id ?? '', answerOf('more'));
  expect(machine.isReadyForPrompt).toBe(false);
  receive(machine, { id: 3, result: { stopReason: 'cancelled' } });
  expect(machine.outcome).toBeNull();
  expect(machine.isReadyForPrompt).toBe(true);
  machine.sendPrompt([{ type: 'text', text: 'go on' }]);
  expect(sent(machine)).toMatchObject([{ method: 'session/prompt' }]);
  // Its context was summarized, which gives nothing back.
  receive(machine, usage(200, 1));
  receive(machine, usage(1200, 1));
  expect(machine.takeCommit().asked).toEqual([]);
  receive(machine, usage(1201, 1));
  expect(machine.takeCommit().asked).toMatchObject([
    { title: 'The turn has used 2,501 tokens of 2,500. Go on?' },
  ]);
});

test('a person stops a turn at its budget; the agent that was done just then has ended its turn', () => {
  const stopped = givenPrompted(2 ** 30, {}, 'ask', { tokens: null, cost: 2 });
  receive(stopped, usage(10, 2.5));
  const [question] = stopped.takeCommit().asked;
  expect(question?.title).toBe('The turn has cost 2.5 USD of 2. Go on?');
  receive(stopped, { id: 3, error: { code: 1, message: 'aborted' } });
  expect(stopped.outcome).toBeNull();
  stopped.answer(question?.id ?? '', answerOf('stop'));
  expect(stopped.outcome).toMatchObject({
    status: 'cancelled',
    error: { message: 'The turn was stopped at its budget', data: { why: 'it used 10 tokens and 2.5 USD' } },
  });

  const done = givenPrompted(2 ** 30, {}, 'ask', { tokens: null, cost: 2 });
  receive(done, usage(10, 2.5));
  receive(done, { id: 3, result: { stopReason: 'end_turn' } });
  expect(done.outcome?.status).toBe('succeeded');
  const { settled, events } = done.takeCommit();
  expect(settled).toMatchObject([{ option: null, by: { kind: 'turn' } }]);
  expect(events.flatMap(({ data }) => ('code' in data ? [data.code] : []))).toEqual(['over_budget']);
});

test('an agent that continues beyond its budget is found; a cancelled turn ends though its agent has stopped', () => {
  const machine = givenPrompted(2 ** 30, {}, 'ask', { tokens: 5, cost: null });
  receive(machine, usage(6, 0));
  expect(machine.isUnstoppable(9_999)).toBe(false);
  expect(machine.nextTick).toBe(10_000);
  expect(machine.isUnstoppable(10_000)).toBe(true);
  receive(machine, { id: 3, result: { stopReason: 'cancelled' } });
  expect(machine.isUnstoppable(10_000)).toBe(false);
  machine.cancel();
  expect(machine.outcome?.status).toBe('cancelled');
});

test('a question about the budget goes with the process, and the next one is asked again', () => {
  const machine = givenPrompted(2 ** 30, {}, 'ask', { tokens: 5, cost: null });
  receive(machine, usage(6, 0));
  const [question] = machine.takeCommit().asked;
  machine.processEnded(null, true);
  expect(machine.takeCommit().settled).toMatchObject([{ id: question?.id, option: null }]);
  expect(machine.state.turn?.budget.question).toBeNull();
  expect(machine.isUnstoppable(1e9)).toBe(false);
  expect(machine.outcome).toBeNull();

  const stopped = givenPrompted(2 ** 30, {}, 'ask', { tokens: 5, cost: null });
  receive(stopped, usage(6, 0));
  stopped.answer(stopped.takeCommit().asked[0]?.id ?? '', answerOf('stop'));
  stopped.processEnded(null, true);
  expect(stopped.outcome?.status).toBe('cancelled');
});

test('a limit that an agent does not report against is said to have no effect', () => {
  const machine = givenPrompted(2 ** 30, {}, 'ask', { tokens: 5, cost: 1 });
  // What no counter can hold is not reported either.
  receive(machine, usage(1e300, 1e300));
  receive(machine, { id: 3, result: { stopReason: 'end_turn' } });
  const codes = machine.takeCommit().events.flatMap(({ data }) => ('code' in data ? [data.code] : []));
  expect(codes).toEqual(['unknown:limits.tokens', 'unknown:limits.cost']);
  expect(machine.outcome?.status).toBe('succeeded');
});

/** A machine whose turn waits while a new process loads the conversation that the last one had. */
function givenLoading(state: AcpState): AcpMachine {
  const machine = new AcpMachine(state, {
    ...{ version: '0.0.0', permissions: () => 'ask', newPermissionId: () => 'perm-aaaaaaaaaaaaaaaa' },
  });
  const turn = { id: 'turn-aaaaaaaaaaaaaaaa', model: null, choices: [], limitBytes: 2 ** 30 };
  machine.beginTurn({ ...turn, budget: NO_BUDGET }, 0);
  machine.processStarted(0, true);
  receive(machine, { id: 1, result: { protocolVersion: 1, agentCapabilities: { loadSession: true } } });
  return machine;
}

const REMEMBERING: AcpState = { ...NO_CONVERSATION, conversationId: 'one' };
const ENDED: AgentTurnOutcome = agentEndedOutcome(137, 'agent', '');

/** What the machine asks of a process that has said what it can. */
function askedOf(machine: AcpMachine): unknown {
  const [, asked] = machine.takeCommit().lines.map((line): unknown => JSON.parse(line.toString()));
  return (asked as { method?: unknown } | undefined)?.method;
}

test('an agent that ends of its own memory twice, such as by the limit of its memory, begins a new conversation', () => {
  const first = givenLoading(REMEMBERING);
  expect(askedOf(first)).toBe('session/load');
  first.processEnded(ENDED, true);
  const second = givenLoading(first.state);
  expect(askedOf(second)).toBe('session/load');
  second.processEnded(ENDED, true);
  const third = givenLoading(second.state);
  expect(askedOf(third)).toBe('session/new');
  expect(third.state).toMatchObject({
    conversationId: null,
    fatalLoads: 0,
    connection: { why: 'the agent ended 2 times while it loaded it' },
  });
});

test('a process that was ended while it loaded leaves the conversation to the next one', () => {
  let machine = givenLoading(REMEMBERING);
  for (let nth = 0; nth < 3; nth++) {
    // The next prompt drops the process of a cancelled turn; the last one goes with its sandbox.
    if (nth < 2) machine.cancel();
    machine.processEnded(nth === 2 ? ENDED : null, false);
    expect(machine.state.fatalLoads).toBe(0);
    machine = givenLoading(machine.state);
  }
  // The kill of a cancel is none of its own, even where it is reported as such.
  machine.cancel();
  machine.processEnded(ENDED, true);
  machine = givenLoading(machine.state);
  expect(askedOf(machine)).toBe('session/load');
  expect(machine.state).toMatchObject({ conversationId: 'one', fatalLoads: 0 });
});
