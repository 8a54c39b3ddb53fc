import type { Methods, Notifications } from '../../protocol/methods.ts';
import type { Peer } from '../../protocol/wire/peer.ts';
import type { Handlers, EmptyMap } from '../../protocol/wire/shapes.ts';

/** The supervisor's end of a connection. What belongs to a connection (subscriptions) ends with its `closed`. */
export type ClientPeer = Peer<Methods, EmptyMap, Notifications>;

/** Exactly one handler per method; a missing one does not compile. `hello` is the server's own. */
export type HandlerTable = Omit<Handlers<Methods, ClientPeer>, 'hello'>;
