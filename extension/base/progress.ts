import { setTimeout } from 'node:timers/promises';
import { ProgressLocation, window } from 'vscode';
import type { CancellationToken, Progress } from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';

/** Shows what is being done. What an agent or another machine wrote has to be sanitized. */
export type Report = (message: string) => void;

/**
 * VS Code removes the notification of a progress some frames after its task has ended. A message that comes meanwhile may
 * be listed at the bell alone, where nobody sees it.
 */
const NOTIFICATION_GONE_MS = 300;

/** Runs something, with a notification of how far it is. What is shown afterwards, an error for example, is seen. */
export async function notifyProgress<T>(
  options: { readonly title: string; readonly cancellable?: boolean },
  task: (
    progress: Progress<{ message?: string; increment?: number }>,
    token: CancellationToken,
  ) => Thenable<T>,
): Promise<T> {
  try {
    return await window.withProgress({ location: ProgressLocation.Notification, ...options }, task);
  } finally {
    await setTimeout(NOTIFICATION_GONE_MS);
  }
}

/** Runs something that a person can cancel, and shows how far it is. `signal` aborts with `cancelled`, and says that. */
export async function withProgress<T>(
  title: string,
  act: (report: Report, signal: AbortSignal) => Promise<T>,
  onCancel = 'It was cancelled',
): Promise<T> {
  return await notifyProgress({ title, cancellable: true }, async (progress, token) => {
    const { signal, dispose } = signalOf(token, onCancel);
    try {
      return await act((message) => progress.report({ message }), signal);
    } finally {
      dispose();
    }
  });
}

/** A signal that aborts with `cancelled` when the token does, until it is disposed. */
export function signalOf(
  token: CancellationToken | undefined,
  onCancel = 'It was cancelled',
): { readonly signal: AbortSignal; readonly dispose: () => void } {
  const controller = new AbortController();
  const abort = (): void => controller.abort(new HoldfastError('cancelled', onCancel));
  if (token?.isCancellationRequested === true) abort();
  const listener = token?.onCancellationRequested(abort);
  return { signal: controller.signal, dispose: () => void listener?.dispose() };
}
