import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { AGENT_TOOLS, AGENT_TOOL_LIMITS } from '../../../protocol/agent-tools.ts';
import { InProcessEgress } from '../../egress-harness/in-process-egress.ts';
import { sessionId } from '../../fixtures/store/temporary-home.ts';
import { givenTools } from '../../fixtures/tools/tools.ts';
import { BUSYBOX } from '../sidecar/host-sandbox.ts';

const PROGRAM = resolve(import.meta.dirname, '../../../sidecar/guest/tools.sh');
const SESSION = sessionId(0);

test('the program has the port of the tools', () => {
  expect(readFileSync(PROGRAM, 'utf8')).toContain(`HOLDFAST_TOOLS_PORT:-${AGENT_TOOLS.port}}`);
});

/** The program of the sandbox, the sidecar's listener, the tunnel and the tools: only the containers are missing. */
async function givenProgram() {
  const chain = await InProcessEgress.open([]);
  const tools = givenTools({ dial: () => chain.dial() });
  const program: ChildProcess = spawn(BUSYBOX ?? '', ['sh', PROGRAM], {
    env: { HOLDFAST_BUSYBOX: BUSYBOX ?? '', HOLDFAST_TOOLS_PORT: String(chain.toolsPort) },
    stdio: ['pipe', 'pipe', 'inherit'],
    // Its children must end with it.
    detached: true,
  });
  onTestFinished(async () => {
    if (program.pid !== undefined && program.exitCode === null) process.kill(-program.pid, 'SIGKILL');
    tools.agentTools.close();
    await chain.dispose();
  });
  const lines: string[] = [];
  if (program.stdout !== null)
    createInterface({ input: program.stdout }).on('line', (line) => lines.push(line));
  const idsOf = () => lines.map((line) => (JSON.parse(line) as { id: unknown }).id);
  return {
    ...{ chain, program, lines, tools },
    send: (message: object) =>
      void program.stdin?.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`),
    call: (id: number, name: string, input: object = {}) =>
      void program.stdin?.write(
        `${JSON.stringify({ jsonrpc: '2.0', id, method: 'tools/call', params: { name, arguments: input } })}\n`,
      ),
    answered: (...ids: unknown[]) =>
      vi.waitFor(() => expect(idsOf()).toEqual(expect.arrayContaining(ids)), { timeout: 30_000 }),
  };
}

describe.skipIf(BUSYBOX === null)(
  'the program in the sandbox that offers the tools',
  { timeout: 60_000 },
  () => {
    test('answers each message, also those of the same moment, and ends with its input', async () => {
      const { tools, program, send, call, answered, lines } = await givenProgram();
      tools.agentTools.setLive(SESSION, true);
      send({ method: 'notifications/initialized' });
      send({ id: 'list', method: 'tools/list' });
      call(1, 'memory_write', { text: "it's \\ $(touch x) `y` ü" });
      for (const id of [2, 3, 4]) call(id, 'session_info');
      await answered('list', 1, 2, 3, 4);
      expect(lines).toHaveLength(5);
      expect(tools.sessionMemory.show(SESSION)?.text).toBe("it's \\ $(touch x) `y` ü");
      program.stdin?.end();
      expect(await once(program, 'exit')).toEqual([0, null]);
    });

    test('sends a message again until a supervisor serves it', async () => {
      const { tools, call, answered, chain } = await givenProgram();
      call(1, 'memory_write', { text: 'kept' });
      await vi.waitFor(() => expect(tools.sessionMemory.show(SESSION)).toBeNull());
      tools.agentTools.setLive(SESSION, true);
      await answered(1);
      chain.breakConnections();
      call(2, 'memory_read');
      await answered(2);
    });

    test('a question outlives its connection: the message is sent again, and gets the answer', async () => {
      const { tools, call, answered, chain, lines } = await givenProgram();
      tools.agentTools.setLive(SESSION, true);
      call(1, 'egress_request', { host: 'api.example.com', reason: 'data' });
      await vi.waitFor(() => expect(tools.waiting().permissions).toHaveLength(1), { timeout: 30_000 });
      chain.breakConnections();
      const [permission] = tools.waiting().permissions;
      tools.permissions.answer(permission?.id ?? '', 'allow_always', 'cli', undefined);
      await answered(1);
      expect(lines[0]).toContain('allowed');
      expect(tools.permissionRows.listHosts(tools.turn.id)).toHaveLength(1);
    });

    test('a message that is too long is refused, and one without an end is cut off', async () => {
      const { tools, chain } = await givenProgram();
      tools.agentTools.setLive(SESSION, true);
      await vi.waitFor(
        async () => expect((await chain.sendRaw('{}\n', 2000, chain.toolsPort))?.text).toContain('error'),
        {
          timeout: 20_000,
        },
      );
      const long = await chain.sendRaw('x'.repeat(AGENT_TOOL_LIMITS.messageBytes + 1), 5000, chain.toolsPort);
      expect(long?.text).toContain('at most 65536 bytes');
    });
  },
);
