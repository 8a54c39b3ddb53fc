import { StringDecoder } from 'node:string_decoder';
import type { ConversationItem } from '../../protocol/conversation.ts';
import type { NotificationParams } from '../../protocol/methods.ts';
import type { Context } from '../context.ts';
import { sanitizeLine, sanitizeLines } from '../render/text.ts';
import type { ConversationListener } from './follow-conversation.ts';
import { MessageTexts, messageKey } from './message-text.ts';
import type { PermissionQuestions } from './permission-questions.ts';

/** The most of what the agent says that is part of a JSON document. */
const COLLECTED_BYTES = 8 * 2 ** 20;

/**
 * Prints what an agent says on standard output as it comes, and everything else that matters on standard error: what it thinks and
 * does on a terminal, what it asks always. Text for a terminal is sanitized; a pipe gets it as it is.
 */
export class AgentPrinter implements ConversationListener {
  readonly #context: Context;
  readonly #questions: PermissionQuestions;
  readonly #texts = new MessageTexts();
  readonly #decoder = new StringDecoder('utf8');
  readonly #tools = new Map<string, string>();
  readonly #collected: Buffer[] = [];
  #collectedBytes = 0;
  #isTruncated = false;
  #lastMessage: string | null = null;
  #endsWithNewline = true;

  constructor(context: Context, questions: PermissionQuestions) {
    this.#context = context;
    this.#questions = questions;
  }

  /** What the agent said, for `--json`. */
  collected(): { readonly text: string; readonly truncated: boolean } {
    return { text: Buffer.concat(this.#collected).toString('utf8'), truncated: this.#isTruncated };
  }

  async item(item: ConversationItem): Promise<void> {
    switch (item.type) {
      case 'message': {
        const text = this.#texts.takeItem(messageKey(item), item);
        if (text !== null) await this.#say(item.role, messageKey(item), text);
        return;
      }
      case 'tool':
        return this.#tool(item);
      case 'permission':
        await this.#newLine();
        return this.#questions.onItem(item);
      case 'notice':
        return this.#note(`note: ${item.message}`);
      case 'connected':
        if (item.how === 'new' || item.how === 'warm') return;
        return this.#note(CONTINUED[item.how] + (item.why === null ? '' : `: ${item.why}`));
      case 'end':
        return this.#newLine();
      default:
    }
  }

  async chunk(chunk: NotificationParams<'conversation/chunk'>): Promise<void> {
    const text = this.#texts.takeChunk(messageKey(chunk), chunk.offset, chunk.text);
    if (text !== null) await this.#say(chunk.role, messageKey(chunk), text);
  }

  async #say(role: string, key: string, bytes: Buffer): Promise<void> {
    const { context } = { context: this.#context };
    if (role === 'thought') {
      if (!context.json && context.stderr.isTTY) {
        await this.#separate(key);
        await context.stderr.write(context.stderrStyle.dim(sanitizeLines(bytes.toString('utf8'))));
        this.#endsWithNewline = bytes.at(-1) === 0x0a;
      }
      return;
    }
    if (role !== 'agent') return;
    if (context.json) {
      this.#collect(bytes);
      return;
    }
    await this.#separate(key);
    context.progress.end();
    await context.stdout.write(context.stdout.isTTY ? sanitizeLines(this.#decoder.write(bytes)) : bytes);
    this.#endsWithNewline = bytes.at(-1) === 0x0a;
  }

  async #separate(key: string): Promise<void> {
    if (this.#lastMessage !== null && this.#lastMessage !== key) await this.#newLine();
    this.#lastMessage = key;
  }

  #collect(bytes: Buffer): void {
    const part = bytes.subarray(0, COLLECTED_BYTES - this.#collectedBytes);
    this.#isTruncated ||= part.length < bytes.length;
    this.#collectedBytes += part.length;
    this.#collected.push(part);
  }

  async #tool(item: Extract<ConversationItem, { type: 'tool' }>): Promise<void> {
    const line = `${item.kind}: ${item.title === '' ? item.call : item.title} (${item.status})`;
    if (this.#tools.get(item.call) === line) return;
    this.#tools.set(item.call, line);
    const isWorthALine =
      item.status === 'failed' || item.status === 'completed' || this.#context.stderr.isTTY;
    if (isWorthALine) await this.#note(line);
  }

  async #note(text: string): Promise<void> {
    await this.#newLine();
    await this.#context.printHint(sanitizeLine(text));
  }

  /** What follows begins on a line of its own. */
  async #newLine(): Promise<void> {
    if (this.#endsWithNewline || this.#context.json) return;
    this.#endsWithNewline = true;
    await this.#context.stdout.write('\n');
  }
}

const CONTINUED = {
  resumed: 'The agent continues with its own memory of the conversation',
  loaded: 'The agent has loaded its own memory of the conversation',
  handover: 'The agent got the conversation as text, from the history',
} as const;
