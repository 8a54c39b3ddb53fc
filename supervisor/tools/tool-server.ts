import { McpServer } from '@modelcontextprotocol/server';
import { AGENT_TOOLS, AGENT_TOOL_LIMITS } from '../../protocol/agent-tools.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Log } from '../base/log.ts';
import type { Allowance } from './allowance.ts';
import type { AgentTool, Caller } from './session-tools.ts';

/** An answer as JSON: the text of a tool is JSON itself, which gets at most twice as long as a string of JSON. */
const MOST_ANSWER_BYTES = 2 * AGENT_TOOL_LIMITS.answerBytes + 1024;

/** A message that the agent's client sent: checked as far as an answer needs. */
export interface ToolMessage {
  readonly jsonrpc: '2.0';
  readonly id?: string | number | undefined;
  readonly method: string;
}

export interface ToolServerOptions {
  readonly tools: readonly AgentTool[];
  readonly version: string;
  readonly log: Log;
}

/**
 * Answers one message, as JSON; null for one that gets no answer. Each message has a server of its own, which knows nothing of those
 * before: a client that initialized with another supervisor goes on with this one.
 */
export async function answerMessage(
  message: ToolMessage,
  caller: Caller,
  allowanceOf: (tool: AgentTool) => Allowance,
  { tools, version, log }: ToolServerOptions,
): Promise<string | null> {
  if (message.id === undefined) return null;
  const server = new McpServer({ name: AGENT_TOOLS.name, version });
  for (const tool of tools) {
    const { name, description, input: inputSchema, isReading } = tool;
    const annotations = { readOnlyHint: isReading, destructiveHint: false, openWorldHint: false };
    server.registerTool(name, { description, inputSchema, annotations }, async (input) => {
      try {
        allowanceOf(tool).take(name);
        return { content: [{ type: 'text', text: textOf(await tool.call(input, caller)) }] };
      } catch (error) {
        const failure = HoldfastError.from(error);
        if (failure.code === 'internal')
          log.error('a tool failed', { session: caller.sessionId, name, error });
        return { content: [{ type: 'text', text: failure.sentence }], isError: true };
      }
    });
  }
  const { promise, resolve } = Promise.withResolvers<string | null>();
  const gone = (): void => resolve(null);
  caller.signal.addEventListener('abort', gone, { once: true });
  const transport: Parameters<McpServer['connect']>[0] = {
    start: () => Promise.resolve(),
    close: () => Promise.resolve(),
    send: (answer) => {
      if ('id' in answer && answer.id === message.id && !('method' in answer))
        resolve(boundedAnswer(message.id, answer));
      return Promise.resolve();
    },
  };
  try {
    await server.connect(transport);
    transport.onmessage?.({ ...message, id: message.id });
    return await promise;
  } finally {
    caller.signal.removeEventListener('abort', gone);
    await server.close();
  }
}

/** The answer as JSON. What the library answers by itself, such as the report about an invalid input, is not cut before. */
function boundedAnswer(id: ToolMessage['id'], answer: object): string {
  const json = JSON.stringify(answer);
  if (Buffer.byteLength(json) <= MOST_ANSWER_BYTES) return json;
  const error = { code: -32_603, message: `the answer has more than ${MOST_ANSWER_BYTES} bytes` };
  return JSON.stringify({ jsonrpc: '2.0', id, error });
}

function textOf(value: unknown): string {
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  if (Buffer.byteLength(text) <= AGENT_TOOL_LIMITS.answerBytes) return text;
  const cut = Buffer.from(text).subarray(0, AGENT_TOOL_LIMITS.answerBytes).toString('utf8');
  return `${cut}\n(cut after ${AGENT_TOOL_LIMITS.answerBytes} bytes; ask for less)`;
}
