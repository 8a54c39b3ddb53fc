import { StringDecoder } from 'node:string_decoder';
import { HoldfastError } from '../protocol/errors.ts';
import type { Context } from './context.ts';

const ENTER = /[\r\n]/;
const INTERRUPT = '\u0003';
const END_OF_INPUT = '\u0004';
const CLEAR_LINE = '\u0015';
const ERASE = /[\b\u007f]/;

/**
 * Asks on the terminal for something that is not shown. The terminal stops echoing before the question is printed, so
 * that nothing typed early shows. Errors: `cancelled` at ^C, ^D on an empty line, and the end of the input.
 */
export async function promptHidden(context: Context, question: string): Promise<string> {
  const { stdin } = context.io;
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  const decoder = new StringDecoder('utf8');
  const typed: string[] = [];
  const cancelled = (): void => reject(new HoldfastError('cancelled', 'Nothing was changed'));
  const onData = (chunk: Buffer | string): void => {
    for (const character of typeof chunk === 'string' ? chunk : decoder.write(chunk)) {
      if (ENTER.test(character)) {
        resolve(typed.join(''));
        return;
      }
      if (character === INTERRUPT || (character === END_OF_INPUT && typed.length === 0)) {
        cancelled();
        return;
      }
      if (ERASE.test(character)) typed.pop();
      else if (character === CLEAR_LINE) typed.length = 0;
      else typed.push(character);
    }
  };
  context.progress.hide();
  stdin.setRawMode?.(true);
  try {
    context.interrupted.addEventListener('abort', cancelled, { once: true });
    if (context.interrupted.aborted) cancelled();
    await context.stderr.write(question);
    stdin.on('data', onData);
    stdin.once('end', cancelled);
    stdin.resume();
    return await promise;
  } finally {
    stdin.off('data', onData);
    stdin.off('end', cancelled);
    context.interrupted.removeEventListener('abort', cancelled);
    stdin.setRawMode?.(false);
    stdin.pause();
    await context.stderr.write('\n');
  }
}
