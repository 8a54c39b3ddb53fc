import type { Readable, Writable } from 'node:stream';
import { type PagerProcess, spawnPager } from './pager.ts';

/** A stream that may be a terminal. */
export interface InputStream extends Readable {
  readonly isTTY?: boolean;
  setRawMode?(on: boolean): unknown;
}
export interface OutputStream extends Writable {
  readonly isTTY?: boolean;
  readonly columns?: number;
  readonly rows?: number;
}

export type CliSignal = 'SIGINT' | 'SIGTERM' | 'SIGHUP' | 'SIGWINCH';

/** Everything of the process that the command line uses, so that tests can replace it. */
export interface CliIo {
  readonly stdin: InputStream;
  readonly stdout: OutputStream;
  readonly stderr: OutputStream;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Absolute. Paths on the command line are relative to it. */
  readonly cwd: string;
  /** The command that starts a supervisor, without its home. */
  readonly supervisorCommand: readonly string[];
  /** The command that starts the connector of a host; its name and our home follow. */
  readonly connectorCommand: readonly string[];
  now(): number;
  /** Starts a pager on the terminal: a line for the shell. Without it nothing is paged. */
  readonly openPager?: (line: string) => PagerProcess;
  /** Calls `listener` at each such signal of this process until the returned function is called. */
  onSignal(signal: CliSignal, listener: () => void): () => void;
}

/** The real process. The commands are usually this very program with `supervisor run` and `host-connector`. */
export function processIo(commands: Pick<CliIo, 'supervisorCommand' | 'connectorCommand'>): CliIo {
  return {
    // A getter, because merely reading process.stdin opens it.
    get stdin() {
      return process.stdin;
    },
    stdout: process.stdout,
    stderr: process.stderr,
    env: process.env,
    cwd: process.cwd(),
    ...commands,
    now: () => Date.now(),
    openPager: (line) => spawnPager(line, process.env),
    onSignal(signal, listener) {
      process.on(signal, listener);
      return () => process.off(signal, listener);
    },
  };
}
