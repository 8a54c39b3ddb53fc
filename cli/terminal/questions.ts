import { closeSync, openSync } from 'node:fs';
import { StringDecoder } from 'node:string_decoder';
import { ReadStream } from 'node:tty';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Context } from '../context.ts';
import { sanitizeLines } from '../render/text.ts';

const ENTER = /[\r\n]/;
const INTERRUPT = '\u0003';
const END_OF_INPUT = '\u0004';
const CLEAR_LINE = '\u0015';
const ERASE = /[\b\u007f]/;
const MAX_CHARACTERS = 8000;

/** One line of standard input; null at the end of the input, and when the signal aborts. */
export async function readLine(context: Context, signal: AbortSignal): Promise<string | null> {
  if (signal.aborted) return null;
  // Loaded when somebody is asked: most commands ask nothing.
  const { createInterface } = await import('node:readline');
  if (isAborted(signal)) return null;
  const reader = createInterface({ input: context.io.stdin, terminal: false });
  try {
    return await new Promise<string | null>((resolve) => {
      reader.once('line', resolve);
      reader.once('close', () => resolve(null));
      signal.addEventListener('abort', () => resolve(null), { once: true });
    });
  } finally {
    reader.close();
    context.io.stdin.pause();
  }
}

/**
 * Asks on standard input for something that is not shown. The terminal stops echoing before the question is printed, so
 * that nothing typed early shows. Errors: `cancelled` at ^C, ^D on an empty line, and the end of the input.
 */
export async function promptHidden(context: Context, question: string): Promise<string> {
  const { stdin } = context.io;
  context.progress.hide();
  stdin.setRawMode?.(true);
  try {
    await context.stderr.write(question);
    const typed = await readKeys(stdin, context.interrupted, 'Nothing was changed');
    if (typed === null) throw new HoldfastError('cancelled', 'Nothing was changed');
    return typed;
  } finally {
    stdin.setRawMode?.(false);
    stdin.pause();
    await context.stderr.write('\n');
  }
}

/** A function, because the compiler takes what it has seen of a signal for constant. */
function isAborted(signal: AbortSignal): boolean {
  return signal.aborted;
}

/** Whether the process has a terminal, wherever its standard streams lead. */
export function hasTerminal(): boolean {
  try {
    closeSync(openSync('/dev/tty', 'r+'));
    return true;
  } catch {
    return false;
  }
}

/**
 * Asks a question on the terminal itself, because standard input may be data. A secret is not shown while it is typed.
 * Null: the person ended the input. Errors: `cancelled` at ^C.
 */
export async function askOnTerminal(
  context: Context,
  { text, isSecret }: { readonly text: string; readonly isSecret: boolean },
): Promise<string | null> {
  const resume = context.progress.suspend();
  const terminal = new ReadStream(openSync('/dev/tty', 'r+'));
  // Before the question: what is typed at once must not appear either.
  terminal.setRawMode(isSecret);
  try {
    await context.stderr.write(`${sanitizeLines(text).trimEnd()} `);
    return await readKeys(terminal, context.interrupted, 'The question was not answered');
  } finally {
    if (isSecret) {
      terminal.setRawMode(false);
      await context.stderr.write('\n');
    }
    terminal.destroy();
    resume();
  }
}

/** Reads keys up to Enter. Null at ^D on an empty line, and at the end. Errors: `cancelled` at ^C, in these words. */
async function readKeys(
  input: NodeJS.ReadableStream,
  interrupted: AbortSignal,
  cancelled: string,
): Promise<string | null> {
  const { promise, resolve, reject } = Promise.withResolvers<string | null>();
  const decoder = new StringDecoder('utf8');
  const typed: string[] = [];
  const onEnd = (): void => resolve(null);
  const onInterrupt = (): void => reject(new HoldfastError('cancelled', cancelled));
  const onData = (chunk: Buffer | string): void => {
    for (const character of typeof chunk === 'string' ? chunk : decoder.write(chunk)) {
      if (ENTER.test(character)) resolve(typed.join(''));
      else if (character === INTERRUPT) onInterrupt();
      else if (character === END_OF_INPUT && typed.length === 0) onEnd();
      else if (ERASE.test(character)) typed.pop();
      else if (character === CLEAR_LINE) typed.length = 0;
      else if (typed.length < MAX_CHARACTERS) typed.push(character);
    }
  };
  interrupted.addEventListener('abort', onInterrupt, { once: true });
  if (interrupted.aborted) onInterrupt();
  input.on('data', onData);
  input.once('end', onEnd);
  input.once('error', reject);
  input.resume();
  try {
    return await promise;
  } finally {
    input.off('data', onData);
    input.off('end', onEnd);
    input.off('error', reject);
    interrupted.removeEventListener('abort', onInterrupt);
  }
}
