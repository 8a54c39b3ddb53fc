import type { Session } from '../protocol/entities.ts';
import type { Context } from './context.ts';
import { quoteForShell, sanitizeLine } from './render/text.ts';

export const WAIT_OPTION = [
  '--wait',
  'wait until all files have been copied; after ^C copying continues in the background',
] as const;

/** Waits until the files of a new session have been copied into its workspace. Returns the session as it is then. */
export async function waitForFiles(context: Context, { id, name }: Session): Promise<Session> {
  try {
    const { session } = await context.call('workspace/wait', { session: id }, { stage: 'Copying files' });
    return session;
  } catch (error) {
    if (context.interrupted.aborted) {
      await context.printNote(
        `${sanitizeLine(name)} was created (${id}). Its files are still being copied in the background; see \`holdfast session show ${id}\``,
      );
    }
    throw error;
  }
}

/** Prints that a session has been created. */
export async function printCreated(context: Context, session: Session): Promise<void> {
  const { id, name, profile, hydration } = session;
  await context.print(`${context.style.bold(sanitizeLine(name))} created: ${id}`);
  if (hydration !== null)
    await context.print(
      'Its files are being copied in the background. Whatever uses the workspace waits for them.',
    );
  await context.printHint(
    `Run a turn: ${context.command(`prompt ${quoteForShell(`${profile}/${name}`)}`)} '…'`,
  );
}
