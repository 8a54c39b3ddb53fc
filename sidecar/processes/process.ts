import { closeSync } from 'node:fs';
import { join } from 'node:path';
import { HoldfastError } from '../../protocol/errors.ts';
import { isFullDisk } from '../files/full-disk.ts';
import { hasReader, openForReading, sendLine } from '../files/fifo.ts';
import { DirectoryWatcher } from '../turns/directory-watcher.ts';
import type { TurnFiles } from '../turns/turn-files.ts';
import { Waiters } from '../turns/wait.ts';
import { PROCESS_LIMITS, type ProcessProgress } from '../wire.ts';
import { OutputSegments } from './output-segments.ts';
import type { PipeCalls, PipeWaiter } from './pipes.ts';
import { ProcessInput } from './process-input.ts';
import type { ProcessNote } from './process-note.ts';

export const STREAMS = ['stdout', 'stderr'] as const;
export type ProcessStream = (typeof STREAMS)[number];

/** How long its exit code may be missing after its keeper is gone, or be hidden by another file. */
const EXIT_MS = 1500;
const FULL_DISK_MS = 1000;
/** Moved at a time, so that one process does not keep the others waiting. */
const TURN_BYTES = 4 * 2 ** 20;
const EXIT = /^([0-9]{1,3})\n\s*$/;

interface Output {
  readonly segments: OutputSegments;
  /** Null before the program runs, and when all of its output was read. */
  fifo: number | null;
  isComplete: boolean;
}

export interface ProcessOptions {
  readonly id: string;
  /** Of the control directory: the note and the output. */
  readonly folder: string;
  readonly note: ProcessNote;
  /** Null if the process has ended, or if the agent removed its directory. */
  readonly files: TurnFiles | null;
  /** Whether its name in the run directory still leads to `files`. */
  readonly isThere: () => boolean;
  readonly pipes: PipeCalls;
  readonly waiter: PipeWaiter;
}

/** One durable process: moves its output into segments, hands its input over, and reports its progress. */
export class DurableProcess {
  readonly id: string;
  readonly #options: ProcessOptions;
  readonly #outputs: Record<ProcessStream, Output>;
  readonly #input: ProcessInput | null;
  readonly #watcher: DirectoryWatcher | null = null;
  readonly #waiters = new Waiters();
  readonly #timers = new Set<NodeJS.Timeout>();
  /** Since when the end cannot be read (monotonic clock, ms). */
  #missingSince: number | null = null;
  #damage: string | null = null;
  /** It was killed with its keeper, and its end is still to be noted. */
  #isLost = false;
  #retry: NodeJS.Timeout | null = null;
  #isClosed = false;

  constructor(options: ProcessOptions) {
    const { id, folder, note, files } = options;
    this.id = id;
    this.#options = options;
    const [stdout, stderr] = openOutputs(folder);
    this.#outputs = { stdout, stderr };
    this.#input = files === null ? null : new ProcessInput(files, note);
    if (note.value.ended !== null) return;
    if (files !== null) {
      this.#watcher = new DirectoryWatcher(files.directory, () => undefined);
      this.#watcher.listen(() => this.#update());
    }
    this.#update();
  }

  get createdAt(): number {
    return this.#options.note.value.createdAt;
  }

  get hasEnded(): boolean {
    return this.#options.note.value.ended !== null;
  }

