import { HoldfastError } from '../../../protocol/errors.ts';
import type { NOTIFICATIONS } from '../../../protocol/methods.ts';
import type { WATCH_METHODS } from '../../../protocol/watch.ts';
import type { Peer } from '../../../protocol/wire/peer.ts';
import type { Handlers, MethodMap, EmptyMap } from '../../../protocol/wire/shapes.ts';
import type { Ids } from '../../base/ids.ts';
import type { FilesConnections } from '../../workspace/files-connections.ts';
import { ClientWatch } from '../../workspace/client-watch.ts';

type Client = Pick<Peer<MethodMap, EmptyMap, typeof NOTIFICATIONS>, 'notify' | 'closed'>;

/** Watches of one client. */
const MOST_WATCHES = 200;

export interface WatchHandlersOptions {
  readonly connections: FilesConnections;
  /** The id of the session that a client names. Errors: `not_found`, `ambiguous_name`. */
  readonly sessionId: (reference: string) => string;
  readonly ids: Ids;
}

/** The answers to `files/watch` and `files/unwatch`. */
export function watchHandlers<P extends Client>(
  options: WatchHandlersOptions,
): Handlers<typeof WATCH_METHODS, P> {
  const { connections, sessionId, ids } = options;
  const open = new Map<string, { readonly client: P; readonly watch: ClientWatch }>();

  return {
    'files/watch': async ({ session, ...request }, { peer, signal }) => {
      if ([...open.values()].filter(({ client }) => client === peer).length >= MOST_WATCHES) {
        throw new HoldfastError('overloaded', `${request.path} is not watched`, {
          why: `this connection has ${String(MOST_WATCHES)} watches already`,
          next: 'end some, or watch a folder above them',
        });
      }
      const id = ids.next('sub');
      const watch = new ClientWatch(connections, sessionId(session), request, (batch) =>
        peer.notify('files/changed', { subscription: id, ...batch }),
      );
      open.set(id, { client: peer, watch });
      const end = (): void => watch.stop();
      signal.addEventListener('abort', end);
      void peer.closed.then(end);
      void watch.ended.then(() => open.delete(id));
      try {
        const mode = await Promise.race([watch.opened, cancelled(signal)]);
        const { promise: answered, resolve } = Promise.withResolvers<undefined>();
        watch.deliverAfter(answered);
        setImmediate(() => resolve(undefined));
        return { subscription: id, mode };
      } finally {
        signal.removeEventListener('abort', end);
      }
    },
    'files/unwatch': ({ subscription }, { peer }) => {
      const mine = open.get(subscription);
      if (mine?.client !== peer)
        throw new HoldfastError('not_found', `There is no subscription ${subscription}`);
      mine.watch.stop();
      open.delete(subscription);
      return {};
    },
  };
}

function cancelled(signal: AbortSignal): Promise<never> {
  return new Promise((_resolve, reject) => {
    const refuse = (): void => reject(HoldfastError.from(signal.reason, 'The request was cancelled'));
    if (signal.aborted) refuse();
    else signal.addEventListener('abort', refuse, { once: true });
  });
}
