import { setTimeout as sleep } from 'node:timers/promises';
import { HoldfastError } from '../../protocol/errors.ts';
import type { MethodName, Params } from '../../protocol/methods.ts';
import { TERMINAL_LIMITS, type WindowSize } from '../../protocol/terminals.ts';
import type { SupervisorPeer } from '../../protocol/client/connect.ts';
import type { Context } from '../context.ts';
import type { StartMode } from '../../protocol/client/reconnecting-client.ts';
import { describeFailure } from '../failure.ts';
import { sanitizeLine } from '../render/text.ts';
import { DetachKeyFilter, formatDetachKeys } from './detach-keys.ts';
import type { DetachKeys, FilteredInput } from './detach-keys.ts';
import { OutputSanitizer } from './output-sanitizer.ts';
import { KeySender } from './key-sender.ts';

const LONG_POLL_MS = 30_000;
const RETRY_MS = 500;
/** If nothing follows ESC within this time, it is the Escape key and not the beginning of a sequence. */
const ESCAPE_MS = 50;
/** How long detaching waits until earlier keys have been sent. */
const DETACH_DRAIN_MS = 1000;

/** The size of the terminal window. A terminal without a size reports 0. */
export function windowSize(context: Context): WindowSize {
  const { columns, rows } = context.io.stdout;
  const within = (value: number | undefined, fallback: number): number =>
    value === undefined || value < 1 ? fallback : Math.min(10_000, value);
  return { columns: within(columns, 80), rows: within(rows, 24) };
}

export interface AttachOptions {
  readonly terminal: string;
  /** The keys that detach; null for none. */
  readonly detachKeys: DetachKeys | null;
  /** If something other than its program ended the terminal, wait for a key. For windows that close with the process. */
  readonly hold?: boolean;
}

/**
 * Attaches the terminal of this process to a terminal in a sandbox until that ends, and returns its exit code. The
 * terminal in the sandbox keeps running when this process ends. When the supervisor stops, this process waits for the
 * next one, until ^C or the detach keys.
 */
export async function attach(context: Context, options: AttachOptions): Promise<number> {
  const attached = new AttachedTerminal(context, options);
  try {
    return await attached.run();
  } finally {
    attached.close();
  }
}

class AttachedTerminal {
  readonly #context: Context;
  readonly #terminal: string;
  readonly #detachKeys: DetachKeys | null;
  readonly #typed: DetachKeyFilter;
  readonly #keys: KeySender;
  readonly #hold: boolean;
  readonly #output = new OutputSanitizer();
  readonly #endings: (() => void)[] = [];
  readonly #detached = new AbortController();
  readonly #failed = Promise.withResolvers<never>();
  readonly #detaching = Promise.withResolvers<null>();
  readonly #key = Promise.withResolvers<null>();
  #escapeTimer: NodeJS.Timeout | undefined;
  #isOver = false;
  #isReading = false;
  #isAway = false;
  /** The window title says that the supervisor is away. */
  #hasAwayTitle = false;
  /** The program may have changed terminal modes that have not been restored. */
  #hasShown = false;
  #start: StartMode = 'auto';
  /** Why the terminal ended, if its program did not exit by itself. */
  #why: string | null = null;

