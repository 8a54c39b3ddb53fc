import type { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { HoldfastError } from '../../protocol/errors.ts';
import { MessageChannel } from '../../protocol/wire/message-channel.ts';
import { CREDENTIAL_MESSAGE_BYTES, type Purpose } from '../../egress-proxy/wire.ts';
import type { Log } from '../base/log.ts';
import type { CredentialConnections } from './credentials/endpoint.ts';
import type { ProxyConnections } from './session-gate.ts';
import { SpareStreams } from './spare-streams.ts';

/** How long a connection of a sandbox waits for a process. */
const WAIT_MS = 20_000;
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 5000;
/** One that lived so long did not fail because it started. */
const STABLE_MS = 30_000;
const PULSE_MS = 5000;
/** A process that says nothing for so long is frozen, or has no memory left. */
const FROZEN_MS = 20_000;
/** It ends so long after the last sandbox that might need it. */
const REST_MS = 60_000;

/** A process that runs, and that nothing but the supervisor can reach. */
export interface RunningProxy {
  dial(): Promise<Duplex>;
  /** Resolves with the reason when it has ended. */
  readonly exited: Promise<string>;
  /** Ends it at once, whatever it does. */
  stop(): Promise<void>;
}

export interface ProxyProcessOptions {
  /** Starts one; it listens when the promise resolves. */
  readonly launch: () => Promise<RunningProxy>;
  readonly log: Log;
  readonly waitMs?: number;
  readonly pulseMs?: number;
  readonly frozenMs?: number;
  readonly restMs?: number;
}

/**
 * Keeps one process that reads what sandboxes send, while there are sandboxes that may reach anything. It is started again
 * when it dies or freezes, after growing pauses.
 */
export class ProxyProcess implements ProxyConnections, CredentialConnections {
  readonly #options: Required<ProxyProcessOptions>;
  #users = 0;
  #resting: NodeJS.Timeout | undefined;
  #lastId = 0;
  /** Resolves with the process that runs or starts; replaced when that has died. */
  #running = Promise.withResolvers<SpareStreams>();
  #current: SpareStreams | null = null;
  #keeping: Promise<void> | null = null;
  #ending = new AbortController();
  #isClosed = false;

  constructor(options: ProxyProcessOptions) {
    this.#options = {
      waitMs: WAIT_MS,
      pulseMs: PULSE_MS,
      frozenMs: FROZEN_MS,
      restMs: REST_MS,
      ...options,
    };
  }

  /** A sandbox may need it: it starts in the background. Returns how to say that it no longer does. */
  acquireLease(): () => void {
    this.#users += 1;
    clearTimeout(this.#resting);
    if (!this.#isClosed) this.#keeping ??= this.#keepRunning(this.#ending.signal);
    let isHeld = true;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      this.#users -= 1;
      if (this.#users > 0) return;
      clearTimeout(this.#resting);
      this.#resting = setTimeout(() => void this.#stop(), this.#options.restMs);
      this.#resting.unref();
    };
  }

  /** Ends the process, for good. Returns when nothing of it is left. */
  async close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#resting);
    await this.#stop();
  }

  async openClient(sessionId: string): Promise<{ readonly id: number; readonly channel: MessageChannel }> {
    this.#lastId += 1;
    const id = this.#lastId;
    return { id, channel: await this.#open({ for: 'client', id, session: sessionId }) };
  }

  openServer(id: number): Promise<MessageChannel> {
    return this.#open({ for: 'server', id });
  }

  async openCredential(): Promise<{ readonly id: number; readonly channel: MessageChannel }> {
    this.#lastId += 1;
    const id = this.#lastId;
    return { id, channel: await this.#open({ for: 'credential', id }, CREDENTIAL_MESSAGE_BYTES) };
  }

  openExchange(id: number, exchange: number): Promise<MessageChannel> {
    return this.#open({ for: 'exchange', id, exchange });
  }

  async #open(purpose: Purpose, mostMessageBytes?: number): Promise<MessageChannel> {
    const streams = this.#current ?? (await this.#soon());
    const channel = new MessageChannel(await streams.take(), mostMessageBytes);
    // It may be lost before the caller listens.
    channel.on('error', () => channel.destroy());
    channel.send(purpose);
    return channel;
  }

  async #soon(): Promise<SpareStreams> {
    const late = new AbortController();
    try {
      return await Promise.race([
        this.#running.promise,
        sleep(this.#options.waitMs, undefined, { signal: late.signal }).then(() => {
          throw new HoldfastError('engine_unavailable', 'The egress proxy does not run', {
            next: 'try again: it is being started',
          });
        }),
      ]);
    } finally {
      late.abort();
    }
  }

  async #stop(): Promise<void> {
    const keeping = this.#keeping;
    this.#keeping = null;
    this.#ending.abort();
    this.#ending = new AbortController();
    await keeping;
  }

  /** Never rejects. Returns when the process has ended. */
  async #keepRunning(ending: AbortSignal): Promise<void> {
    const { launch, log } = this.#options;
    const isOver = (): boolean => ending.aborted;
    let pause = FIRST_PAUSE_MS;
    while (!isOver()) {
      const started = performance.now();
      try {
        const running = await launch();
        const why = await this.#serve(running, ending);
        if (isOver()) return;
        log.warn('the egress proxy has ended and is started again', { why });
      } catch (error) {
        if (isOver()) return;
        log.warn('cannot start the egress proxy; trying again', { error });
      }
      if (performance.now() - started > STABLE_MS) pause = FIRST_PAUSE_MS;
      // Only the end interrupts the sleep.
      await sleep(pause, undefined, { signal: ending, ref: false }).catch(() => undefined);
      pause = Math.min(2 * pause, LONGEST_PAUSE_MS);
    }
  }

  /** Until the process has ended. Returns why it did. */
  async #serve(running: RunningProxy, ending: AbortSignal): Promise<string> {
    const { promise: over, resolve: stop } = Promise.withResolvers<string>();
    const ended = (): void => stop('nobody needs it');
    ending.addEventListener('abort', ended, { once: true });
    if (ending.aborted) ended();
    const quiet = this.#watchPulse(running, () => stop('it did not answer in time'));
    const streams = new SpareStreams(() => running.dial());
    if (!ending.aborted) {
      this.#current = streams;
      this.#running.resolve(streams);
    }
    try {
      return await Promise.race([running.exited, over]);
    } finally {
      // Another one may have begun, if this one was waited for when nobody needed it any more.
      if (this.#current === streams) {
        this.#current = null;
        this.#running = Promise.withResolvers();
      }
      ending.removeEventListener('abort', ended);
      quiet();
      streams.close();
      await running.stop().catch((error: unknown) => {
        this.#options.log.warn('an egress proxy cannot be removed', { error });
      });
    }
  }

  /** Calls `onFrozen` when the process no longer answers. Returns how to stop watching. */
  #watchPulse(running: RunningProxy, onFrozen: () => void): () => void {
    const { pulseMs, frozenMs } = this.#options;
    const ending = new AbortController();
    let heardAt = performance.now();
    let lookedAt = heardAt;
    const timer = setInterval(() => {
      const now = performance.now();
      // While this machine slept, or the supervisor was stopped, nobody heard anything.
      if (now - lookedAt > 2 * pulseMs) heardAt = now;
      lookedAt = now;
      if (now - heardAt > frozenMs) onFrozen();
      else void this.#pulse(running, ending.signal, () => (heardAt = performance.now()));
    }, pulseMs);
    timer.unref();
    return () => {
      clearInterval(timer);
      ending.abort();
    };
  }

  /** Asks once, on a connection of its own: one that can no longer be opened is of no use. Never rejects. */
  async #pulse(running: RunningProxy, signal: AbortSignal, onPulse: () => void): Promise<void> {
    try {
      const channel = new MessageChannel(await running.dial());
      const leave = (): void => void channel.destroy();
      channel.on('error', leave);
      signal.addEventListener('abort', leave, { once: true });
      channel.once('close', () => signal.removeEventListener('abort', leave));
      channel.once('message', () => {
        onPulse();
        leave();
      });
      channel.resume();
      channel.send({ for: 'pulse' } satisfies Purpose);
      channel.send({ pulse: true });
      if (signal.aborted) leave();
    } catch {
      // It will not be heard.
    }
  }
}
