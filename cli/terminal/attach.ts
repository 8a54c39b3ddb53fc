import { setTimeout as sleep } from 'node:timers/promises';
import { HoldfastError } from '../../protocol/errors.ts';
import type { MethodName, Params } from '../../protocol/methods.ts';
import { TERMINAL_LIMITS, type WindowSize } from '../../protocol/terminals.ts';
import type { SupervisorPeer } from '../../protocol/client/connect.ts';
import type { Context } from '../context.ts';
import type { StartMode } from '../reconnecting-client.ts';
import { describeFailure } from '../failure.ts';
import { sanitizeLine } from '../render/text.ts';
import { DetachKeyFilter, formatDetachKeys } from './detach-keys.ts';
import type { DetachKeys, FilteredInput } from './detach-keys.ts';
import { OutputSanitizer } from './output-sanitizer.ts';
import { KeySender } from './key-sender.ts';

const WAIT_MS = 30_000;
const RETRY_MS = 500;
/** Escape alone, and the beginning of what a terminal sends for another key, differ by what comes in this time. */
const ESCAPE_MS = 50;
/** Keys that were typed before somebody leaves have this time to be taken. */
const LAST_KEYS_MS = 1000;

/** A window's size; a terminal that nobody has given one says 0. */
export function windowSize(context: Context): WindowSize {
  const { columns, rows } = context.io.stdout;
  const within = (value: number | undefined, fallback: number): number =>
    value === undefined || value < 1 ? fallback : Math.min(10_000, value);
  return { columns: within(columns, 80), rows: within(rows, 24) };
}

export interface AttachOptions {
  readonly terminal: string;
  /** The keys that leave it; null for none. */
  readonly detachKeys: DetachKeys | null;
  /** Stays until a key is pressed where it was not the program that ended it: for windows that close with their process. */
  readonly hold?: boolean;
}

