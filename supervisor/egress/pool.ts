import { setTimeout as sleep } from 'node:timers/promises';
import type { Duplex } from 'node:stream';
import { HoldfastError } from '../../protocol/errors.ts';
import { Peer } from '../../protocol/wire/peer.ts';
import { EMPTY_MAP, type Progress } from '../../protocol/wire/shapes.ts';
import { SIDECAR_METHODS, SIDECAR_PROTOCOL } from '../../sidecar/wire.ts';
import type { Log } from '../base/log.ts';
import { Tunnel } from './tunnel.ts';

/** Connections that wait for a process in the sandbox to connect. */
const FEWEST = 4;
const MOST = 16;
const HELLO_MS = 10_000;
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 5000;

export interface EgressPoolOptions {
  readonly sessionId: string;
  /** Port of the supervisor's machine, for a pool that is not the proxy's. */
  readonly hostPort?: number;
  /** Port of a credential, for a pool that is not the proxy's. */
  readonly credentialPort?: number;
  /** For the tools of agents instead of egress. */
  readonly forTools?: boolean;
  readonly dial: () => Promise<Duplex>;
  readonly serve: (tunnel: Tunnel) => void;
  /** Called with the number of connections that the sidecar reset because its queue was full. */
  readonly onRefused: (count: number) => void;
  /** Called when a process in the sandbox has the port; the pool tries again. */
  readonly onPortTaken?: () => void;
  readonly log: Log;
}

/**
 * Keeps several `egress/accept` calls (or one `tools/accept`) open to one sidecar until it is closed; each returns the next connection of the
 * sandbox.
 */
export class EgressPool {
  readonly #options: EgressPoolOptions;
  readonly #ending = new AbortController();
  readonly #listening = Promise.withResolvers<undefined>();
  #pendingCalls = 0;
  readonly #fewest: number;
  #wanted: number;
  #pause = FIRST_PAUSE_MS;
  #isWaiting = false;

  constructor(options: EgressPoolOptions) {
    this.#options = options;
    // An agent calls a tool now and then.
    this.#fewest = options.forTools === true ? 1 : FEWEST;
    this.#wanted = this.#fewest;
    this.#fill();
  }

  /** Resolves when connections of the sandbox are accepted. Never rejects. */
  get listening(): Promise<undefined> {
    return this.#listening.promise;
  }

  /** Cancels the calls; without them the sidecar stops listening in the sandbox. */
  close(): void {
    this.#ending.abort(new HoldfastError('cancelled', 'The pool is closed'));
    this.#listening.resolve(undefined);
  }

  #fill(): void {
    if (this.#isWaiting) return;
    while (this.#pendingCalls < this.#wanted && !this.#ending.signal.aborted) {
      this.#pendingCalls += 1;
      void this.#acceptNext();
    }
  }

  async #acceptNext(): Promise<void> {
    try {
      const { tunnel, waiting } = await this.#accept();
      this.#pendingCalls -= 1;
      this.#wanted = Math.min(MOST, this.#fewest + waiting);
      // Its process waits, and the next call of the pool does not have to.
      this.#options.serve(tunnel);
      this.#fill();
    } catch (error) {
      this.#pendingCalls -= 1;
      if (this.#ending.signal.aborted) return;
      if (HoldfastError.from(error).code === 'conflict' && !this.#isWaiting) {
        this.#options.onPortTaken?.();
        // Who waits for the pool waits for nothing.
        this.#listening.resolve(undefined);
      }
      await this.#retryLater(error);
    }
  }

  /** One delay for all calls that fail together. */
  async #retryLater(error: unknown): Promise<void> {
    if (this.#isWaiting) return;
    this.#isWaiting = true;
    const { sessionId, hostPort, credentialPort, log } = this.#options;
    if (this.#pause === FIRST_PAUSE_MS)
      log.info('cannot accept connections of the sandbox; trying again', {
        session: sessionId,
        hostPort,
        credentialPort,
        why: HoldfastError.from(error).sentence,
      });
    const pause = this.#pause;
    this.#pause = Math.min(pause * 2, LONGEST_PAUSE_MS);
    // Only closing the pool interrupts the sleep.
    await sleep(pause, undefined, { signal: this.#ending.signal, ref: false }).catch(() => undefined);
    this.#isWaiting = false;
    this.#fill();
  }

  async #accept(): Promise<{ tunnel: Tunnel; waiting: number }> {
    const { sessionId, hostPort, credentialPort, forTools = false, dial } = this.#options;
    const { signal } = this.#ending;
    const peer = new Peer<typeof EMPTY_MAP, typeof SIDECAR_METHODS>({
      stream: await dial(),
      name: `the sidecar of ${sessionId}`,
      serves: EMPTY_MAP,
      calls: SIDECAR_METHODS,
      sends: EMPTY_MAP,
      receives: EMPTY_MAP,
      handlers: {},
    });
    try {
      signal.throwIfAborted();
      const greeting = { protocol: SIDECAR_PROTOCOL, session: sessionId };
      const hello = await peer.call('hello', greeting, { timeoutMs: HELLO_MS, signal });
      if (hello.session !== sessionId) {
        throw new HoldfastError('conflict', `The sidecar of another session answered for ${sessionId}`);
      }
      const onProgress = ({ stage, done }: Progress): void => {
        if (stage === 'refused') this.#options.onRefused(done ?? 1);
        this.#pause = FIRST_PAUSE_MS;
        this.#listening.resolve(undefined);
      };
      const target = {
        ...(hostPort === undefined ? {} : { hostPort }),
        ...(credentialPort === undefined ? {} : { credentialPort }),
      };
      const { waiting } = forTools
        ? await peer.call('tools/accept', {}, { signal, onProgress })
        : await peer.call('egress/accept', target, { signal, onProgress });
      return { tunnel: new Tunnel(peer.detachStream()), waiting };
    } catch (error) {
      peer.close();
      throw error;
    }
  }
}
