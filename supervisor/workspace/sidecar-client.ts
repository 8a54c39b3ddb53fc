import type { Duplex } from 'node:stream';
import { HoldfastError } from '../../protocol/errors.ts';
import type { FolderUsage } from '../../protocol/search.ts';
import type { CallOptions, Progress } from '../../protocol/wire/shapes.ts';
import type {
  ProcessLaunch,
  ProcessProgress,
  SIDECAR_METHODS,
  TerminalLaunch,
  TerminalProgress,
  TurnLaunch,
  TurnProgress,
} from '../../sidecar/wire.ts';
import type { HomePart } from './home-configuration.ts';
import { keepAlive, type LivenessTimeouts } from './liveness.ts';
import { openSidecarPeer, type SidecarHello, type SidecarPeer } from './sidecar-peer.ts';

type Result<M extends keyof typeof SIDECAR_METHODS> = (typeof SIDECAR_METHODS)[M]['result']['_zod']['output'];
type Params<M extends keyof typeof SIDECAR_METHODS> = (typeof SIDECAR_METHODS)[M]['params']['_zod']['input'];

/** Timeout of calls that do not wait in the sidecar. */
const ANSWER_MS = 30_000;

/**
 * One connection to the sidecar of a session. Every answer is validated. Calls fail with the sidecar's error, with
 * `connection_closed` when the connection has ended, or with `timeout`. The caller reconnects.
 */
export class SidecarClient {
  readonly session: string;
  readonly hello: SidecarHello;
  /** Resolves when the connection has ended: with the reason, or undefined for an orderly end. Never rejects. */
  readonly closed: Promise<HoldfastError | undefined>;
  readonly #peer: SidecarPeer;

  private constructor(peer: SidecarPeer, hello: SidecarHello) {
    this.#peer = peer;
    this.session = hello.session;
    this.hello = hello;
    this.closed = peer.closed;
  }

  /** Errors: those of `greetSidecar`. The connection ends when the sidecar does not answer while calls are pending. */
  static async connect(
    dial: () => Promise<Duplex>,
    sessionId: string,
    timeouts?: LivenessTimeouts,
  ): Promise<SidecarClient> {
    const { peer, hello } = await openSidecarPeer(dial, sessionId);
    keepAlive(peer, sessionId, timeouts);
    return new SidecarClient(peer, hello);
  }

  get isClosed(): boolean {
    return this.#peer.isClosed;
  }

