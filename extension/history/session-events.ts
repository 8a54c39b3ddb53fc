import { Disposable } from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';
import type { SessionEvent } from '../../protocol/entities.ts';
import type { SupervisorPeer } from '../../protocol/client/connect.ts';
import type { Connection } from '../connection/connection.ts';
import { DisposableStore } from '../base/disposable-store.ts';

const RETRY_MS = 2_000;

interface Follower {
  readonly session: string;
  /** The sequence number of the last event that was delivered. */
  after: number;
  readonly onEvent: (event: SessionEvent) => void;
  subscription: { readonly peer: SupervisorPeer; readonly id: string } | undefined;
  isOpening: boolean;
  retry: NodeJS.Timeout | undefined;
  isEnded: boolean;
}

/** Delivers the events of sessions as they happen, each once and in order, across reconnects. */
export class SessionEvents implements Disposable {
  readonly #connection: Connection;
  readonly #followers = new Set<Follower>();
  readonly #owned = new DisposableStore();

  constructor(connection: Connection) {
    this.#connection = connection;
    this.#owned.add(
      connection.onDidConnect((peer) => {
        this.#listen(peer);
        for (const follower of this.#followers) void this.#open(follower);
      }),
    );
    for (const { peer } of connection.connected) this.#listen(peer);
  }

  dispose(): void {
    for (const follower of this.#followers) this.#end(follower);
    this.#owned.dispose();
  }

  /** Calls `onEvent` for every event after `after`, past events first. */
  follow(session: string, after: number, onEvent: (event: SessionEvent) => void): Disposable {
    const follower: Follower = {
      session,
      after,
      onEvent,
      subscription: undefined,
      isOpening: false,
      retry: undefined,
      isEnded: false,
    };
    this.#followers.add(follower);
    this.#connection.of(session).ensureConnecting();
    void this.#open(follower);
    return new Disposable(() => this.#end(follower));
  }

  #listen(peer: SupervisorPeer): void {
    const of = (id: string): Follower | undefined =>
      [...this.#followers].find(({ subscription }) => subscription?.peer === peer && subscription.id === id);
    // The peer removes its listeners when it closes.
    peer.onNotification('session/event', ({ subscription, event }) => {
      const follower = of(subscription);
      if (follower === undefined || event.seq <= follower.after) return;
      follower.after = event.seq;
      follower.onEvent(event);
    });
    peer.onNotification('session/resync', ({ subscription }) => {
      const follower = of(subscription);
      if (follower === undefined) return;
      follower.subscription = undefined;
      void this.#open(follower);
    });
  }

  async #open(follower: Follower): Promise<void> {
    const { peer } = this.#connection.of(follower.session);
    if (peer === undefined || follower.isEnded || follower.isOpening) return;
    clearTimeout(follower.retry);
    follower.isOpening = true;
    try {
      const { session, after } = follower;
      const { subscription } = await peer.call('session/subscribe', { session, after });
      follower.subscription = { peer, id: subscription };
    } catch (error) {
      // A deleted session has no more events.
      if (HoldfastError.from(error).code !== 'not_found' && !peer.isClosed) {
        follower.retry = setTimeout(() => void this.#open(follower), RETRY_MS);
      }
    } finally {
      follower.isOpening = false;
    }
    if (this.#isEnded(follower)) this.#close(follower);
    else if (this.#connection.of(follower.session).peer !== peer) void this.#open(follower);
  }

  /** A method, because the compiler does not see that the value may change during an `await`. */
  #isEnded(follower: Follower): boolean {
    return follower.isEnded;
  }

  #end(follower: Follower): void {
    follower.isEnded = true;
    clearTimeout(follower.retry);
    this.#followers.delete(follower);
    this.#close(follower);
  }

  #close({ subscription }: Follower): void {
    if (subscription === undefined) return;
    // A closed connection has ended the subscription already.
    void subscription.peer
      .call('session/unsubscribe', { subscription: subscription.id })
      .catch(() => undefined);
  }
}
