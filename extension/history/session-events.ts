import { Disposable } from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';
import type { SessionEvent } from '../../protocol/entities.ts';
import type { SupervisorPeer } from '../../protocol/client/connect.ts';
import type { Connection } from '../connection/connection.ts';
import { DisposableStore } from '../base/disposable-store.ts';

const AGAIN_MS = 2_000;

interface Following {
  readonly session: string;
  /** The last event that was heard. */
  after: number;
  readonly hear: (event: SessionEvent) => void;
  subscription: { readonly peer: SupervisorPeer; readonly id: string } | undefined;
  opening: boolean;
  again: NodeJS.Timeout | undefined;
  ended: boolean;
}

/** The events of sessions as they happen, each once and in order, over however many connections. */
export class SessionEvents implements Disposable {
  readonly #connection: Connection;
  readonly #followings = new Set<Following>();
  readonly #owned = new DisposableStore();

  constructor(connection: Connection) {
    this.#connection = connection;
    this.#owned.add(
      connection.onDidConnect((peer) => {
        this.#listen(peer);
        for (const following of this.#followings) void this.#open(following);
      }),
    );
    if (connection.peer !== undefined) this.#listen(connection.peer);
  }

  dispose(): void {
    for (const following of this.#followings) this.#end(following);
    this.#owned.dispose();
  }

  /** Hears every event after `after`, those of the past first. */
  follow(session: string, after: number, hear: (event: SessionEvent) => void): Disposable {
    const following: Following = {
      session,
      after,
      hear,
      subscription: undefined,
      opening: false,
      again: undefined,
      ended: false,
    };
    this.#followings.add(following);
    this.#connection.ensureConnecting();
    void this.#open(following);
    return new Disposable(() => this.#end(following));
  }

  #listen(peer: SupervisorPeer): void {
    const of = (id: string): Following | undefined =>
      [...this.#followings].find(({ subscription }) => subscription?.peer === peer && subscription.id === id);
    // The listeners go with their peer.
    peer.onNotification('session/event', ({ subscription, event }) => {
      const following = of(subscription);
      if (following === undefined || event.seq <= following.after) return;
      following.after = event.seq;
      following.hear(event);
    });
    peer.onNotification('session/resync', ({ subscription }) => {
      const following = of(subscription);
      if (following === undefined) return;
      following.subscription = undefined;
      void this.#open(following);
    });
  }

  async #open(following: Following): Promise<void> {
    const { peer } = this.#connection;
    if (peer === undefined || following.ended || following.opening) return;
    clearTimeout(following.again);
    following.opening = true;
    try {
      const { session, after } = following;
      const { subscription } = await peer.call('session/subscribe', { session, after });
      following.subscription = { peer, id: subscription };
    } catch (error) {
      // A session that is gone has no more events.
      if (HoldfastError.from(error).code !== 'not_found' && !peer.isClosed) {
        following.again = setTimeout(() => void this.#open(following), AGAIN_MS);
      }
    } finally {
      following.opening = false;
    }
    if (this.#isEnded(following)) this.#close(following);
    else if (this.#connection.peer !== peer) void this.#open(following);
  }

  /** The compiler does not see that it may have ended while something was waited for. */
  #isEnded(following: Following): boolean {
    return following.ended;
  }

  #end(following: Following): void {
    following.ended = true;
    clearTimeout(following.again);
    this.#followings.delete(following);
    this.#close(following);
  }

  #close({ subscription }: Following): void {
    if (subscription === undefined) return;
    // Where the connection has ended, so has the subscription.
    void subscription.peer
      .call('session/unsubscribe', { subscription: subscription.id })
      .catch(() => undefined);
  }
}
