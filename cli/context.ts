import type { MethodName, Params, Result } from '../protocol/methods.ts';
import type { CallOptions } from '../protocol/wire/shapes.ts';
import { EXIT } from './failure.ts';
import type { CliIo } from './io.ts';
import type { ReconnectingClient, StartMode } from '../protocol/client/reconnecting-client.ts';
import { createOutputs } from './output.ts';
import type { Output } from './output.ts';
import { Pager, pagerOf } from './pager.ts';
import { toSafeJson } from './render/json.ts';
import { ProgressLine } from './render/progress.ts';
import { createStyle } from './render/style.ts';
import type { Style } from './render/style.ts';
import { commandOn, withHost } from './suggested-commands.ts';

/** What every command gets: its input and output streams, the supervisor, and the handling of ^C. */
export interface ContextOptions {
  readonly io: CliIo;
  /** Absolute path of the installation on this machine. */
  readonly home: string;
  /** The machine that commands are for, by its name; null: this one. */
  readonly host: string | null;
  readonly json: boolean;
  readonly connect: (start: StartMode) => ReconnectingClient;
}

export class Context {
  readonly io: CliIo;
  readonly home: string;
  readonly host: string | null;
  readonly json: boolean;
  readonly stdout: Output;
  readonly stderr: Output;
  /** Colours for standard output (`style`) and for standard error. */
  readonly style: Style;
  readonly stderrStyle: Style;
  readonly progress: ProgressLine;
  /** Aborts at the first ^C, unless the command handles interrupts itself. */
  readonly interrupted: AbortSignal;
  readonly #interrupt = new AbortController();
  readonly #connect: (start: StartMode) => ReconnectingClient;
  readonly #links = new Map<StartMode, ReconnectingClient>();
  readonly #endings: (() => void)[] = [];
  readonly #left = Promise.withResolvers<number>();
  #onInterrupt: ((times: number) => void) | undefined;
  #interrupts = 0;
  #pager: Pager | null = null;

  constructor(options: ContextOptions) {
    this.io = options.io;
    this.home = options.home;
    this.host = options.host;
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

  /** A command for the machine that this one is for: `words` follow the name of the program. */
  command(words: string): string {
    return commandOn(this.host, words);
  }

  /** Whether the command can prompt the user. */
  get isInteractive(): boolean {
    return this.io.stdin.isTTY === true && this.stderr.isTTY;
  }

  /** Resolves with the exit code when the command must exit at once, whatever it is waiting for. */
  get exitRequested(): Promise<number> {
    return this.#left.promise;
  }

  requestExit(exitCode: number): void {
    this.#left.resolve(exitCode);
  }

  /** Prints human-readable lines of the result on standard output. */
  async print(...lines: string[]): Promise<void> {
    if (lines.length === 0) return;
    const text = `${lines.join('\n')}\n`;
    if (this.#pager !== null) {
      this.progress.end();
      await this.#pager.write(text);
      return;
    }
    this.progress.hide();
    await this.stdout.write(text);
  }

  /** From here on `print` uses the person's pager, on a terminal; not with --json and not with --no-pager (`wanted`). */
  usePager(wanted: boolean | undefined): void {
    const { io } = this;
    const line = pagerOf(io.env);
    if (this.json || wanted === false || !this.stdout.isTTY || line === null) return;
    if (io.openPager === undefined) return;
    this.#pager = new Pager(io.openPager, line, async (text) => {
      this.progress.hide();
      await this.stdout.write(text);
    });
  }

  /** Resolves when the person has left the pager; then prints what was said meanwhile. */
  async endPager(): Promise<void> {
    const pager = this.#pager;
    if (pager === null) return;
    const notes = await pager.end();
    this.#pager = null;
    for (const note of notes) await this.printNote(note);
  }

  /** Prints the JSON document of the result, or one line of a JSON stream, on standard output. */
  async printJson(value: unknown): Promise<void> {
    this.progress.hide();
    await this.stdout.write(`${toSafeJson(value)}\n`);
  }

  /** Prints a remark on standard error. Commands in backticks get the machine that this one is for. */
  async printNote(remark: string): Promise<void> {
    const text = withHost(remark, this.host);
    if (this.#pager?.isOpen === true) {
      this.#pager.note(text);
      return;
    }
    this.progress.hide();
    await this.stderr.write(`${text}\n`);
  }

  /** Prints a dimmed hint for people on standard error. Does nothing with --json. */
  async printHint(text: string): Promise<void> {
    if (!this.json) await this.printNote(this.stderrStyle.dim(text));
  }

  /** The client of the supervisor. There is one for each start mode. */
  client(start: StartMode = 'auto'): ReconnectingClient {
    const known = this.#links.get(start);
    if (known !== undefined) return known;
    const link = this.#connect(start);
    this.#links.set(start, link);
    return link;
  }

  /** Calls a method and shows a progress line meanwhile. ^C cancels the call. */
  async call<M extends MethodName>(
    method: M,
    params: Params<M>,
    options: CallOptions & { readonly stage?: string; readonly start?: StartMode } = {},
  ): Promise<Result<M>> {
    const { stage = 'Waiting for the supervisor', start = 'auto', ...rest } = options;
    // A pager has the screen.
    if (this.#pager?.isOpen !== true) this.progress.begin(stage);
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
   * Calls `listener` at each ^C, with the number of interrupts so far, instead of aborting `interrupted`.
   * Returns the function that unregisters it.
   */
  handleInterrupts(listener: (times: number) => void): () => void {
    this.#onInterrupt = listener;
    return () => {
      if (this.#onInterrupt === listener) this.#onInterrupt = undefined;
    };
  }

  /** Registers a function to be called when the command ends. */
  onClose(ending: () => void): void {
    this.#endings.push(ending);
  }

  /** Without `flush`, output that a slow reader has not read yet is lost. */
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
    // Nobody may take the terminal from a pager that reads its keys.
    if (this.#interrupts > 1 && this.#pager?.isOpen !== true) this.requestExit(EXIT.cancelled);
    else this.#interrupt.abort();
  }
}
