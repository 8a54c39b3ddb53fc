import { isUtf8 } from 'node:buffer';
import type { SupervisorPeer } from '../protocol/client/connect.ts';
import { HoldfastError } from '../protocol/errors.ts';
import type { Params, Result } from '../protocol/methods.ts';
import type { Context } from './context.ts';
import { EXIT, UsageError } from './failure.ts';
import { terminalEnvironment } from './terminal/terminal-environment.ts';

export interface ExecRequest {
  readonly session: string;
  readonly command: readonly string[];
  readonly tty: boolean;
  readonly stdin: boolean;
  readonly env: Readonly<Record<string, string>>;
  readonly cwd: string | undefined;
}

/** Size of one chunk of input. Only one chunk is in flight, so that the process sets the pace. */
const INPUT_BYTES = 2 ** 20;
/** Unwritten output above which the client stops reading from the supervisor. */
const BACKLOG_BYTES = 2 ** 20;

/**
 * Runs a command in the session's sandbox with our standard streams, and returns its exit code. With a terminal, all
 * keys go to the command, including ^C. Without one, the first ^C sends SIGINT and later ones SIGKILL. The supervisor
 * kills the command when this client disconnects.
 */
export async function execute(context: Context, request: ExecRequest): Promise<number> {
  const { stdin } = context.io;
  if (request.tty && (stdin.isTTY !== true || !context.stdout.isTTY)) {
    throw new UsageError('-t needs a terminal, but standard input or output is not one; omit -t');
  }
  const peer = await context.client().peer();
  const running = new RunningExec(context, peer, request);
  try {
    return await running.run();
  } finally {
    running.close();
  }
}

interface Exited {
  readonly exitCode: number | null;
  readonly signal: string | null;
}

class RunningExec {
  readonly #context: Context;
  readonly #peer: SupervisorPeer;
  readonly #request: ExecRequest;
  readonly #endings: (() => void)[] = [];
  readonly #exited = Promise.withResolvers<Exited>();
  #exec: string | undefined;
  #ended = false;
  #interrupts = 0;
  /** Chains the writes in order of arrival. Resolves when all output so far has been written. */
  #writing: Promise<void> = Promise.resolve();
  #backlog = 0;
  #readOn: (() => void) | undefined;

  constructor(context: Context, peer: SupervisorPeer, request: ExecRequest) {
    this.#context = context;
    this.#peer = peer;
    this.#request = request;
  }

