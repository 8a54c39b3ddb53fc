import type { Duplex } from 'node:stream';
import type { z } from 'zod';
import { HoldfastError } from '../../protocol/errors.ts';
import type { BufferPool } from '../../protocol/wire/buffer-pool.ts';
import { Peer } from '../../protocol/wire/peer.ts';
import { type MethodMap, EMPTY_MAP } from '../../protocol/wire/shapes.ts';
import { SIDECAR_METHODS, SIDECAR_PROTOCOL } from '../../sidecar/wire.ts';

export type SidecarPeer = Peer<typeof EMPTY_MAP, typeof SIDECAR_METHODS>;
export type SidecarHello = z.output<(typeof SIDECAR_METHODS)['hello']['result']>;

/** How long a sidecar may take to answer hello. */
const HELLO_MS = 10_000;

/**
 * Opens a connection to the sidecar of this session and says hello. Errors: those of `dial`; `sandbox_lost` when the sidecar exits
 * before it answers; `conflict` when something else answers; `version_mismatch`.
 */
export async function openSidecarPeer(
  dial: () => Promise<Duplex>,
  sessionId: string,
  payloads?: BufferPool,
): Promise<{ readonly peer: SidecarPeer; readonly hello: SidecarHello }> {
  const peer: SidecarPeer = new Peer({
    stream: await dial(),
    name: `the sidecar of ${sessionId}`,
    serves: EMPTY_MAP,
    calls: SIDECAR_METHODS,
    sends: EMPTY_MAP,
    receives: EMPTY_MAP,
    handlers: {},
    bufferPool: payloads,
  });
  return { peer, hello: await handshake(peer, sessionId) };
}

/** Says hello, and closes the connection if that fails. */
export async function handshake<S extends MethodMap>(
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
