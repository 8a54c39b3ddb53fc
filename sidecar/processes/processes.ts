import { mkdirSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { HoldfastError } from '../../protocol/errors.ts';
import { ProcessIdSchema } from '../../protocol/ids.ts';
import { isPathError } from '../files/directory.ts';
import { processScript } from '../turns/launch-script.ts';
import { RunDirectory } from '../turns/run-directory.ts';
import { RunnerRequests } from '../turns/runner-requests.ts';
import { TurnFiles } from '../turns/turn-files.ts';
import { IN_SANDBOX, PROCESS_LIMITS, type ProcessLaunch, type ProcessProgress } from '../wire.ts';
import { loadPipeCalls, type PipeCalls, type PipeWaiter } from './pipes.ts';
import { DurableProcess, type ProcessStream } from './process.ts';
import { ProcessNote } from './process-note.ts';

const MAX_WAIT_MS = 60_000;
const MAX_GRACE_MS = 600_000;
/** How long a removal waits for the end of a killed program. */
const END_MS = 2000;
/** The runner's keeper overwrites this with the exit code, so a full disk does not lose the code. */
const EXIT_PLACEHOLDER = ' '.repeat(15) + '\n';

const ABSENT: ProcessProgress = {
  state: 'absent',
  exitCode: null,
  stdout: { start: 0, end: 0 },
  stderr: { start: 0, end: 0 },
  inputAccepted: 0,
  damage: null,
};

export interface ProcessesOptions {
  /** The run directory, which is a mount point. */
  readonly run: string;
  /** A directory that only the sidecar can reach. */
  readonly control: string;
}

/**
 * The durable processes of the session: programs in the agent container whose output and input outlive the sidecar.
 * Processes of an earlier sidecar continue.
 */
export class Processes {
  readonly #run: RunDirectory;
  readonly #runner: RunnerRequests;
  readonly #folder: string;
  readonly #known = new Map<string, DurableProcess>();
  readonly #ready: Promise<void>;
  #pipes: PipeCalls | null = null;
  #waiter: PipeWaiter | null = null;
  #isClosed = false;

  constructor({ run, control }: ProcessesOptions) {
    this.#run = new RunDirectory(run);
    this.#runner = new RunnerRequests(this.#run.root);
    this.#folder = join(control, IN_SANDBOX.processesName);
    mkdirSync(this.#folder, { recursive: true, mode: 0o700 });
    // The native calls load when there is something to do: most sessions have no process.
    this.#ready = this.list().length === 0 ? Promise.resolve() : this.#adoptAll();
    this.#ready.catch((error: unknown) => console.error('processes:', error));
  }

  /** Errors: `overloaded`, `no_space`, `not_supported`, and `sandbox_lost` if no runner reads requests. */
  async start(launch: ProcessLaunch, signal: AbortSignal): Promise<ProcessProgress> {
    await this.#ready;
    const { processId } = launch;
    const { pipes, waiter } = await this.#native();
    let known = this.#find(processId);
    if (known === null) {
      this.#removeEnded();
      known = this.#create(launch, pipes, waiter);
    }
    if (known.progress().state === 'starting')
      await this.#runner.request(`process start ${processId}`, signal);
    return known.progress();
  }

  async progress(processId: string): Promise<ProcessProgress> {
    await this.#ready;
    return this.#find(processId)?.progress() ?? ABSENT;
  }

  /** Errors: `not_found`, here and below. */
  async read(
    processId: string,
    stream: ProcessStream,
    from: { offset: number; limit: number; waitMs: number },
    signal: AbortSignal,
  ): ReturnType<DurableProcess['read']> {
    const found = await this.#existing(processId);
    return found.read(stream, { ...from, waitMs: Math.min(from.waitMs, MAX_WAIT_MS) }, signal);
  }

  async acknowledge(processId: string, stream: ProcessStream, offset: number): Promise<void> {
    (await this.#existing(processId)).acknowledge(stream, offset);
  }

  async write(
    processId: string,
    offset: number,
    bytes: Buffer,
  ): Promise<{ accepted: number; undecided: boolean }> {
    if (bytes.length > PROCESS_LIMITS.chunk) {
      throw new HoldfastError('invalid_params', 'The input is too large for one message', {
        why: `the limit is ${PROCESS_LIMITS.chunk} bytes`,
      });
    }
    return (await this.#existing(processId)).write(offset, bytes);
  }

  async closeInput(processId: string): Promise<void> {
    (await this.#existing(processId)).closeInput();
  }

  async kill(processId: string, graceMs: number, signal: AbortSignal): Promise<void> {
    const found = await this.#existing(processId);
    if (found.hasEnded) return;
    const grace = Math.round(Math.max(0, Math.min(graceMs, MAX_GRACE_MS)));
    await this.#runner.request(`process kill ${processId} ${grace}`, signal);
  }

  /** After a sweep: processes that it has killed have ended. */
  async endLost(): Promise<void> {
    await this.#ready;
    for (const process of this.#known.values()) process.endIfLost();
  }

  async remove(processId: string, signal: AbortSignal): Promise<void> {
    await this.#ready;
    const found = this.#find(processId);
    if (found === null) return;
    if (!found.hasEnded && this.#runner.send(`process kill ${processId} 0`) === 'sent') {
      await found.waitForEnd(END_MS, signal);
    }
    this.#discard(processId);
  }

  /** Ids of all processes, ended ones included. Reads our own directory: the agent can create any name in the other. */
  list(): string[] {
    return readdirSync(this.#folder).filter((name) => ProcessIdSchema.safeParse(name).success);
  }

  /** Stops serving the processes. They continue without the sidecar. */
  detach(): void {
    this.#isClosed = true;
    for (const process of this.#known.values()) process.close();
    this.#known.clear();
    this.#waiter?.close();
    this.#run.close();
  }

  async #adoptAll(): Promise<void> {
    await this.#native();
    for (const id of this.list()) {
      try {
        if (this.#find(id) !== null) continue;
        // A sidecar that was killed while it removed a process, or before it noted it, has left a folder without a note.
        this.#runner.send(`process kill ${id} 0`);
        this.#discard(id);
      } catch (error) {
        // It fails alone, and is looked at again when somebody asks for it.
        console.error(`process ${id}:`, error);
      }
    }
  }

  async #native(): Promise<{ pipes: PipeCalls; waiter: PipeWaiter }> {
    this.#pipes ??= await loadPipeCalls();
    if (this.#pipes === null) {
      throw new HoldfastError('not_supported', 'This session cannot run durable processes', {
        why: 'the sidecar has no native system calls on this machine',
        next: 'use a machine with an x64 or arm64 Linux engine',
      });
    }
    this.#waiter ??= this.#pipes.createWaiter();
    if (this.#isClosed) this.#waiter.close();
    return { pipes: this.#pipes, waiter: this.#waiter };
  }

  async #existing(processId: string): Promise<DurableProcess> {
    await this.#ready;
    const found = this.#find(processId);
    if (found === null) throw new HoldfastError('not_found', `There is no process ${processId}`);
    return found;
  }

  /** A known process, or one that an earlier sidecar left. */
  #find(id: string): DurableProcess | null {
    const known = this.#known.get(id);
    if (known !== undefined) return known;
    if (this.#pipes === null || this.#waiter === null || !this.list().includes(id)) return null;
    const note = ProcessNote.find(join(this.#folder, id));
    if (note === null) return null;
    const files = note.value.ended === null ? TurnFiles.find(this.#run.processes, id) : null;
    return this.#adopt(id, note, files, this.#pipes, this.#waiter);
  }

  #create(launch: ProcessLaunch, pipes: PipeCalls, waiter: PipeWaiter): DurableProcess {
    const { processId } = launch;
    const contents = {
      launch: Buffer.from(processScript(launch)),
      'exit.tmp': Buffer.from(EXIT_PLACEHOLDER),
    };
    // A sidecar that was killed here has left files without a note: nothing has started from them.
    this.#run.repair();
    this.#run.removeProcess(processId);
    try {
      const files = TurnFiles.create(this.#run.processes, processId, contents, []);
      const note = ProcessNote.create(join(this.#folder, processId), Date.now());
      return this.#adopt(processId, note, files, pipes, waiter);
    } catch (cause) {
      if (!isPathError(cause)) throw cause;
      throw new HoldfastError('sandbox_lost', 'The process cannot be handed to the sandbox', {
        why: 'a process in the sandbox keeps removing or replacing its run directory',
        details: { runDirectory: 'damaged' },
        cause,
      });
    }
  }

  #adopt(
    id: string,
    note: ProcessNote,
    files: TurnFiles | null,
    pipes: PipeCalls,
    waiter: PipeWaiter,
  ): DurableProcess {
    const isThere = (): boolean => files !== null && this.#run.hasProcess(id, files.directory);
    const folder = join(this.#folder, id);
    try {
      const process = new DurableProcess({ id, folder, note, files, isThere, pipes, waiter });
      this.#known.set(id, process);
      return process;
    } catch (error) {
      files?.close();
      throw error;
    }
  }

  #removeEnded(): void {
    const ids = this.list();
    const ended = [...this.#known.values()]
      .filter(({ hasEnded }) => hasEnded)
      .sort((a, b) => a.createdAt - b.createdAt);
    for (const { id } of ended.slice(0, Math.max(0, ids.length - PROCESS_LIMITS.processes + 1))) {
      this.#discard(id);
    }
    if (this.list().length < PROCESS_LIMITS.processes) return;
    throw new HoldfastError('overloaded', 'This session cannot run more processes', {
      why: `${PROCESS_LIMITS.processes} of them run`,
      next: 'end one of them',
    });
  }

  #discard(id: string): void {
    this.#known.get(id)?.close();
    this.#known.delete(id);
    rmSync(join(this.#folder, id), { recursive: true, force: true });
    this.#run.removeProcess(id);
  }
}
