import type { ConversationItem } from '../../protocol/conversation.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Context } from '../context.ts';
import { newOpId } from '../op-id.ts';
import { sanitizeLine } from '../render/text.ts';
import { readLine } from '../terminal/questions.ts';

type PermissionItem = Extract<ConversationItem, { type: 'permission' }>;

/** The answers that people type, and the kinds that they stand for. */
export const ANSWERS = { allow: 'allow_once', always: 'allow_always', reject: 'reject_once' } as const;
const TYPED: Readonly<Record<string, (typeof ANSWERS)[keyof typeof ANSWERS]>> = {
  y: ANSWERS.allow,
  yes: ANSWERS.allow,
  allow: ANSWERS.allow,
  a: ANSWERS.always,
  always: ANSWERS.always,
  n: ANSWERS.reject,
  no: ANSWERS.reject,
  reject: ANSWERS.reject,
};

/** Asks on the terminal what an agent may do. Where there is none, it says how to answer. */
export class PermissionQuestions {
  readonly #context: Context;
  readonly #isInteractive: boolean;
  readonly #asked = new Set<string>();
  /** Ends the question on the screen: it was answered elsewhere, or the turn is over. */
  #open: { readonly id: string; readonly end: AbortController } | null = null;
  #queue: Promise<void> = Promise.resolve();

  constructor(context: Context, isInteractive: boolean) {
    this.#context = context;
    this.#isInteractive = isInteractive;
  }

  async onItem(item: PermissionItem): Promise<void> {
    if (item.by !== null) {
      if (this.#open?.id === item.permissionId) this.#open.end.abort();
      else if (this.#asked.has(item.permissionId)) return;
      this.#asked.add(item.permissionId);
      await this.#context.printHint(describeAnswer(item));
      return;
    }
    if (this.#asked.has(item.permissionId)) return;
    this.#asked.add(item.permissionId);
    if (this.#isInteractive) {
      this.#queue = this.#queue.then(() => this.#ask(item));
      return;
    }
    await this.#context.printNote(`The agent asks: ${sanitizeLine(item.title)}`);
    await this.#context.printNote(
      `  answer with: ${this.#context.command(`permission answer ${item.permissionId} allow|always|reject`)}`,
    );
  }

  /** The turn is over: nothing is asked any more. */
  close(): void {
    this.#open?.end.abort();
  }

  async #ask(item: PermissionItem): Promise<void> {
    const context = this.#context;
    const end = new AbortController();
    this.#open = { id: item.permissionId, end };
    context.progress.end();
    try {
      await context.printNote(context.stderrStyle.yellow(`The agent asks: ${sanitizeLine(item.title)}`));
      const answer = await this.#read(end.signal);
      if (answer === null) return;
      const params = { permission: item.permissionId, answer, opId: newOpId() };
      await context.client().call('permission/answer', params);
    } catch (error) {
      await context.printNote(HoldfastError.from(error).sentence);
    } finally {
      this.#open = null;
    }
  }

  /** Null when somebody else answered. At the end of the input it stays a question for others. */
  async #read(signal: AbortSignal): Promise<string | null> {
    for (;;) {
      await this.#context.stderr.write('  [y] allow  [a] always  [n] reject: ');
      const line = await readLine(this.#context, signal);
      if (line === null) return null;
      const answer = TYPED[line.trim().toLowerCase()];
      if (answer !== undefined) return answer;
    }
  }
}

function describeAnswer({ answer, by, title }: PermissionItem): string {
  const who = by?.name ?? (by?.kind === 'profile' ? 'the profile' : 'the end of the turn');
  return sanitizeLine(`${answer?.name ?? 'Not answered'} (${who}): ${title}`);
}
