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
const SHELL_TOOLS = ['run_shell_command', 'bash', 'shell'];

/**
 * A model behind OpenAI's chat interface that does what the last line of the prompt says: `RUN<command>` calls the agent's shell tool, and
 * any other prompt is answered with the word that was last said as `WORD<…>` in the conversation. It keeps no memory:
 * what it knows is what the agent sends.
 */
export class ScriptedModel {
  readonly #server = createServer((request, response) => {
    let body = '';
    request.setEncoding('utf8').on('data', (text: string) => (body += text));
    request.on('end', () => {
      if (request.method === 'POST' && (request.url ?? '').endsWith('/chat/completions')) {
        this.#complete(body, response);
        return;
      }
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ object: 'list', data: [{ id: 'scripted', object: 'model' }] }));
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

  #complete(body: string, response: ServerResponse): void {
    const { messages, tools, stream, model } = RequestSchema.parse(JSON.parse(body));
    const lastUser = messages.findLastIndex(({ role }) => role === 'user');
    const prompt = textOf(messages[lastUser]);
    const results = messages.slice(lastUser + 1).filter(({ role }) => role === 'tool');
    // Before the prompt itself an agent may be told what happened earlier.
    const last = prompt.trimEnd().split('\n').at(-1) ?? '';
    const command = [...last.matchAll(/RUN<([^>]*)>/g)].at(-1)?.[1]?.replaceAll('GT', '>');
    const shell = tools.map((tool) => tool.function.name).find((name) => SHELL_TOOLS.includes(name));
    if (command !== undefined && shell !== undefined && results.length === 0) {
      const input = { command, description: 'as the prompt says', is_background: false };
      const call = { name: shell, arguments: JSON.stringify(input) };
      reply(response, { model, stream, call });
      return;
    }
    const all = messages.map(textOf).join('\n');
    const word = [...all.matchAll(/WORD<([^>]*)>/g)].at(-1)?.[1] ?? 'unknown';
    reply(response, {
      model,
      stream,
      text: results.length > 0 ? 'The command has ended.' : `The word is ${word}.`,
    });
  }
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
