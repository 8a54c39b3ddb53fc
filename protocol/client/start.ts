import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { Socket } from 'node:net';
import { ErrorCodeSchema } from '../error-data.ts';
import { HoldfastError } from '../errors.ts';
import { homePaths } from '../home.ts';
import { readLastLines, findLastError } from './log-tail.ts';

/** How long to wait after an exit before starting another one. */
const RESTART_AFTER_MS = 500;
const MAX_LOG_LINES = 5;
const MAX_STDERR_CHARACTERS = 4096;

/**
 * V8 options for a small process that idles for days: by default the garbage of a busy minute stays in memory (measured
 * after listing 1,000 sessions some twenty times: 187 MiB without the options, 112 MiB with them, at the same speed).
 */
const MEMORY_OPTIONS = ['--max-semi-space-size=1', '--max-old-space-size=160'];

/** glibc keeps freed memory in an arena per thread. Two arenas are enough for a process that mostly waits. */
const FEW_ARENAS = { MALLOC_ARENA_MAX: '2' };

/** The command that starts the program in `bundle` as a supervisor. */
export function supervisorCommand(node: string, bundle: string): readonly string[] {
  return [node, ...MEMORY_OPTIONS, bundle, 'supervisor', 'run'];
}

/**
 * Starts a supervisor that outlives this process: it has its own process session and does not inherit our terminal,
 * working directory or file descriptors. Several clients may do so at once: one supervisor gets the lock of the home, and
 * all clients connect to that one.
 */
export class SupervisorStarter {
  readonly #home: string;
  readonly #command: readonly string[];
  readonly #environment: NodeJS.ProcessEnv;
  #child: ChildProcess | undefined;
  #startedAt = 0;
  #exit: { readonly at: number; readonly how: string; readonly failed: boolean } | undefined;
  #spawnError: Error | undefined;
  #stderr = '';

  constructor(home: string, command: readonly string[], environment: NodeJS.ProcessEnv = process.env) {
    this.#home = home;
    this.#command = command;
    this.#environment = environment;
  }

  /** Call this repeatedly while no supervisor responds. Starts one unless ours is still starting. Throws if starting has failed. */
  ensureStarted(): void {
    if (this.#child === undefined) {
      this.#spawn();
      return;
    }
    if (this.#spawnError !== undefined) throw this.explainFailure();
    if (this.#exit === undefined || Date.now() - this.#exit.at < RESTART_AFTER_MS) return;
    // Another supervisor had the lock, and may be exiting: try again.
    const { failed } = this.#exit;
    if (failed && this.#loggedError()?.code !== 'home_locked') throw this.explainFailure();
    this.#spawn();
  }

  /** The error that explains why no supervisor responds. */
  explainFailure(): HoldfastError {
    const { log } = homePaths(this.#home);
    const logged = this.#loggedError();
    const lines = readLastLines(log, MAX_LOG_LINES);
    const tail = lines.length === 0 ? '' : `; its log ends with:\n${lines.join('\n')}`;
    const what = 'The supervisor could not be started';
    const next = `see ${log}`;
    if (this.#spawnError !== undefined) {
      const why = `${this.#command[0] ?? 'its program'} cannot be run: ${this.#spawnError.message}`;
      return new HoldfastError('internal', what, {
        why,
        next: 'reinstall holdfast',
        cause: this.#spawnError,
      });
    }
    if (logged !== undefined) {
      const why = logged.why === undefined ? logged.message : `${logged.message}: ${logged.why}`;
      return new HoldfastError(logged.code, what, { why, next, details: { log } });
    }
    // An error before it could open its log is only on standard error.
    const said = /^error ([a-z_]+): (.+)$/m.exec(this.#stderr);
    const code = ErrorCodeSchema.safeParse(said?.[1]);
    if (code.success) return new HoldfastError(code.data, what, { why: said?.[2] });
    const why = this.#exit === undefined ? 'it did not respond in time' : this.#exit.how;
    return new HoldfastError(this.#exit === undefined ? 'timeout' : 'internal', what, {
      why: `${why}${tail}`,
      next,
      details: { log },
    });
  }

  /** Detaches from the child process, which keeps running. */
  release(): void {
    this.#child?.removeAllListeners();
    // Ignores a late spawn error.
    this.#child?.on('error', () => undefined);
    this.#child = undefined;
  }

  #loggedError(): ReturnType<typeof findLastError> {
    return this.#exit?.failed === true
      ? findLastError(readLastLines(homePaths(this.#home).log, 50), this.#startedAt)
      : undefined;
  }

  #spawn(): void {
    this.release();
    const [program, ...args] = this.#command;
    if (program === undefined)
      throw new HoldfastError('internal', 'There is no program to start a supervisor with');
    this.#startedAt = Date.now();
    this.#exit = undefined;
    const child = spawn(program, args, {
      cwd: '/',
      detached: true,
      stdio: ['ignore', 'ignore', 'pipe'],
      env: { ...FEW_ARENAS, ...this.#environment, HOLDFAST_HOME: this.#home },
    });
    this.#child = child;
    child.once('error', (error) => {
      this.#spawnError = error;
    });
    this.#stderr = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      this.#stderr = (this.#stderr + text).slice(0, MAX_STDERR_CHARACTERS);
    });
    // The supervisor closes this pipe once it serves. The pipe must not keep this process alive.
    if (child.stderr instanceof Socket) child.stderr.unref();
    child.once('exit', (code, signal) => {
      const how = signal === null ? `it exited with code ${String(code)}` : `it was killed by ${signal}`;
      this.#exit = { at: Date.now(), how, failed: code !== 0 };
    });
    child.unref();
  }
}