  async run(): Promise<number> {
    const context = this.#context;
    const peer = this.#peer;
    this.#endings.push(
      peer.onNotification('exec/output', (params, bytes) => {
        if (params.exec === this.#exec) this.#show(params.stream, bytes);
      }),
      peer.onNotification('exec/exited', (params) => {
        if (params.exec === this.#exec) this.#exited.resolve(params);
      }),
      context.handleInterrupts(() => this.#interrupt()),
    );
    void peer.closed.then((reason) => this.#exited.reject(lost(reason)));
    // Awaited below. Until then the call that starts the command reports a lost connection.
    this.#exited.promise.catch(() => undefined);
    const started = await this.#start();
    if (this.#interrupts > 0) this.#kill('INT');
    this.#forwardTerminal();
    void this.#forwardInput();
    const exited = await this.#exited.promise;
    this.#ended = true;
    await this.#writing;
    if (context.json) {
      const { exitCode, signal } = exited;
      await context.printJson({ exitCode, signal, sessionId: started.sessionId, sandbox: started.sandbox });
    }
    return exitCodeOf(exited);
  }

  close(): void {
    this.#ended = true;
    for (const ending of this.#endings.splice(0).reverse()) ending();
    this.#readOn?.();
  }

  async #start(): Promise<Result<'exec/start'>> {
    const context = this.#context;
    const request = this.#request;
    const env = { ...(request.tty ? terminalEnvironment(context.io.env) : {}), ...request.env };
    const params: Params<'exec/start'> = {
      session: request.session,
      command: [...request.command],
      stdin: request.stdin,
      ...(Object.keys(env).length === 0 ? {} : { env }),
      ...(request.cwd === undefined ? {} : { cwd: request.cwd }),
      ...(request.tty ? { tty: this.#terminalSize() } : {}),
    };
    context.progress.begin('Starting the sandbox');
    try {
      const started = await this.#peer.call('exec/start', params, {
        onProgress: (report) => context.progress.update(report),
      });
      this.#exec = started.exec;
      return started;
    } finally {
      context.progress.end();
    }
  }

  #terminalSize(): { columns: number; rows: number } {
    const { columns, rows } = this.#context.io.stdout;
    // A terminal without a size reports 0.
    const within = (value: number | undefined, fallback: number) =>
      value === undefined || value < 1 ? fallback : Math.min(10_000, value);
    return { columns: within(columns, 80), rows: within(rows, 24) };
  }

  #show(stream: 'stdout' | 'stderr', bytes: Buffer): void {
    this.#backlog += bytes.length;
    if (this.#backlog > BACKLOG_BYTES) this.#readOn ??= this.#peer.pauseReading();
    this.#writing = this.#writing.then(async () => {
      await this.#write(stream, bytes);
      this.#backlog -= bytes.length;
      if (this.#backlog > BACKLOG_BYTES / 2) return;
      this.#readOn?.();
      this.#readOn = undefined;
    });
    // A closed standard output ends the command, and with it the connection and the remote process.
    this.#writing.catch((error: unknown) => this.#exited.reject(error));
  }

  async #write(stream: 'stdout' | 'stderr', bytes: Buffer): Promise<void> {
    const context = this.#context;
    if (!context.json) await context[stream].write(bytes);
    else if (isUtf8(bytes)) await context.printJson({ stream, text: bytes.toString('utf8') });
    else await context.printJson({ stream, base64: bytes.toString('base64') });
  }

  /** Switches the terminal to raw mode and forwards changes of its size until the command ends. */
  #forwardTerminal(): void {
    if (!this.#request.tty) return;
    const { io } = this.#context;
    io.stdin.setRawMode?.(true);
    this.#endings.push(
      () => io.stdin.setRawMode?.(false),
      io.onSignal('SIGWINCH', () => {
        if (this.#exec !== undefined)
          this.#notify('exec/resize', { exec: this.#exec, ...this.#terminalSize() });
      }),
    );
  }

  async #forwardInput(): Promise<void> {
    const { stdin } = this.#context.io;
    const exec = this.#exec;
    if (!this.#request.stdin || exec === undefined) return;
    this.#endings.push(() => stdin.pause());
    try {
      for await (const chunk of stdin as AsyncIterable<string | Buffer>) {
        if (this.#hasEnded()) return;
        const bytes = typeof chunk === 'string' ? Buffer.from(chunk, 'utf8') : chunk;
        for (let at = 0; at < bytes.length; at += INPUT_BYTES) {
          await this.#peer.call('exec/input', { exec }, { bytes: bytes.subarray(at, at + INPUT_BYTES) });
        }
      }
      if (!this.#hasEnded()) await this.#peer.call('exec/input', { exec, end: true });
    } catch (error) {
      // The process has exited or closed its input. As with a pipe, only its exit code counts.
      const takesNoMore =
        error instanceof HoldfastError &&
        ['not_found', 'connection_closed', 'invalid_state'].includes(error.code);
      if (!takesNoMore && !this.#hasEnded()) this.#exited.reject(error);
    }
  }

  #hasEnded(): boolean {
    return this.#ended;
  }

  #interrupt(): void {
    this.#interrupts += 1;
    if (this.#exec === undefined) {
      // The command has not started. The supervisor kills it when it notices that this client is gone.
      if (this.#interrupts > 1) this.#context.requestExit(EXIT.cancelled);
      return;
    }
    if (this.#interrupts > 2) this.#context.requestExit(EXIT.cancelled);
    else this.#kill(this.#interrupts === 1 ? 'INT' : 'KILL');
  }

  #kill(signal: 'INT' | 'KILL'): void {
    if (this.#exec !== undefined) this.#notify('exec/kill', { exec: this.#exec, signal });
  }

  /** Calls a method without waiting. Ignores the error if the process has exited meanwhile. */
  #notify<M extends 'exec/kill' | 'exec/resize'>(method: M, params: Params<M>): void {
    this.#peer.call(method, params).catch((error: unknown) => {
      const late =
        error instanceof HoldfastError &&
        ['not_found', 'connection_closed', 'invalid_state'].includes(error.code);
      if (!late && !this.#hasEnded()) this.#exited.reject(error);
    });
  }
}

function lost(reason: HoldfastError | undefined): HoldfastError {
  return new HoldfastError('connection_closed', 'The command was interrupted', {
    why: reason?.sentence ?? 'the supervisor closed the connection',
    next: 'use `holdfast run` for work that must survive a restart of the supervisor',
    cause: reason,
  });
}

const SIGNALS: Readonly<Record<string, number>> = { HUP: 1, INT: 2, QUIT: 3, KILL: 9, TERM: 15 };

/** As in a shell: 128 plus the signal number for a process that was killed by a signal. */
function exitCodeOf(exited: Exited): number {
  if (exited.exitCode !== null) return exited.exitCode;
  const signal = SIGNALS[(exited.signal ?? '').replace(/^SIG/, '')];
  if (signal !== undefined) return 128 + signal;
  throw new HoldfastError('sandbox_lost', 'The command was interrupted', { why: 'its sandbox was lost' });
}
