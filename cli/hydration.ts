import type { Session } from '../protocol/entities.ts';
import type { Context } from './context.ts';
import { quoteForShell, sanitizeLine } from './render/text.ts';

export const WAIT_OPTION = ['--wait', 'until the files are all there; ^C leaves them being brought'] as const;

/** Waits for the files that a new session begins with. Gives the session as it is then. */
export async function waitForFiles(context: Context, { id, name }: Session): Promise<Session> {
  try {
    const { session } = await context.call(
      'workspace/wait',
      { session: id },
      { stage: 'Bringing the files' },
    );
    return session;
  } catch (error) {
    if (context.interrupted.aborted) {
      await context.printNote(
        `${sanitizeLine(name)} is there (${id}), and its files are brought all the same; \`holdfast session show ${id}\` says when they are`,
      );
    }
    throw error;
  }
}

/** What is told of a session that has just been made. */
export async function printCreated(context: Context, session: Session): Promise<void> {
  const { id, name, hydration } = session;
  await context.print(`${context.style.bold(sanitizeLine(name))} is there: ${id}`);
  if (hydration !== null)
    await context.print('Its files are being brought; whatever uses them waits for them.');
  await context.printHint(`Give it work: holdfast prompt ${quoteForShell(name)} '…'`);
}
