import type { Duplex, Readable } from 'node:stream';
import type { EngineStatus } from '../../protocol/entities.ts';

/**
 * The engine that runs sandboxes. A caller names a session's sandbox, never a container. A driver hides whether it
 * uses local paths. Every method is idempotent and may be repeated after a crash: object names are deterministic, and
 * `observe` reports the actual state.
 * Errors: `engine_unavailable` (unreachable now), `engine_error`, `image_not_found`, `sandbox_failed` (did not start;
 * `details` has the reason).
 */
export interface Engine {
  /** The last known status. Never throws, never waits. */
  status(): EngineStatus;
  /** Contacts the engine now, within 5 s. */
  probe(): Promise<EngineStatus>;
  capabilities(): EngineCapabilities;
  /** Versions and protections for `doctor`, read from the engine now. */
  facts(): Promise<EngineFacts>;
  /** Hash of the program files that this build mounts into sandboxes; the name of their folder in the home. */
  programsHash(): string;

  images: EngineImages;

  /**
   * Starts the sidecar and leaves the agent as it is: for file access, inspection and cleanup of a session without an
   * agent.
   */
  startSidecar(spec: SandboxSpec): Promise<void>;
  /**
   * Starts sidecar and agent; the two container creations overlap. A running sidecar of any generation is kept if its
   * own spec (program files, uid, workspace) matches: the generation belongs to the agent.
   */
  startSandbox(spec: SandboxSpec): Promise<void>;
  pause(sessionId: string): Promise<void>;
  unpause(sessionId: string): Promise<void>;
  /** Starts a watchdog that unpauses the agent if this process ends before `release`. Called before `pause`. */
  guardPause(agent: ObservedContainer): PauseGuard;
  /**
   * How many processes the agent container has beside its first one and the runner, as the machine that runs it sees
   * them, so that the agent can hide none.
   */
  countAgentProcesses(sessionId: string): Promise<number>;
  /** Stops and removes the agent container: TERM, then KILL after `graceMs`. Unpauses it first. Keeps the sidecar. */
  stopAgent(sessionId: string, graceMs: number): Promise<void>;
  /** Stops and removes both containers and their files and volumes, but never the workspace and HOME. */
  removeSandbox(sessionId: string, graceMs: number): Promise<void>;

  /**
   * Makes an image: runs the steps in a container of their own and keeps what they leave. The sidecar of `spec.sandbox` has to run,
   * and stays. Nothing else remains of it; after a crash `removeSandbox` removes the container, and `observeImages` lists the image.
   * Errors: `setup_failed`, the reason of the signal.
   */
  prepare(spec: PrepareSpec, io: PrepareIo): Promise<PreparedImage>;

  /**
   * Builds a Dockerfile with the engine's classic builder; only where `capabilities().builds` says so. Its steps have the network of
   * the sidecar of `spec.sandbox`, which has to run, and stays. Nothing else remains of it but the image, which `observeImages`
   * lists; after a crash `removeSandbox` removes containers, and `removeBuildLeftovers` images. Errors: `setup_failed`, the reason of
   * the signal.
   */
  build(spec: BuildSpec, io: BuildIo): Promise<PreparedImage>;
  /** Labels that the Dockerfile of a build has to set: of what it makes on the way, and of the image. */
  buildLabels(setupId: string): {
    readonly build: Readonly<Record<string, string>>;
    readonly image: Readonly<Record<string, string>>;
  };
  /** Removes untagged images that builds of these setups made on the way. */
  removeBuildLeftovers(isLeft: (setupId: string) => boolean): Promise<void>;

  /**
   * Starts the process that reads what sandboxes send to the network, isolated from everything: it is reached by `dial`, and
   * reaches nothing. It ends with this process, however that ends.
   */
  startEgressProxy(): Promise<EgressProxyProcess>;

  /** Opens a byte stream to the sidecar's socket. Errors: `sandbox_lost` when there is no sidecar. */
  dial(sessionId: string): Promise<Duplex>;
  exec(sessionId: string, spec: ExecSpec): Promise<EngineExec>;

  /** Creates the durable workspace and the agent's HOME unless they exist: owner uid:gid, mode 0700. */
  createWorkspace(spec: WorkspaceSpec): Promise<void>;
  /** Removes an empty workspace, and HOME. The sidecar deletes their content beforehand. */
  deleteWorkspace(spec: WorkspaceSpec): Promise<void>;
  /** The directory on this machine; null if the workspace is a volume. */
  workspacePath(spec: WorkspaceSpec): string | null;
  /** The name of the volume; null if the workspace is a directory. */
  workspaceVolume(spec: WorkspaceSpec): string | null;
  /** Fails if a container like those of sandboxes could make system calls that sandboxes must not make. */
  tryIsolation(): Promise<void>;

