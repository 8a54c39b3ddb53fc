import { HoldfastError } from '../../../protocol/errors.ts';
import type { METHODS, NOTIFICATIONS } from '../../../protocol/methods.ts';
import type { Peer } from '../../../protocol/wire/peer.ts';
import type { EmptyMap, Handlers } from '../../../protocol/wire/shapes.ts';
import type { Ids } from '../../base/ids.ts';
import type { ConversationLive } from '../../conversation/conversation-live.ts';
import type { ConversationReader } from '../../conversation/conversation-reader.ts';
import type { ConversationSearch } from '../../conversation/conversation-search.ts';
import { ConversationSubscription } from '../../conversation/conversation-subscription.ts';
import type { SessionMemory } from '../../conversation/session-memory.ts';
import type { EventLog } from '../../history/event-log.ts';
import type { MemoryRequest, RequestedMemory } from '../../sessions/memory-requests.ts';

type Client = Pick<Peer<typeof METHODS, EmptyMap, typeof NOTIFICATIONS>, 'notify' | 'closed'>;
type ConversationMethods = {
  [
    M in keyof typeof METHODS as M extends `${'conversation' | 'memory'}/${string}` | 'session/search'
      ? M
      : never
  ]: (typeof METHODS)[M];
};

export interface ConversationHandlersOptions {
  readonly reader: ConversationReader;
  readonly live: ConversationLive;
  readonly search: ConversationSearch;
  readonly memory: SessionMemory;
  readonly events: EventLog;
  readonly requestMemory: (
    session: string,
    request: MemoryRequest,
    signal: AbortSignal,
  ) => Promise<RequestedMemory>;
  readonly sessionId: (reference: string) => string;
  readonly ids: Ids;
}

/** The answers to `conversation/*`, `memory/*` and `session/search`. */
export function conversationHandlers<P extends Client>(
  options: ConversationHandlersOptions,
): Handlers<ConversationMethods, P> {
  const { reader, live, search, memory, events, sessionId, ids } = options;
  const subscriptions = new Map<
    string,
    { readonly client: P; readonly subscription: ConversationSubscription }
  >();

  return {
    'conversation/read': async ({ session, before, after, limit }) => {
      if (before !== undefined && after !== undefined) {
        throw new HoldfastError('invalid_params', 'A page of a conversation was not read', {
          why: 'both `before` and `after` were given',
        });
      }
      return reader.page(sessionId(session), { before, after, limit });
    },
    'conversation/subscribe': ({ session, after }, { peer }) => {
      const id = sessionId(session);
      const name = ids.next('sub');
      const seq = after ?? events.head(id).seq;
      const subscription = new ConversationSubscription({
        ...{ events, reader, live },
        sessionId: id,
        after: seq,
        sink: {
          changed: (items, upTo) =>
            peer.notify('conversation/changed', { subscription: name, items, seq: upTo }),
          chunk: (text) => peer.notify('conversation/chunk', { subscription: name, ...text }),
        },
      });
      subscriptions.set(name, { client: peer, subscription });
      const end = (): void => {
        subscription.stop();
        subscriptions.delete(name);
      };
      void peer.closed.then(end);
      // After the response: the client has to know the subscription's id before its first notification.
      setImmediate(() => {
        void subscription.run().then(end, async () => {
          end();
          await peer.notify('conversation/resync', { subscription: name }).catch(() => undefined);
        });
      });
      return { subscription: name, seq };
    },
    'conversation/unsubscribe': ({ subscription: name }, { peer }) => {
      const mine = subscriptions.get(name);
      if (mine?.client !== peer) throw new HoldfastError('not_found', `There is no subscription ${name}`);
      mine.subscription.stop();
      subscriptions.delete(name);
      return {};
    },
    'session/search': ({ text, session, profile, limit, cursor }) =>
      search.search({
        ...{ text, profile, limit, cursor },
        sessionId: session === undefined ? null : sessionId(session),
      }),

    'memory/show': ({ session, version }) => ({ memory: memory.show(sessionId(session), version) }),
    'memory/set': ({ session, text, ifVersion, opId }) => ({
      memory: memory.set(sessionId(session), { text, ifVersion, opId, author: 'person' }),
    }),
    'memory/request': ({ session, timeoutMs, opId }, { signal }) =>
      options.requestMemory(session, { timeoutMs, opId }, signal),
    'memory/history': ({ session, before, limit }) => memory.history(sessionId(session), { before, limit }),
  };
}
