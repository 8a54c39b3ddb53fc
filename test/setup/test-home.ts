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
  /** Null if a signal ended the process. */
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** A home of the test's own with the command line as a person uses it. `dispose` leaves nothing behind. */
export class TestHome {
  readonly path: string;
  /** A folder beside the home for the projects of a test; it is removed with the home. */
  readonly projects: string;
  readonly #env: Readonly<Record<string, string>>;
  readonly #docker = new Docker();
  readonly #started = new Set<ChildProcessWithoutNullStreams>();
  #isRegistered = false;

  private constructor(path: string, env: Readonly<Record<string, string>>) {
    this.path = path;
    this.projects = `${path}-projects`;
    this.#env = env;
  }

  static async create(env: Readonly<Record<string, string>> = {}): Promise<TestHome> {
    return new TestHome(await mkdtemp(join(tmpdir(), 'holdfast-test-')), env);
  }

  /** The random id of the home, once a supervisor has created it. */
  get id(): string {
    return readFileSync(join(this.path, 'id'), 'utf8').trim();
  }

  /** Runs `holdfast ARGS` until it exits, with any exit code. */
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
      // A program that does not read its input closes it early; the exit code decides.
      child.stdin.on('error', () => undefined);
      child.stdin.end(input);
      child.on('error', reject);
      child.on('close', (code) => {
        this.#register();
        resolve({ code, stdout, stderr });
      });
    });
  }

  /** Starts `holdfast ARGS` for a test that interacts with it while it runs. It is killed with the home at the latest. */
  spawn(args: readonly string[]): ChildProcessWithoutNullStreams {
    const child = spawn(process.execPath, [PROGRAM, ...args], {
      env: { ...process.env, ...this.#env, HOLDFAST_HOME: this.path },
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    this.#started.add(child);
    child.once('close', () => this.#started.delete(child));
    return child;
  }

  /** Runs `holdfast ARGS`, which must succeed, and returns its standard output. */
  async runOk(args: readonly string[], input = ''): Promise<string> {
    const { code, stdout, stderr } = await this.run(args, input);
    if (code !== 0)
      throw new Error(`holdfast ${args.join(' ')} ended with ${String(code)}:\n${stderr}${stdout}`);
    return stdout;
  }

  /** Runs `holdfast ARGS --json`, which must succeed, and returns the document it printed. */
  async runJson(args: readonly string[], input = ''): Promise<unknown> {
    return JSON.parse(await this.runOk([...args, '--json'], input));
  }

  /** The process id of the supervisor of this home; starts one if there is none. */
  async supervisorPid(): Promise<number> {
    await this.runOk(['profiles']);
    return z.object({ pid: z.number().int() }).parse(await this.runJson(['supervisor', 'status'])).pid;
  }

  /** The engine's id of a container of the session; null if none is running or paused. */
  async containerId(sessionId: string, role: 'agent' | 'sidecar'): Promise<string | null> {
    const found = await this.#docker.listContainers({
      filters: { label: [`dev.holdfast.session=${sessionId}`, `dev.holdfast.role=${role}`] },
    });
    return found[0]?.Id ?? null;
  }

  /** Kills a container of the session with SIGKILL, as `docker kill` does. */
  async killContainer(sessionId: string, role: 'agent' | 'sidecar'): Promise<void> {
    const id = await this.containerId(sessionId, role);
    if (id === null) throw new Error(`session ${sessionId} has no ${role} container`);
    await this.#docker.getContainer(id).kill();
  }

  /** Kills what was started and removes everything of this home from the engine and from the disk. */
  async dispose(): Promise<void> {
    this.#register();
    // A test that failed may leave clients running, which would start a supervisor again.
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

  /** Registers the home for the check at the end of the run, as soon as the home has an id. */
  #register(): void {
    if (this.#isRegistered) return;
    try {
      registerHome(readFileSync(join(this.path, 'id'), 'utf8').trim());
      this.#isRegistered = true;
    } catch {
      // The home does not exist yet, or a test has removed it.
    }
  }
}