  /** Makes a deployed version of a profile's code mountable by sandboxes. */
  publishCode(profile: string, version: number, directory: string): Promise<void>;
  removeCode(profile: string, version: number): Promise<void>;

  /** Lists every container and volume of this home on the engine, in any state. */
  observe(): Promise<ObservedObject[]>;
  /** Lists the prepared images of this home. An engine with many images takes long. */
  observeImages(): Promise<ObservedObject[]>;
  observeSession(sessionId: string): Promise<ObservedSandbox>;
  /** Waits a while for the helper containers of this process, which `observe` does not list, and removes those that do not end. */
  finishHelpers(): Promise<void>;
  /** Removes an object that `observe` or `observeImages` listed and that no session, profile or operation uses. */
  removeObject(object: ObservedObject): Promise<void>;
  /**
   * Reports a change of one session, or of any session (null, after a reconnect: observe again). Returns the
   * unsubscribe function.
   */
  watch(listener: (change: { sessionId: string | null }) => void): () => void;
  onStatus(listener: (status: EngineStatus) => void): () => void;
  close(): Promise<void>;
}

export interface EgressProxyProcess {
  /** Opens a byte stream to it. */
  dial(): Promise<Duplex>;
  /** Resolves with the reason when it has ended. */
  readonly exited: Promise<string>;
  /** Ends it at once, and removes what is left of it. Idempotent. */
  stop(): Promise<void>;
}

/** A watchdog process that unpauses an agent. */
export interface PauseGuard {
  /** Ends the watchdog; the agent runs again. */
  release(): void;
}

export interface EngineCapabilities {
  /** `freezer` keeps memory; `suspend` loses processes; with `none` a session goes from idle straight to resumable. */
  readonly pause: 'freezer' | 'signal' | 'suspend' | 'none';
  readonly execAttach: boolean;
  /**
   * The engine sees this machine's files: directories can back workspaces, and the sidecar's socket can be dialed
   * directly.
   */
  readonly localPaths: boolean;
  readonly runtimes: readonly string[];
  /** It has the classic builder. */
  readonly builds: boolean;
}

/** Null where the engine does not report a value. Versions are written as the engine writes them (`20.10.24+dfsg1`). */
export interface EngineFacts {
  readonly version: string | null;
  /** The default low-level runtime, usually runc. */
  readonly runtime: string | null;
  readonly runtimeVersion: string | null;
  readonly kernel: string | null;
  readonly storageDriver: string | null;
  readonly cgroupVersion: '1' | '2' | null;
  readonly liveRestore: boolean | null;
  readonly seccomp: boolean;
  readonly apparmor: boolean;
  readonly selinux: boolean;
  readonly userNamespaces: boolean;
  readonly rootless: boolean;
  /** Whether limits on memory, CPU and processes take effect. */
  readonly limits: { readonly memory: boolean; readonly cpu: boolean; readonly pids: boolean };
  /** The engine's clock when it answered, ms since 1970. */
  readonly clockMs: number | null;
}

export interface EngineImages {
  has(reference: string): Promise<boolean>;
  /** Digest or id of a present image, for the history. */
  identity(reference: string): Promise<string>;
  /** Its id on this engine, whatever names and digests it has; null if it does not exist. */
  id(reference: string): Promise<string | null>;
  /** Whether it is a prepared image of any home, or made from one. False if it does not exist. */
  isPrepared(reference: string): Promise<boolean>;
  /** What a Dockerfile that begins with it has to know; null if it does not exist. */
  facts(reference: string): Promise<ImageFacts | null>;
  pull(reference: string, progress: (layer: PullProgress) => void, signal: AbortSignal): Promise<void>;
}
export interface ImageFacts {
  /** `sha256:…` */
  readonly id: string;
  readonly bytes: number;
  /** It is a prepared image of any home, or made from one. */
  readonly isPrepared: boolean;
  /** It came from a registry, or went to one; where that cannot be seen, its registry has it now. */
  readonly isPublished: boolean;
  /** It has instructions that run in the build of an image that begins with it. */
  readonly hasTriggers: boolean;
  /** Containers of it get volumes of their own. */
  readonly hasVolumes: boolean;
}
export interface PullProgress {
  readonly doneBytes: number;
  readonly totalBytes: number | null;
  readonly status: string;
}

export type Backing = 'directory' | 'volume';

export interface WorkspaceSpec {
  readonly sessionId: string;
  readonly backing: Backing;
  readonly uid: number;
  readonly gid: number;
}

