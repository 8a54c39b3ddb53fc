import { Socket } from 'node:net';
import { HoldfastError } from '../../protocol/errors.ts';
import { TERMINAL_LIMITS, type WindowSize } from '../../protocol/terminals.ts';
import { openForReading, sendLine, writeAvailable } from '../files/fifo.ts';
import type { DirectoryWatcher } from '../turns/directory-watcher.ts';
import type { TurnFiles } from '../turns/turn-files.ts';
import { Waiters } from '../turns/wait.ts';
import { delay } from '../turns/wait.ts';
import type { TerminalProgress } from '../wire.ts';
import type { Scrollback } from './scrollback.ts';
import { escapeInput, OutputDecoder } from './telnet.ts';

/** A reader that has not asked for this long no longer sets the pace. */
const READER_MS = 10_000;
/** Without a reader, one chunk of output (64 KiB) is read in this time, so an unwatched terminal costs little. */
const UNWATCHED_MS = 10;
/** The output is complete if none came for this long after the program's end. */
const OUTPUT_END_MS = 60;
/** The start marker precedes any program's output, but may take this long on a busy machine. */
const OUTPUT_START_MS = 10_000;
/** How late the exit code may be after the pty is gone. */
const EXIT_MS = 1500;
/**
 * At most one resize in this time: dragging a window sends many, and each one starts a process in the agent's
 * container.
 */
const SIZE_MS = 50;
const INPUT_RETRY_MS = 20;
/** Limit of input waiting in memory, beyond what the pipe holds. */
const MAX_WAITING = 2 ** 20;

export interface TerminalOptions {
  readonly files: TurnFiles;
  readonly watcher: DirectoryWatcher;
  readonly scrollback: Scrollback;
  /** Sends a line to the runner. False if it must be sent again. */
  readonly request: (line: string) => boolean;
  readonly id: string;
}

/** One terminal: reads its output into the scrollback at the pace of its readers, and reports its progress. */
export class Terminal {
  readonly #options: TerminalOptions;
  readonly #decoder: OutputDecoder;
  readonly #stopListening: () => void;
  readonly #waiters = new Waiters();
  #output: Socket | null = null;
  #outputEnded = false;
  #ended = false;
  #exitCode: number | null = null;
  #sentDone = false;
  #requestedSize: WindowSize | null = null;
  #sizedAt = -Infinity;
  #sizeTimer: NodeJS.Timeout | undefined;
  #timer: NodeJS.Timeout | undefined;
  #updateTimer: NodeJS.Timeout | undefined;
  /** Monotonic clock, ms. */
  #dataAt = performance.now();
  #readAt = -Infinity;
  /** Time of the last read or input. */
  #usedAt = performance.now();
  #outputEndedAt = 0;
  /** When the program's end was first seen. */
  #programEndedAt: number | null = null;
  /** The largest offset that a reader has asked for. */
  #requestedOffset = 0;
  #readers = 0;
  #writing: Promise<void> = Promise.resolve();
  #waitingBytes = 0;

  constructor(options: TerminalOptions) {
    this.#options = options;
    this.#decoder = new OutputDecoder(options.scrollback.hasBegun);
    this.#stopListening = options.watcher.listen(() => this.#update());
    this.#update();
  }

  progress(): TerminalProgress {
    const { scrollback, files } = this.#options;
    const state = this.#ended ? 'ended' : files.has('running') ? 'running' : 'starting';
    const silentMs = this.#readers > 0 ? 0 : performance.now() - Math.max(this.#dataAt, this.#usedAt);
    const { start, total } = scrollback;
    return { state, start, total, exitCode: this.#exitCode, idleMs: silentMs };
  }

  /** Waits for the start, or for the end if the terminal has started. */
  async waitForChange(waitMs: number, signal: AbortSignal): Promise<TerminalProgress> {
    const before = this.progress().state;
    const deadline = performance.now() + waitMs;
    for (;;) {
      const progress = this.progress();
      const left = deadline - performance.now();
      if (progress.state !== before || progress.state === 'ended' || left <= 0) return progress;
      await this.#waiters.nextChange(left, signal);
    }
  }

  async read(
    { offset, limit, waitMs }: { offset: number; limit: number; waitMs: number },
    signal: AbortSignal,
  ): Promise<{ readonly progress: TerminalProgress & { offset: number }; readonly bytes: Buffer }> {
    const { scrollback } = this.#options;
    const deadline = performance.now() + waitMs;
    this.#requestedOffset = Math.max(this.#requestedOffset, Math.min(offset, scrollback.total));
    this.#readers += 1;
    try {
      for (;;) {
        this.#pauseOrResume();
        const left = deadline - performance.now();
        if (scrollback.total > offset || this.#ended || left <= 0) {
          const { offset: from, bytes } = scrollback.read(offset, limit);
          return { progress: { ...this.progress(), offset: from }, bytes };
        }
        await this.#waiters.nextChange(left, signal);
      }
    } finally {
      this.#readers -= 1;
      this.#readAt = performance.now();
      this.#usedAt = this.#readAt;
    }
  }

  /**
   * Resolves after the terminal has accepted all bytes, in the order of the calls. Errors: `overloaded`,
   * `invalid_state`.
   */
  async write(bytes: Uint8Array, signal: AbortSignal): Promise<void> {
    if (this.#waitingBytes + bytes.length > MAX_WAITING) {
      throw new HoldfastError('overloaded', `The terminal ${this.#options.id} cannot take this much input`, {
        why: `${MAX_WAITING} bytes already wait for its program`,
        next: 'wait until the program has read the earlier input',
      });
    }
    this.#usedAt = performance.now();
    const keys = escapeInput(bytes);
    const writing = this.#writing.then(() => this.#write(keys, signal));
    this.#writing = writing.catch(() => undefined);
    this.#waitingBytes += bytes.length;
    try {
      await writing;
    } finally {
      this.#waitingBytes -= bytes.length;
    }
  }

  /** Takes effect once the terminal runs, and not while its container is paused. */
  resize(size: WindowSize): void {
    this.#requestedSize = size;
    this.#update();
  }

  close(): void {
    this.#end();
    this.#options.watcher.close();
    this.#options.files.close();
    this.#options.scrollback.close();
  }

  async #write(bytes: Buffer, signal: AbortSignal): Promise<void> {
    const { files, id } = this.#options;
    for (let at = 0; at < bytes.length;) {
      signal.throwIfAborted();
      if (this.#ended) {
        throw new HoldfastError('invalid_state', `The terminal ${id} cannot take input`, {
          why: 'it has ended',
        });
      }
      const sent = writeAvailable(files.directory, 'input', bytes.subarray(at));
      if (sent === 'nobody' || sent === 0) await delay(INPUT_RETRY_MS, signal);
      else at += sent;
    }
  }

