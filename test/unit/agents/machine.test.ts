import { expect, test } from 'vitest';
import { PERMISSION_LIMITS } from '../../../protocol/permissions.ts';
import type { Permissions } from '../../../protocol/profile.ts';
import { AcpMachine } from '../../../supervisor/agents/acp/machine.ts';
import { NO_CONVERSATION } from '../../../supervisor/agents/acp/state.ts';

/** A machine whose turn waits for the answer to its prompt. */
function givenPrompted(
  limitBytes = 2 ** 30,
  opened: object = {},
  permissionPolicy: Permissions = 'ask',
): AcpMachine {
  let permissions = 0;
  const machine = new AcpMachine(NO_CONVERSATION, {
    version: '0.0.0',
    permissions: permissionPolicy,
    newPermissionId: () => `perm-${String(permissions++).padStart(16, 'a')}`,
  });
  machine.beginTurn({ id: 'turn-aaaaaaaaaaaaaaaa', model: null, choices: [], limitBytes }, 0);
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
  machine.beginTurn({ id: 'turn-bbbbbbbbbbbbbbbb', model: null, choices: [], limitBytes: 2000 }, 0);
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
  machine.beginTurn({ id: 'turn-bbbbbbbbbbbbbbbb', model: 'large', choices: [], limitBytes: 2 ** 30 }, 0);
  const id = machine.state.connection?.pending.find(({ what }) => what === 'set')?.id;
  receive(machine, { id, result: { configOptions: [option('model', 'large'), option('mode', 'plan')] } });
  expect(optionsIn(machine)).toMatchObject([
    { option: 'model', value: 'large', by: 'person' },
    { option: 'mode', value: 'plan', by: 'agent' },
  ]);
});
