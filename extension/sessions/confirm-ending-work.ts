import { window } from 'vscode';
import type { Session } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { sanitize } from '../base/sanitize.ts';
import { sessionTitle } from './listing.ts';

/**
 * Asks whether the work that blocks an operation may be ended for it. False where `error` is about something else.
 * Errors: `cancelled` where the person declines.
 */
export async function confirmEndingWork(session: Session, error: unknown): Promise<boolean> {
  if (!(error instanceof HoldfastError) || error.code !== 'conflict') return false;
  const END = 'End It and Continue';
  const choice = await window.showWarningMessage(
    `${sanitize(sessionTitle(session))} is busy.`,
    { modal: true, detail: `${sanitize(error.why ?? error.message)}.` },
    END,
  );
  if (choice === END) return true;
  throw new HoldfastError('cancelled', 'Nothing was changed', { cause: error });
}