/**
 * Joins this process's terminal to one in a sandbox until that ends, and returns its exit code. The terminal goes on when this process ends. When
 * the supervisor ends, this process waits for the next one, until ^C or the keys that leave.
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
  readonly #left = new AbortController();
  readonly #failed = Promise.withResolvers<never>();
  readonly #leaving = Promise.withResolvers<null>();
  readonly #key = Promise.withResolvers<null>();
  #escapeTimer: NodeJS.Timeout | undefined;
  #isOver = false;
  #isReading = false;
  #isAway = false;
  /** The title says that the supervisor is away. */
  #hasAwayTitle = false;
  /** Something was shown that has not been restored. */
  #hasShown = false;
  #start: StartMode = 'auto';
  /** Who ended it, where its program did not. */
  #why: string | null = null;

  constructor(context: Context, { terminal, detachKeys, hold = false }: AttachOptions) {
    this.#context = context;
    this.#terminal = terminal;
    this.#hold = hold;
    this.#detachKeys = detachKeys;
    this.#typed = new DetachKeyFilter(detachKeys);
    this.#keys = new KeySender({
      pieceBytes: TERMINAL_LIMITS.chunk,
      send: (bytes) => this.#tell('terminal/write', { terminal: this.#terminal }, bytes),
    });
    this.#failed.promise.catch(() => undefined);
  }

  async run(): Promise<number> {
    try {
      const exitCode = await this.#toItsEnd();
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
    if (!this.#hold || this.#left.signal.aborted) return;
    this.#isOver = true;
    if (!this.#isReading) void this.#forwardKeys();
    await this.#context.printHint('Press a key to close it');
    await Promise.race([this.#key.promise, this.#leaving.promise]);
  }

  async #toItsEnd(): Promise<number> {
    const context = this.#context;
    const { start, total } = await context.call(
      'terminal/attach',
      { terminal: this.#terminal },
      { stage: 'Joining the terminal' },
    );
    const { stdin } = context.io;
    if (this.#detachKeys !== null && context.stdout.isTTY) {
      // Before the program shows anything: later it would be in its way.
      await context.printHint(
        `${formatDetachKeys(this.#detachKeys)} leaves this terminal, which goes on without you`,
      );
    }
    this.#endings.push(context.handleInterrupts(() => this.#leave()));
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
      this.#leaving.promise,
    ]);
    if (this.#left.signal.aborted) {
      await this.#restoreScreen('\r\n');
      await context.printHint(`The terminal goes on: \`holdfast terminal attach ${this.#terminal}\``);
      return 0;
    }
    // Text that follows needs a line of its own.
    await this.#restoreScreen(this.#why === null && exitCode !== null ? '' : '\r\n');
    if (this.#why !== null) await context.printHint(`The terminal was ended: ${sanitizeLine(this.#why)}`);
    if (exitCode !== null) return exitCode;
    throw new HoldfastError('sandbox_lost', 'The terminal was cut off', { why: 'its sandbox went away' });
  }

  close(): void {
    this.#left.abort();
    clearTimeout(this.#escapeTimer);
    for (const ending of this.#endings.splice(0).reverse()) ending();
  }

  /** Shows output until it ends, and gives the exit code; until then or until somebody leaves. */
  async #show(start: number, shownBefore: number): Promise<number | null> {
    let offset = start;
    // What is left of the scrollback begins anywhere in a line.
    let inCutLine = start > 0;
    while (!this.#left.signal.aborted) {
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

  /** Null when nothing could be read now, or somebody has left. */
  async #read(offset: number): Promise<{
    result: { offset: number; ended: boolean; exitCode: number | null; why: string | null };
    bytes: Buffer;
  } | null> {
    const peer = await this.#peer();
    if (peer === null) return null;
    // After a supervisor's return there are keys to pass on before there is anything new to read.
    const waitMs = this.#isAway ? 0 : WAIT_MS;
    try {
      const answer = await peer.callWithBytes(
        'terminal/read',
        { terminal: this.#terminal, offset, limit: TERMINAL_LIMITS.chunk, waitMs },
        { signal: this.#left.signal },
      );
      if (this.#isAway) await this.#isBack();
      return answer;
    } catch (error) {
      if (this.#left.signal.aborted) return null;
      if (!isAway(error)) throw error;
      if (peer.isClosed) {
        const reason = await peer.closed;
        // Who stopped it does not want it back by this.
        if (reason?.code === 'shutting_down') this.#start = 'never';
      }
      await this.#waitABit();
      return null;
    }
  }

  /** The connection of now; null where there is none, and somebody may leave. */
  async #peer(): Promise<SupervisorPeer | null> {
    try {
      return await this.#context.client(this.#start).peer();
    } catch {
      // However it fails: the next one may be there in a moment.
      if (!this.#left.signal.aborted) await this.#waitABit();
      return null;
    }
  }

  async #waitABit(): Promise<void> {
    if (!this.#isAway) {
      this.#isAway = true;
      this.#keys.pause();
      await this.#tellAway();
    }
    await sleep(RETRY_MS, undefined, { signal: this.#left.signal }).catch(() => undefined);
  }

  /** In the title where the program has the screen: a line in between would spoil what it shows. */
  async #tellAway(): Promise<void> {
    const how = this.#detachKeys === null ? '^C' : `^C or ${formatDetachKeys(this.#detachKeys)}`;
    const text = `The supervisor is away; waiting for it (${how} leaves)`;
    if (!this.#context.stdout.isTTY || !this.#output.modes.isFullScreen) {
      await this.#context.printHint(`\r\n${text}\r`);
      return;
    }
    this.#hasAwayTitle = true;
    await this.#context.stdout.write(titled(text));
  }

  async #isBack(): Promise<void> {
    this.#isAway = false;
    if (this.#hasAwayTitle) {
      this.#hasAwayTitle = false;
      await this.#context.stdout.write(titled(this.#output.modes.title ?? ''));
    }
    this.#resize();
    this.#keys.resume();
  }

  /** Takes back what the program has changed of the terminal, before anything else is shown on it. */
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
      // Where nobody can press one, nobody is waited for.
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

  /** Passes on what was typed; whether nothing more is wanted. */
  async #take({ forwarded, detaches, interrupts, isUserInput }: FilteredInput): Promise<boolean> {
    if (this.#left.signal.aborted) return true;
    // It is the end that is shown, and what the terminal says by itself is no sign of a person.
    if (this.#isOver) return isUserInput;
    if (this.#isAway && interrupts) this.#leave();
    else await this.#keys.add(forwarded);
    if (detaches) {
      const late = new AbortController();
      await Promise.race([
        this.#keys.waitUntilSent(),
        sleep(LAST_KEYS_MS, undefined, { signal: late.signal }).catch(() => undefined),
      ]);
      late.abort();
      this.#leave();
    }
    return this.#left.signal.aborted;
  }

  #resize(): void {
    void this.#tell('terminal/resize', { terminal: this.#terminal, ...windowSize(this.#context) });
  }

  /** That the terminal has ended meanwhile, or nobody is there to be told, shows in its output. */
  async #tell<M extends MethodName>(method: M, params: Params<M>, bytes?: Uint8Array): Promise<void> {
    if (this.#isAway || this.#hasLeft()) return;
    try {
      const peer = await this.#context.client(this.#start).peer();
      const signal = this.#left.signal;
      await peer.call(method, params, bytes === undefined ? { signal } : { bytes, signal });
    } catch (error) {
      const late =
        isAway(error) ||
        (error instanceof HoldfastError &&
          ['not_found', 'invalid_state', 'interrupted', 'cancelled', 'sandbox_lost'].includes(error.code));
      if (!late && !this.#hasLeft()) this.#failed.reject(error);
    }
  }

  #hasLeft(): boolean {
    return this.#left.signal.aborted;
  }

  #leave(): void {
    this.#left.abort();
    this.#leaving.resolve(null);
  }
}

/** Sets the window's title. */
function titled(text: string): string {
  return `\x1b]2;${text}\x07`;
}

/** The supervisor, or the engine that it needs, is not there now. */
function isAway(error: unknown): boolean {
  return (
    error instanceof HoldfastError &&
    ['connection_closed', 'shutting_down', 'engine_unavailable', 'timeout', 'overloaded'].includes(error.code)
  );
}
