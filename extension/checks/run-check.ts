import { randomUUID } from 'node:crypto';
import type { CancellationToken } from 'vscode';
import type { CheckResult, CheckSubject } from '../../protocol/checks.ts';
import { signalOf } from '../base/progress.ts';
import { sanitize } from '../base/sanitize.ts';
import type { Connection } from '../connection/connection.ts';

export interface CheckRun {
  readonly session: string;
  /** The name of the check. */
  readonly name: string;
  readonly of: CheckSubject;
  /** Also if it passed on the same tree before. */
  readonly again: boolean;
  /** Receives stdout and stderr as they arrive. */
  readonly onOutput: (text: string) => void;
  readonly onProgress: (stage: string) => void;
  readonly token: CancellationToken;
}

/**
 * Runs one check of the profile. `cached`: it passed on the same tree before and did not run; its output is that of then. Errors: `cancelled`,
 * `connection_closed`, and those of `check/run`.
 */
export async function runCheck(
  connection: Connection,
  run: CheckRun,
): Promise<CheckResult & { readonly cached: boolean }> {
  const { session, name, of, again, token } = run;
  // The output goes to the connection that asked.
  const peer = await connection.of(session).ready();
  const output = randomUUID();
  const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
  const stop = peer.onNotification('check/output', (params, bytes) => {
    if (params.output === output) run.onOutput(decoders[params.stream].decode(bytes, { stream: true }));
  });
  const { signal, dispose } = signalOf(token);
  try {
    const { check, cached } = await peer.call(
      'check/run',
      { session, name, of, again, output },
      { signal, onProgress: ({ stage }) => run.onProgress(sanitize(stage)) },
    );
    if (cached) {
      const { bytes, release } = await peer.callWithBytes('content/read', {
        ...{ session, id: check.content.sha256, offset: 0 },
      });
      run.onOutput(new TextDecoder().decode(bytes));
      release();
    }
    return { ...check, cached };
  } finally {
    dispose();
    stop();
  }
}
