import { expect, test } from 'vitest';
import { AcpMachine } from '../../../supervisor/agents/acp/machine.ts';
import { NO_CONVERSATION } from '../../../supervisor/agents/acp/state.ts';

/** A machine whose turn waits for the answer to its prompt. */
function givenPrompted(limitBytes = 2 ** 30): AcpMachine {
  let permissions = 0;
  const machine = new AcpMachine(NO_CONVERSATION, {
    version: '0.0.0',
    permissions: 'ask',
    newPermissionId: () => `perm-${String(permissions++).padStart(16, 'a')}`,
  });
  machine.beginTurn({ id: 'turn-aaaaaaaaaaaaaaaa', model: null, limitBytes }, 0);
  machine.processStarted(0, false);
  receive(machine, { id: 1, result: { protocolVersion: 1 } });
  receive(machine, { id: 2, result: { sessionId: 'one' } });
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
