import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Docker from 'dockerode';
import { z } from 'zod';
import { registerHome } from './run-homes.ts';

const PROGRAM = join(import.meta.dirname, '../../scripts/holdfast.cjs');

export interface CommandResult {
  /** Null when a signal ended it. */
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** An installation of a test's own: its home, and the command line as a person uses it. `end` leaves nothing behind. */
export class TestHome {
  readonly path: string;
  /** A folder beside the home for what a test deploys; it goes with the home. */
  readonly projects: string;
  readonly #env: Readonly<Record<string, string>>;
  readonly #docker = new Docker();
  readonly #started = new Set<ChildProcessWithoutNullStreams>();
  #told = false;

  private constructor(path: string, env: Readonly<Record<string, string>>) {
    this.path = path;
    this.projects = `${path}-projects`;
    this.#env = env;
  }

  static async create(env: Readonly<Record<string, string>> = {}): Promise<TestHome> {
    return new TestHome(await mkdtemp(join(tmpdir(), 'holdfast-test-')), env);
  }

  /** Runs `holdfast ARGS` to its end, whatever that is. */
  async run(args: readonly string[], input = ''): Promise<CommandResult> {
    return new Promise((resolve, reject) => {
      const child = spawn(process.execPath, [PROGRAM, ...args], {
        env: { ...process.env, ...this.#env, HOLDFAST_HOME: this.path },
        stdio: ['pipe', 'pipe', 'pipe'],
      });
      let stdout = '';
      let stderr = '';
      child.stdout.setEncoding('utf8').on('data', (chunk: string) => (stdout += chunk));
      child.stderr.setEncoding('utf8').on('data', (chunk: string) => (stderr += chunk));
      // A program that does not read its input closes it early; its exit code tells how it went.
      child.stdin.on('error', () => undefined);
      child.stdin.end(input);
      child.on('error', reject);
      child.on('close', (code) => {
        this.#tell();
        resolve({ code, stdout, stderr });
      });
    });
  }

  /** Starts `holdfast ARGS` for a test that talks to it while it runs. It ends with the home at the latest. */
  spawn(args: readonly string[]): ChildProcessWithoutNullStreams {
    const child = spawn(process.execPath, [PROGRAM, ...args], {
      env: { ...process.env, ...this.#env, HOLDFAST_HOME: this.path },
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    this.#started.add(child);
    child.once('close', () => this.#started.delete(child));
    return child;
  }

  /** Runs `holdfast ARGS`, which must succeed, and gives what it printed. */
  async runOk(args: readonly string[], input = ''): Promise<string> {
    const { code, stdout, stderr } = await this.run(args, input);
    if (code !== 0)
      throw new Error(`holdfast ${args.join(' ')} ended with ${String(code)}:\n${stderr}${stdout}`);
    return stdout;
  }

  /** Runs `holdfast ARGS --json`, which must succeed, and gives the document it printed. */
  async runJson(args: readonly string[], input = ''): Promise<unknown> {
    return JSON.parse(await this.runOk([...args, '--json'], input));
  }

  /** The process that serves this home now, starting it if need be. */
  async supervisorPid(): Promise<number> {
    await this.runOk(['profiles']);
    return z.object({ pid: z.number().int() }).parse(await this.runJson(['supervisor', 'status'])).pid;
  }

  /** The engine's id of one of a session's containers; null when there is none that runs or is paused. */
  async containerId(sessionId: string, role: 'agent' | 'sidecar'): Promise<string | null> {
    const found = await this.#docker.listContainers({
      filters: { label: [`dev.holdfast.session=${sessionId}`, `dev.holdfast.role=${role}`] },
    });
    return found[0]?.Id ?? null;
  }

  /** kill -9 of one of a session's containers, as a hand on the engine would do it. */
  async killContainer(sessionId: string, role: 'agent' | 'sidecar'): Promise<void> {
    const id = await this.containerId(sessionId, role);
    if (id === null) throw new Error(`session ${sessionId} has no ${role} container`);
    await this.#docker.getContainer(id).kill();
  }

  /** Ends what was started and removes everything of this home from the engine and from the disk. */
  async dispose(): Promise<void> {
    this.#tell();
    // A test that failed has let go of what it started: a client that stays would start a supervisor again.
    await Promise.all(
      [...this.#started].map(async (child) => {
        child.kill('SIGKILL');
        await once(child, 'close');
      }),
    );
    try {
      await this.runOk(['purge', '--force']);
    } finally {
      await rm(this.path, { recursive: true, force: true });
      await rm(this.projects, { recursive: true, force: true });
    }
  }

  /** Its id, once it has one. */
  #tell(): void {
    if (this.#told) return;
    try {
      registerHome(readFileSync(join(this.path, 'id'), 'utf8').trim());
      this.#told = true;
    } catch {
      // It has not come to be, or a test has removed it.
    }
  }
}
