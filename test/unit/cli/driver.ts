import { PassThrough } from 'node:stream';
import { runCli } from '../../../cli/main.ts';
import type { CliIo, CliSignal } from '../../../cli/main.ts';
import { NOW } from './fake-supervisor.ts';

export interface Finished {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

export interface DriverOptions {
  readonly home: string;
  /** Standard input; left open when undefined. */
  readonly stdin?: string | Buffer;
  /** All three streams are a terminal of this many columns. */
  readonly terminal?: number;
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
}

/** A run of the command line in this process, with streams and signals of its own. */
export class Driven {
  readonly stdin = new PassThrough();
  readonly stdout = new PassThrough();
  readonly stderr = new PassThrough();
  readonly finished: Promise<Finished>;
  rawMode: boolean | undefined;
  readonly #signals = new Map<CliSignal, Set<() => void>>();
  readonly #stdout: Buffer[] = [];
  readonly #stderr: Buffer[] = [];
  #waiting: { readonly text: string; readonly done: () => void }[] = [];

  constructor(argv: readonly string[], options: DriverOptions) {
    this.#collect(this.stdout, this.#stdout);
    this.#collect(this.stderr, this.#stderr);
    if (options.stdin !== undefined) this.stdin.end(options.stdin);
    this.finished = runCli(argv, this.#io(options)).then((code) => ({
      code,
      stdout: this.bytes().toString('utf8'),
      stderr: Buffer.concat(this.#stderr).toString('utf8'),
    }));
  }

  signal(name: CliSignal): void {
    for (const listener of this.#signals.get(name) ?? []) listener();
  }

  /** How many listen to it: none once the command has ended. */
  listeners(name: CliSignal): number {
    return this.#signals.get(name)?.size ?? 0;
  }

  bytes(): Buffer {
    return Buffer.concat(this.#stdout);
  }

  /** Resolves once the text stands on standard output or error. */
  async shows(text: string): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<undefined>();
    this.#waiting.push({ text, done: () => resolve(undefined) });
    this.#look();
    await promise;
  }

  #io(options: DriverOptions): CliIo {
    const terminal = options.terminal;
    const shape = terminal === undefined ? {} : { isTTY: true, columns: terminal, rows: 24 };
    return {
      stdin: Object.assign(this.stdin, terminal === undefined ? {} : { isTTY: true }, {
        setRawMode: (on: boolean) => {
          this.rawMode = on;
        },
      }),
      stdout: Object.assign(this.stdout, shape),
      stderr: Object.assign(this.stderr, shape),
      env: { HOLDFAST_HOME: options.home, TERM: 'xterm', ...options.env },
      cwd: options.cwd ?? '/',
      supervisorCommand: ['/nonexistent/holdfast'],
      now: () => NOW,
      onSignal: (signal, listener) => {
        const listeners = this.#signals.get(signal) ?? new Set();
        this.#signals.set(signal, listeners);
        listeners.add(listener);
        return () => listeners.delete(listener);
      },
    };
  }

  #collect(stream: PassThrough, into: Buffer[]): void {
    stream.on('data', (chunk: Buffer) => {
      into.push(chunk);
      this.#look();
    });
  }

  #look(): void {
    if (this.#waiting.length === 0) return;
    const seen = Buffer.concat([...this.#stdout, ...this.#stderr]).toString('utf8');
    this.#waiting = this.#waiting.filter(({ text, done }) => {
      if (!seen.includes(text)) return true;
      done();
      return false;
    });
  }
}

/** Runs a command line to its end. */
export async function cli(argv: readonly string[], options: DriverOptions): Promise<Finished> {
  return new Driven(argv, { stdin: '', ...options }).finished;
}
