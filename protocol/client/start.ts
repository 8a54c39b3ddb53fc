import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { Socket } from 'node:net';
import { ErrorCodeSchema } from '../error-data.ts';
import { HoldfastError } from '../errors.ts';
import { homePaths } from '../home.ts';
import { readLastLines, findLastError } from './log-tail.ts';

/** A supervisor that could not start will hardly do so a moment later; one that found the home locked may. */
const RESTART_AFTER_MS = 500;
const SHOWN_LINES = 5;
const MOST_SAID = 4096;

/**
 * A process that idles for days should be small: without these, garbage of a busy minute stays in memory for good
 * (measured with 1,000 sessions listed some twenty times: 187 MiB without, 112 MiB with them, at the same speed).
 */
const SMALL = ['--max-semi-space-size=1', '--max-old-space-size=160'];

/** glibc keeps freed memory of each thread's own; a process that mostly waits needs no more than two such places. */
const FEW_ARENAS = { MALLOC_ARENA_MAX: '2' };

/** How the program in `bundle` is started as a supervisor. */
export function supervisorCommand(node: string, bundle: string): readonly string[] {
  return [node, ...SMALL, bundle, 'supervisor', 'run'];
}

/**
 * Starts a supervisor that outlives us: a session of its own, nothing of our terminal, our directory or our descriptors.
 * Many clients may do so at once: the supervisors settle by the home's lock who stays, and all clients find that one.
 */
export class SupervisorStarter {
  readonly #home: string;
  readonly #command: readonly string[];
  readonly #environment: NodeJS.ProcessEnv;
  #child: ChildProcess | undefined;
  #startedAt = 0;
  #exit: { readonly at: number; readonly how: string; readonly failed: boolean } | undefined;
  #spawnError: Error | undefined;
  #said = '';

  constructor(home: string, command: readonly string[], environment: NodeJS.ProcessEnv = process.env) {
    this.#home = home;
    this.#command = command;
    this.#environment = environment;
  }

  /** To be called again and again while nobody answers: starts one where none of ours is on its way. Throws if that is hopeless. */
  ensureStarted(): void {
    if (this.#child === undefined) {
      this.#spawn();
      return;
    }
    if (this.#spawnError !== undefined) throw this.explainFailure();
    if (this.#exit === undefined || Date.now() - this.#exit.at < RESTART_AFTER_MS) return;
    // The one that had the home may be leaving, or another may be coming up in its place: worth another try.
    const { failed } = this.#exit;
    if (failed && this.#logged()?.code !== 'home_locked') throw this.explainFailure();
    this.#spawn();
  }

  /** Why nobody answers, as far as can be told. */
  explainFailure(): HoldfastError {
    const { log } = homePaths(this.#home);
    const logged = this.#logged();
    const lines = readLastLines(log, SHOWN_LINES);
    const tail = lines.length === 0 ? '' : `; its log ends with:\n${lines.join('\n')}`;
    const what = 'The supervisor could not be started';
    const next = `see ${log}`;
    if (this.#spawnError !== undefined) {
      const why = `${this.#command[0] ?? 'its program'} cannot be run: ${this.#spawnError.message}`;
      return new HoldfastError('internal', what, {
        why,
        next: 'install holdfast again',
        cause: this.#spawnError,
      });
    }
    if (logged !== undefined) {
      const why = logged.why === undefined ? logged.message : `${logged.message}: ${logged.why}`;
      return new HoldfastError(logged.code, what, { why, next, details: { log } });
    }
    // What kept it from its log it can only say to us.
    const said = /^error ([a-z_]+): (.+)$/m.exec(this.#said);
    const code = ErrorCodeSchema.safeParse(said?.[1]);
    if (code.success) return new HoldfastError(code.data, what, { why: said?.[2] });
    const why = this.#exit === undefined ? 'it does not answer in time' : this.#exit.how;
    return new HoldfastError(this.#exit === undefined ? 'timeout' : 'internal', what, {
      why: `${why}${tail}`,
      next,
      details: { log },
    });
  }

  /** The child goes on without us. */
  release(): void {
    this.#child?.removeAllListeners();
    // A process that cannot be run says so late, and nobody is left to hear it.
    this.#child?.on('error', () => undefined);
    this.#child = undefined;
  }

  #logged(): ReturnType<typeof findLastError> {
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
    this.#said = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      this.#said = (this.#said + text).slice(0, MOST_SAID);
    });
    // It lets go of the pipe once it serves; until then it must not keep us.
    if (child.stderr instanceof Socket) child.stderr.unref();
    child.once('exit', (code, signal) => {
      const how = signal === null ? `it left with exit code ${String(code)}` : `it was ended by ${signal}`;
      this.#exit = { at: Date.now(), how, failed: code !== 0 };
    });
    child.unref();
  }
}
