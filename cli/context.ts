import type { MethodName, Params, Result } from '../protocol/methods.ts';
import type { CallOptions } from '../protocol/wire/shapes.ts';
import { EXIT } from './failure.ts';
import type { CliIo } from './io.ts';
import type { ReconnectingClient, StartMode } from './reconnecting-client.ts';
import { createOutputs } from './output.ts';
import type { Output } from './output.ts';
import { toSafeJson } from './render/json.ts';
import { ProgressLine } from './render/progress.ts';
import { createStyle } from './render/style.ts';
import type { Style } from './render/style.ts';

/** What every command has at hand: its outputs, the supervisor, and how it hears of ^C. */
export interface ContextOptions {
  readonly io: CliIo;
  /** Absolute path of the installation. */
  readonly home: string;
  readonly json: boolean;
  readonly connect: (start: StartMode) => ReconnectingClient;
}

export class Context {
  readonly io: CliIo;
  readonly home: string;
  readonly json: boolean;
  readonly stdout: Output;
  readonly stderr: Output;
  /** Colours of standard output and of standard error. */
  readonly style: Style;
  readonly stderrStyle: Style;
  readonly progress: ProgressLine;
  /** Aborts at the first ^C, unless a command handles that itself. */
  readonly interrupted: AbortSignal;
  readonly #interrupt = new AbortController();
  readonly #connect: (start: StartMode) => ReconnectingClient;
  readonly #links = new Map<StartMode, ReconnectingClient>();
  readonly #endings: (() => void)[] = [];
  readonly #left = Promise.withResolvers<number>();
  #onInterrupt: ((times: number) => void) | undefined;
  #interrupts = 0;

  constructor(options: ContextOptions) {
    this.io = options.io;
    this.home = options.home;
    this.json = options.json;
    this.#connect = options.connect;
    const { stdout, stderr } = createOutputs(options.io);
    this.stdout = stdout;
    this.stderr = stderr;
    this.style = createStyle(stdout.isTTY, options.io.env);
    this.stderrStyle = createStyle(stderr.isTTY, options.io.env);
    const terminal = stderr.isTTY
      ? {
          get columns() {
            return stderr.columns;
          },
          write: (text: string) => void options.io.stderr.write(text),
        }
      : null;
    this.progress = new ProgressLine(terminal, this.stderrStyle);
    this.interrupted = this.#interrupt.signal;
    this.#endings.push(options.io.onSignal('SIGINT', () => this.#hearInterrupt()));
  }

  /** Whether a person can be asked something. */
  get isInteractive(): boolean {
    return this.io.stdin.isTTY === true && this.stderr.isTTY;
  }

  /** Resolves with the exit code when the command is to be left at once, whatever it waits for. */
  get exitRequested(): Promise<number> {
    return this.#left.promise;
  }

  requestExit(exitCode: number): void {
    this.#left.resolve(exitCode);
  }

  /** Result lines for people. */
  async print(...lines: string[]): Promise<void> {
    if (lines.length === 0) return;
    this.progress.hide();
    await this.stdout.write(`${lines.join('\n')}\n`);
  }

  /** The result for programs: the one JSON document, or one line of a stream. */
  async printJson(value: unknown): Promise<void> {
    this.progress.hide();
    await this.stdout.write(`${toSafeJson(value)}\n`);
  }

  /** A remark beside the result, on standard error. */
  async printNote(text: string): Promise<void> {
    this.progress.hide();
    await this.stderr.write(`${text}\n`);
  }

  /** A remark for people only; nothing with --json. */
  async printHint(text: string): Promise<void> {
    if (!this.json) await this.printNote(this.stderrStyle.dim(text));
  }

  /** The supervisor; one link per way of starting it. */
  client(start: StartMode = 'auto'): ReconnectingClient {
    const known = this.#links.get(start);
    if (known !== undefined) return known;
    const link = this.#connect(start);
    this.#links.set(start, link);
    return link;
  }

  /** One call, with a progress line while it lasts; ^C cancels it. */
  async call<M extends MethodName>(
    method: M,
    params: Params<M>,
    options: CallOptions & { readonly stage?: string; readonly start?: StartMode } = {},
  ): Promise<Result<M>> {
    const { stage = 'Waiting for the supervisor', start = 'auto', ...rest } = options;
    this.progress.begin(stage);
    try {
      return await this.client(start).call(method, params, {
        signal: this.interrupted,
        onProgress: (report) => this.progress.update(report),
        ...rest,
      });
    } finally {
      this.progress.end();
    }
  }

  /**
   * Hands ^C to a command that knows better than to stop: it is told how often. Returns the end of it; until then
   * `interrupted` stays quiet.
   */
  handleInterrupts(listener: (times: number) => void): () => void {
    this.#onInterrupt = listener;
    return () => {
      if (this.#onInterrupt === listener) this.#onInterrupt = undefined;
    };
  }

  /** Something that ends with the command. */
  onClose(ending: () => void): void {
    this.#endings.push(ending);
  }

  /** Without `flush`, what a slow reader has not taken is left behind. */
  async close(flush: boolean): Promise<void> {
    this.progress.end();
    for (const ending of this.#endings.splice(0).reverse()) ending();
    for (const link of this.#links.values()) link.close();
    this.#links.clear();
    if (flush) {
      await this.stdout.flush();
      await this.stderr.flush();
    }
    this.stdout.close();
    this.stderr.close();
  }

  #hearInterrupt(): void {
    this.#interrupts += 1;
    if (this.#onInterrupt !== undefined) {
      this.#onInterrupt(this.#interrupts);
      return;
    }
    if (this.#interrupts > 1) this.requestExit(EXIT.cancelled);
    else this.#interrupt.abort();
  }
}