export interface SandboxSpec {
  readonly sessionId: string;
  /** Grows with every sandbox of the session; two generations never run at once. */
  readonly generation: number;
  readonly image: string;
  readonly uid: number;
  readonly gid: number;
  readonly workspace: WorkspaceSpec;
  /** Version 0 has no code: nothing is mounted as `/agent`. */
  readonly code: { readonly profile: string; readonly version: number };
  readonly env: Readonly<Record<string, string>>;
  readonly limits: { readonly memoryBytes: number; readonly cpus: number; readonly pids: number };
  readonly runtime: string;
  /** The agent container has an empty folder in memory for secrets, which only its user can read. Default: none. */
  readonly hasSecretsFolder?: boolean;
}

/** One command of a setup. It runs as root. */
export interface SetupStep {
  readonly name: string;
  readonly command: readonly string[];
  /** The command as people know it, on one line. */
  readonly shown: string;
  readonly env: Readonly<Record<string, string>>;
}

export interface PrepareSpec {
  /** Its `sessionId` is the id of the setup; of `code` only the profile counts. */
  readonly sandbox: SandboxSpec;
  /** The image to start from. */
  readonly image: string;
  readonly steps: readonly SetupStep[];
  /** Files in memory below `/run/secrets`, and variables of the steps; never of the container. */
  readonly secrets: readonly { readonly name: string; readonly value: Buffer }[];
}

export interface PrepareIo {
  onStep(name: string): void;
  /** Called with everything that the steps print. */
  onOutput(chunk: Buffer, stream: 'stdout' | 'stderr'): void;
  /**
   * Called with the whole file system as a tar stream when nothing of the setup runs any more, and before the image is made. What it
   * throws fails the setup. It may leave the stream unread. The paths that it returns are removed, and it is called again; none: the
   * image is made.
   */
  readonly inspect?: (files: Readable) => Promise<readonly string[]>;
  readonly signal: AbortSignal;
}

/** The name of the Dockerfile in the context of a build. */
export const BUILD_DOCKERFILE = '.holdfast.Dockerfile';

export interface BuildSpec {
  /** Its `sessionId` is the id of the setup; of `code` only the profile counts. */
  readonly sandbox: SandboxSpec;
  /** A tar stream with the Dockerfile as `BUILD_DOCKERFILE`. */
  readonly context: () => Readable;
  /** Its instructions, one for each step of the builder. */
  readonly steps: readonly string[];
  readonly args: Readonly<Record<string, string>>;
  /** Size of the largest image that it begins with. */
  readonly baseBytes: number;
  /** What its steps may write, all together. */
  readonly diskBytes: number;
}

export interface BuildIo {
  /** `3/7` */
  onStep(step: string): void;
  onOutput(chunk: Buffer, stream: 'stdout' | 'stderr'): void;
  readonly signal: AbortSignal;
}

export interface PreparedImage {
  readonly reference: string;
  /** `sha256:…` */
  readonly imageId: string;
  /** What was added to the image that it started from. */
  readonly bytes: number;
}

export interface ExecSpec {
  readonly execId: string;
  readonly command: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly cwd: string;
  readonly tty: { readonly columns: number; readonly rows: number } | null;
  readonly stdin: boolean;
}

export interface EngineExec {
  /** Null with a terminal: all output arrives on stdout. */
  readonly stdout: NodeJS.ReadableStream;
  readonly stderr: NodeJS.ReadableStream | null;
  readonly stdin: NodeJS.WritableStream;
  resize(columns: number, rows: number): Promise<void>;
  /** The exit code; null when the sandbox ended before the process did. */
  readonly exited: Promise<number | null>;
  /** Closes the stream. The sidecar kills the process, which it finds by its marker. */
  detach(): void;
}

export type ContainerState = 'created' | 'running' | 'paused' | 'exited' | 'removing' | 'lost';
export interface ObservedContainer {
  readonly objectId: string;
  readonly state: ContainerState;
  readonly generation: number;
  /** Hash of everything whose change requires a new container: image, code version, limits, program files, uid. */
  readonly specHash: string;
  readonly exitCode: number | null;
  readonly oomKilled: boolean;
}
export interface ObservedSandbox {
  readonly sessionId: string;
  readonly sidecar: ObservedContainer | null;
  readonly agent: ObservedContainer | null;
}
export interface ObservedObject {
  readonly kind: 'container' | 'volume' | 'network' | 'image';
  readonly objectId: string;
  readonly name: string;
  /** Of a setup and its image: the id of the setup. */
  readonly sessionId: string | null;
  readonly role:
    | 'sidecar'
    | 'agent'
    | 'helper'
    | 'workspace'
    | 'home'
    | 'run'
    | 'control'
    | 'runtime'
    | 'code'
    | 'setup'
    | 'prepared';
  readonly container: ObservedContainer | null;
}
