import { execFile, spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { existsSync, openSync, closeSync, readFileSync, readdirSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import Docker from 'dockerode';

const run = promisify(execFile);
const READY_MS = 60_000;
const END_MS = 20_000;

/** Why this machine cannot run a second engine; null if it can. */
export function privateEngineObstacle(): string | null {
  if (process.platform !== 'linux') return 'a private engine needs Linux';
  if (process.getuid?.() !== 0) return 'a private engine needs root';
  const missing = ['dockerd', 'containerd', 'unshare'].filter((program) => !onPath(program));
  return missing.length === 0 ? null : `${missing.join(', ')} not found`;
}

function onPath(program: string): boolean {
  const folders = [...(process.env['PATH'] ?? '').split(delimiter), '/usr/sbin', '/sbin'];
  return folders.some((folder) => existsSync(join(folder, program)));
}

export interface PrivateEngineOptions {
  /** Whether containers survive the daemon. Default: no. */
  readonly liveRestore?: boolean;
  /** Images to copy from the engine of this machine. */
  readonly images?: readonly string[];
  /** Its data directory, for tests with a small disk. Default: below the engine's own temporary folder. */
  readonly dataRoot?: string;
  /** A folder that is empty for the engine, as for a remote one. */
  readonly hides?: string;
}

/**
 * A private Docker engine for destructive tests, with its own containerd, data, sockets and network namespace, so the
 * engine of this machine is not affected. `close` leaves no process, mount or file behind.
 */
export class PrivateEngine {
  readonly root: string;
  readonly socketPath: string;
  readonly dataRoot: string;
  readonly docker: Docker;
  readonly #liveRestore: boolean;
  readonly #hides: string | undefined;
  #containerd: ChildProcess | null = null;
  #dockerd: ChildProcess | null = null;

  private constructor(root: string, options: PrivateEngineOptions) {
    this.root = root;
    this.socketPath = join(root, 'docker.sock');
    this.dataRoot = options.dataRoot ?? join(root, 'data');
    this.#liveRestore = options.liveRestore ?? false;
    this.#hides = options.hides;
    this.docker = engineAt(this.socketPath);
  }

  static async start(options: PrivateEngineOptions = {}): Promise<PrivateEngine> {
    const obstacle = privateEngineObstacle();
    if (obstacle !== null) throw new Error(obstacle);
    const engine = new PrivateEngine(await mkdtemp(join(tmpdir(), 'hfe-')), options);
    try {
      await engine.#startContainerd();
      await engine.startDaemon();
      for (const image of options.images ?? []) await engine.load(image);
      return engine;
    } catch (error) {
      await engine.close();
      throw error;
    }
  }

  /** Copies an image from the engine of this machine with save and load. */
  async load(reference: string, from = engineAt('/var/run/docker.sock')): Promise<void> {
    const saved = await from.getImage(reference).get();
    const answer = await this.docker.loadImage(saved);
    for await (const _ of answer) {
      // The load is complete when the response ends.
    }
    await this.docker.getImage(reference).inspect();
  }

  get pid(): number {
    const pid = this.#dockerd?.pid;
    if (pid === undefined) throw new Error('the private engine does not run');
    return pid;
  }

  /** Resolves when the engine answers. */
  async startDaemon(): Promise<void> {
    await rm(join(this.root, 'docker.pid'), { force: true });
    const args = [
      '-n',
      'dockerd',
      `--host=unix://${this.socketPath}`,
      `--data-root=${this.dataRoot}`,
      `--exec-root=${join(this.root, 'exec')}`,
      `--pidfile=${join(this.root, 'docker.pid')}`,
      `--config-file=${join(this.root, 'daemon.json')}`,
      `--containerd=${join(this.root, 'containerd.sock')}`,
      '--bridge=none',
      '--iptables=false',
      '--ip6tables=false',
      '--ip-forward=false',
      '--shutdown-timeout=5',
      ...(this.#liveRestore ? ['--live-restore'] : []),
    ];
    await writeFile(join(this.root, 'daemon.json'), '{}');
    // containerd runs the containers, and the daemon mounts their file systems: both must have the same view.
    const view =
      this.#hides === undefined ? [] : [`--mount=/proc/${this.#containerd?.pid ?? 0}/ns/mnt`, 'unshare'];
    this.#dockerd = this.#spawn(view.length === 0 ? 'unshare' : 'nsenter', [...view, ...args], 'dockerd.log');
    await this.#until(async () => {
      await this.docker.ping();
    }, 'dockerd');
  }

  /** Kills the daemon without a chance to clean up. */
  async killDaemon(): Promise<void> {
    await this.#end(this.#dockerd, 'SIGKILL');
    this.#dockerd = null;
  }

  /** Stops the daemon in order. Without live-restore its containers end with it. */
  async stopDaemon(): Promise<void> {
    await this.#end(this.#dockerd, 'SIGTERM');
    this.#dockerd = null;
  }

  /** Suspends the daemon: the kernel accepts connections, but nothing answers. */
  freezeDaemon(): void {
    process.kill(this.pid, 'SIGSTOP');
  }

  thawDaemon(): void {
    process.kill(this.pid, 'SIGCONT');
  }

  async close(): Promise<void> {
    this.#dockerd?.kill('SIGCONT');
    await this.#end(this.#dockerd, 'SIGTERM');
    this.#dockerd = null;
    // Leftovers of a killed daemon: its shims name our socket, and their children are the containers.
    for (const shim of this.#shims()) for (const pid of [...descendants(shim), shim]) kill(pid);
    await this.#end(this.#containerd, 'SIGTERM');
    this.#containerd = null;
    for (const mount of await this.#mounts()) await run('umount', ['-l', mount]);
    await rm(this.root, { recursive: true, force: true, maxRetries: 3 });
  }

  async #startContainerd(): Promise<void> {
    const config = join(this.root, 'containerd.toml');
    await mkdir(join(this.root, 'containerd'), { recursive: true });
    await writeFile(
      config,
      [
        'version = 2',
        `root = ${JSON.stringify(join(this.root, 'containerd/root'))}`,
        `state = ${JSON.stringify(join(this.root, 'containerd/state'))}`,
        'disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt"]',
        '[grpc]',
        `  address = ${JSON.stringify(join(this.root, 'containerd.sock'))}`,
        '',
      ].join('\n'),
    );
    const args = ['containerd', '--config', config];
    const hiding = ['-m', 'sh', '-c', 'mount -t tmpfs hidden "$0" && exec "$@"', this.#hides ?? '', ...args];
    this.#containerd =
      this.#hides === undefined
        ? this.#spawn('containerd', args.slice(1), 'containerd.log')
        : this.#spawn('unshare', hiding, 'containerd.log');
    await this.#until(() => {
      if (!existsSync(join(this.root, 'containerd.sock'))) throw new Error('its socket is not there');
    }, 'containerd');
  }

  #spawn(program: string, args: readonly string[], log: string): ChildProcess {
    const output = openSync(join(this.root, log), 'a');
    try {
      const PATH = `${process.env['PATH'] ?? ''}:/usr/sbin:/sbin`;
      const env = { ...process.env, PATH, DOCKER_HOST: undefined };
      // The files of an engine must be readable by the users of its containers, whatever the umask of a test.
      const command = ['-c', 'umask 022 && exec "$0" "$@"', program, ...args];
      return spawn('sh', command, { stdio: ['ignore', output, output], env });
    } finally {
      closeSync(output);
    }
  }

  async #until(check: () => void | Promise<void>, program: string): Promise<void> {
    const until = performance.now() + READY_MS;
    for (;;) {
      try {
        await check();
        return;
      } catch (error) {
        const child = program === 'dockerd' ? this.#dockerd : this.#containerd;
        if (performance.now() > until || child?.exitCode !== null) {
          const log = await readFile(join(this.root, `${program}.log`), 'utf8');
          throw new Error(`${program} did not start: ${log.slice(-2000)}`, { cause: error });
        }
        await sleep(50);
      }
    }
  }

  async #end(child: ChildProcess | null, signal: NodeJS.Signals): Promise<void> {
    if (child?.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
    const forced = setTimeout(() => child.kill('SIGKILL'), END_MS);
    child.kill(signal);
    await ended;
    clearTimeout(forced);
  }

  #shims(): number[] {
    return processes().filter((pid) => {
      const command = commandLine(pid);
      return command.includes('containerd-shim') && command.includes(join(this.root, 'containerd.sock'));
    });
  }

  /** Deepest first. */
  async #mounts(): Promise<string[]> {
    const lines = (await readFile('/proc/self/mountinfo', 'utf8')).split('\n');
    return lines
      .map((line) => line.split(' ')[4] ?? '')
      .filter((path) => path.startsWith(`${this.root}/`))
      .reverse();
  }
}

export function engineAt(socketPath: string): Docker {
  // A DOCKER_HOST in the environment of the tests must not override the path.
  return new Docker({
    socketPath,
    host: undefined,
    port: undefined,
    protocol: 'http',
  } as unknown as Docker.DockerOptions);
}

function processes(): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number);
}

function commandLine(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8');
  } catch {
    // It ended meanwhile.
    return '';
  }
}

function descendants(pid: number): number[] {
  try {
    const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8');
    return children
      .split(' ')
      .filter((one) => one !== '')
      .map(Number)
      .flatMap((child) => [child, ...descendants(child)]);
  } catch {
    return [];
  }
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error;
  }
}
