import type { Duplex } from 'node:stream';
import { z } from 'zod';
import { HoldfastError } from '../errors.ts';
import { ClientInfoSchema, METHODS, NOTIFICATIONS, PROTOCOL_VERSIONS } from '../methods.ts';
import type { ClientInfo, Methods, Notifications, Result } from '../methods.ts';
import { BufferPool } from '../wire/buffer-pool.ts';
import { Peer } from '../wire/peer.ts';
import { EMPTY_MAP } from '../wire/shapes.ts';
import type { EmptyMap } from '../wire/shapes.ts';

/** The client's end of a connection to a supervisor. */
export type SupervisorPeer = Peer<EmptyMap, Methods, EmptyMap, Notifications>;
export type SupervisorInfo = Pick<ClientInfo, 'version' | 'build' | 'builtAt'>;

/** How a supervisor responded to our hello. */
export type HelloOutcome =
  | { readonly kind: 'agreed'; readonly hello: Result<'hello'>; readonly supervisor: SupervisorInfo }
  /** There is no common protocol version. */
  | {
      readonly kind: 'mismatch';
      readonly error: HoldfastError;
      readonly supervisor: SupervisorInfo | undefined;
    }
  /** It closed the connection without a response, because it is exiting. */
  | { readonly kind: 'gone' };

/** `name` is how errors name it; `update`: what a person does to get a newer one, in the imperative. */
export function createSupervisorPeer(
  stream: Duplex,
  { name = 'the supervisor', update }: { readonly name?: string; readonly update?: string } = {},
): SupervisorPeer {
  return new Peer({
    stream,
    name,
    update,
    serves: EMPTY_MAP,
    handlers: {},
    calls: METHODS,
    sends: EMPTY_MAP,
    receives: NOTIFICATIONS,
    bufferPool: new BufferPool(),
  });
}

const MismatchSchema = z.object({ supervisor: ClientInfoSchema });

/** Says hello. A supervisor of another home than `home` refuses. Undefined: any home. */
export async function sayHello(
  peer: SupervisorPeer,
  client: ClientInfo,
  home: string | undefined,
  options: { readonly timeoutMs: number; readonly signal?: AbortSignal | undefined },
): Promise<HelloOutcome> {
  try {
    const params = {
      client,
      protocolVersions: [...PROTOCOL_VERSIONS],
      ...(home === undefined ? {} : { home }),
    };
    const hello = await peer.call('hello', params, options);
    return { kind: 'agreed', hello, supervisor: hello.supervisor };
  } catch (error) {
    const failure = HoldfastError.from(error);
    switch (failure.code) {
      case 'connection_closed':
      case 'shutting_down':
        return { kind: 'gone' };
      case 'version_mismatch': {
        const details = MismatchSchema.safeParse(failure.details);
        return { kind: 'mismatch', error: failure, supervisor: details.data?.supervisor };
      }
      default:
        throw failure;
    }
  }
}
