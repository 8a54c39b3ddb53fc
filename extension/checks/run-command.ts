import type { CancellationToken } from 'vscode';
import type { Connection } from '../connection/connection.ts';
import { HoldfastError } from '../../protocol/errors.ts';

/** How long a cancelled command may take to exit after SIGTERM before it gets SIGKILL. */
const GRACE_MS = 3_000;

export interface CommandRun {
  readonly session: string;
  readonly command: readonly string[];
  /** Receives stdout and stderr as they arrive. */
  readonly onOutput: (text: string) => void;
  readonly token: CancellationToken;
}

/**
 * Runs a command in the sandbox, in /workspace, and returns its exit code. Errors: `cancelled`, `connection_closed`
 * (the command has ended too), `sandbox_lost`, and those of `exec/start`.
 */
export async function runCommand(connection: Connection, run: CommandRun): Promise<number> {
  const peer = await connection.of(run.session).ready();
  const exited = Promise.withResolvers<number | null>();
  const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
  const early: { readonly id: string; readonly action: () => void }[] = [];
  let exec: string | undefined;
  // Notifications follow the answer of `exec/start`, but they may be delivered before the code that awaits it
  // continues.
  const handle = (id: string, action: () => void): void => {
    if (exec === undefined) early.push({ id, action });
    else if (id === exec) action();
  };
  const cleanups = [
    peer.onNotification('exec/output', ({ exec: id, stream }, bytes) =>
      handle(id, () => run.onOutput(decoders[stream].decode(bytes, { stream: true }))),
    ),
    peer.onNotification('exec/exited', ({ exec: id, exitCode }) =>
      handle(id, () => exited.resolve(exitCode)),
    ),
  ];
  void peer.closed.then((reason) =>
    exited.reject(
      reason ??
        new HoldfastError('connection_closed', 'The connection to the supervisor broke during the check'),
    ),
  );
  exited.promise.catch(() => undefined);
  let timer: NodeJS.Timeout | undefined;
  const kill = (signal: 'TERM' | 'KILL'): void => {
    if (exec !== undefined) peer.call('exec/kill', { exec, signal }).catch(() => undefined);
  };
  const stop = (): void => {
    kill('TERM');
    timer ??= setTimeout(() => kill('KILL'), GRACE_MS);
  };
  try {
    const started = await peer.call('exec/start', { session: run.session, command: [...run.command] });
    exec = started.exec;
    for (const { id, action } of early.splice(0)) if (id === exec) action();
    const listener = run.token.onCancellationRequested(stop);
    cleanups.push(() => void listener.dispose());
    if (run.token.isCancellationRequested) stop();
    const exitCode = await exited.promise;
    if (run.token.isCancellationRequested) throw new HoldfastError('cancelled', 'The check was cancelled');
    if (exitCode === null)
      throw new HoldfastError('sandbox_lost', 'The check did not finish', { why: 'its sandbox was lost' });
    return exitCode;
  } finally {
    clearTimeout(timer);
    for (const cleanUp of cleanups) cleanUp();
  }
}
