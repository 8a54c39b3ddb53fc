import type { Duplex } from 'node:stream';
import type { z } from 'zod';
import { HoldfastError } from '../../protocol/errors.ts';
import { Peer } from '../../protocol/wire/peer.ts';
import { type CallOptions, NOTHING } from '../../protocol/wire/shapes.ts';
import { SIDECAR_METHODS, SIDECAR_PROTOCOL } from '../../sidecar/wire.ts';

type FilesMethod = Extract<keyof typeof SIDECAR_METHODS, `files/${string}`>;
type Params<M extends FilesMethod> = z.input<(typeof SIDECAR_METHODS)[M]['params']>;
type Result<M extends FilesMethod> = z.output<(typeof SIDECAR_METHODS)[M]['result']>;

const HELLO_MS = 10_000;

/** A connection to the sidecar of a session that carries calls about files and nothing else. Every answer is checked. */
export class FilesConnection {
  /** Resolves when it has ended. Never rejects. */
  readonly closed: Promise<unknown>;
  readonly #peer: Peer<typeof NOTHING, typeof SIDECAR_METHODS>;

  private constructor(peer: Peer<typeof NOTHING, typeof SIDECAR_METHODS>) {
    this.#peer = peer;
    this.closed = peer.closed;
  }

  /** Fails as `dial` does, or with `conflict` when another session's sidecar answers. */
  static async open(dial: () => Promise<Duplex>, sessionId: string): Promise<FilesConnection> {
    const peer = new Peer<typeof NOTHING, typeof SIDECAR_METHODS>({
      stream: await dial(),
      name: `the sidecar of ${sessionId}`,
      serves: NOTHING,
      calls: SIDECAR_METHODS,
      notifies: NOTHING,
      hears: NOTHING,
      handlers: {},
    });
    try {
      const hello = await peer.call(
        'hello',
        { protocol: SIDECAR_PROTOCOL, session: sessionId },
        { timeoutMs: HELLO_MS },
      );
      if (hello.session !== sessionId) {
        throw new HoldfastError('conflict', `Something else answered for the sidecar of ${sessionId}`);
      }
      return new FilesConnection(peer);
    } catch (error) {
      peer.close();
      throw error;
    }
  }

  call<M extends FilesMethod>(
    method: M,
    params: Params<M>,
    options: CallOptions = {},
  ): Promise<{ result: Result<M>; bytes: Buffer }> {
    return this.#peer.callWithBytes(method, params, options);
  }

  close(): void {
    this.#peer.close();
  }
}
