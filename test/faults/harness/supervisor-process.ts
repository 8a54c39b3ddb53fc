import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';
import type { FailpointName } from '../../../supervisor/base/failpoints.ts';

/** What `holdfast` of a checkout keeps, too: compiling is a good part of a start. */
const COMPILED = join(import.meta.dirname, '../../../dist/.compile-cache');

export interface ProcessExit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** `{'turn.after-launch': 'kill', 'stop.after-agent': 'delay:500@2'}` */
export type Faults = Partial<Record<FailpointName, string>>;

/** `name=action;…`, as HOLDFAST_FAILPOINTS takes it. */
export function formatFailpoints(faults: Faults): string {
  return Object.entries(faults)
    .map(([name, action]) => `${name}=${action}`)
    .join(';');
}

/** A supervisor as a process of the test's own, so that its end can be watched. */
export class SupervisorProcess {
  readonly pid: number;
  readonly exited: Promise<ProcessExit>;
  readonly #child: ChildProcess;
  #running = true;
  #said = '';

  private constructor(child: ChildProcess, pid: number) {
    this.#child = child;
    this.pid = pid;
    child.stderr?.setEncoding('utf8').on('data', (chunk: string) => (this.#said += chunk));
    this.exited = new Promise((resolve) => {
      child.once('exit', (code, signal) => {
        this.#running = false;
        resolve({ code, signal });
      });
    });
  }

  static spawn(bundle: string, home: string, env: Readonly<Record<string, string>>): SupervisorProcess {
    const child = spawn(process.execPath, [bundle, 'supervisor', 'run'], {
      cwd: '/',
      detached: true,
      stdio: ['ignore', 'ignore', 'pipe'],
      env: { ...process.env, NODE_COMPILE_CACHE: COMPILED, ...env, HOLDFAST_HOME: home },
    });
    if (child.pid === undefined) throw new Error(`${bundle} cannot be run`);
    return new SupervisorProcess(child, child.pid);
  }

  /** What it wrote to stderr, which it lets go of once it serves. */
  get stderr(): string {
    return this.#said;
  }

  get isRunning(): boolean {
    return this.#running;
  }

  /** Sends the signal and waits for the end. Does nothing when it has ended. */
  async kill(signal: NodeJS.Signals = 'SIGKILL'): Promise<ProcessExit> {
    if (this.#running) this.#child.kill(signal);
    return await this.exited;
  }

  /** Its end, which must come within `ms`. */
  async waitForExit(ms: number): Promise<ProcessExit> {
    const late = Promise.withResolvers<never>();
    const timer = setTimeout(() => {
      late.reject(new Error(`the supervisor ${this.pid} still runs after ${ms} ms`));
    }, ms);
    try {
      return await Promise.race([this.exited, late.promise]);
    } finally {
      clearTimeout(timer);
    }
  }
}
