import { window } from 'vscode';
import type { Session } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { sanitize } from '../base/sanitize.ts';
import { sessionTitle } from './listing.ts';

/** Whether what is at work may be ended for it; a person is asked. */
export async function confirmEndingWork(session: Session, error: unknown): Promise<boolean> {
  if (!(error instanceof HoldfastError) || error.code !== 'conflict') return false;
  const END = 'End It and Go On';
  const choice = await window.showWarningMessage(
    `${sanitize(sessionTitle(session))} is at work.`,
    { modal: true, detail: `${sanitize(error.why ?? error.message)}.` },
    END,
  );
  if (choice === END) return true;
  throw new HoldfastError('cancelled', 'Nothing was changed', { cause: error });
}