  /** Reads the terminal's directory and reacts to changes. */
  #update(): void {
    if (this.#ended) return;
    const { files, request, id } = this.#options;
    if (this.#output === null && !this.#outputEnded && files.has('running')) this.#open();
    if (this.#requestedSize !== null && files.has('pts')) {
      const { columns, rows } = this.#requestedSize;
      const early = this.#sizedAt + SIZE_MS - performance.now();
      if (early > 0) this.#sizeTimer ??= setTimeout(() => this.#resizeAgain(), early);
      else if (request(`size ${id} ${columns} ${rows}`)) {
        this.#requestedSize = null;
        this.#sizedAt = performance.now();
      }
    }
    this.#checkForEnd();
    this.#waiters.notify();
  }

  #resizeAgain(): void {
    this.#sizeTimer = undefined;
    this.#update();
  }

  #open(): void {
    const fd = openForReading(this.#options.files.directory, 'output');
    if (fd === null) {
      this.#endOutput();
      return;
    }
    const output = new Socket({ fd, readable: true, writable: false });
    this.#output = output;
    output.on('data', (chunk: Buffer) => this.#onOutput(chunk));
    output.on('error', () => output.destroy());
    output.on('close', () => this.#endOutput());
  }

  #endOutput(): void {
    this.#outputEnded = true;
    this.#outputEndedAt = performance.now();
    this.#update();
  }

  #onOutput(chunk: Buffer): void {
    const { scrollback } = this.#options;
    this.#dataAt = performance.now();
    const bytes = this.#decoder.decode(chunk);
    if (this.#decoder.hasBegun) scrollback.begin();
    scrollback.append(bytes);
    this.#pauseOrResume();
    if (bytes.length > 0) this.#waiters.notify();
  }

  /** Resumes or pauses reading, depending on the readers. */
  #pauseOrResume(): void {
    const output = this.#output;
    if (output === null || this.#outputEnded) return;
    clearTimeout(this.#timer);
    if (this.#isWatched) {
      if (this.#options.scrollback.total - this.#requestedOffset < TERMINAL_LIMITS.readAhead) output.resume();
      else {
        output.pause();
        this.#timer = setTimeout(() => this.#pauseOrResume(), READER_MS).unref();
      }
      return;
    }
    const rest = this.#dataAt + UNWATCHED_MS - performance.now();
    if (rest <= 0) output.resume();
    else {
      output.pause();
      this.#timer = setTimeout(() => this.#pauseOrResume(), rest);
    }
  }

  get #isWatched(): boolean {
    return this.#readers > 0 || performance.now() - this.#readAt < READER_MS;
  }

  #checkForEnd(): void {
    const { files } = this.#options;
    const exit = files.text('exit');
    const isOver = exit !== null || files.has('code');
    if (isOver) this.#programEndedAt ??= performance.now();
    if (isOver && !this.#outputEnded && !this.#isOutputComplete(this.#programEndedAt ?? 0)) {
      this.#updateTimer ??= setTimeout(() => {
        this.#updateTimer = undefined;
        this.#update();
      }, OUTPUT_END_MS);
      return;
    }
    if (!this.#sentDone && files.has('code')) {
      this.#sentDone = sendLine(files.directory, 'done', '') === 'sent';
    }
    if (exit !== null && /^[0-9]{1,3}\n$/.test(exit)) {
      this.#exitCode = Number(exit);
      this.#end();
    } else if (this.#outputEnded && performance.now() - this.#outputEndedAt > EXIT_MS) {
      this.#end();
    }
  }

  /**
   * No output came for a while although we were reading. Counts from the program's end, because a short program's
   * output may arrive after its exit code.
   */
  #isOutputComplete(overAt: number): boolean {
    const output = this.#output;
    if (output === null) return true;
    const endMs = this.#decoder.hasBegun ? OUTPUT_END_MS : OUTPUT_START_MS;
    return !output.isPaused() && performance.now() - Math.max(this.#dataAt, overAt) > endMs;
  }

  #end(): void {
    this.#ended = true;
    this.#stopListening();
    clearTimeout(this.#timer);
    clearTimeout(this.#updateTimer);
    clearTimeout(this.#sizeTimer);
    this.#output?.destroy();
    this.#output = null;
    this.#waiters.notify();
  }
}
