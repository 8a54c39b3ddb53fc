import type { MethodName, Params, Result } from '../protocol/methods.ts';
import type { CallOptions } from '../protocol/wire/shapes.ts';
import { EXIT } from './failure.ts';
import type { CliIo } from './io.ts';
import type { Link, StartMode } from './link.ts';
import { outputsOf } from './output.ts';
import type { Output } from './output.ts';
import { safeJson } from './render/json.ts';
import { ProgressLine } from './render/progress.ts';
import { styleFor } from './render/style.ts';
import type { Style } from './render/style.ts';

/** What every command has at hand: its outputs, the supervisor, and how it hears of ^C. */
export interface ContextOptions {
  readonly io: CliIo;
  /** Absolute path of the installation. */
  readonly home: string;
  readonly json: boolean;
  readonly connect: (start: StartMode) => Link;
}

export class Context {
  readonly io: CliIo;
  readonly home: string;
  readonly json: boolean;
  readonly stdout: Output;
  readonly stderr: Output;
  /** Colours of standard output and of standard error. */
  readonly style: Style;
  readonly noteStyle: Style;
  readonly progress: ProgressLine;
  /** Aborts at the first ^C, unless a command handles that itself. */
  readonly interrupted: AbortSignal;
  readonly #interrupt = new AbortController();
  readonly #connect: (start: StartMode) => Link;
  readonly #links = new Map<StartMode, Link>();
  readonly #endings: (() => void)[] = [];
  readonly #left = Promise.withResolvers<number>();
  #onInterrupt: ((times: number) => void) | undefined;
  #interrupts = 0;

  constructor(options: ContextOptions) {
    this.io = options.io;
    this.home = options.home;
    this.json = options.json;
    this.#connect = options.connect;
    const { stdout, stderr } = outputsOf(options.io);
    this.stdout = stdout;
    this.stderr = stderr;
    this.style = styleFor(stdout.isTTY, options.io.env);
    this.noteStyle = styleFor(stderr.isTTY, options.io.env);
    const terminal = stderr.isTTY
      ? {
          get columns() {
            return stderr.columns;
          },
          write: (text: string) => void options.io.stderr.write(text),
        }
      : null;
    this.progress = new ProgressLine(terminal, this.noteStyle);
    this.interrupted = this.#interrupt.signal;
    this.#endings.push(options.io.onSignal('SIGINT', () => this.#hearInterrupt()));
  }

  /** Whether a person can be asked something. */
  get canAsk(): boolean {
    return this.io.stdin.isTTY === true && this.stderr.isTTY;
  }

  /** Resolves with the exit code when the command is to be left at once, whatever it waits for. */
  get left(): Promise<number> {
    return this.#left.promise;
  }

  leave(exitCode: number): void {
    this.#left.resolve(exitCode);
  }

  /** Result lines for people. */
  async print(...lines: string[]): Promise<void> {
    if (lines.length === 0) return;
    this.progress.hide();
    await this.stdout.write(`${lines.join('\n')}\n`);
  }

  /** The result for programs: the one JSON document, or one line of a stream. */
  async document(value: unknown): Promise<void> {
    this.progress.hide();
    await this.stdout.write(`${safeJson(value)}\n`);
  }

  /** A remark beside the result, on standard error. */
  async note(text: string): Promise<void> {
    this.progress.hide();
    await this.stderr.write(`${text}\n`);
  }

  /** A remark for people only; nothing with --json. */
  async hint(text: string): Promise<void> {
    if (!this.json) await this.note(this.noteStyle.dim(text));
  }

  /** The supervisor; one link per way of starting it. */
  link(start: StartMode = 'auto'): Link {
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
      return await this.link(start).call(method, params, {
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
  takeInterrupts(listener: (times: number) => void): () => void {
    this.#onInterrupt = listener;
    return () => {
      if (this.#onInterrupt === listener) this.#onInterrupt = undefined;
    };
  }

  /** Something that ends with the command. */
  onEnd(ending: () => void): void {
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
    if (this.#interrupts > 1) this.leave(EXIT.cancelled);
    else this.#interrupt.abort();
  }
}
