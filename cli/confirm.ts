import type { Session } from '../protocol/entities.ts';
import { HoldfastError } from '../protocol/errors.ts';
import type { Context } from './context.ts';

export interface Loss {
  /** The sentence that is asked, without its question mark. */
  readonly what: string;
  /** What goes. */
  readonly lines: readonly string[];
}

/** The session that is meant, once a person has agreed to what it loses; with `force` nobody is asked. */
export async function confirmedSession(
  context: Context,
  reference: string,
  force: boolean | undefined,
  loss: (session: Session) => Loss | Promise<Loss>,
): Promise<Session> {
  const { session } = await context.call('session/show', { session: reference });
  if (force !== true) await confirmDeletion(context, await loss(session));
  return session;
}

/**
 * Asks a person before something is deleted for good. Throws `confirmation_required` where nobody
 * can be asked, `cancelled` when the answer is not yes.
 */
export async function confirmDeletion(context: Context, options: Loss): Promise<void> {
  if (!context.canAsk) {
    throw new HoldfastError('confirmation_required', options.what, {
      why: [...options.lines, 'it cannot be undone'].join(', '),
      next: 'add --force if you mean it',
    });
  }
  const style = context.noteStyle;
  for (const line of options.lines) await context.note(`  ${line}`);
  await context.note(style.yellow('This cannot be undone.'));
  await context.stderr.write(`${options.what}? [y/N] `);
  const answer = await readLine(context);
  if (!/^y(es)?$/i.test(answer.trim())) {
    throw new HoldfastError('cancelled', 'Nothing was deleted', { why: 'the answer was not yes' });
  }
}

/** One line that a person types. Empty at the end of input; rejects at ^C. */
async function readLine(context: Context): Promise<string> {
  const { createInterface } = await import('node:readline');
  const reader = createInterface({ input: context.io.stdin, terminal: false });
  try {
    return await new Promise<string>((resolve, reject) => {
      const onAbort = () => reject(new HoldfastError('cancelled', 'Nothing was deleted'));
      reader.once('line', resolve);
      reader.once('close', () => resolve(''));
      context.interrupted.addEventListener('abort', onAbort, { once: true });
      if (context.interrupted.aborted) onAbort();
    });
  } finally {
    reader.close();
    context.io.stdin.pause();
  }
}
