import type { Duplex } from 'node:stream';
import type { z } from 'zod';
import type { BufferPool } from '../../protocol/wire/buffer-pool.ts';
import type { CallResult, CallOptions } from '../../protocol/wire/shapes.ts';
import type { SIDECAR_METHODS } from '../../sidecar/wire.ts';
import { keepAlive, type LivenessTimeouts } from './liveness.ts';
import { openSidecarPeer, type SidecarPeer } from './sidecar-peer.ts';

type FilesMethod = Extract<keyof typeof SIDECAR_METHODS, `files/${string}`>;
type Params<M extends FilesMethod> = z.input<(typeof SIDECAR_METHODS)[M]['params']>;
type Result<M extends FilesMethod> = z.output<(typeof SIDECAR_METHODS)[M]['result']>;

/** A connection to the sidecar of a session for calls about files only. Every answer is validated. */
export class FilesConnection {
  /** Resolves when it has ended. Never rejects. */
  readonly closed: Promise<unknown>;
  readonly #peer: SidecarPeer;

  private constructor(peer: SidecarPeer) {
    this.#peer = peer;
    this.closed = peer.closed;
  }

  /** Errors: those of `greetSidecar`. The connection ends when the sidecar does not answer while calls are pending. */
  static async open(
    dial: () => Promise<Duplex>,
    sessionId: string,
    payloads?: BufferPool,
    timeouts?: LivenessTimeouts,
  ): Promise<FilesConnection> {
    const { peer } = await openSidecarPeer(dial, sessionId, payloads);
    keepAlive(peer, sessionId, timeouts);
    return new FilesConnection(peer);
  }

  call<M extends FilesMethod>(
    method: M,
    params: Params<M>,
    options: CallOptions = {},
  ): Promise<CallResult<Result<M>>> {
    return this.#peer.callWithBytes(method, params, options);
  }

  close(): void {
    this.#peer.close();
  }
}
