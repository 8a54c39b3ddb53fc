import { createServer } from 'node:http';
import type { ServerResponse } from 'node:http';
import { z } from 'zod';

const MessageSchema = z.looseObject({ role: z.string(), content: z.unknown() });
const RequestSchema = z.looseObject({
  model: z.string().default('scripted'),
  messages: z.array(MessageSchema),
  stream: z.boolean().default(false),
  tools: z.array(z.looseObject({ function: z.looseObject({ name: z.string() }) })).default([]),
});
const SHELL_TOOLS = ['run_shell_command', 'bash', 'shell', 'Bash'];

/** As Anthropic's interface has it: what a tool returned is a part of a message of the user. */
const BlockSchema = z.looseObject({ type: z.string() });
const MessagesSchema = z.looseObject({
  model: z.string().default('scripted'),
  messages: z.array(MessageSchema),
  stream: z.boolean().default(false),
  tools: z.array(z.looseObject({ name: z.string() })).default([]),
});
/** What an agent adds to a prompt by itself. */
const REMINDER = /<system-reminder>[^]*?<\/system-reminder>/g;

/** What the model does next. */
interface Step {
  readonly text?: string;
  /** Arguments of the shell tool. */
  readonly call?: { readonly name: string; readonly input: object };
}

/**
 * A model behind OpenAI's chat interface and Anthropic's messages that does what the last line of the prompt says: `RUN<command>` calls
 * the agent's shell tool, and any other prompt is answered with the word that was last said as `WORD<…>` in the conversation. It keeps
 * no memory: what it knows is what the agent sends.
 */
export class ScriptedModel {
  readonly #server = createServer((request, response) => {
    let body = '';
    request.setEncoding('utf8').on('data', (text: string) => (body += text));
    request.on('end', () => {
      const [path = ''] = (request.url ?? '').split('?');
      if (request.method === 'POST' && path.endsWith('/chat/completions')) completeChat(body, response);
      else if (request.method === 'POST' && path.endsWith('/messages')) completeMessages(body, response);
      else {
        response.writeHead(200, { 'content-type': 'application/json' });
        const data = [{ id: 'scripted', object: 'model' }];
        response.end(JSON.stringify({ object: 'list', data, input_tokens: 10 }));
      }
    });
  });

  async listen(): Promise<number> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
    const address = this.#server.address();
    return typeof address === 'object' && address !== null ? address.port : 0;
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}

/** `isDone`: the command of the prompt has run, or was refused. */
function nextStep(prompt: string, conversation: string, tools: readonly string[], isDone: boolean): Step {
  // Before the prompt itself an agent may be told what happened earlier.
  const last = prompt.replaceAll(REMINDER, '').trimEnd().split('\n').at(-1) ?? '';
  const command = [...last.matchAll(/RUN<([^>]*)>/g)].at(-1)?.[1]?.replaceAll('GT', '>');
  const shell = tools.find((name) => SHELL_TOOLS.includes(name));
  if (command !== undefined && shell !== undefined && !isDone)
    return { call: { name: shell, input: { command, description: 'as the prompt says' } } };
  const word = [...conversation.matchAll(/WORD<([^>]*)>/g)].at(-1)?.[1] ?? 'unknown';
  return { text: isDone ? 'The command has ended.' : `The word is ${word}.` };
}

function completeChat(body: string, response: ServerResponse): void {
  const { messages, tools, stream, model } = RequestSchema.parse(JSON.parse(body));
  const lastUser = messages.findLastIndex(({ role }) => role === 'user');
  const step = nextStep(
    textOf(messages[lastUser]),
    messages.map(textOf).join('\n'),
    tools.map((tool) => tool.function.name),
    messages.slice(lastUser + 1).some(({ role }) => role === 'tool'),
  );
  const { text, call } = step;
  if (text !== undefined) reply(response, { model, stream, text });
  else if (call !== undefined) {
    const input = JSON.stringify({ ...call.input, is_background: false });
    reply(response, { model, stream, call: { name: call.name, arguments: input } });
  }
}

