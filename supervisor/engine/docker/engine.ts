import { homedir } from 'node:os';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import type { EngineStatus } from '../../../protocol/entities.ts';
import { HoldfastError } from '../../../protocol/errors.ts';
import type {
  BuildIo,
  BuildSpec,
  Engine,
  EgressProxyProcess,
  EngineCapabilities,
  EngineExec,
  EngineFacts,
  EngineImages,
  ExecSpec,
  ObservedObject,
  ObservedSandbox,
  ObservedContainer,
  PauseGuard,
  PreparedImage,
  PrepareIo,
  PrepareSpec,
  SandboxSpec,
  WorkspaceSpec,
} from '../port.ts';
import { HelperContainers } from './helper-containers.ts';
import { EngineConnection } from './connection.ts';
import type { EngineChange } from './connection.ts';
import { Containers } from './containers.ts';
import type { EngineTimeouts } from './containers.ts';
import { endpointSources, resolveEndpoint } from './endpoint.ts';
import { guardPause } from './pause-guard.ts';
import { Execs } from './exec.ts';
import { readEngineFacts } from './facts.ts';
import { toHoldfastError } from './errors.ts';
import { ImageBuilds } from './image-builds.ts';
import { DockerImages } from './images.ts';
import { Naming } from './labels.ts';
import { LocalPathsProbe } from './local-paths.ts';
import { BindMountStrategy } from './bind-mounts.ts';
import { observeImages, observeObjects, observeSession } from './observation.ts';
import { VolumeWorkspaces } from './mount-strategy.ts';
import type { MountStrategy } from './mount-strategy.ts';
import { Preparations } from './preparations.ts';
import { ProxyContainers } from './proxy-containers.ts';
import { SandboxPrograms } from './programs.ts';
import type { InfoReply } from './replies.ts';
import { Sandboxes } from './sandboxes.ts';
import { SECCOMP_TRIAL } from './seccomp-profile.ts';
import { VolumeMountStrategy } from './volume-mounts.ts';

export interface DockerEngineOptions {
  /** The home of this installation, with workspaces, run directories, code and program files. */
  readonly home: string;
  readonly homeId: string;
  /** The trusted image, with Node and a static busybox. */
  readonly sidecarImage: string;
  /** The folder with the built files that run in sandboxes. */
  readonly programsDirectory: string;
  /** The program that unpauses a container when this process ends; without it no watchdog is started. */
  readonly unpauseProgram?: string | undefined;
  /** Receives errors that occur in the background and have no caller. */
  reportBackgroundError(what: string, error: unknown): void;
  /** Takes precedence over DOCKER_HOST and contexts: `unix:///path` or a path. */
  readonly endpoint?: string | undefined;
  /**
   * `auto` detects whether the engine sees local paths; the others force an answer, for tests and for engines that
   * misreport. Default: HOLDFAST_ENGINE_MODE, else `auto`.
   */
  readonly mountMode?: MountMode | undefined;
  readonly env?: NodeJS.ProcessEnv;
  readonly timeouts?: EngineTimeouts;
  /** Interval between pings, in ms. */
  readonly pingIntervalMs?: number;
}
export type MountMode = 'auto' | 'paths' | 'volumes';

const TIMEOUTS: EngineTimeouts = { queryMs: 10_000, operationMs: 60_000 };
/** The container's init and the runner. */
const OWN_PROCESSES = 2;
const PING_MS = 15_000;
const CLOSE_MS = 3000;
/** The longest wait for helper containers before they are removed. */
const HELPERS_MS = 15_000;

const NOBODY = { uid: 65534, gid: 65534 } as const;

/**
 * Runs sandboxes through the Docker Engine API. Connects in the background at once; `close` disconnects and leaves
 * all sandboxes running.
 */
export class DockerEngine implements Engine {
  readonly images: EngineImages;
  readonly #options: DockerEngineOptions;
  readonly #naming: Naming;
  readonly #connection: EngineConnection;
  readonly #containers: Containers;
  readonly #helpers: HelperContainers;
  readonly #programs: SandboxPrograms;
  readonly #execs: Execs;
  readonly #sandboxes: Sandboxes;
  readonly #preparations: Preparations;
  readonly #builds: ImageBuilds;
  readonly #proxies: ProxyContainers;
  readonly #localPaths: LocalPathsProbe;
  readonly #byPaths: BindMountStrategy;
  readonly #byVolumes: VolumeMountStrategy;
  readonly #mode: MountMode;
  readonly #queryMs: number;
  #placed: { engine: string; placement: Promise<MountStrategy> } | null = null;

