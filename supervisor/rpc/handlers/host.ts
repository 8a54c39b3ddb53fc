import { setImmediate as immediately, setTimeout as sleep } from 'node:timers/promises';
import type { HOST_METHODS, HostPosition } from '../../../protocol/host.ts';
import type { Handlers } from '../../../protocol/wire/shapes.ts';
import type { HostCursor, HostFeed, HostPart } from '../../sessions/host-feed.ts';
import type { Client } from './session.ts';

/** The least time between two notifications, so that a busy session does not become a flood for every client. */
const PAUSE_MS = 50;

/** How long after an error the feed is read again. */
const RETRY_MS = 1000;

/** The answers to `host/*`. A connection has one subscription at most. */
export function hostHandlers<P extends Client>(
  feed: HostFeed,
  onReadError: (error: unknown) => void,
): Handlers<typeof HOST_METHODS, P> {
  const subscriptions = new Map<P, HostSubscription>();
  const end = (peer: P): void => {
    subscriptions.get(peer)?.stop();
    subscriptions.delete(peer);
  };
  return {
    'host/subscribe': ({ after }, { peer }) => {
      if (subscriptions.has(peer)) end(peer);
      else void peer.closed.then(() => end(peer));
      const { epoch } = feed.position;
      const subscription = new HostSubscription({
        feed,
        after,
        onReadError,
        send: ({ seq, isSnapshot, isComplete, changes }) =>
          peer.notify('host/changed', { epoch, seq, isSnapshot, isComplete, changes: [...changes] }),
      });
      subscriptions.set(peer, subscription);
      void subscription.run();
      return feed.position;
    },
    'host/unsubscribe': (_params, { peer }) => {
      end(peer);
      return {};
    },
  };
}

export interface HostSubscriptionOptions {
  readonly feed: HostFeed;
  readonly after: HostPosition | undefined;
  /** Resolves when the client has room for more; rejects when it is gone. */
  readonly send: (part: HostPart) => Promise<void>;
  /** The feed could not be read, and will be read again. */
  readonly onReadError: (error: unknown) => void;
}

/** Sends the feed of the host to one client, at the client's pace. */
export class HostSubscription {
  readonly #options: HostSubscriptionOptions;
  readonly #ending = new AbortController();
  #cursor: HostCursor;
  #wake: (() => void) | null = null;

  constructor(options: HostSubscriptionOptions) {
    this.#options = options;
    this.#cursor = options.feed.cursorAfter(options.after);
  }

  /** Runs until `stop`, or until the client disconnects. Never rejects. */
  async run(): Promise<void> {
    const { feed, send } = this.#options;
    const { signal } = this.#ending;
    const unlisten = feed.onChange(() => this.#wake?.());
    try {
      // After the response, so that its position is one that the client can wait for.
      await immediately(undefined, { signal });
      while (!signal.aborted) {
        const part = this.#read();
        if (part === 'failed') {
          await sleep(RETRY_MS, undefined, { signal });
        } else if (part === null) {
          // Nothing changes between that read and this wait: both run in one step of the event loop.
          await new Promise<void>((resolve) => (this.#wake = resolve));
          this.#wake = null;
          // What changes in one step is sent together.
          await immediately(undefined, { signal });
        } else {
          await send(part);
          this.#cursor = part.next;
          if (part.isComplete) await sleep(PAUSE_MS, undefined, { signal });
        }
      }
    } catch {
      // It was stopped, or the client is gone.
    } finally {
      unlisten();
    }
  }

  stop(): void {
    this.#ending.abort();
    this.#wake?.();
  }

  #read(): HostPart | null | 'failed' {
    try {
      return this.#options.feed.read(this.#cursor);
    } catch (error) {
      this.#options.onReadError(error);
      return 'failed';
    }
  }
}
