import { setTimeout as sleep } from 'node:timers/promises';
import { HoldfastError } from '../../../protocol/errors.ts';
import type { MethodName, Params } from '../../../protocol/methods.ts';
import { TERMINAL_LIMITS, type WindowSize } from '../../../protocol/terminals.ts';
import type { SupervisorPeer } from '../../../protocol/client/connect.ts';
import type { Context } from '../context.ts';
import type { StartMode } from '../link.ts';
import { failureOf } from '../failure.ts';
import { visible } from '../render/text.ts';
import { InertOutput } from './inert-output.ts';
import { LeaveKeys } from './leave-keys.ts';

const WAIT_MS = 30_000;
const RETRY_MS = 500;
/** Other screen, mouse, bracketed paste, hidden cursor, colours: what a program may have switched on and nobody switches off for it. */
const PLAIN_AGAIN = '\x1b[?1049l\x1b[?1000;1002;1003;1006;2004l\x1b[?25h\x1b[0m';
const CTRL_C = 0x03;
const MOST_HELD = 4096;

/** A window's size; a terminal that nobody has given one says 0. */
export function windowSize(context: Context): WindowSize {
  const { columns, rows } = context.io.stdout;
  const within = (value: number | undefined, fallback: number): number =>
    value === undefined || value < 1 ? fallback : Math.min(10_000, value);
  return { columns: within(columns, 80), rows: within(rows, 24) };
}

export interface AttachOptions {
  readonly terminal: string;
  /** Whether ~. leaves. */
  readonly escape: boolean;
  /** Stays until a key is pressed where it was not the program that ended it: for windows that close with their process. */
  readonly hold?: boolean;
}

/**
 * Joins this process's terminal to one in a sandbox until that ends: its exit code. The terminal goes on when this process ends, and
 * this process when the supervisor does: it waits for the next one, which ^C or ~. ends.
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
  readonly #leaveKeys: LeaveKeys | null;
  readonly #hold: boolean;
  readonly #output = new InertOutput();
  readonly #endings: (() => void)[] = [];
  readonly #left = new AbortController();
  readonly #failed = Promise.withResolvers<never>();
  readonly #leaving = Promise.withResolvers<null>();
  readonly #key = Promise.withResolvers<null>();
  #isOver = false;
  #isReading = false;
  #away = false;
  /** Keys that were pressed while nobody took them. */
  #held = Buffer.alloc(0);
  #start: StartMode = 'auto';
  /** Who ended it, where its program did not. */
  #why: string | null = null;

  constructor(context: Context, { terminal, escape, hold = false }: AttachOptions) {
    this.#context = context;
    this.#terminal = terminal;
    this.#hold = hold;
    this.#leaveKeys = escape ? new LeaveKeys() : null;
    this.#failed.promise.catch(() => undefined);
  }

  async run(): Promise<number> {
    try {
      const exitCode = await this.#toItsEnd();
      if (this.#why !== null) await this.#untilKey();
      return exitCode;
    } catch (error) {
      if (this.#hold) await this.#context.note(failureOf(error).line);
      await this.#untilKey();
      throw error;
    }
  }

  async #untilKey(): Promise<void> {
    if (!this.#hold || this.#left.signal.aborted) return;
    this.#isOver = true;
    if (!this.#isReading) void this.#forwardKeys();
    await this.#context.hint('\r\nPress a key to close it');
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
    this.#endings.push(context.takeInterrupts(() => this.#leave()));
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
      if (context.stdout.isTTY) await context.stdout.write(`${PLAIN_AGAIN}\r\n`);
      await context.hint(`The terminal goes on: \`holdfast terminal attach ${this.#terminal}\``);
      return 0;
    }
    if (this.#why !== null) await context.hint(`\r\nThe terminal was ended: ${visible(this.#why)}`);
    if (exitCode !== null) return exitCode;
    throw new HoldfastError('sandbox_lost', 'The terminal was cut off', { why: 'its sandbox went away' });
  }

  close(): void {
    this.#left.abort();
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
      await this.#context.stdout.write(this.#output.pass(piece, offset < shownBefore));
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
    // Whoever comes back has keys to pass on before there is anything new to read.
    const waitMs = this.#away ? 0 : WAIT_MS;
    try {
      const answer = await peer.callWithBytes(
        'terminal/read',
        { terminal: this.#terminal, offset, limit: TERMINAL_LIMITS.piece, waitMs },
        { signal: this.#left.signal },
      );
      if (this.#away) {
        this.#away = false;
        this.#resize();
        const held = this.#held;
        this.#held = Buffer.alloc(0);
        await this.#write(held);
      }
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
      return await this.#context.link(this.#start).peer();
    } catch {
      // However it fails: the next one may be there in a moment.
      if (!this.#left.signal.aborted) await this.#waitABit();
      return null;
    }
  }

  async #waitABit(): Promise<void> {
    if (!this.#away) await this.#context.hint('\r\nThe supervisor is away; waiting for it (^C leaves)\r');
    this.#away = true;
    await sleep(RETRY_MS, undefined, { signal: this.#left.signal }).catch(() => undefined);
  }

  async #forwardKeys(): Promise<void> {
    const { stdin } = this.#context.io;
    this.#isReading = true;
    this.#endings.push(() => stdin.pause());
    try {
      for await (const chunk of stdin as AsyncIterable<string | Buffer>) {
        if (this.#left.signal.aborted || this.#isOver) return;
        const bytes = typeof chunk === 'string' ? Buffer.from(chunk, 'utf8') : chunk;
        if (this.#away && bytes.includes(CTRL_C)) this.#leave();
        const { keys, leaves } = this.#leaveKeys?.take(bytes) ?? { keys: bytes, leaves: false };
        if (leaves) {
          if (!this.#away) await this.#write(keys);
          this.#leave();
        } else if (this.#away) this.#held = Buffer.concat([this.#held, keys]).subarray(0, MOST_HELD);
        else await this.#write(keys);
      }
    } catch (error) {
      this.#failed.reject(error);
    } finally {
      // Where nobody can press one, nobody is waited for.
      this.#key.resolve(null);
    }
  }

  async #write(keys: Buffer): Promise<void> {
    for (let at = 0; at < keys.length; at += TERMINAL_LIMITS.piece) {
      const bytes = keys.subarray(at, at + TERMINAL_LIMITS.piece);
      await this.#tell('terminal/write', { terminal: this.#terminal }, bytes);
    }
  }

  #resize(): void {
    void this.#tell('terminal/resize', { terminal: this.#terminal, ...windowSize(this.#context) });
  }

  /** That the terminal has ended meanwhile, or nobody is there to be told, shows in its output. */
  async #tell<M extends MethodName>(method: M, params: Params<M>, bytes?: Uint8Array): Promise<void> {
    if (this.#away) return;
    try {
      const peer = await this.#context.link(this.#start).peer();
      const signal = this.#left.signal;
      await peer.call(method, params, bytes === undefined ? { signal } : { bytes, signal });
    } catch (error) {
      const late =
        isAway(error) ||
        (error instanceof HoldfastError &&
          ['not_found', 'invalid_state', 'interrupted', 'cancelled', 'sandbox_lost'].includes(error.code));
      if (!late && !this.#left.signal.aborted) this.#failed.reject(error);
    }
  }

  #leave(): void {
    this.#left.abort();
    this.#leaving.resolve(null);
  }
}

/** The supervisor, or the engine that it needs, is not there now. */
function isAway(error: unknown): boolean {
  return (
    error instanceof HoldfastError &&
    ['connection_closed', 'shutting_down', 'engine_unavailable', 'timeout', 'overloaded'].includes(error.code)
  );
}
