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
