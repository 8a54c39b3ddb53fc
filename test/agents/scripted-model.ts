import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { z } from 'zod';

const MessageSchema = z.looseObject({ role: z.string(), content: z.unknown() });
const RequestSchema = z.looseObject({
  model: z.string().default('scripted'),
  messages: z.array(MessageSchema),
  stream: z.boolean().default(false),
  tools: z.array(z.looseObject({ function: z.looseObject({ name: z.string() }) })).default([]),
});
const SHELL_TOOLS = ['run_shell_command', 'bash', 'shell', 'Bash', 'exec_command', 'shell_command', 'exec'];

/** As Anthropic's interface has it: what a tool returned is a part of a message of the user. */
const BlockSchema = z.looseObject({ type: z.string() });
const MessagesSchema = z.looseObject({
  model: z.string().default('scripted'),
  messages: z.array(MessageSchema),
  stream: z.boolean().default(false),
  tools: z.array(z.looseObject({ name: z.string() })).default([]),
});
/** As OpenAI's responses have it: what a tool returned is an item of its own. */
const ItemSchema = z.looseObject({ type: z.string().default('message'), role: z.string().default('') });
const ToolSchema = z.looseObject({
  type: z.string().default('function'),
  name: z.string().default(''),
  parameters: z.looseObject({ properties: z.record(z.string(), z.looseObject({})).default({}) }).optional(),
});
/** The models of Codex get their tools as an item of the conversation, in groups. */
const ToolGroupsSchema = z.looseObject({
  type: z.literal('additional_tools'),
  tools: z.array(z.looseObject({ name: z.string(), tools: z.array(ToolSchema) })),
});
const ResponsesSchema = z.looseObject({
  input: z.array(ItemSchema),
  tools: z.array(ToolSchema).default([]),
});
/** As Google's interface has it: what a tool returned is a part of a turn of the user. */
const PartSchema = z.looseObject({ text: z.string().default('') });
const AnswerSchema = z.looseObject({
  type: z.string().transform((type) => type.toLowerCase()),
  enum: z.array(z.unknown()).optional(),
  properties: z.record(z.string(), z.unknown()).default({}),
});
const ContentsSchema = z.looseObject({
  generationConfig: z.looseObject({ responseJsonSchema: z.unknown().optional() }).default({}),
  contents: z.array(z.looseObject({ role: z.string().default('user'), parts: z.array(PartSchema) })),
  tools: z
    .array(z.looseObject({ functionDeclarations: z.array(z.looseObject({ name: z.string() })).default([]) }))
    .default([]),
});
/** What an agent adds to a prompt by itself. */
const REMINDER = /<system-reminder>[^]*?<\/system-reminder>/g;

const CommandSchema = z.looseObject({ command: z.string().optional() });

/** What the model does next. */
interface Step {
  readonly text?: string;
  /** Arguments of the shell tool. */
  readonly call?: { readonly name: string; readonly input: object };
}

/**
 * A model behind OpenAI's chat and responses interfaces, Anthropic's messages and Google's contents that does what the last line of the prompt says: `RUN<command>` calls
 * the agent's shell tool, and any other prompt is answered with the word that was last said as `WORD<…>` in the conversation. It keeps
 * no memory: what it knows is what the agent sends.
 */
export class ScriptedModel {
  /** The key of each request, as it was sent; an empty text for one without. */
  readonly keys: string[] = [];
  readonly #server: Server;

  /** With a certificate it speaks TLS. */
  constructor(tls?: { readonly cert: string; readonly key: string }) {
    const answer = (request: IncomingMessage, response: ServerResponse): void =>
      this.#answer(request, response);
    this.#server = tls === undefined ? createServer(answer) : createTlsServer(tls, answer);
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    const { authorization, 'x-api-key': anthropic, 'x-goog-api-key': gemini } = request.headers;
    this.keys.push([authorization ?? anthropic ?? gemini ?? ''].flat().join());
    let body = '';
    request.setEncoding('utf8').on('data', (text: string) => (body += text));
    request.on('end', () => {
      const [path = ''] = (request.url ?? '').split('?');
      if (request.method === 'POST' && path.endsWith('/chat/completions')) completeChat(body, response);
      else if (request.method === 'POST' && path.endsWith('/messages')) completeMessages(body, response);
      else if (request.method === 'POST' && path.endsWith('/responses')) completeResponses(body, response);
      else if (request.method === 'POST' && /:(?:stream)?generateContent$/i.test(path))
        completeContents(body, path.includes(':stream'), response);
      else {
        response.writeHead(200, { 'content-type': 'application/json' });
        const data = [{ id: 'scripted', object: 'model' }];
        response.end(JSON.stringify({ object: 'list', data, input_tokens: 10, totalTokens: 10 }));
      }
    });
  }

