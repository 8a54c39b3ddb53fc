import type { Session } from '../protocol/entities.ts';
import type { Context } from './context.ts';
import { shellWord, visible } from './render/text.ts';

export const WAIT = ['--wait', 'until the files are all there; ^C leaves them being brought'] as const;

/** Waits for the files that a new session begins with. Gives the session as it is then. */
export async function filled(context: Context, { id, name }: Session): Promise<Session> {
  try {
    const { session } = await context.call(
      'workspace/wait',
      { session: id },
      { stage: 'Bringing the files' },
    );
    return session;
  } catch (error) {
    if (context.interrupted.aborted) {
      await context.note(
        `${visible(name)} is there (${id}), and its files are brought all the same; \`holdfast session show ${id}\` says when they are`,
      );
    }
    throw error;
  }
}

/** What is told of a session that has just been made. */
export async function tellMade(context: Context, session: Session): Promise<void> {
  const { id, name, filling } = session;
  await context.print(`${context.style.bold(visible(name))} is there: ${id}`);
  if (filling !== null)
    await context.print('Its files are being brought; whatever uses them waits for them.');
  await context.hint(`Give it work: holdfast prompt ${shellWord(name)} '…'`);
}