  progress(): ProcessProgress {
    const { ended, accepted } = this.#options.note.value;
    const range = ({ segments }: Output): { start: number; end: number } => ({
      start: segments.start,
      end: segments.end,
    });
    return {
      state: ended !== null ? 'ended' : this.#isRunning ? 'running' : 'starting',
      exitCode: ended?.exitCode ?? null,
      stdout: range(this.#outputs.stdout),
      stderr: range(this.#outputs.stderr),
      inputAccepted: accepted,
      damage: ended === null ? this.#damage : ended.damage,
    };
  }

  /** See `process/read`. */
  async read(
    stream: ProcessStream,
    { offset, limit, waitMs }: { offset: number; limit: number; waitMs: number },
    signal: AbortSignal,
  ): Promise<{ progress: ProcessProgress; offset: number; bytes: Buffer }> {
    const { segments } = this.#outputs[stream];
    const deadline = performance.now() + waitMs;
    // What has come since is read now, and not when the thread that waits for it has had its turn.
    this.#pump(stream);
    for (;;) {
      const left = deadline - performance.now();
      if (segments.end > offset || this.hasEnded || this.#damage !== null || this.#isClosed || left <= 0) {
        return { progress: this.progress(), ...segments.read(offset, limit) };
      }
      await this.#waiters.nextChange(left, signal);
    }
  }

  acknowledge(stream: ProcessStream, offset: number): void {
    const output = this.#outputs[stream];
    output.segments.acknowledge(offset);
    this.#pump(stream);
  }

  /** See `process/write`. Errors: `invalid_state` once it has ended, and those of `ProcessInput.write`. */
  write(offset: number, bytes: Buffer): { accepted: number; undecided: boolean } {
    const { accepted } = this.#options.note.value;
    if (offset + bytes.length <= accepted && this.hasEnded) return { accepted, undecided: false };
    if (this.hasEnded || this.#input === null) {
      throw new HoldfastError('invalid_state', `The process ${this.id} cannot take input`, {
        why: 'it has ended',
      });
    }
    return this.#input.write(offset, bytes);
  }

  closeInput(): void {
    if (!this.hasEnded) this.#input?.close();
  }

  /** After everything in the agent container was killed: without its keeper it has ended, and nobody has to wait for that. */
  endIfLost(): void {
    const { files } = this.#options;
    this.#update();
    if (this.hasEnded || files === null || !this.#isRunning || hasReader(files.directory, 'done')) return;
    this.#isLost = true;
    this.#update();
  }

  /** Resolves when it has ended, or after `ms`. */
  async waitForEnd(ms: number, signal: AbortSignal): Promise<void> {
    const deadline = performance.now() + ms;
    while (!this.hasEnded && !this.#isClosed && performance.now() < deadline) {
      await this.#waiters.nextChange(deadline - performance.now(), signal);
    }
  }

  /** Stops serving the process, which goes on. */
  close(): void {
    this.#isClosed = true;
    this.#release();
    for (const stream of STREAMS) this.#outputs[stream].segments.close();
    this.#options.files?.close();
    this.#waiters.notify();
  }

  get #isRunning(): boolean {
    return this.#options.files?.has('running') ?? false;
  }

  /** Reads the directory of the process and reacts to changes. On a full disk it does so again: nothing is noted by halves. */
  #update(): void {
    if (this.hasEnded || this.#isClosed) return;
    try {
      this.#react();
    } catch (error) {
      if (!isFullDisk(error)) throw error;
      if (this.#retry !== null) return;
      this.#retry = this.#later(() => {
        this.#retry = null;
        this.#update();
      }, FULL_DISK_MS);
    }
  }

  #react(): void {
    const { files } = this.#options;
    if (files === null) {
      this.#end(null, 'the directory of the process was removed');
      return;
    }
    const exit = EXIT.exec(files.text('exit') ?? '')?.[1];
    if (this.#isRunning) {
      for (const stream of STREAMS) this.#open(stream, files);
      this.#input?.update();
    }
    for (const stream of STREAMS) this.#pump(stream);
    if (exit !== undefined) {
      // Everything that the program wrote was in the pipe when its exit code was published.
      if (!this.#isRunning || STREAMS.every((stream) => this.#isDrained(stream))) {
        this.#end(Number(exit), null);
        sendLine(files.directory, 'done', '');
      }
      return;
    }
    if (this.#isLost) this.#end(null, this.#damage);
    else this.#checkForLoss(files);
    this.#waiters.notify();
  }

  #checkForLoss(files: TurnFiles): void {
    const isGone = !this.#options.isThere();
    const isObstructed = files.has('exit');
    const isKept = !this.#isRunning || hasReader(files.directory, 'done');
    if (isKept && !isGone && !isObstructed) {
      this.#missingSince = null;
      this.#damage = null;
      return;
    }
    this.#missingSince ??= performance.now();
    if (performance.now() - this.#missingSince < EXIT_MS) return;
    if (isObstructed) this.#damage = 'another file has the name `exit` in the directory of the process';
    else if (isGone) this.#damage = 'the directory of the process was removed';
    // Without its keeper nobody publishes the exit code, and what it printed last is lost with its pipes.
    if (!isKept) this.#end(null, this.#damage);
  }

  #open(stream: ProcessStream, files: TurnFiles): void {
    const output = this.#outputs[stream];
    if (output.fifo !== null || output.isComplete) return;
    const fifo = openForReading(files.directory, stream);
    if (fifo === null) {
      output.isComplete = true;
      return;
    }
    output.fifo = fifo;
    this.#options.waiter.add(fifo, () => {
      this.#pump(stream);
      if (files.has('exit')) this.#update();
    });
  }

  /** Moves what the pipe has, as far as the limit of unacknowledged bytes allows. */
  #pump(stream: ProcessStream): void {
    const output = this.#outputs[stream];
    const { segments, fifo } = output;
    if (fifo === null || this.#isClosed) return;
    let moved = 0;
    for (;;) {
      const room = PROCESS_LIMITS.unacknowledged - (segments.end - segments.start);
      if (room <= 0) break;
      if (moved >= TURN_BYTES) {
        setImmediate(() => this.#pump(stream));
        break;
      }
      const step = this.#move(output, fifo, room);
      if (typeof step === 'number') {
        moved += step;
        continue;
      }
      if (step === 'empty') this.#options.waiter.arm(fifo);
      else if (step === 'full') this.#later(() => this.#pump(stream), FULL_DISK_MS);
      break;
    }
    if (moved > 0) this.#waiters.notify();
  }

  /** `closed`: no process has the pipe open for writing, so its keeper is gone. */
  #move({ segments }: Output, fifo: number, room: number): number | 'empty' | 'closed' | 'full' {
    try {
      const step = segments.append(room, (file, at, bytes) =>
        this.#options.pipes.move(fifo, file, at, bytes),
      );
      return step === 0 ? 'closed' : step;
    } catch (error) {
      if (isFullDisk(error)) return 'full';
      throw error;
    }
  }

  /** Whether nothing is left in the pipe. Called after the program has ended. */
  #isDrained(stream: ProcessStream): boolean {
    const output = this.#outputs[stream];
    if (output.fifo === null) return output.isComplete;
    const { segments } = output;
    if (segments.end - segments.start >= PROCESS_LIMITS.unacknowledged) return false;
    const step = this.#move(output, output.fifo, 1);
    return step === 'empty' || step === 'closed';
  }

  #end(exitCode: number | null, damage: string | null): void {
    this.#options.note.change({ ended: { exitCode, damage }, waiting: [] });
    this.#release();
    this.#waiters.notify();
  }

  #release(): void {
    this.#watcher?.close();
    for (const timer of this.#timers) clearTimeout(timer);
    for (const stream of STREAMS) {
      const output = this.#outputs[stream];
      output.isComplete = true;
      if (output.fifo === null) continue;
      this.#options.waiter.remove(output.fifo);
      closeSync(output.fifo);
      output.fifo = null;
    }
  }

  #later(act: () => void, ms: number): NodeJS.Timeout {
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      act();
    }, ms);
    this.#timers.add(timer);
    return timer;
  }
}

/** Both, or none of them stays open. */
function openOutputs(folder: string): [Output, Output] {
  const open = (stream: ProcessStream): Output => ({
    segments: OutputSegments.open(join(folder, stream)),
    fifo: null,
    isComplete: false,
  });
  const stdout = open('stdout');
  try {
    return [stdout, open('stderr')];
  } catch (error) {
    stdout.segments.close();
    throw error;
  }
}
