import type { Duplex } from 'node:stream';
import { HoldfastError } from '../../protocol/errors.ts';
import { type Hash, SNAPSHOT_LIMITS } from '../../snapshot-format/objects.ts';
import { type RestoreResult, type ScanResult, STORE_CALLS } from '../../snapshot-format/sidecar-calls.ts';
import { BufferPool } from '../../protocol/wire/buffer-pool.ts';
import { Peer } from '../../protocol/wire/peer.ts';
import { EMPTY_MAP, type Progress, withBytes } from '../../protocol/wire/shapes.ts';
import { SIDECAR_METHODS } from '../../sidecar/wire.ts';
import { keepAlive, withStallTimeout } from '../workspace/liveness.ts';
import { handshake } from '../workspace/sidecar-peer.ts';
import type { IncomingPacks } from './store/incoming-packs.ts';
import type { LineageStore } from './store/lineage-store.ts';
import { ScanCacheFile } from './store/scan-cache-file.ts';

const { hashBytes } = SNAPSHOT_LIMITS;

export interface SnapshotCallOptions {
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((progress: Progress) => void) | undefined;
}

/** What a sidecar may do while a call of ours runs: read what its lineage has, and send where something is to be received. */
interface Desk {
  readonly store: LineageStore;
  readonly incoming: IncomingPacks | null;
  readonly cache: ScanCacheFile;
  /** It may leave another cache. */
  readonly keeps: boolean;
  /** It is alive. */
  readonly heard: () => void;
}

/** A connection to a sidecar for snapshots and restores, one at a time. Every answer is checked, and so is all that it asks of the store. */
export class SnapshotConnection {
  readonly #peer: Peer<typeof STORE_CALLS, typeof SIDECAR_METHODS>;
  readonly #sessionId: string;
  #desk: Desk | null = null;
  #heard = 0;

  private constructor(stream: Duplex, sessionId: string) {
    this.#sessionId = sessionId;
    this.#peer = new Peer({
      stream,
      name: `the sidecar of ${sessionId}`,
      serves: STORE_CALLS,
      calls: SIDECAR_METHODS,
      sends: EMPTY_MAP,
      receives: EMPTY_MAP,
      bufferPool: new BufferPool(),
      handlers: {
        'store/have': async ({ hashes }, { bytes }) => {
          if (bytes.length !== hashes * hashBytes) throw cutOff();
          return withBytes({}, await this.#receiving().have(bytes));
        },
        'store/put': async ({ pack, offset }, { bytes, releaseBytes }) => {
          await this.#receiving().put(pack, offset, bytes);
          releaseBytes();
          return {};
        },
        'store/seal': async ({ pack, bytes, objects }) => {
          await this.#receiving().sealWithDeferredCheck(pack, bytes, objects);
          return {};
        },
        'store/read': async ({ hashes }, { bytes }) => {
          if (bytes.length !== hashes * hashBytes) throw cutOff();
          const wanted: Hash[] = [];
          for (let at = 0; at < bytes.length; at += hashBytes)
            wanted.push(bytes.subarray(at, at + hashBytes));
          const { frames, bytes: behind } = await this.#open().store.readFramesWith(wanted);
          return withBytes({ frames }, behind);
        },
        'cache/read': async ({ offset }) => withBytes({}, await this.#open().cache.read(offset)),
        'cache/put': async ({ offset }, { bytes }) => {
          await this.#keeping().put(offset, bytes);
          return {};
        },
        'cache/seal': async ({ bytes }) => {
          await this.#keeping().seal(bytes);
          return {};
        },
      },
    });
  }

  /** Errors: those of `greetSidecar`. */
  static async open(dial: () => Promise<Duplex>, sessionId: string): Promise<SnapshotConnection> {
    const connection = new SnapshotConnection(await dial(), sessionId);
    await handshake(connection.#peer, sessionId);
    keepAlive(connection.#peer, sessionId);
    return connection;
  }

  /** What it finds and the store has not comes into `incoming`. */
  async scan(
    params: {
      readonly base: string | null;
      readonly budgetBytes: number | null;
      readonly frozen: boolean;
      readonly isBaseSuspect: boolean;
      readonly awaitsLeases: boolean;
    },
    store: LineageStore,
    incoming: IncomingPacks,
    options: SnapshotCallOptions = {},
  ): Promise<ScanResult> {
    await incoming.beginScan();
    return await this.#during({ store, incoming }, options, (watched) =>
      this.#peer.call('snapshot/scan', params, watched),
    );
  }

  async restore(
    params: {
      readonly root: string;
      readonly path: string | null;
      readonly dryRun: boolean;
      readonly seen: string | null;
    },
    store: LineageStore,
    options: SnapshotCallOptions = {},
  ): Promise<RestoreResult> {
    return await this.#during({ store, incoming: null }, options, (watched) =>
      this.#peer.call('snapshot/restore', params, watched),
    );
  }

  /**
   * Has it leave what it knows for the session's next sidecar. False where it has nothing to leave, or something else to do; with `last`
   * it ends that first.
   */
  async saveScanCache(
    isLast: boolean,
    store: LineageStore,
    options: SnapshotCallOptions = {},
  ): Promise<boolean> {
    const { isSaved } = await this.#during({ store, incoming: null, keeps: true }, options, (watched) =>
      this.#peer.call('snapshot/save-scan-cache', { isLast }, watched),
    );
    return isSaved;
  }

  /** How often something was heard of the sidecar, answers included. */
  get heard(): number {
    return this.#heard;
  }

  get isClosed(): boolean {
    return this.#peer.isClosed;
  }

  close(): void {
    this.#peer.close();
  }

  async #during<T>(
    desk: Pick<Desk, 'store' | 'incoming'> & Partial<Pick<Desk, 'keeps'>>,
    { signal, onProgress }: SnapshotCallOptions,
    call: (options: SnapshotCallOptions) => Promise<T>,
  ): Promise<T> {
    const cache = new ScanCacheFile(desk.store.directory, this.#sessionId);
    try {
      return await withStallTimeout(async (refresh, stuck) => {
        const heard = (): void => {
          this.#heard += 1;
          refresh();
        };
        this.#desk = { keeps: false, ...desk, cache, heard };
        const result = await call({
          signal: signal === undefined ? stuck : AbortSignal.any([stuck, signal]),
          onProgress: (progress) => {
            heard();
            onProgress?.(progress);
          },
        });
        heard();
        return result;
      });
    } finally {
      this.#desk = null;
      await cache.close();
    }
  }

  #open(): Desk {
    const desk = this.#desk;
    if (desk === null) throw new HoldfastError('invalid_request', 'Nothing is asked of the store now');
    desk.heard();
    return desk;
  }

  #receiving(): IncomingPacks {
    const { incoming } = this.#open();
    if (incoming === null) throw new HoldfastError('invalid_request', 'The store takes nothing now');
    return incoming;
  }

  #keeping(): ScanCacheFile {
    const { cache, keeps } = this.#open();
    if (!keeps) throw new HoldfastError('invalid_request', 'No cache is taken now');
    return cache;
  }
}

function cutOff(): HoldfastError {
  return new HoldfastError('invalid_params', 'The hashes behind the call are not as many as it says');
}