  constructor(options: DockerEngineOptions) {
    this.#options = options;
    const env = options.env ?? process.env;
    const timeouts = options.timeouts ?? TIMEOUTS;
    this.#mode = options.mountMode ?? modeOf(env['HOLDFAST_ENGINE_MODE']);
    this.#queryMs = timeouts.queryMs;
    this.#naming = new Naming(options.homeId);
    this.#connection = new EngineConnection({
      resolveEndpoint: () =>
        resolveEndpoint({ ...endpointSources(env, options.endpoint), userHome: env['HOME'] ?? homedir() }),
      naming: this.#naming,
      reportBackgroundError: (what, error) => options.reportBackgroundError(what, error),
      pingIntervalMs: options.pingIntervalMs ?? PING_MS,
      queryMs: timeouts.queryMs,
    });
    const api = (): ReturnType<EngineConnection['api']> => this.#connection.api();
    this.#containers = new Containers(api, this.#naming, timeouts);
    this.#helpers = new HelperContainers(api, this.#containers, this.#naming, options.sidecarImage, timeouts);
    const folder = join(options.home, 'runtime');
    this.#programs = new SandboxPrograms(
      options.programsDirectory,
      options.sidecarImage,
      folder,
      this.#helpers,
    );
    this.#execs = new Execs(api, this.#containers, timeouts);
    this.#localPaths = new LocalPathsProbe(options.home, this.#helpers);
    const workspaces = new VolumeWorkspaces(this.#containers, this.#helpers, this.#naming);
    this.#byPaths = new BindMountStrategy(options.home, this.#programs, workspaces);
    this.#byVolumes = new VolumeMountStrategy(options.home, {
      containers: this.#containers,
      helpers: this.#helpers,
      execs: this.#execs,
      naming: this.#naming,
      programs: this.#programs,
      workspaces,
    });
    this.images = new DockerImages(api, timeouts);
    this.#sandboxes = new Sandboxes({
      containers: this.#containers,
      naming: this.#naming,
      sidecarImage: options.sidecarImage,
      programsHash: this.#programs.hash,
      mountStrategy: () => this.#placement(),
      cpuCount: () => this.#connection.identity()?.info.NCPU ?? 0,
      watch: (listener) => this.#connection.watch(listener),
    });
    this.#preparations = new Preparations({
      api,
      containers: this.#containers,
      execs: this.#execs,
      naming: this.#naming,
      timeouts,
      mountStrategy: () => this.#placement(),
      dataFolder: () => this.#connection.dataFolder(),
    });
    this.#builds = new ImageBuilds({
      api,
      containers: this.#containers,
      naming: this.#naming,
      timeouts,
      dataFolder: () => this.#connection.dataFolder(),
    });
    this.#proxies = new ProxyContainers({
      home: options.home,
      image: options.sidecarImage,
      api,
      containers: this.#containers,
      naming: this.#naming,
      timeouts,
      mountStrategy: () => this.#placement(),
    });
    this.#connection.onStatus((status) => {
      if (status.reachable) this.#settle();
    });
    this.#connection.start();
  }

  status(): EngineStatus {
    return this.#connection.status();
  }

  probe(): Promise<EngineStatus> {
    return this.#connection.probe();
  }

  capabilities(): EngineCapabilities {
    return this.#connection.capabilities();
  }

  programsHash(): string {
    return this.#programs.hash;
  }

  async facts(): Promise<EngineFacts> {
    const what = 'Cannot read the versions of the engine';
    try {
      return await readEngineFacts(await this.#connection.api(), this.#queryMs);
    } catch (error) {
      throw toHoldfastError(error, what);
    }
  }

  async tryIsolation(): Promise<void> {
    const what = "The engine does not apply Holdfast's filter of system calls";
    const command = ['busybox', 'sh', '-c', SECCOMP_TRIAL];
    await this.#helpers.run({ what, command, mounts: [], user: NOBODY }).catch(leave(what));
  }

  startSidecar(spec: SandboxSpec): Promise<void> {
    return this.#sandboxes.start(spec, false).catch(leave(`Cannot start the sidecar of ${spec.sessionId}`));
  }

  startSandbox(spec: SandboxSpec): Promise<void> {
    return this.#sandboxes.start(spec, true).catch(leave(`Cannot start the sandbox of ${spec.sessionId}`));
  }

  pause(sessionId: string): Promise<void> {
    return this.#sandboxes.pause(sessionId).catch(leave(`Cannot pause ${sessionId}`));
  }

  guardPause(agent: ObservedContainer): PauseGuard {
    const { unpauseProgram } = this.#options;
    const socketPath = this.#connection.identity()?.socketPath;
    if (unpauseProgram === undefined || socketPath === undefined) return { release: () => undefined };
    return guardPause(unpauseProgram, socketPath, agent.objectId, (error) =>
      this.#options.reportBackgroundError('cannot start the watchdog that unpauses an agent', error),
    );
  }

  async unpause(sessionId: string): Promise<void> {
    await this.#sandboxes.unpause(sessionId).catch(leave(`Cannot unpause ${sessionId}`));
    await this.#execs.resizeAfterUnpause(sessionId).catch(leave(`Cannot unpause ${sessionId}`));
  }

  countAgentProcesses(sessionId: string): Promise<number> {
    return this.#sandboxes
      .countAgentProcesses(sessionId)
      .then((count) => Math.max(0, count - OWN_PROCESSES))
      .catch(leave(`Cannot list the processes of ${sessionId}`));
  }

  stopAgent(sessionId: string, graceMs: number): Promise<void> {
    return this.#sandboxes.stopAgent(sessionId, graceMs).catch(leave(`Cannot stop ${sessionId}`));
  }

  removeSandbox(sessionId: string, graceMs: number): Promise<void> {
    return this.#sandboxes
      .remove(sessionId, graceMs)
      .catch(leave(`Cannot remove the sandbox of ${sessionId}`));
  }

  async prepare(spec: PrepareSpec, io: PrepareIo): Promise<PreparedImage> {
    try {
      return await this.#preparations.prepare(spec, io);
    } catch (error) {
      // The caller's own reason to cancel is theirs.
      if (io.signal.aborted) throw error;
      throw toHoldfastError(error, `Cannot prepare an image for ${spec.sandbox.code.profile}`);
    }
  }

  startEgressProxy(): Promise<EgressProxyProcess> {
    return this.#proxies.start().catch(leave('Cannot start the egress proxy'));
  }

  dial(sessionId: string): Promise<Duplex> {
    return this.#sandboxes.dial(sessionId).catch(leave(`Cannot reach the sidecar of ${sessionId}`));
  }

  async exec(sessionId: string, spec: ExecSpec): Promise<EngineExec> {
    try {
      const agent = await this.#sandboxes.livingAgent(sessionId);
      return await this.#execs.run(sessionId, agent.id, spec);
    } catch (error) {
      throw toHoldfastError(error, `Cannot run a command in ${sessionId}`);
    }
  }

  async createWorkspace(spec: WorkspaceSpec): Promise<void> {
    await this.#place((placement) => placement.createWorkspace(spec), 'Cannot create the workspace');
  }

  async deleteWorkspace(spec: WorkspaceSpec): Promise<void> {
    await this.#place((placement) => placement.deleteWorkspace(spec), 'Cannot delete the workspace');
  }

  workspacePath(spec: WorkspaceSpec): string | null {
    return this.#byPaths.workspacePath(spec);
  }

  workspaceVolume(spec: WorkspaceSpec): string | null {
    return spec.backing === 'volume' ? this.#naming.sessionVolume(spec.sessionId, 'workspace') : null;
  }

  async publishCode(profile: string, version: number, directory: string): Promise<void> {
    await this.#place(
      (placement) => placement.publishCode(profile, version, directory),
      `Cannot publish ${profile}`,
    );
  }

  async removeCode(profile: string, version: number): Promise<void> {
    await this.#place((placement) => placement.removeCode(profile, version), `Cannot remove ${profile}`);
  }

  observe(): Promise<ObservedObject[]> {
    const namesInUse = (): Set<string> => new Set([...this.#helpers.inUse, ...this.#proxies.inUse]);
    return observeObjects(this.#containers, namesInUse).catch(leave('Cannot list the objects of this home'));
  }

  async finishHelpers(): Promise<void> {
    await this.#helpers.finish(HELPERS_MS).catch(leave('Cannot end the helper containers'));
  }

  observeImages(): Promise<ObservedObject[]> {
    return observeImages(this.#containers).catch(leave('Cannot list the images of this home'));
  }

  observeSession(sessionId: string): Promise<ObservedSandbox> {
    return observeSession(this.#containers, sessionId).catch(leave(`Cannot observe ${sessionId}`));
  }

  async build(spec: BuildSpec, io: BuildIo): Promise<PreparedImage> {
    try {
      return await this.#builds.build(spec, io);
    } catch (error) {
      // The caller's own reason to cancel is theirs.
      if (io.signal.aborted) throw error;
      throw toHoldfastError(error, `Cannot build the image of ${spec.sandbox.code.profile}`);
    }
  }

  buildLabels(setupId: string): ReturnType<Engine['buildLabels']> {
    return this.#builds.labels(setupId);
  }

  async removeBuildLeftovers(isLeft: (setupId: string) => boolean): Promise<void> {
    await this.#builds.removeLeftovers(isLeft).catch(leave('Cannot remove what is left of a build'));
  }

  async removeObject(object: ObservedObject): Promise<void> {
    const what = `Cannot remove ${object.name}`;
    const removed =
      object.kind === 'volume'
        ? this.#containers.removeVolume(object.objectId)
        : object.kind === 'image'
          ? this.#containers.removeImage(object.objectId)
          : this.#containers.remove(what, object.objectId);
    await removed.catch(leave(what));
    // Of a built image, the steps before it.
    if (object.kind === 'image') await this.removeBuildLeftovers((setupId) => setupId === object.sessionId);
  }

  watch(listener: (change: EngineChange) => void): () => void {
    return this.#connection.watch(listener);
  }

  onStatus(listener: (status: EngineStatus) => void): () => void {
    return this.#connection.onStatus(listener);
  }

  async close(): Promise<void> {
    // A detection under way may end in order. Its failure has been reported already, and a hanging engine is not
    // waited for.
    const settled = this.#placed?.placement.catch(() => undefined);
    await Promise.race([settled, sleep(CLOSE_MS, undefined, { ref: false })]);
    await this.#connection.close();
  }

  async #place(verb: (placement: MountStrategy) => Promise<void>, what: string): Promise<void> {
    try {
      await verb(await this.#placement());
    } catch (error) {
      throw toHoldfastError(error, what);
    }
  }

  /** How this engine gets files into containers; detected once per engine. */
  async #placement(): Promise<MountStrategy> {
    // An engine that has answered once is not asked again: a sidecar can be dialed while the engine hangs.
    if (this.#connection.identity() === null) await this.#connection.api();
    const identity = this.#connection.identity();
    if (identity === null) throw new HoldfastError('engine_unavailable', 'The engine has not answered yet');
    const engine = `${identity.socketPath} ${identity.info.ID}`;
    if (this.#placed?.engine !== engine) {
      const placement = this.#findPlacement(identity.info);
      const placed = { engine, placement };
      this.#placed = placed;
      placement.catch(() => {
        if (this.#placed === placed) this.#placed = null;
      });
    }
    return this.#placed.placement;
  }

  async #findPlacement(info: InfoReply): Promise<MountStrategy> {
    const local = this.#mode === 'auto' ? await this.#localPaths.detect(info) : this.#mode === 'paths';
    this.#connection.setLocalPaths(local);
    return local ? this.#byPaths : this.#byVolumes;
  }

  /** After a connect: uses the expected capabilities until the detection, which starts at once, has an answer. */
  #settle(): void {
    const identity = this.#connection.identity();
    if (identity === null) return;
    if (this.#placed === null) {
      const { info } = identity;
      const expected = this.#mode === 'auto' ? this.#localPaths.guess(info) : this.#mode === 'paths';
      this.#connection.setLocalPaths(expected);
    }
    this.#placement().catch((error: unknown) => {
      // The image or the engine is missing now: the next caller gets the error.
      const known = error instanceof HoldfastError ? error.code : null;
      if (known === 'image_not_found' || known === 'engine_unavailable' || known === 'shutting_down') return;
      this.#options.reportBackgroundError('cannot detect whether the engine sees local files', error);
    });
  }
}

function modeOf(setting: string | undefined): MountMode {
  switch (setting) {
    case undefined:
    case '':
    case 'auto':
      return 'auto';
    case 'paths':
    case 'volumes':
      return setting;
    default:
      throw new HoldfastError('invalid_params', `HOLDFAST_ENGINE_MODE=${setting} is not a known mode`, {
        next: 'set it to auto, paths or volumes',
      });
  }
}

function leave(what: string): (error: unknown) => never {
  return (error) => {
    throw toHoldfastError(error, what);
  };
}