  constructor(context: Context, { terminal, detachKeys, hold = false }: AttachOptions) {
    this.#context = context;
    this.#terminal = terminal;
    this.#hold = hold;
    this.#detachKeys = detachKeys;
    this.#typed = new DetachKeyFilter(detachKeys);
    this.#keys = new KeySender({
      chunkBytes: TERMINAL_LIMITS.chunk,
      send: (bytes) => this.#send('terminal/write', { terminal: this.#terminal }, bytes),
    });
    this.#failed.promise.catch(() => undefined);
  }

  async run(): Promise<number> {
    try {
      const exitCode = await this.#runToEnd();
      if (this.#why !== null) await this.#untilKey();
      return exitCode;
    } catch (error) {
      await this.#restoreScreen('\r\n');
      if (this.#hold) await this.#context.printNote(describeFailure(error).line);
      await this.#untilKey();
      throw error;
    }
  }

  async #untilKey(): Promise<void> {
    if (!this.#hold || this.#detached.signal.aborted) return;
    this.#isOver = true;
    if (!this.#isReading) void this.#forwardKeys();
    await this.#context.printHint('Press any key to close');
    await Promise.race([this.#key.promise, this.#detaching.promise]);
  }

  async #runToEnd(): Promise<number> {
    const context = this.#context;
    const { start, total } = await context.call(
      'terminal/attach',
      { terminal: this.#terminal },
      { stage: 'Attaching to the terminal' },
    );
    const { stdin } = context.io;
    if (this.#detachKeys !== null && context.stdout.isTTY) {
      // Print this before the program's output, which it would disturb later.
      await context.printHint(`${formatDetachKeys(this.#detachKeys)} detaches; the terminal keeps running`);
    }
    this.#endings.push(context.handleInterrupts(() => this.#detach()));
    if (stdin.isTTY === true) {
      stdin.setRawMode?.(true);
      this.#endings.push(() => stdin.setRawMode?.(false));
    }
    if (context.stdout.isTTY) {
      this.#endings.push(context.io.onSignal('SIGWINCH', () => this.#resize()));
      this.#resize();
    }
    void this.#forwardKeys();
    const exitCode = await Promise.race([
      this.#show(start, total),
      this.#failed.promise,
      this.#detaching.promise,
    ]);
    if (this.#detached.signal.aborted) {
      await this.#restoreScreen('\r\n');
      await context.printHint(`Detached. Attach again with \`holdfast terminal attach ${this.#terminal}\``);
      return 0;
    }
    // The text that follows needs its own line.
    await this.#restoreScreen(this.#why === null && exitCode !== null ? '' : '\r\n');
    if (this.#why !== null) await context.printHint(`The terminal was ended: ${sanitizeLine(this.#why)}`);
    if (exitCode !== null) return exitCode;
    throw new HoldfastError('sandbox_lost', 'The terminal was lost', { why: 'its sandbox was lost' });
  }

  close(): void {
    this.#detached.abort();
    clearTimeout(this.#escapeTimer);
    for (const ending of this.#endings.splice(0).reverse()) ending();
  }

  /** Prints output until the terminal ends and returns its exit code, or until the user detaches. */
  async #show(start: number, shownBefore: number): Promise<number | null> {
    let offset = start;
    // The scrollback may begin in the middle of a line.
    let inCutLine = start > 0;
    while (!this.#detached.signal.aborted) {
      const answer = await this.#read(offset);
      if (answer === null) continue;
      const { result, bytes } = answer;
      offset = result.offset;
      let piece = bytes;
      if (inCutLine) {
        const end = piece.indexOf('\n');
        inCutLine = end === -1 && offset + piece.length < shownBefore;
        piece = end === -1 ? piece.subarray(piece.length) : piece.subarray(end + 1);
      }
      this.#hasShown ||= piece.length > 0;
      await this.#context.stdout.write(this.#output.sanitize(piece, offset < shownBefore));
      offset += bytes.length;
      this.#why = result.why;
      if (result.ended && bytes.length === 0) return result.exitCode;
    }
    return null;
  }

  /** Null if nothing could be read now, or the user has detached. */
  async #read(offset: number): Promise<{
    result: { offset: number; ended: boolean; exitCode: number | null; why: string | null };
    bytes: Buffer;
  } | null> {
    const peer = await this.#peer();
    if (peer === null) return null;
    // After reconnecting, send pending keys before waiting for output.
    const waitMs = this.#isAway ? 0 : LONG_POLL_MS;
    try {
      const answer = await peer.callWithBytes(
        'terminal/read',
        { terminal: this.#terminal, offset, limit: TERMINAL_LIMITS.chunk, waitMs },
        { signal: this.#detached.signal },
      );
      if (this.#isAway) await this.#reportBack();
      return answer;
    } catch (error) {
      if (this.#detached.signal.aborted) return null;
      if (!isAway(error)) throw error;
      if (peer.isClosed) {
        const reason = await peer.closed;
        // It was stopped deliberately: do not start it again.
        if (reason?.code === 'shutting_down') this.#start = 'never';
      }
      await this.#waitForRetry();
      return null;
    }
  }

  /** The current connection; null if there is none. */
  async #peer(): Promise<SupervisorPeer | null> {
    try {
      return await this.#context.client(this.#start).peer();
    } catch {
      // Whatever the error, the next supervisor may be there soon.
      if (!this.#detached.signal.aborted) await this.#waitForRetry();
      return null;
    }
  }

  async #waitForRetry(): Promise<void> {
    if (!this.#isAway) {
      this.#isAway = true;
      this.#keys.pause();
      await this.#reportAway();
    }
    await sleep(RETRY_MS, undefined, { signal: this.#detached.signal }).catch(() => undefined);
  }

  /** Reports in the window title if the program uses the full screen, because a line of text would disturb it. */
  async #reportAway(): Promise<void> {
    const how = this.#detachKeys === null ? '^C' : `^C or ${formatDetachKeys(this.#detachKeys)}`;
    const { host } = this.#context;
    const what =
      host === null
        ? 'The supervisor is not running; waiting for it to start'
        : `There is no connection to ${host}; waiting for it`;
    const text = `${what} (${how} detaches)`;
    if (!this.#context.stdout.isTTY || !this.#output.modes.isFullScreen) {
      await this.#context.printHint(`\r\n${text}\r`);
      return;
    }
    this.#hasAwayTitle = true;
    await this.#context.stdout.write(titled(text));
  }

  async #reportBack(): Promise<void> {
    this.#isAway = false;
    if (this.#hasAwayTitle) {
      this.#hasAwayTitle = false;
      await this.#context.stdout.write(titled(this.#output.modes.title ?? ''));
    }
    this.#resize();
    this.#keys.resume();
  }

  /** Resets the terminal modes that the program has changed, before other output is printed. */
  async #restoreScreen(after: string): Promise<void> {
    if (!this.#hasShown || !this.#context.stdout.isTTY) return;
    this.#hasShown = false;
    const title = this.#hasAwayTitle ? titled(this.#output.modes.title ?? '') : '';
    this.#hasAwayTitle = false;
    await this.#context.stdout.write(`${this.#output.modes.restoreSequence()}${title}${after}`);
  }

  async #forwardKeys(): Promise<void> {
    const { stdin } = this.#context.io;
    this.#isReading = true;
    this.#endings.push(() => stdin.pause());
    try {
      for await (const chunk of stdin as AsyncIterable<string | Buffer>) {
        clearTimeout(this.#escapeTimer);
        const bytes = typeof chunk === 'string' ? Buffer.from(chunk, 'utf8') : chunk;
        if (await this.#take(this.#typed.filter(bytes))) return;
        if (this.#typed.isAmbiguous) this.#escapeTimer = setTimeout(() => this.#flushEscape(), ESCAPE_MS);
      }
    } catch (error) {
      this.#failed.reject(error);
    } finally {
      // Without input there is no key to wait for.
      this.#key.resolve(null);
    }
  }

  #flushEscape(): void {
    this.#take(this.#typed.flush()).then(
      (isDone) => {
        if (isDone) this.#key.resolve(null);
      },
      (error: unknown) => this.#failed.reject(error),
    );
  }

  /** Sends what was typed. Returns whether reading input can end. */
  async #take({ forwarded, detaches, interrupts, isUserInput }: FilteredInput): Promise<boolean> {
    if (this.#detached.signal.aborted) return true;
    // The terminal has ended: any key that the user typed closes it. Reports of the terminal itself do not.
    if (this.#isOver) return isUserInput;
    if (this.#isAway && interrupts) this.#detach();
    else await this.#keys.add(forwarded);
    if (detaches) {
      const late = new AbortController();
      await Promise.race([
        this.#keys.waitUntilSent(),
        sleep(DETACH_DRAIN_MS, undefined, { signal: late.signal }).catch(() => undefined),
      ]);
      late.abort();
      this.#detach();
    }
    return this.#detached.signal.aborted;
  }

  #resize(): void {
    void this.#send('terminal/resize', { terminal: this.#terminal, ...windowSize(this.#context) });
  }

  /** Calls a method. Ignores the error if the terminal has ended or the supervisor is away: reading the output shows that. */
  async #send<M extends MethodName>(method: M, params: Params<M>, bytes?: Uint8Array): Promise<void> {
    if (this.#isAway || this.#hasDetached()) return;
    try {
      const peer = await this.#context.client(this.#start).peer();
      const signal = this.#detached.signal;
      await peer.call(method, params, bytes === undefined ? { signal } : { bytes, signal });
    } catch (error) {
      const late =
        isAway(error) ||
        (error instanceof HoldfastError &&
          ['not_found', 'invalid_state', 'interrupted', 'cancelled', 'sandbox_lost'].includes(error.code));
      if (!late && !this.#hasDetached()) this.#failed.reject(error);
    }
  }

  #hasDetached(): boolean {
    return this.#detached.signal.aborted;
  }

  #detach(): void {
    this.#detached.abort();
    this.#detaching.resolve(null);
  }
}

/** The escape sequence that sets the window title. */
function titled(text: string): string {
  return `\x1b]2;${text}\x07`;
}

/** Whether the supervisor, or the engine that it needs, is currently unavailable. */
function isAway(error: unknown): boolean {
  return (
    error instanceof HoldfastError &&
    ['connection_closed', 'shutting_down', 'engine_unavailable', 'timeout', 'overloaded'].includes(error.code)
  );
}
