import type { SecretDestination } from '../protocol/deploy.ts';
import type { Session } from '../protocol/entities.ts';
import { HoldfastError } from '../protocol/errors.ts';
import type { Context } from './context.ts';
import { sanitizeLine } from './render/text.ts';
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
  await askForYes(context, options.what, 'Nothing was deleted');
}

/**
 * Asks the user before a project gets to send secrets to hosts of its own choice. Errors: as `confirmDeletion`.
 */
export async function confirmDestinations(
  context: Context,
  destinations: readonly SecretDestination[],
): Promise<void> {
  const lines = destinations.slice(0, MOST_LISTED).map(({ secret, host, by }) => {
    const [what, to] = [sanitizeLine(secret), sanitizeLine(host)];
    return by === 'sessions' ? `sessions send ${what} to ${to}` : `the setup has ${what} and may reach ${to}`;
  });
  if (destinations.length > lines.length) lines.push(`and ${destinations.length - lines.length} more`);
  const what = 'The project sends secrets that are for all profiles to hosts of its own choice';
  if (!context.isInteractive) {
    throw new HoldfastError('confirmation_required', 'Nothing was deployed', {
      why: `${what}: ${lines.join(', ')}`,
      next: 'add --yes if you expected that; `holdfast secret set NAME --profile PROFILE` keeps a secret for one profile alone',
      details: { destinations: [...destinations] },
    });
  }
  await context.printNote(`${context.stderrStyle.yellow(what)}:`);
  for (const line of lines) await context.printNote(`  ${line}`);
  await askForYes(context, 'Deploy it', 'Nothing was deployed');
}

const MOST_LISTED = 20;

async function askForYes(context: Context, question: string, declined: string): Promise<void> {
  await context.stderr.write(`${question}? [y/N] `);
  const answer = await readLine(context, context.interrupted);
  if (context.interrupted.aborted) throw new HoldfastError('cancelled', declined);
  if (!/^y(es)?$/i.test(answer?.trim() ?? ''))
    throw new HoldfastError('cancelled', declined, { why: 'the answer was not yes' });
}
