import type { Duplex } from 'node:stream';
import type { PeerLimits } from './limits.ts';
import type { BufferPool } from './buffer-pool.ts';
import type { Peer } from './peer.ts';
import type { Handlers, InternalErrorListener, MethodMap, NotificationMap } from './shapes.ts';

interface PeerBasics<
  Serves extends MethodMap,
  Calls extends MethodMap,
  Out extends NotificationMap,
  In extends NotificationMap,
> {
  /** The connection; the peer owns and ends it. */
  readonly stream: Duplex;
  /** For logs and error texts: who is at the other end. */
  readonly name: string;
  readonly serves: Serves;
  readonly calls: Calls;
  /** Notifications of ours. */
  readonly sends: Out;
  /** Notifications of the other side. Unknown ones are ignored. */
  readonly receives: In;
  readonly limits?: Partial<PeerLimits>;
  /** Where the memory of large payloads comes from and goes to; the same for all peers of a process. Default: it is allocated. */
  readonly bufferPool?: BufferPool | undefined;
  /** Which method must be answered well before others are served: `hello`; and which may come before it. */
  readonly handshake?: {
    readonly method: keyof Serves & string;
    readonly allowedBefore: readonly (keyof Serves & string)[];
  };
  /** Errors whose text stays on this side. */
  readonly onInternalError?: InternalErrorListener;
}

type HandlersOf<
  S extends MethodMap,
  C extends MethodMap,
  O extends NotificationMap,
  I extends NotificationMap,
> =
  | { readonly handlers: Handlers<S, Peer<S, C, O, I>>; readonly partial?: false }
  /** Declared methods may be missing; they are answered with `method_not_found`. */
  | { readonly handlers: Partial<Handlers<S, Peer<S, C, O, I>>>; readonly partial: true };

export type PeerOptions<
  S extends MethodMap,
  C extends MethodMap,
  O extends NotificationMap,
  I extends NotificationMap,
> = PeerBasics<S, C, O, I> & HandlersOf<S, C, O, I>;
