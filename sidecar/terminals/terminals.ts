import { mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { HoldfastError } from '../../protocol/errors.ts';
import { TerminalIdSchema } from '../../protocol/ids.ts';
import { TERMINAL_LIMITS, type WindowSize } from '../../protocol/terminals.ts';
import { DirectoryWatcher } from '../turns/directory-watcher.ts';
import { terminalScript } from '../turns/launch-script.ts';
import { RunDirectory } from '../turns/run-directory.ts';
import { RunnerRequests } from '../turns/runner-requests.ts';
import { TurnFiles } from '../turns/turn-files.ts';
import type { TerminalLaunch, TerminalProgress } from '../wire.ts';
import { Scrollback } from './scrollback.ts';
import { Terminal } from './terminal.ts';

const MAX_WAIT_MS = 60_000;

export interface TerminalsOptions {
  /** The run directory, which is a mount point. */
  readonly run: string;
  /** A directory that only the sidecar can reach. */
  readonly control: string;
}

const ABSENT: TerminalProgress = {
  state: 'absent',
  start: 0,
  total: 0,
  exitCode: null,
  idleMs: 0,
};

/**
 * The terminals of the session: passes them to the runner and stores their output. Terminals of an earlier sidecar
 * continue.
 */
export class Terminals {
  readonly #run: RunDirectory;
  readonly #runner: RunnerRequests;
  readonly #folder: string;
  readonly #known = new Map<string, Terminal>();

  constructor({ run, control }: TerminalsOptions) {
    this.#run = new RunDirectory(run);
    this.#runner = new RunnerRequests(this.#run.root);
    this.#folder = join(control, 'terminals');
    mkdirSync(this.#folder, { recursive: true, mode: 0o700 });
    // Reads our own directory, because the agent can create any number of names in the run directory.
    for (const id of readdirSync(this.#folder)) this.#find(id);
  }

  /** Errors: `overloaded`, `no_space`, and `sandbox_lost` if no runner reads requests. */
  async open(launch: TerminalLaunch, signal: AbortSignal): Promise<TerminalProgress> {
    const { terminalId } = launch;
    const known = this.#find(terminalId);
    if (known !== null) return known.progress();
    if (this.#known.size >= TERMINAL_LIMITS.open + TERMINAL_LIMITS.ended) {
      throw new HoldfastError('overloaded', 'This session cannot open more terminals', {
        next: 'close one of them',
      });
    }
    const script = Buffer.from(terminalScript(launch));
    this.#run.repair();
    const files = TurnFiles.create(this.#run.terminals, terminalId, { launch: script }, []);
    const terminal = this.#adopt(terminalId, files);
    try {
      await this.#runner.request(`terminal open ${terminalId}`, signal);
    } catch (error) {
      this.remove(terminalId);
      throw error;
    }
    return terminal.progress();
  }

  async progress(terminalId: string, waitMs: number, signal: AbortSignal): Promise<TerminalProgress> {
    const terminal = this.#find(terminalId);
    return terminal === null ? ABSENT : terminal.waitForChange(Math.min(waitMs, MAX_WAIT_MS), signal);
  }

  /** Errors: `not_found`, here and below. */
  read(
    terminalId: string,
    from: { offset: number; limit: number; waitMs: number },
    signal: AbortSignal,
  ): ReturnType<Terminal['read']> {
    return this.#existing(terminalId).read({ ...from, waitMs: Math.min(from.waitMs, MAX_WAIT_MS) }, signal);
  }

  write(terminalId: string, bytes: Uint8Array, signal: AbortSignal): Promise<void> {
    if (bytes.length > TERMINAL_LIMITS.chunk) {
      throw new HoldfastError('invalid_params', 'The input is too large for one message', {
        why: `the limit is ${TERMINAL_LIMITS.chunk} bytes`,
      });
    }
    return this.#existing(terminalId).write(bytes, signal);
  }

  resize(terminalId: string, size: WindowSize): void {
    this.#existing(terminalId).resize(size);
  }

  async close(terminalId: string, signal: AbortSignal): Promise<void> {
    this.#existing(terminalId);
    await this.#runner.request(`terminal close ${terminalId}`, signal);
  }

  remove(terminalId: string): void {
    if (!this.#isOurs(terminalId)) return;
    const terminal = this.#known.get(terminalId);
    if (terminal?.progress().state !== 'ended') this.#runner.send(`terminal close ${terminalId}`);
    this.#known.delete(terminalId);
    terminal?.close();
    Scrollback.open(join(this.#folder, terminalId), TERMINAL_LIMITS.scrollback).remove();
    this.#run.removeTerminal(terminalId);
  }

  /** Stops serving the terminals. They continue without the sidecar. */
  detach(): void {
    for (const terminal of this.#known.values()) terminal.close();
    this.#known.clear();
    this.#run.close();
  }

  #existing(terminalId: string): Terminal {
    const terminal = this.#find(terminalId);
    if (terminal === null) throw new HoldfastError('not_found', `There is no terminal ${terminalId}`);
    return terminal;
  }

  /** A known terminal, or one that an earlier sidecar left. */
  #find(terminalId: string): Terminal | null {
    const known = this.#known.get(terminalId);
    if (known !== undefined) return known;
    if (!TerminalIdSchema.safeParse(terminalId).success || !this.#isOurs(terminalId)) return null;
    const files = TurnFiles.find(this.#run.terminals, terminalId);
    return files === null ? null : this.#adopt(terminalId, files);
  }

  #isOurs(terminalId: string): boolean {
    return readdirSync(this.#folder).includes(terminalId);
  }

  #adopt(id: string, files: TurnFiles): Terminal {
    const terminal = new Terminal({
      id,
      files,
      watcher: new DirectoryWatcher(files.directory, () => undefined),
      scrollback: Scrollback.open(join(this.#folder, id), TERMINAL_LIMITS.scrollback),
      request: (line) => this.#runner.send(line) !== 'full',
    });
    this.#known.set(id, terminal);
    return terminal;
  }
}
