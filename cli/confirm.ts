import type { Session } from '../protocol/entities.ts';
import { HoldfastError } from '../protocol/errors.ts';
import type { Context } from './context.ts';
import { readLine } from './terminal/questions.ts';

export interface DeletionPrompt {
  /** The question, without its question mark. */
  readonly what: string;
  /** What will be deleted, a line each. */
  readonly consequences: readonly string[];
}

/** Resolves the session and asks the user to confirm the deletion. `force` skips the question. */
export async function confirmSessionDeletion(
  context: Context,
  reference: string,
  force: boolean | undefined,
  loss: (session: Session) => DeletionPrompt | Promise<DeletionPrompt>,
): Promise<Session> {
  const { session } = await context.call('session/show', { session: reference });
  if (force !== true) await confirmDeletion(context, await loss(session));
  return session;
}

/**
 * Asks the user before something is deleted permanently. Errors: `confirmation_required` where there is no
 * terminal to ask on, `cancelled` when the answer is not yes.
 */
export async function confirmDeletion(context: Context, options: DeletionPrompt): Promise<void> {
  if (!context.isInteractive) {
    throw new HoldfastError('confirmation_required', options.what, {
      why: [...options.consequences, 'this cannot be undone'].join(', '),
      next: 'add --force to do it anyway',
    });
  }
  const style = context.stderrStyle;
  for (const line of options.consequences) await context.printNote(`  ${line}`);
  await context.printNote(style.yellow('This cannot be undone.'));
  await context.stderr.write(`${options.what}? [y/N] `);
  const answer = await readLine(context, context.interrupted);
  if (context.interrupted.aborted) throw new HoldfastError('cancelled', 'Nothing was deleted');
  if (!/^y(es)?$/i.test(answer?.trim() ?? '')) {
    throw new HoldfastError('cancelled', 'Nothing was deleted', { why: 'the answer was not yes' });
  }
}
