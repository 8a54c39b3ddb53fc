import type { z } from 'zod';
import { Peer } from '../../../protocol/wire/peer.ts';
import type { CallOptions } from '../../../protocol/wire/shapes.ts';
import { EMPTY_MAP } from '../../../protocol/wire/shapes.ts';
import {
  type RestoreResult,
  type ScanResult,
  type SNAPSHOT_CALLS,
  STORE_CALLS,
} from '../../../snapshot-format/sidecar-calls.ts';
import { SIDECAR_METHODS, SIDECAR_PROTOCOL } from '../../../sidecar/wire.ts';
import { connectToSidecarSocket } from '../../../supervisor/engine/docker/dial.ts';
import type { ContainerPair } from '../container-pair.ts';
import type { MemoryStore } from '../../fixtures/snapshots/memory-store.ts';

type Params<M extends keyof typeof SNAPSHOT_CALLS> = z.input<(typeof SNAPSHOT_CALLS)[M]['params']>;

/** A connection to a real sidecar, with a store of the test's behind it. */
export class SnapshotClient {
  readonly store: MemoryStore;
  readonly #peer: Peer<typeof STORE_CALLS, typeof SIDECAR_METHODS>;

  private constructor(peer: Peer<typeof STORE_CALLS, typeof SIDECAR_METHODS>, store: MemoryStore) {
    this.#peer = peer;
    this.store = store;
  }

  static async open(pair: ContainerPair, store: MemoryStore): Promise<SnapshotClient> {
    const stream = await connectToSidecarSocket(pair.path('control/sidecar.sock'));
    if (stream === null) throw new Error('the sidecar does not listen');
    const peer = new Peer({
      stream,
      name: 'the sidecar',
      serves: STORE_CALLS,
      calls: SIDECAR_METHODS,
      sends: EMPTY_MAP,
      receives: EMPTY_MAP,
      handlers: store.handlers,
    });
    await peer.call('hello', { protocol: SIDECAR_PROTOCOL, session: pair.session });
    return new SnapshotClient(peer, store);
  }

  scan(params: Partial<Params<'snapshot/scan'>> = {}, options: CallOptions = {}): Promise<ScanResult> {
    return this.#peer.call(
      'snapshot/scan',
      { base: null, budgetBytes: null, frozen: false, ...params },
      options,
    );
  }

  restore(
    params: Partial<Params<'snapshot/restore'>> & { root: string },
    options: CallOptions = {},
  ): Promise<RestoreResult> {
    return this.#peer.call('snapshot/restore', { path: null, dryRun: false, ...params }, options);
  }

  async saveScanCache(): Promise<boolean> {
    return (await this.#peer.call('snapshot/save-scan-cache', { isLast: false })).isSaved;
  }

  close(): void {
    this.#peer.close();
  }
}
