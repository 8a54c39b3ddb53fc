import type { Duplex } from 'node:stream';
import type { EngineStatus } from '../../protocol/entities.ts';

/**
 * What runs sandboxes. Verbs are about the sandbox of a session, never about a container; what a driver gains from
 * local paths stays inside the driver. All verbs are idempotent and may be repeated after a crash: names are deterministic,
 * truth comes from `observe`. Errors: `engine_unavailable` (cannot be asked now), `engine_error`, `image_not_found`,
 * `sandbox_failed` (would not start; `details` has the reason).
 */
export interface Engine {
  /** Last known status; never throws, never waits. */
  status(): EngineStatus;
  /** Asks the engine now (bounded by 5 s). */
  probe(): Promise<EngineStatus>;
  capabilities(): EngineCapabilities;
  /** What `doctor` judges: versions and protections, asked now. */
  facts(): Promise<EngineFacts>;
  /** Identity of the program files that this build brings into sandboxes: their folder's name in the home. */
  programsHash(): string;

  images: EngineImages;

  /** The sidecar up, the agent untouched. For files, info, clean-up of a session that does not run. */
  startSidecar(spec: SandboxSpec): Promise<void>;
  /**
   * Sidecar and agent up; creates overlap. A running sidecar is joined whatever its generation, as long as its own spec
   * (program files, uid, workspace) is the wanted one: the generation is the agent's.
   */
  startSandbox(spec: SandboxSpec): Promise<void>;
  pause(sessionId: string): Promise<void>;
  unpause(sessionId: string): Promise<void>;
  /** Sees to it that this agent does not stay paused should we end before `release`. Called before `pause`. */
  guardPause(agent: ObservedContainer): PauseGuard;
  /** Ends and removes the agent's side: TERM, after `graceMs` KILL. Thaws first. The sidecar stays. */
  stopAgent(sessionId: string, graceMs: number): Promise<void>;
  /** Ends and removes both sides and what belongs to them, but never the workspace. */
  removeSandbox(sessionId: string, graceMs: number): Promise<void>;

  /** A byte stream to the sidecar's socket. Fails with `sandbox_lost` when there is none. */
  dial(sessionId: string): Promise<Duplex>;
  exec(sessionId: string, spec: ExecSpec): Promise<EngineExec>;

  /** Makes the durable workspace if it is not there, owned by uid:gid, mode 0700. */
  createWorkspace(spec: WorkspaceSpec): Promise<void>;
  /** Removes an *emptied* workspace for good (its content goes through the sidecar first). */
  deleteWorkspace(spec: WorkspaceSpec): Promise<void>;
  /** The folder on this machine, where there is one. */
  workspacePath(spec: WorkspaceSpec): string | null;
  /** The engine's name of the volume, where the backing is one. */
  workspaceVolume(spec: WorkspaceSpec): string | null;
  /** Brings a deployed version of a profile's code to where sandboxes can mount it. */
  publishCode(profile: string, version: number, directory: string): Promise<void>;
  removeCode(profile: string, version: number): Promise<void>;

  /** Every object of this home on the engine, whatever its state. */
  observe(): Promise<ObservedObject[]>;
  observeSession(sessionId: string): Promise<ObservedSandbox>;
  /** Removes an object found by `observe` that belongs to nothing. */
  removeObject(object: ObservedObject): Promise<void>;
  /** Something changed (session given) or anything may have changed (null: reconnected, look again). Returns the end of it. */
  watch(listener: (change: { sessionId: string | null }) => void): () => void;
  onStatus(listener: (status: EngineStatus) => void): () => void;
  close(): Promise<void>;
}

/** Somebody else who thaws. */
export interface PauseGuard {
  /** It is thawed. */
  release(): void;
}

export interface EngineCapabilities {
  /** `freezer` keeps memory; `suspend` loses processes; `none`: a session goes from idle to resumable directly. */
  readonly pause: 'freezer' | 'signal' | 'suspend' | 'none';
  readonly execAttach: boolean;
  /** The engine sees this machine's files: directories can back workspaces and the sidecar's socket can be dialled directly. */
  readonly localPaths: boolean;
  readonly runtimes: readonly string[];
}

/** Null: the engine does not tell. Versions as the engine writes them (`20.10.24+dfsg1`). */
export interface EngineFacts {
  readonly version: string | null;
  /** Of the default low-level runtime, usually runc. */
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
  /** Memory and CPU limits take effect, and pids can be limited. */
  readonly limits: { readonly memory: boolean; readonly cpu: boolean; readonly pids: boolean };
  /** The engine's clock, ms since 1970, when it answered. */
  readonly clockMs: number | null;
}

export interface EngineImages {
  has(reference: string): Promise<boolean>;
  /** Digest-like identity of a present image, for the history. */
  identity(reference: string): Promise<string>;
  pull(reference: string, progress: (layer: PullProgress) => void, signal: AbortSignal): Promise<void>;
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
  readonly code: { readonly profile: string; readonly version: number };
  readonly env: Readonly<Record<string, string>>;
  readonly limits: { readonly memoryBytes: number; readonly cpus: number; readonly pids: number };
  readonly runtime: string;
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
  /** Null when there is a terminal: everything comes on stdout. */
  readonly stdout: NodeJS.ReadableStream;
  readonly stderr: NodeJS.ReadableStream | null;
  readonly stdin: NodeJS.WritableStream;
  resize(columns: number, rows: number): Promise<void>;
  /** The exit code, or null when the sandbox went away under it. */
  readonly exited: Promise<number | null>;
  /** Lets go of the stream; the process is killed by its marker through the sidecar. */
  detach(): void;
}

export type ContainerState = 'created' | 'running' | 'paused' | 'exited' | 'removing' | 'lost';
export interface ObservedContainer {
  readonly objectId: string;
  readonly state: ContainerState;
  readonly generation: number;
  /** Identity of everything that needs a new container when it changes: image, code version, limits, program files, uid. */
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
  readonly kind: 'container' | 'volume' | 'network';
  readonly objectId: string;
  readonly name: string;
  readonly sessionId: string | null;
  readonly role: 'sidecar' | 'agent' | 'helper' | 'workspace' | 'run' | 'control' | 'runtime' | 'code';
  readonly container: ObservedContainer | null;
}
