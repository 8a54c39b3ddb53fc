import { closeSync, openSync } from 'node:fs';
import { ReadStream } from 'node:tty';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Context } from '../context.ts';
import { sanitizeLines } from '../render/text.ts';

const CTRL_C = '\u0003';
const CTRL_D = '\u0004';
const ERASE = ['\u007f', '\b'];
const MAX_CHARACTERS = 8000;

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
  context.progress.hide();
  const terminal = new ReadStream(openSync('/dev/tty', 'r+'));
  // Before the question: what is typed at once must not appear either.
  terminal.setRawMode(isSecret);
  terminal.setEncoding('utf8');
  await context.stderr.write(`${sanitizeLines(text).trimEnd()} `);
  try {
    return await new Promise<string | null>((resolve, reject) => {
      let typed = '';
      const onAbort = (): void => reject(new HoldfastError('cancelled', 'The question was not answered'));
      context.interrupted.addEventListener('abort', onAbort, { once: true });
      terminal.once('end', () => resolve(null));
      terminal.once('error', reject);
      terminal.on('data', (chunk: string) => {
        for (const character of chunk) {
          if (character === CTRL_C) {
            onAbort();
            return;
          }
          if (character === CTRL_D && typed === '') {
            resolve(null);
            return;
          }
          if (character === '\r' || character === '\n') {
            resolve(typed);
            return;
          }
          if (ERASE.includes(character)) typed = typed.slice(0, -1);
          else if (typed.length < MAX_CHARACTERS) typed += character;
        }
        return undefined;
      });
    });
  } finally {
    if (isSecret) {
      terminal.setRawMode(false);
      await context.stderr.write('\n');
    }
    terminal.destroy();
  }
}
