import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { SidecarClient } from '../../../supervisor/workspace/sidecar-client.ts';
import { randomId, waitUntil } from '../../fixtures/sidecar/turns.ts';

const RUNTIME = join(import.meta.dirname, '../../../dist/runtime');

/** A busybox with what the runner needs (test/setup/busybox.ts), or null. */
export const BUSYBOX = process.env['HOLDFAST_BUSYBOX'] ?? null;

/** A real Python, not a launcher of some version manager that needs its own environment. */
export const PYTHON = ((): string | null => {
  try {
    return execFileSync('python3', ['-c', 'import sys; print(sys.executable)'], { encoding: 'utf8' }).trim();
  } catch {
    return null;
  }
})();

/** Runner and sidecar as plain processes of this machine, in folders of their own: everything but the containers. */
export class HostSandbox {
  readonly root: string;
  readonly session: string;
  /** What the runner's side is told: on one machine the sidecar must not bear the same mark, or it would end with it. */
  readonly agentSession: string;
  client: SidecarClient;
  #sidecar: ChildProcess;
  readonly #runner: ChildProcess;
  readonly #env: NodeJS.ProcessEnv;

  private constructor(
    root: string,
    env: NodeJS.ProcessEnv,
    session: string,
    runner: ChildProcess,
    sidecar: ChildProcess,
    client: SidecarClient,
  ) {
    this.root = root;
    this.session = session;
    this.agentSession = `host-${session}`;
    this.#env = env;
    this.#runner = runner;
    this.#sidecar = sidecar;
    this.client = client;
  }

  /** `code` is what the agent's deployed folder has, by file name. */
  static async start(code: Readonly<Record<string, string>> = {}): Promise<HostSandbox> {
    if (BUSYBOX === null) throw new Error('there is no busybox');
    const root = await mkdtemp(join(tmpdir(), 'holdfast-pair-'));
    for (const name of ['run', 'control', 'workspace', 'tmp', 'agent']) await mkdir(join(root, name));
    for (const [name, text] of Object.entries(code)) await writeFile(join(root, 'agent', name), text);
    const session = randomId('ses');
    const path = [
      dirname(process.execPath),
      ...(PYTHON === null ? [] : [dirname(PYTHON)]),
      process.env['PATH'],
    ];
    const env = {
      PATH: path.join(delimiter),
      HOME: root,
      HOLDFAST_BUSYBOX: BUSYBOX,
      HOLDFAST_SESSION: session,
      HOLDFAST_RUN: join(root, 'run'),
      HOLDFAST_CONTROL: join(root, 'control'),
      HOLDFAST_WORKSPACE: join(root, 'workspace'),
      HOLDFAST_TMP: join(root, 'tmp'),
      HOLDFAST_AGENT: join(root, 'agent'),
      HOLDFAST_RUNTIME: RUNTIME,
    };
    const runner = spawn(BUSYBOX, ['sh', join(RUNTIME, 'runner.sh')], {
      env: { ...env, HOLDFAST_SESSION: `host-${session}` },
      stdio: 'ignore',
      cwd: root,
    });
    const sidecar = startSidecar(env);
    try {
      const client = await dial(root, session);
      if (!(await client.agentReady(15_000))) throw new Error('the runner does not listen');
      return new HostSandbox(root, env, session, runner, sidecar, client);
    } catch (error) {
      for (const child of [runner, sidecar]) child.kill('SIGKILL');
      await rm(root, { recursive: true, force: true });
      throw error;
    }
  }

  path(...parts: string[]): string {
    return join(this.root, ...parts);
  }

  turn(turnId: string, name = ''): string {
    return this.path('run/turns', turnId, name);
  }

  /** A connection that says it is for another session. */
  connectAs(session: string): Promise<SidecarClient> {
    return SidecarClient.connect(() => Promise.resolve(connect(this.path('control/sidecar.sock'))), session);
  }

  /** kill -9 of the sidecar and a new one, as after a crash. */
  async replaceSidecar(meanwhile?: () => Promise<void>): Promise<void> {
    this.#sidecar.kill('SIGKILL');
    await once(this.#sidecar, 'exit');
    await this.client.closed;
    await meanwhile?.();
    this.#sidecar = startSidecar(this.#env);
    this.client = await dial(this.root, this.session);
  }

  /** SIGSTOP or SIGCONT, as a process of the agent may send them. */
  signalRunner(signal: 'SIGSTOP' | 'SIGCONT'): void {
    this.#runner.kill(signal);
  }

  /** Ends the runner as `docker stop` would; ms until it was gone. */
  async stopRunner(): Promise<number> {
    const began = performance.now();
    if (this.#runner.exitCode !== null || this.#runner.signalCode !== null) return 0;
    this.#runner.kill('SIGTERM');
    await once(this.#runner, 'exit');
    return performance.now() - began;
  }

  async dispose(): Promise<void> {
    this.client.close();
    await this.stopRunner();
    if (this.#sidecar.exitCode === null && this.#sidecar.signalCode === null) {
      this.#sidecar.kill('SIGTERM');
      await once(this.#sidecar, 'exit');
    }
    await rm(this.root, { recursive: true, force: true });
  }
}

function startSidecar(env: NodeJS.ProcessEnv): ChildProcess {
  return spawn(process.execPath, [join(RUNTIME, 'sidecar.cjs')], {
    env,
    stdio: ['ignore', 'ignore', 'inherit'],
  });
}

async function dial(root: string, session: string): Promise<SidecarClient> {
  const path = join(root, 'control/sidecar.sock');
  let client: SidecarClient | undefined;
  await waitUntil(
    'the sidecar answers',
    async () => {
      try {
        client = await SidecarClient.connect(async () => {
          const socket = connect(path);
          await once(socket, 'connect');
          return socket;
        }, session);
        return true;
      } catch {
        return false;
      }
    },
    10_000,
  );
  if (client === undefined) throw new Error('the sidecar does not answer');
  return client;
}