  /** Returns its port. */
  async listen(host = '127.0.0.1', port = 0): Promise<number> {
    await new Promise<void>((resolve) => this.#server.listen(port, host, resolve));
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

/** What an agent tells the model about itself, as a message of the user. */
const ABOUT_ITSELF = /^\s*<[a-z_]+[ >]/;

function completeResponses(body: string, response: ServerResponse): void {
  const { input, tools: plain } = ResponsesSchema.parse(JSON.parse(body));
  const tools = [...plain, ...input.flatMap(toolsOfItem)];
  const textOfItem = (one: z.infer<typeof ItemSchema>): string =>
    textOf({ role: one.role, content: one['content'] ?? one['output'] });
  const last = input.findLastIndex(
    (one) => one.type === 'message' && one.role === 'user' && !ABOUT_ITSELF.test(textOfItem(one)),
  );
  const lastItem = input[last];
  const { text, call } = nextStep(
    lastItem === undefined ? '' : textOfItem(lastItem),
    input.map(textOfItem).join('\n'),
    tools.map(({ name }) => name),
    input.slice(last + 1).some(({ type }) => type.endsWith('_output')),
  );
  const id = String(Date.now());
  const isRestricted = input.some((one) => textOfItem(one).includes('<file_system type="restricted">'));
  const item =
    call === undefined
      ? {
          type: 'message',
          role: 'assistant',
          id: `msg_${id}`,
          content: [{ type: 'output_text', text: text ?? '' }],
        }
      : { id: `fc_${id}`, call_id: `call_${id}`, ...callOf(call, tools, isRestricted) };
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const event = (type: string, data: object): void =>
    void response.write(`event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`);
  event('response.created', { response: { id: `resp_${id}` } });
  event('response.output_item.added', { output_index: 0, item });
  event('response.output_item.done', { output_index: 0, item });
  const usage = { input_tokens: 10, output_tokens: 5, total_tokens: 15 };
  event('response.completed', { response: { id: `resp_${id}`, usage } });
  response.end();
}

function toolsOfItem(item: z.infer<typeof ItemSchema>): z.infer<typeof ToolSchema>[] {
  return (ToolGroupsSchema.safeParse(item).data?.tools ?? []).flatMap((group) => group.tools);
}

/**
 * A call of the shell tool; where the agent offers no more than a tool that runs JavaScript, a script that calls it. `isRestricted`:
 * by a sandbox of the agent's own.
 */
function callOf(
  call: NonNullable<Step['call']>,
  tools: readonly z.infer<typeof ToolSchema>[],
  isRestricted: boolean,
): object {
  const script = tools.find(({ type, name }) => type === 'custom' && name === call.name);
  if (script === undefined)
    return { type: 'function_call', name: call.name, arguments: JSON.stringify(shellInput(call, tools)) };
  const { command: cmd = '' } = CommandSchema.parse(call.input);
  const escalated = isRestricted
    ? { sandbox_permissions: 'require_escalated', justification: 'as the prompt says' }
    : {};
  const input = `text(await tools.exec_command(${JSON.stringify({ cmd, ...escalated })}));`;
  return { type: 'custom_tool_call', namespace: 'functions', name: call.name, input };
}

/** The arguments as this version of the tool takes them. What the agent's own sandbox would refuse is asked for at once. */
function shellInput(call: NonNullable<Step['call']>, tools: readonly z.infer<typeof ToolSchema>[]): object {
  const { command = '' } = CommandSchema.parse(call.input);
  const properties = tools.find(({ name }) => name === call.name)?.parameters?.properties ?? {};
  return {
    ...('cmd' in properties
      ? { cmd: command }
      : { command: properties['command']?.['type'] === 'array' ? ['sh', '-c', command] : command }),
    ...('sandbox_permissions' in properties ? { sandbox_permissions: 'require_escalated' } : {}),
    ...('with_escalated_permissions' in properties ? { with_escalated_permissions: true } : {}),
    ...('justification' in properties ? { justification: 'as the prompt says' } : {}),
  };
}

function completeContents(body: string, isStream: boolean, response: ServerResponse): void {
  const { contents, tools, generationConfig } = ContentsSchema.parse(JSON.parse(body));
  const textOfParts = ({ parts }: (typeof contents)[number]): string =>
    parts
      .map((part) => (part['functionResponse'] === undefined ? part.text : JSON.stringify(part)))
      .join('\n');
  const isResult = ({ parts }: (typeof contents)[number]): boolean =>
    parts.some((part) => part['functionResponse'] !== undefined);
  const last = contents.findLastIndex(
    (one) =>
      one.role === 'user' &&
      !isResult(one) &&
      // The first prompt of a conversation follows what the agent says about itself, as a part of the same content.
      one.parts.some(({ text }) => text !== '' && !ABOUT_ITSELF.test(text)),
  );
  const lastContent = contents[last];
  const { responseJsonSchema: schema } = generationConfig;
  const { text, call }: Step =
    schema === undefined
      ? nextStep(
          lastContent === undefined ? '' : textOfParts(lastContent),
          contents.map(textOfParts).join('\n'),
          tools.flatMap(({ functionDeclarations }) => functionDeclarations.map(({ name }) => name)),
          contents.slice(last + 1).some(isResult),
        )
      : { text: JSON.stringify(anyOf(schema)) };
  const part = call === undefined ? { text } : { functionCall: { name: call.name, args: call.input } };
  const answer = JSON.stringify({
    candidates: [{ index: 0, content: { role: 'model', parts: [part] }, finishReason: 'STOP' }],
    usageMetadata: { promptTokenCount: 10, candidatesTokenCount: 5, totalTokenCount: 15 },
  });
  response.writeHead(200, { 'content-type': isStream ? 'text/event-stream' : 'application/json' });
  response.end(isStream ? `data: ${answer}\n\n` : answer);
}

/** A value that fits this JSON Schema. Gemini CLI has a model choose the model of each prompt, and asks again until the answer fits. */
function anyOf(schema: unknown): unknown {
  const { type, enum: allowed, properties } = AnswerSchema.parse(schema);
  if (allowed !== undefined) return allowed[0];
  if (type === 'object')
    return Object.fromEntries(Object.entries(properties).map(([name, one]) => [name, anyOf(one)]));
  if (type === 'integer' || type === 'number') return 50;
  return type === 'boolean' ? false : type === 'array' ? [] : 'as asked';
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
