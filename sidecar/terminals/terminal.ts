import { Socket } from 'node:net';
import { HoldfastError } from '../../protocol/errors.ts';
import { TERMINAL_LIMITS, type WindowSize } from '../../protocol/terminals.ts';
import { openForReading, sendLine, writeAvailable } from '../files/fifo.ts';
import type { DirectoryWatcher } from '../turns/directory-watcher.ts';
import type { TurnFiles } from '../turns/turn-files.ts';
import { delay } from '../turns/wait.ts';
import type { TerminalProgress } from '../wire.ts';
import type { Scrollback } from './scrollback.ts';
import { escapeInput, OutputDecoder } from './telnet.ts';

/** Who has not asked for this long does not set the pace any more. */
const READER_MS = 10_000;
/** Without a reader, one piece of output (64 KiB) is taken in this time: a terminal that nobody watches costs little. */
const UNWATCHED_MS = 10;
/** No output for this long after the program's end is the end of its output. */
const QUIET_MS = 60;
/** As long may the beginning of the output, which is there before any program, be on its way on a busy machine. */
const BEGIN_MS = 10_000;
/** How long the exit code may be late when the pty is gone. */
const EXIT_MS = 1500;
/** A window that is being dragged has many sizes; each that is told costs the agent's container a process. */
const SIZE_MS = 50;
const FULL_MS = 20;
/** Bytes of input that wait in memory; what a pipe holds waits besides. */
const MOST_WAITING = 2 ** 20;

export interface TerminalOptions {
  readonly files: TurnFiles;
  readonly watcher: DirectoryWatcher;
  readonly scrollback: Scrollback;
  /** Sends a line to the runner; false when it must be tried again. */
  readonly request: (line: string) => boolean;
  readonly id: string;
}

/** One terminal: takes its output into the scrollback at its readers' pace, and tells how far it is. */
export class Terminal {
  readonly #options: TerminalOptions;
  readonly #decoder: OutputDecoder;
  readonly #stopListening: () => void;
  readonly #waiting = new Set<() => void>();
  #output: Socket | null = null;
  #outputEnded = false;
  #ended = false;
  #exitCode: number | null = null;
  #saidDone = false;
  #wanted: WindowSize | null = null;
  #sizedAt = -Infinity;
  #sizeTimer: NodeJS.Timeout | undefined;
  #timer: NodeJS.Timeout | undefined;
  #lookAgain: NodeJS.Timeout | undefined;
  /** Times of the monotonic clock, ms. */
  #dataAt = performance.now();
  #readAt = -Infinity;
  /** Somebody has read or typed. */
  #usedAt = performance.now();
  #outputEndedAt = 0;
  /** Its program was first seen to be over. */
  #overAt: number | null = null;
  /** The furthest offset that somebody has asked for. */
  #asked = 0;
  #readers = 0;
  #writing: Promise<void> = Promise.resolve();
  #waitingBytes = 0;

  constructor(options: TerminalOptions) {
    this.#options = options;
    this.#decoder = new OutputDecoder(options.scrollback.hasBegun);
    this.#stopListening = options.watcher.listen(() => this.#look());
    this.#look();
  }

