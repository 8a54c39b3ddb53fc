import { randomBytes } from 'node:crypto';
import {
  chmodSync,
  chownSync,
  copyFileSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import type { MountSettings } from 'dockerode';
import Docker from 'dockerode';
import { pack } from 'tar-stream';
import {
  accountFiles,
  agentOptions,
  NETWORK_FILES,
  sidecarOptions,
} from '../../supervisor/engine/docker/container-options.ts';
import { connectToSidecarSocket } from '../../supervisor/engine/docker/dial.ts';
import type { SandboxSpec } from '../../supervisor/engine/port.ts';
import { SidecarClient } from '../../supervisor/workspace/sidecar-client.ts';
import { busyboxOfImage } from '../setup/busybox.ts';
import { registerHome } from '../setup/run-homes.ts';
import { randomId, waitUntil } from '../fixtures/sidecar/turns.ts';

const RUNTIME = join(import.meta.dirname, '../../dist/runtime');
const docker = new Docker();

/** The pairs of one test file: program files, and containers with a label of their own. `dispose` removes all of it. */
export class ContainerPairs {
  readonly home = `test-${randomBytes(6).toString('hex')}`;
  readonly root = mkdtempSync(join(tmpdir(), 'holdfast-pairs-'));
  readonly #pairs: ContainerPair[] = [];
  readonly #images: string[] = [];

  static async create(): Promise<ContainerPairs> {
    const bench = new ContainerPairs();
    registerHome(bench.home);
    chmodSync(bench.root, 0o755);
    cpSync(RUNTIME, join(bench.root, 'runtime'), { recursive: true });
    copyFileSync(await busyboxOfImage(), join(bench.root, 'runtime/busybox'));
    return bench;
  }

  async createPair(
    options: {
      image?: string;
      code?: Readonly<Record<string, string>>;
      /** Additional environment of the sidecar, as NAME=value. */
      sidecarEnv?: readonly string[];
    } = {},
  ): Promise<ContainerPair> {
    const { image = __AGENT_IMAGE__, code = {}, sidecarEnv = [] } = options;
    const pair = new ContainerPair(this.root, this.home, image, code, sidecarEnv);
    this.#pairs.push(pair);
    await pair.start();
    return pair;
  }

  /** Makes an image with these files and nothing else; returns its reference. */
  async buildImage(files: Readonly<Record<string, Buffer>>): Promise<string> {
    const layer = pack();
    for (const [name, content] of Object.entries(files)) layer.entry({ name, mode: 0o755 }, content);
    for (const name of ['workspace', 'agent', 'tmp', 'proc', 'etc', 'run'])
      layer.entry({ name, type: 'directory', mode: 0o755 });
    layer.finalize();
    const tag = `holdfast-test/${this.home}`;
    const options = { repo: tag, tag: 'latest', changes: ['ENV PATH=/bin'] };
    const stream = await docker.importImage(Readable.from(layer), options);
    await new Promise<void>((resolve, reject) => {
      docker.modem.followProgress(stream, (error) => (error === null ? resolve() : reject(error)));
    });
    this.#images.push(`${tag}:latest`);
    return `${tag}:latest`;
  }

  async readBusybox(): Promise<Buffer> {
    return await readFile(await busyboxOfImage());
  }

  async dispose(): Promise<void> {
    for (const pair of this.#pairs) pair.client?.close();
    const left = await docker.listContainers({
      all: true,
      filters: { label: [`dev.holdfast.home=${this.home}`] },
    });
    await Promise.all(left.map(({ Id }) => docker.getContainer(Id).remove({ force: true, v: true })));
    for (const image of this.#images) await docker.getImage(image).remove({ force: true });
    rmSync(this.root, { recursive: true, force: true });
  }
}

/** Sidecar and agent container, made as the driver of the engine makes them, but without the driver. */
export class ContainerPair {
  readonly session = randomId('ses');
  readonly #spec: SandboxSpec;
  readonly #folder: string;
  readonly #runtime: string;
  readonly #labels: Record<string, string>;
  readonly #sidecarEnv: readonly string[];
  #sidecar: Docker.Container | undefined;
  #agent: Docker.Container | undefined;
  client: SidecarClient | undefined;

  constructor(
    root: string,
    home: string,
    image: string,
    code: Readonly<Record<string, string>>,
    sidecarEnv: readonly string[] = [],
  ) {
    this.#sidecarEnv = sidecarEnv;
    const isRoot = process.getuid?.() === 0;
    const uid = isRoot ? 231_000 + (randomBytes(2).readUInt16BE() % 9000) : (process.getuid?.() ?? 0);
    const gid = isRoot ? uid : (process.getgid?.() ?? 0);
    this.#labels = { 'dev.holdfast.home': home, 'dev.holdfast.session': this.session };
    this.#runtime = join(root, 'runtime');
    this.#folder = join(root, this.session);
    for (const name of ['', 'run', 'control', 'workspace', 'home', 'agent', 'etc']) {
      mkdirSync(join(this.#folder, name));
      if (isRoot) chownSync(join(this.#folder, name), uid, gid);
    }
    for (const [name, text] of Object.entries(code)) writeFileSync(join(this.#folder, 'agent', name), text);
    for (const [name, text] of Object.entries({ ...accountFiles(uid, gid), ...NETWORK_FILES })) {
      writeFileSync(join(this.#folder, 'etc', name), text);
    }
    this.#spec = {
      sessionId: this.session,
      generation: 1,
      image,
      uid,
      gid,
      workspace: { sessionId: this.session, backing: 'directory', uid, gid },
      code: { profile: 'test', version: 1 },
      env: {},
      limits: { memoryBytes: 512 * 2 ** 20, cpus: 2, pids: 256 },
      runtime: 'default',
    };
  }

  get sidecar(): SidecarClient {
    if (this.client === undefined) throw new Error('the pair was not started');
    return this.client;
  }

  /** A path in this machine's view of the session's folders: run, control, workspace, agent. */
  path(...parts: string[]): string {
    return join(this.#folder, ...parts);
  }

  async start(): Promise<void> {
    await this.#startSidecar('none');
    await this.startAgent();
  }

  async startAgent(): Promise<void> {
    const etc = Object.keys({ ...accountFiles(0, 0), ...NETWORK_FILES }).map((name) =>
      this.#bind(`etc/${name}`, `/etc/${name}`, true),
    );
    const mounts = [...this.#both(), this.#bind('agent', '/agent', true), ...etc];
    const body = agentOptions(this.#spec, mounts, { joins: this.#sidecar?.id ?? '' }, this.#labels);
    this.#agent = await docker.createContainer(body);
    await this.#agent.start();
    if (!(await this.sidecar.agentReady(20_000))) throw new Error('the runner does not listen');
  }

  /** `docker kill` of the sidecar, then `meanwhile`, then a new one that joins the agent's namespace. */
  async replaceSidecar(meanwhile?: () => Promise<void>): Promise<void> {
    await this.#sidecar?.kill({ signal: 'KILL' });
    await this.client?.closed;
    await meanwhile?.();
    const old = this.#sidecar;
    await this.#startSidecar({ joins: this.#agent?.id ?? '' });
    await old?.remove({ force: true });
  }

  /** `docker stop`; ms until it was down. */
  async stopAgent(): Promise<number> {
    const began = performance.now();
    await this.#agent?.stop({ t: 10 });
    return performance.now() - began;
  }

  async killAgent(): Promise<void> {
    await this.#agent?.kill({ signal: 'KILL' });
  }

  async freeze(): Promise<void> {
    await this.#agent?.pause();
  }

  async thaw(): Promise<void> {
    await this.#agent?.unpause();
  }

  async freezeSidecar(): Promise<void> {
    await this.#sidecar?.pause();
  }

  async thawSidecar(): Promise<void> {
    await this.#sidecar?.unpause();
  }

  async agentIsRunning(): Promise<boolean> {
    const info = await this.#agent?.inspect();
    return info?.State.Running ?? false;
  }

  /** Runs a program in the agent's container to its end, and gives what it printed. */
  async runInAgent(command: readonly string[]): Promise<{ exitCode: number; output: string }> {
    if (this.#agent === undefined) throw new Error('there is no agent container');
    const exec = await this.#agent.exec({
      Cmd: [...command],
      AttachStdout: true,
      AttachStderr: true,
      Tty: true,
    });
    const stream = await exec.start({ Tty: true });
    let output = '';
    for await (const chunk of stream) output += String(chunk);
    return { exitCode: (await exec.inspect()).ExitCode ?? -1, output };
  }

  /** Memory of the sidecar's program, bytes; from this machine's point of view, so the engine must run on it. */
  async sidecarMemory(): Promise<number> {
    const listing = (await this.#sidecar?.top({ ps_args: '-eo pid,rss,args' })) as
      { Processes: string[][] } | undefined;
    const rows = listing?.Processes ?? [];
    const node = rows.find((columns) => columns.some((text) => /^(\/\S*\/)?node\b/.test(text)));
    return Number(node?.[1] ?? Number.NaN) * 1024;
  }

  /** Processes of the sidecar's container, as `docker top` lists them. */
  async sidecarProcesses(): Promise<string[][]> {
    const listing = (await this.#sidecar?.top({ ps_args: '-eo pid,args' })) as
      { Processes: string[][] } | undefined;
    return listing?.Processes ?? [];
  }

  /** Processes in the agent's container: their command lines. */
  async processes(): Promise<string[]> {
    const listing = (await this.#agent?.top({ ps_args: '-eo pid,stat,args' })) as
      { Processes: string[][] } | undefined;
    return listing?.Processes.map((columns) => columns.slice(1).join(' ')) ?? [];
  }

  async #startSidecar(network: Parameters<typeof sidecarOptions>[3]): Promise<void> {
    const mounts = [...this.#both(), this.#bind('control', '/ctl')];
    const body = sidecarOptions(this.#spec, __SIDECAR_IMAGE__, mounts, network, this.#labels);
    const sidecar = await docker.createContainer({
      ...body,
      Env: [...(body.Env ?? []), ...this.#sidecarEnv],
    });
    this.#sidecar = sidecar;
    await sidecar.start();
    await waitUntil(
      'the sidecar answers',
      async () => {
        const socket = await connectToSidecarSocket(this.path('control/sidecar.sock'));
        if (socket === null) return false;
        this.client = await SidecarClient.connect(() => Promise.resolve(socket), this.session);
        return true;
      },
      20_000,
    );
  }

  #both(): MountSettings[] {
    return [
      this.#bind('workspace', '/workspace'),
      this.#bind('home', '/home/agent'),
      this.#bind('run', '/run/holdfast'),
      { Type: 'bind', Source: this.#runtime, Target: '/opt/holdfast', ReadOnly: true },
    ];
  }

  #bind(name: string, target: string, readOnly = false): MountSettings {
    return { Type: 'bind', Source: this.path(name), Target: target, ReadOnly: readOnly };
  }
}
