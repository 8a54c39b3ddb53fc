import type { ConversationItem } from '../../protocol/conversation.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { NotificationParams } from '../../protocol/methods.ts';
import type { Context } from '../context.ts';

const RECONNECT_MS = 500;

export interface ConversationListener {
  /** An item of the turn that is new or has changed. */
  item(item: ConversationItem): Promise<void>;
  /** Text that is not stored yet. */
  chunk(chunk: NotificationParams<'conversation/chunk'>): Promise<void>;
}

/**
 * Reports what happens in one turn of a conversation, from its beginning and without gaps, until its end was reported. Goes on after
 * a lost connection. Rejects with the reason of `signal` when that aborts, and with what the listener throws.
 */
export async function followConversation(
  context: Context,
  session: string,
  turnId: string,
  listener: ConversationListener,
  signal?: AbortSignal,
): Promise<void> {
  const place = { after: 0 };
  for (;;) {
    try {
      if ((await watchOnce(context, session, turnId, place, listener, signal)) === 'ended') return;
    } catch (error) {
      if (!(error instanceof HoldfastError) || !['connection_closed', 'shutting_down'].includes(error.code))
        throw error;
    }
    signal?.throwIfAborted();
    await new Promise((resolve) => setTimeout(resolve, RECONNECT_MS));
  }
}

async function watchOnce(
  context: Context,
  session: string,
  turnId: string,
  place: { after: number },
  listener: ConversationListener,
  signal: AbortSignal | undefined,
): Promise<'ended' | 'lost'> {
  const peer = await context.client().peer({ waitForSupervisor: true, signal });
  const over = Promise.withResolvers<'ended' | 'lost'>();
  let subscription: string | undefined;
  let showing: Promise<void> = Promise.resolve();
  const show = (act: () => Promise<void>): void => {
    showing = showing.then(act);
    showing.catch(over.reject);
  };
  const subscribe = async (): Promise<void> => {
    ({ subscription } = await peer.call(
      'conversation/subscribe',
      { session, after: place.after },
      { signal },
    ));
  };
  const releases = [
    peer.onNotification('conversation/changed', (changed) => {
      if (changed.subscription !== subscription) return;
      show(async () => {
        const items = changed.items.filter((item) => item.turnId === turnId);
        for (const item of items) await listener.item(item);
        place.after = changed.seq;
        if (items.some(({ type }) => type === 'end')) over.resolve('ended');
      });
    }),
    peer.onNotification('conversation/chunk', (chunk) => {
      if (chunk.subscription === subscription && chunk.turnId === turnId) show(() => listener.chunk(chunk));
    }),
    peer.onNotification('conversation/resync', (params) => {
      if (params.subscription === subscription) subscribe().catch(over.reject);
    }),
  ];
  const onAbort = (): void => over.reject(signal?.reason);
  signal?.addEventListener('abort', onAbort, { once: true });
  try {
    await subscribe();
    void peer.closed.then(() => over.resolve('lost'));
    const how = await over.promise;
    await showing;
    return how;
  } finally {
    signal?.removeEventListener('abort', onAbort);
    for (const release of releases) release();
    if (subscription !== undefined && !peer.isClosed)
      await peer.call('conversation/unsubscribe', { subscription }).catch(() => undefined);
  }
}
