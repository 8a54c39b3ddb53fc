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
  /** The connection. The peer owns and closes it. */
  readonly stream: Duplex;
  /** The name of the other side, for logs and errors. */
  readonly name: string;
  /** What a person does to get a newer program on the other side, in the imperative: advice where a method is missing there. */
  readonly update?: string | undefined;
  readonly serves: Serves;
  readonly calls: Calls;
  /** Notifications that this side sends. */
  readonly sends: Out;
  /** Notifications that this side receives. Others are ignored. */
  readonly receives: In;
  readonly limits?: Partial<PeerLimits>;
  /** The pool for buffers of large payloads, shared by the peers of a process. Default: buffers are allocated. */
  readonly bufferPool?: BufferPool | undefined;
  /** The method that must succeed before others are served (`hello`), and the methods that are allowed before it. */
  readonly handshake?: {
    readonly method: keyof Serves & string;
    readonly allowedBefore: readonly (keyof Serves & string)[];
  };
  /** Called with errors whose text is not sent to the other side. */
  readonly onInternalError?: InternalErrorListener;
}

type HandlersOf<
  S extends MethodMap,
  C extends MethodMap,
  O extends NotificationMap,
  I extends NotificationMap,
> =
  | { readonly handlers: Handlers<S, Peer<S, C, O, I>>; readonly partial?: false }
  /** Declared methods without a handler fail with `method_not_found`. */
  | { readonly handlers: Partial<Handlers<S, Peer<S, C, O, I>>>; readonly partial: true };

export type PeerOptions<
  S extends MethodMap,
  C extends MethodMap,
  O extends NotificationMap,
  I extends NotificationMap,
> = PeerBasics<S, C, O, I> & HandlersOf<S, C, O, I>;
