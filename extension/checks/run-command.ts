import type { CancellationToken } from 'vscode';
import type { Connection } from '../connection/connection.ts';
import { HoldfastError } from '../../protocol/errors.ts';

/** How long a command may take to end after TERM. */
const GRACE_MS = 3_000;

export interface CommandRun {
  readonly session: string;
  readonly command: readonly string[];
  /** Both outputs, as they come. */
  readonly output: (text: string) => void;
  readonly token: CancellationToken;
}

/**
 * Runs a command beside the agent, in /workspace: its exit code. Errors: `cancelled`, `connection_closed` (it has ended then), `sandbox_lost`, and those of
 * `exec/start`.
 */
export async function runCommand(connection: Connection, run: CommandRun): Promise<number> {
  const peer = await connection.ready();
  const ended = Promise.withResolvers<number | null>();
  const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
  const early: (() => void)[] = [];
  let exec: string | undefined;
  // What belongs to an answer comes after it, but perhaps before whoever waits for the answer goes on.
  const hear = (id: string, act: () => void): void => {
    if (exec === undefined) early.push(act);
    else if (id === exec) act();
  };
  const endings = [
    peer.onNotification('exec/output', ({ exec: id, stream }, bytes) =>
      hear(id, () => run.output(decoders[stream].decode(bytes, { stream: true }))),
    ),
    peer.onNotification('exec/exited', ({ exec: id, exitCode }) => hear(id, () => ended.resolve(exitCode))),
  ];
  void peer.closed.then((reason) =>
    ended.reject(
      reason ?? new HoldfastError('connection_closed', 'The command was cut off with the supervisor'),
    ),
  );
  ended.promise.catch(() => undefined);
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
    for (const act of early.splice(0)) act();
    const listener = run.token.onCancellationRequested(stop);
    endings.push(() => void listener.dispose());
    if (run.token.isCancellationRequested) stop();
    const exitCode = await ended.promise;
    if (run.token.isCancellationRequested) throw new HoldfastError('cancelled', 'The check was cancelled');
    if (exitCode === null)
      throw new HoldfastError('sandbox_lost', 'The check was cut off', { why: 'its sandbox went away' });
    return exitCode;
  } finally {
    clearTimeout(timer);
    for (const end of endings) end();
  }
}
