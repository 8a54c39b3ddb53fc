import type { Duplex } from 'node:stream';
import type { z } from 'zod';
import { HoldfastError } from '../../protocol/errors.ts';
import type { PayloadBuffers } from '../../protocol/wire/payload-buffers.ts';
import { Peer } from '../../protocol/wire/peer.ts';
import { type MethodMap, NOTHING } from '../../protocol/wire/shapes.ts';
import { SIDECAR_METHODS, SIDECAR_PROTOCOL } from '../../sidecar/wire.ts';

export type SidecarPeer = Peer<typeof NOTHING, typeof SIDECAR_METHODS>;
export type SidecarHello = z.output<(typeof SIDECAR_METHODS)['hello']['result']>;

/** A sidecar is up within this or it is not up. */
const HELLO_MS = 10_000;

/**
 * A connection to the sidecar of this session, greeted. Fails as `dial` does, also where the sidecar goes before it answers; with
 * `conflict` when something else answers, or with `version_mismatch`.
 */
export async function greetSidecar(
  dial: () => Promise<Duplex>,
  sessionId: string,
  payloads?: PayloadBuffers,
): Promise<{ readonly peer: SidecarPeer; readonly hello: SidecarHello }> {
  const peer: SidecarPeer = new Peer({
    stream: await dial(),
    name: `the sidecar of ${sessionId}`,
    serves: NOTHING,
    calls: SIDECAR_METHODS,
    notifies: NOTHING,
    hears: NOTHING,
    handlers: {},
    payloads,
  });
  return { peer, hello: await greet(peer, sessionId) };
}

/** Says hello; the connection is closed where that fails. Errors: as `greetSidecar`. */
export async function greet<S extends MethodMap>(
  peer: Peer<S, typeof SIDECAR_METHODS>,
  sessionId: string,
): Promise<SidecarHello> {
  try {
    const request = { protocol: SIDECAR_PROTOCOL, session: sessionId };
    const hello: SidecarHello = await peer.call('hello', request, { timeoutMs: HELLO_MS });
    if (hello.protocol !== SIDECAR_PROTOCOL || hello.session !== sessionId) {
      throw new HoldfastError('conflict', `Something else answered for the sidecar of ${sessionId}`);
    }
    return hello;
  } catch (error) {
    peer.close();
    if (!(error instanceof HoldfastError) || error.code !== 'connection_closed') throw error;
    throw new HoldfastError('sandbox_lost', `The sidecar of ${sessionId} has just ended`, {
      next: 'send the next request: it gets a new one',
      details: { session: sessionId },
      cause: error,
    });
  }
}
