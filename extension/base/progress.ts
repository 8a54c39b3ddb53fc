import { ProgressLocation, window } from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';

/** Shows what is being done. What an agent or another machine wrote has to be sanitized. */
export type Report = (message: string) => void;

/** Runs something that a person can cancel, and shows how far it is. `signal` aborts with `cancelled`. */
export async function withProgress<T>(
  title: string,
  act: (report: Report, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  return await window.withProgress(
    { location: ProgressLocation.Notification, title, cancellable: true },
    async (progress, token) => {
      const controller = new AbortController();
      const listener = token.onCancellationRequested(() =>
        controller.abort(new HoldfastError('cancelled', 'It was cancelled')),
      );
      try {
        return await act((message) => progress.report({ message }), controller.signal);
      } finally {
        listener.dispose();
      }
    },
  );
}
