import type { Methods, Notifications } from '../../protocol/methods.ts';
import type { Peer } from '../../protocol/wire/peer.ts';
import type { Handlers, EmptyMap } from '../../protocol/wire/shapes.ts';

/** The supervisor's end of a connection. Subscriptions of the connection end when `closed` settles. */
export type ClientPeer = Peer<Methods, EmptyMap, Notifications>;

/** One handler per method; a missing one does not compile. The server answers `hello` itself. */
export type HandlerTable = Omit<Handlers<Methods, ClientPeer>, 'hello'>;
