import type { Disposable } from 'vscode';
import type { ConversationItem } from '../../protocol/conversation.ts';
import type { SupervisorPeer } from '../../protocol/client/connect.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Connection } from '../connection/connection.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import type { ConversationPage, LiveChunk } from '../../webview/messages.ts';

const RETRY_MS = 2_000;
/** Items of the end of the conversation that a page begins with. */
const PAGE = 100;
/** A page that is further behind gets the end of the conversation again. */
const MAX_WAITING_ITEMS = 1_000;
const MAX_WAITING_CHARACTERS = 2 * 2 ** 20;

export interface FollowerOptions {
  readonly connection: Connection;
  readonly session: string;
  readonly begin: (page: ConversationPage) => void;
  /** The next batch is sent after `confirm` of this one. */
  readonly send: (batch: number, items: ConversationItem[], chunks: LiveChunk[]) => void;
}

/**
 * Follows the conversation of a session for one page: its end, then what changes, one batch at a time. A page that draws
 * slowly gets fewer and larger batches, and starts over when it is too far behind. So nobody waits for a page.
 */
export class ConversationFollower implements Disposable {
  readonly #options: FollowerOptions;
  readonly #owned = new DisposableStore();
  #subscription: { readonly peer: SupervisorPeer; readonly id: string } | undefined;
  #isOpening = false;
  #isEnded = false;
  #retry: NodeJS.Timeout | undefined;
  readonly #items = new Map<number, ConversationItem>();
  #chunks: LiveChunk[] = [];
  #characters = 0;
  #batch = 0;
  #isWaiting = false;

  constructor(options: FollowerOptions) {
    this.#options = options;
    const { connection } = options;
    this.#owned.add(
      connection.onDidConnect((peer) => {
        if (connection.of(options.session).peer === peer) this.#listen(peer);
      }),
    );
    const host = connection.of(options.session);
    if (host.peer !== undefined) this.#listen(host.peer);
    else host.ensureConnecting();
  }

  dispose(): void {
    this.#isEnded = true;
    clearTimeout(this.#retry);
    this.#owned.dispose();
    this.#unsubscribe();
  }

  /** The page has drawn a batch. */
  confirm(batch: number): void {
    if (batch !== this.#batch) return;
    this.#isWaiting = false;
    this.#flush();
  }

  #listen(peer: SupervisorPeer): void {
    // The peer removes its listeners when it closes.
    peer.onNotification('conversation/changed', ({ subscription, items }) => {
      if (!this.#isOwn(peer, subscription)) return;
      for (const item of items) this.#items.set(item.id, item);
      this.#flush();
    });
    peer.onNotification('conversation/chunk', ({ subscription, ...chunk }) => {
      if (!this.#isOwn(peer, subscription)) return;
      this.#chunks.push(chunk);
      this.#characters += chunk.text.length;
      this.#flush();
    });
    peer.onNotification('conversation/resync', ({ subscription }) => {
      if (this.#isOwn(peer, subscription)) void this.#open(peer);
    });
    void this.#open(peer);
  }

  #isOwn(peer: SupervisorPeer, subscription: string): boolean {
    return this.#subscription?.peer === peer && this.#subscription.id === subscription;
  }

  /** Reads the end of the conversation and subscribes to what comes after it. */
  async #open(peer: SupervisorPeer): Promise<void> {
    if (this.#isOpening || this.#isEnded) return;
    clearTimeout(this.#retry);
    this.#isOpening = true;
    this.#unsubscribe();
    const { session, begin } = this.#options;
    try {
      const page = await peer.call('conversation/read', { session, limit: PAGE });
      const { subscription } = await peer.call('conversation/subscribe', { session, after: page.seq });
      this.#subscription = { peer, id: subscription };
      this.#items.clear();
      this.#chunks = [];
      this.#characters = 0;
      this.#isWaiting = false;
      if (this.#wasEnded()) this.#unsubscribe();
      else begin(page);
    } catch (error) {
      // A deleted session has no conversation; a closed connection is followed by another one.
      if (HoldfastError.from(error).code !== 'not_found' && !peer.isClosed) {
        this.#retry = setTimeout(() => void this.#open(peer), RETRY_MS);
      }
    } finally {
      this.#isOpening = false;
    }
  }

  #flush(): void {
    if (this.#isWaiting) {
      if (this.#items.size > MAX_WAITING_ITEMS || this.#characters > MAX_WAITING_CHARACTERS)
        this.#startOver();
      return;
    }
    if (this.#items.size === 0 && this.#chunks.length === 0) return;
    this.#batch += 1;
    this.#isWaiting = true;
    const items = [...this.#items.values()];
    const chunks = this.#chunks;
    this.#items.clear();
    this.#chunks = [];
    this.#characters = 0;
    this.#options.send(this.#batch, items, chunks);
  }

  #startOver(): void {
    const peer = this.#subscription?.peer;
    this.#items.clear();
    this.#chunks = [];
    this.#characters = 0;
    if (peer !== undefined) void this.#open(peer);
  }

  /** A method, because the compiler does not see that the value may change during an `await`. */
  #wasEnded(): boolean {
    return this.#isEnded;
  }

  #unsubscribe(): void {
    const subscription = this.#subscription;
    this.#subscription = undefined;
    // A closed connection has ended the subscription already.
    void subscription?.peer
      .call('conversation/unsubscribe', { subscription: subscription.id })
      .catch(() => undefined);
  }
}