  /** True once the agent's container takes requests; false when it did not within `timeoutMs`. */
  async agentReady(timeoutMs: number): Promise<boolean> {
    const { ready } = await this.#peer.call(
      'agent/ready',
      { timeoutMs },
      { timeoutMs: timeoutMs + ANSWER_MS },
    );
    return ready;
  }

  /** Kills what the agent started; the number of processes that are left, or null if the runner did not answer in time. */
  async sweepAgent(timeoutMs: number): Promise<number | null> {
    const { left } = await this.#peer.call(
      'agent/sweep',
      { timeoutMs },
      { timeoutMs: timeoutMs + ANSWER_MS },
    );
    return left;
  }

  /** Starts a turn with `input` as its stdin or JSON. A second launch only reports, and repeats a request that was not picked up. */
  launchTurn(launch: TurnLaunch, input: Uint8Array): Promise<TurnProgress> {
    return this.#peer.call('turn/launch', launch, { bytes: input, timeoutMs: ANSWER_MS });
  }

  /** Waits up to `waitMs` until there is more than the given offsets or the turn has ended. */
  turnProgress(params: Params<'turn/progress'>, options: CallOptions = {}): Promise<TurnProgress> {
    return this.#peer.call('turn/progress', params, { timeoutMs: params.waitMs + ANSWER_MS, ...options });
  }

  /** Bytes from `offset`, at most `limit` (≤ 1 MiB); empty at the end of what there is. */
  async readTurn(params: Params<'turn/read'>): Promise<Buffer> {
    const { result, bytes } = await this.#peer.callWithBytes('turn/read', params, { timeoutMs: ANSWER_MS });
    if (result.offset !== params.offset || bytes.length > params.limit) {
      throw new HoldfastError('protocol_error', 'The sidecar answered with other bytes than were asked for');
    }
    return bytes;
  }

  /** TERM, and KILL after `graceMs`; does not wait for the end. `sandbox_lost` when no agent container listens. */
  async killTurn(turnId: string, graceMs: number): Promise<void> {
    await this.#peer.call('turn/kill', { turnId, graceMs }, { timeoutMs: ANSWER_MS });
  }

  /** Returns how many bytes of the file are there: 0 if earlier parts are gone. */
  async writeAttachment(part: Params<'attachment/write'>, bytes: Uint8Array): Promise<number> {
    const { stored } = await this.#peer.call('attachment/write', part, { bytes, timeoutMs: ANSWER_MS });
    return stored;
  }

  async forgetTurn(turnId: string): Promise<void> {
    await this.#peer.call('turn/remove', { turnId }, { timeoutMs: ANSWER_MS });
  }

  async listTurns(): Promise<string[]> {
    const { turns } = await this.#peer.call('turn/list', {}, { timeoutMs: ANSWER_MS });
    return turns;
  }

  /** Signals every process of an exec. */
  async killExec(exec: string, signal: string): Promise<void> {
    await this.#peer.call('exec/kill', { exec, signal }, { timeoutMs: ANSWER_MS });
  }

  /** Starts a terminal; does not wait until it runs. */
  openTerminal(launch: TerminalLaunch): Promise<TerminalProgress> {
    return this.#peer.call('terminal/open', launch, { timeoutMs: ANSWER_MS });
  }

  /** Waits up to `waitMs` for its start, then for its end. */
  terminalProgress(terminalId: string, waitMs: number, options: CallOptions = {}): Promise<TerminalProgress> {
    return this.#peer.call(
      'terminal/progress',
      { terminalId, waitMs },
      { timeoutMs: waitMs + ANSWER_MS, ...options },
    );
  }

  /** Output of a terminal; `offset` says where the bytes begin. Waits up to `waitMs` for some. */
  async readTerminal(
    params: Params<'terminal/read'>,
    options: CallOptions = {},
  ): Promise<{ readonly result: Result<'terminal/read'>; readonly bytes: Buffer }> {
    const answer = await this.#peer.callWithBytes('terminal/read', params, {
      timeoutMs: params.waitMs + ANSWER_MS,
      ...options,
    });
    if (answer.bytes.length > params.limit) {
      throw new HoldfastError('protocol_error', 'The sidecar answered with more bytes than were asked for');
    }
    return answer;
  }

  /** Settles when the terminal has taken the bytes, however long that takes. */
  async writeTerminal(terminalId: string, bytes: Uint8Array, options: CallOptions = {}): Promise<void> {
    await this.#peer.call('terminal/write', { terminalId }, { bytes, ...options });
  }

  async resizeTerminal(params: Params<'terminal/resize'>): Promise<void> {
    await this.#peer.call('terminal/resize', params, { timeoutMs: ANSWER_MS });
  }

  /** Does not wait for the end. */
  async closeTerminal(terminalId: string): Promise<void> {
    await this.#peer.call('terminal/close', { terminalId }, { timeoutMs: ANSWER_MS });
  }

  async forgetTerminal(terminalId: string): Promise<void> {
    await this.#peer.call('terminal/remove', { terminalId }, { timeoutMs: ANSWER_MS });
  }

  /** Starts a durable process; does not wait until it runs. */
  startProcess(launch: ProcessLaunch): Promise<ProcessProgress> {
    return this.#peer.call('process/start', launch, { timeoutMs: ANSWER_MS });
  }

  processProgress(processId: string): Promise<ProcessProgress> {
    return this.#peer.call('process/progress', { processId }, { timeoutMs: ANSWER_MS });
  }

  /** Output of a durable process; `offset` says where the bytes begin. Waits up to `waitMs` for some. */
  async readProcess(
    params: Params<'process/read'>,
    options: CallOptions = {},
  ): Promise<{ readonly result: Result<'process/read'>; readonly bytes: Buffer }> {
    const answer = await this.#peer.callWithBytes('process/read', params, {
      timeoutMs: params.waitMs + ANSWER_MS,
      ...options,
    });
    if (answer.bytes.length > params.limit) {
      throw new HoldfastError('protocol_error', 'The sidecar answered with more bytes than were asked for');
    }
    return answer;
  }

  async acknowledgeProcess(params: Params<'process/acknowledge'>): Promise<void> {
    await this.#peer.call('process/acknowledge', params, { timeoutMs: ANSWER_MS });
  }

  /** At most 1 MiB. Can be repeated. */
  writeProcess(processId: string, offset: number, bytes: Uint8Array): Promise<Result<'process/write'>> {
    return this.#peer.call('process/write', { processId, offset }, { bytes, timeoutMs: ANSWER_MS });
  }

  async closeProcessInput(processId: string): Promise<void> {
    await this.#peer.call('process/close-input', { processId }, { timeoutMs: ANSWER_MS });
  }

  /** TERM, and KILL after `graceMs`; does not wait for the end. `sandbox_lost` when no agent container listens. */
  async killProcess(processId: string, graceMs: number): Promise<void> {
    await this.#peer.call('process/kill', { processId, graceMs }, { timeoutMs: ANSWER_MS });
  }

  async removeProcess(processId: string): Promise<void> {
    await this.#peer.call('process/remove', { processId }, { timeoutMs: ANSWER_MS });
  }

  async listProcesses(): Promise<string[]> {
    const { processes } = await this.#peer.call('process/list', {}, { timeoutMs: ANSWER_MS });
    return processes;
  }

  /** Walks the whole workspace: seconds for a large one. */
  workspaceUsage(options: CallOptions = {}): Promise<Result<'workspace/usage'>> {
    return this.#peer.call('workspace/usage', {}, options);
  }

  /** The folders that take the most space, those in them included. */
  async biggestFolders(limit: number): Promise<FolderUsage[]> {
    return (await this.#peer.call('files/usage', { limit })).folders;
  }

  /** Empties the workspace. Continues an interrupted call. */
  clearWorkspace(
    options: { onProgress?: (progress: Progress) => void; signal?: AbortSignal } = {},
  ): Promise<Result<'workspace/clear'>> {
    return this.#peer.call('workspace/clear', {}, options);
  }

  /** Removes everything in HOME except the kept paths, and writes our start files. Continues an interrupted call. */
  async prepareHome(kept: readonly string[]): Promise<void> {
    await this.#peer.call('home/prepare', { kept: [...kept] });
  }

  /** Creates files in HOME whose names are free. Can be repeated. */
  async fillHome({ files, content }: HomePart): Promise<void> {
    await this.#peer.call('home/fill', { files: [...files] }, { bytes: content });
  }

  /** Empties HOME. Continues an interrupted call. */
  async clearHome(): Promise<void> {
    await this.#peer.call('home/clear', {});
  }

  /** Where programs in the sandbox listen. */
  openPorts(options: CallOptions): Promise<Result<'network/ports'>> {
    return this.#peer.call('network/ports', {}, options);
  }

  /** Replaces the agent's copy of the manifest, of at most `MANIFEST_COPY_BYTES`. */
  async writeManifestCopy(bytes: Uint8Array, options: CallOptions): Promise<void> {
    await this.#peer.call('run/manifest', {}, { bytes, ...options });
  }

  /** Walks the run directory, which the agent can write to. */
  runUsage(options: CallOptions = {}): Promise<Result<'run/usage'>> {
    return this.#peer.call('run/usage', {}, options);
  }

  /** Walks all of HOME. */
  homeUsage(options: CallOptions = {}): Promise<Result<'home/usage'>> {
    return this.#peer.call('home/usage', {}, options);
  }

  /** At most 1 MiB. Fails with the `file_*` codes. */
  async readFile(path: string): Promise<Buffer> {
    const { bytes } = await this.#peer.callWithBytes('workspace/read', { path }, { timeoutMs: ANSWER_MS });
    return bytes;
  }

  close(): void {
    this.#peer.close();
  }
}