function completeMessages(body: string, response: ServerResponse): void {
  const { messages, tools, stream, model } = MessagesSchema.parse(JSON.parse(body));
  const blocksOf = ({ content }: z.infer<typeof MessageSchema>) =>
    z.array(BlockSchema).safeParse(content).data ?? [];
  const isResult = (message: z.infer<typeof MessageSchema>) =>
    blocksOf(message).some(({ type }) => type === 'tool_result');
  const lastPrompt = messages.findLastIndex((one) => one.role === 'user' && !isResult(one));
  const step = nextStep(
    textOf(messages[lastPrompt]),
    messages.map(textOf).join('\n'),
    tools.map(({ name }) => name),
    messages.slice(lastPrompt + 1).some(isResult),
  );
  const id = String(Date.now());
  const block =
    step.call === undefined
      ? { type: 'text', text: step.text ?? '' }
      : { type: 'tool_use', id: `toolu_${id}`, name: step.call.name, input: step.call.input };
  const reason = step.call === undefined ? 'end_turn' : 'tool_use';
  const usage = { input_tokens: 10, output_tokens: 5 };
  const message = { id: `msg_${id}`, type: 'message', role: 'assistant', model, stop_sequence: null };
  if (!stream) {
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ ...message, content: [block], stop_reason: reason, usage }));
    return;
  }
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const event = (type: string, data: object): void =>
    void response.write(`event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`);
  event('message_start', { message: { ...message, content: [], stop_reason: null, usage } });
  event('content_block_start', {
    index: 0,
    content_block: step.call === undefined ? { type: 'text', text: '' } : { ...block, input: {} },
  });
  const delta =
    step.call === undefined
      ? { type: 'text_delta', text: step.text }
      : { type: 'input_json_delta', partial_json: JSON.stringify(step.call.input) };
  event('content_block_delta', { index: 0, delta });
  event('content_block_stop', { index: 0 });
  event('message_delta', { delta: { stop_reason: reason, stop_sequence: null }, usage });
  event('message_stop', {});
  response.end();
}

function textOf(message: z.infer<typeof MessageSchema> | undefined): string {
  const parts = z.array(z.looseObject({ text: z.string().default('') })).safeParse(message?.content);
  if (parts.success) return parts.data.map(({ text }) => text).join('\n');
  return typeof message?.content === 'string' ? message.content : JSON.stringify(message?.content ?? '');
}

interface Reply {
  readonly model: string;
  readonly stream: boolean;
  readonly text?: string;
  readonly call?: { readonly name: string; readonly arguments: string };
}

function reply(response: ServerResponse, { model, stream, text, call }: Reply): void {
  const id = `chatcmpl-${String(Date.now())}`;
  const usage = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 };
  const toolCalls =
    call === undefined ? undefined : [{ index: 0, id: `call_${id}`, type: 'function', function: call }];
  const reason = call === undefined ? 'stop' : 'tool_calls';
  const base = { id, created: Math.floor(Date.now() / 1000), model };
  if (!stream) {
    response.writeHead(200, { 'content-type': 'application/json' });
    const message = { role: 'assistant', content: text ?? null, tool_calls: toolCalls };
    const choices = [{ index: 0, message, finish_reason: reason }];
    response.end(JSON.stringify({ ...base, object: 'chat.completion', choices, usage }));
    return;
  }
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const chunk = (delta: object, finish: string | null, more: object = {}): void => {
    const choices = [{ index: 0, delta, finish_reason: finish }];
    response.write(
      `data: ${JSON.stringify({ ...base, object: 'chat.completion.chunk', choices, ...more })}\n\n`,
    );
  };
  chunk({ role: 'assistant', content: text ?? null, tool_calls: toolCalls }, null);
  chunk({}, reason, { usage });
  response.end('data: [DONE]\n\n');
}