  progress(): TerminalProgress {
    const { scrollback, files } = this.#options;
    const state = this.#ended ? 'ended' : files.has('running') ? 'running' : 'starting';
    const silentMs = this.#readers > 0 ? 0 : performance.now() - Math.max(this.#dataAt, this.#usedAt);
    const { start, total } = scrollback;
    return { state, start, total, exitCode: this.#exitCode, idleMs: silentMs };
  }

  /** Waits for its start, or for its end where it has started. */
  async waitForChange(waitMs: number, signal: AbortSignal): Promise<TerminalProgress> {
    const before = this.progress().state;
    const deadline = performance.now() + waitMs;
    for (;;) {
      const progress = this.progress();
      const left = deadline - performance.now();
      if (progress.state !== before || progress.state === 'ended' || left <= 0) return progress;
      await this.#news(left, signal);
    }
  }

  async read(
    { offset, limit, waitMs }: { offset: number; limit: number; waitMs: number },
    signal: AbortSignal,
  ): Promise<{ readonly progress: TerminalProgress & { offset: number }; readonly bytes: Buffer }> {
    const { scrollback } = this.#options;
    const deadline = performance.now() + waitMs;
    this.#asked = Math.max(this.#asked, Math.min(offset, scrollback.total));
    this.#readers += 1;
    try {
      for (;;) {
        this.#pump();
        const left = deadline - performance.now();
        if (scrollback.total > offset || this.#ended || left <= 0) {
          const { offset: from, bytes } = scrollback.read(offset, limit);
          return { progress: { ...this.progress(), offset: from }, bytes };
        }
        await this.#news(left, signal);
      }
    } finally {
      this.#readers -= 1;
      this.#readAt = performance.now();
      this.#usedAt = this.#readAt;
    }
  }

  /** Settles when the terminal has taken all of it, in the order of the calls. Errors: `overloaded`, `invalid_state`. */
  async write(bytes: Uint8Array, signal: AbortSignal): Promise<void> {
    if (this.#waitingBytes + bytes.length > MOST_WAITING) {
      throw new HoldfastError('overloaded', `The terminal ${this.#options.id} does not take so much input`, {
        why: `${MOST_WAITING} bytes wait for its program already`,
        next: 'wait for the answer to what was written before',
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

  /** Takes effect once the terminal has begun, and not while its container is frozen. */
  resize(size: WindowSize): void {
    this.#wanted = size;
    this.#look();
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
        throw new HoldfastError('invalid_state', `The terminal ${id} takes no more input`, {
          why: 'it has ended',
        });
      }
      const sent = writeAvailable(files.directory, 'input', bytes.subarray(at));
      if (sent === 'nobody' || sent === 0) await delay(FULL_MS, signal);
      else at += sent;
    }
  }

  /** Looks at what its directory says now. */
  #look(): void {
    if (this.#ended) return;
    const { files, request, id } = this.#options;
    if (this.#output === null && !this.#outputEnded && files.has('running')) this.#open();
    if (this.#wanted !== null && files.has('pts')) {
      const { columns, rows } = this.#wanted;
      const early = this.#sizedAt + SIZE_MS - performance.now();
      if (early > 0) this.#sizeTimer ??= setTimeout(() => this.#sizeAgain(), early);
      else if (request(`size ${id} ${columns} ${rows}`)) {
        this.#wanted = null;
        this.#sizedAt = performance.now();
      }
    }
    this.#lookForEnd();
    this.#tell();
  }

  #sizeAgain(): void {
    this.#sizeTimer = undefined;
    this.#look();
  }

  #open(): void {
    const fd = openForReading(this.#options.files.directory, 'output');
    if (fd === null) {
      this.#endOutput();
      return;
    }
    const output = new Socket({ fd, readable: true, writable: false });
    this.#output = output;
    output.on('data', (chunk: Buffer) => this.#take(chunk));
    output.on('error', () => output.destroy());
    output.on('close', () => this.#endOutput());
  }

  #endOutput(): void {
    this.#outputEnded = true;
    this.#outputEndedAt = performance.now();
    this.#look();
  }

  #take(chunk: Buffer): void {
    const { scrollback } = this.#options;
    this.#dataAt = performance.now();
    const bytes = this.#decoder.decode(chunk);
    if (this.#decoder.hasBegun) scrollback.begin();
    scrollback.append(bytes);
    this.#pump();
    if (bytes.length > 0) this.#tell();
  }

  /** Takes output, or lets it wait. */
  #pump(): void {
    const output = this.#output;
    if (output === null || this.#outputEnded) return;
    clearTimeout(this.#timer);
    if (this.#isWatched) {
      if (this.#options.scrollback.total - this.#asked < TERMINAL_LIMITS.readAhead) output.resume();
      else {
        output.pause();
        this.#timer = setTimeout(() => this.#pump(), READER_MS).unref();
      }
      return;
    }
    const rest = this.#dataAt + UNWATCHED_MS - performance.now();
    if (rest <= 0) output.resume();
    else {
      output.pause();
      this.#timer = setTimeout(() => this.#pump(), rest);
    }
  }

  get #isWatched(): boolean {
    return this.#readers > 0 || performance.now() - this.#readAt < READER_MS;
  }

  #lookForEnd(): void {
    const { files } = this.#options;
    const exit = files.text('exit');
    const isOver = exit !== null || files.has('code');
    if (isOver) this.#overAt ??= performance.now();
    if (isOver && !this.#outputEnded && !this.#isQuiet(this.#overAt ?? 0)) {
      this.#lookAgain ??= setTimeout(() => {
        this.#lookAgain = undefined;
        this.#look();
      }, QUIET_MS);
      return;
    }
    if (!this.#saidDone && files.has('code')) {
      this.#saidDone = sendLine(files.directory, 'done', '') === 'sent';
    }
    if (exit !== null && /^[0-9]{1,3}\n$/.test(exit)) {
      this.#exitCode = Number(exit);
      this.#end();
    } else if (this.#outputEnded && performance.now() - this.#outputEndedAt > EXIT_MS) {
      this.#end();
    }
  }

  /**
   * Nothing has come for a while, and not because we did not take it; counted from its end on, as what a short program says may come
   * after its exit code.
   */
  #isQuiet(overAt: number): boolean {
    const output = this.#output;
    if (output === null) return true;
    const quietMs = this.#decoder.hasBegun ? QUIET_MS : BEGIN_MS;
    return !output.isPaused() && performance.now() - Math.max(this.#dataAt, overAt) > quietMs;
  }

  #end(): void {
    this.#ended = true;
    this.#stopListening();
    clearTimeout(this.#timer);
    clearTimeout(this.#lookAgain);
    clearTimeout(this.#sizeTimer);
    this.#output?.destroy();
    this.#output = null;
    this.#tell();
  }

  #tell(): void {
    for (const wake of [...this.#waiting]) wake();
  }

  /** Resolves at the next news, or after `ms`; rejects when the signal aborts. */
  async #news(ms: number, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    const { promise, resolve } = Promise.withResolvers<undefined>();
    const wake = (): void => resolve(undefined);
    const timer = setTimeout(wake, ms);
    this.#waiting.add(wake);
    signal.addEventListener('abort', wake, { once: true });
    await promise;
    clearTimeout(timer);
    this.#waiting.delete(wake);
    signal.removeEventListener('abort', wake);
    signal.throwIfAborted();
  }
}
