import type { Duplex } from 'node:stream';
import { HoldfastError } from '../../protocol/errors.ts';
import { type Hash, SNAPSHOT_LIMITS } from '../../snapshot-format/objects.ts';
import {
  type RestoreResult,
  type ScanResult,
  type StateScope,
  STORE_CALLS,
} from '../../snapshot-format/sidecar-calls.ts';
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

/**
 * What the sidecar may access while one of our calls runs: objects of its lineage, and, if given, packs and a cache to
 * write.
 */
interface CallContext {
  readonly store: LineageStore;
  readonly incoming: IncomingPacks | null;
  readonly cache: ScanCacheFile;
  /** The sidecar may replace its scan cache. */
  readonly acceptsCache: boolean;
  /** Called for each sign of life. */
  readonly onActivity: () => void;
}

/**
 * A connection to a sidecar for snapshots and restores, one call at a time. Every answer and every store request is
 * validated.
 */
export class SnapshotConnection {
  readonly #peer: Peer<typeof STORE_CALLS, typeof SIDECAR_METHODS>;
  readonly #sessionId: string;
  #context: CallContext | null = null;
  #messagesReceived = 0;

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
          if (bytes.length !== hashes * hashBytes) throw wrongHashCount();
          return withBytes({}, await this.#activeIncoming().have(bytes));
        },
        'store/put': async ({ pack, offset }, { bytes, releaseBytes }) => {
          await this.#activeIncoming().put(pack, offset, bytes);
          releaseBytes();
          return {};
        },
        'store/seal': async ({ pack, bytes, objects }) => {
          await this.#activeIncoming().sealWithDeferredCheck(pack, bytes, objects);
          return {};
        },
        'store/read': async ({ hashes }, { bytes }) => {
          if (bytes.length !== hashes * hashBytes) throw wrongHashCount();
          const wanted: Hash[] = [];
          for (let at = 0; at < bytes.length; at += hashBytes)
            wanted.push(bytes.subarray(at, at + hashBytes));
          const { frames, bytes: payload } = await this.#activeContext().store.readFramesWith(wanted);
          return withBytes({ frames }, payload);
        },
        'cache/read': async ({ offset }) => withBytes({}, await this.#activeContext().cache.read(offset)),
        'cache/put': async ({ offset }, { bytes }) => {
          await this.#activeCache().put(offset, bytes);
          return {};
        },
        'cache/seal': async ({ bytes }) => {
          await this.#activeCache().seal(bytes);
          return {};
        },
      },
    });
  }

  /** Errors: those of the handshake with the sidecar. */
  static async open(dial: () => Promise<Duplex>, sessionId: string): Promise<SnapshotConnection> {
    const connection = new SnapshotConnection(await dial(), sessionId);
    await handshake(connection.#peer, sessionId);
    keepAlive(connection.#peer, sessionId);
    return connection;
  }

  /** Scans the workspace, or the agent's state. Objects that the store lacks are sent to `incoming`. */
  async scan(
    params: {
      readonly base: string | null;
      readonly budgetBytes: number | null;
      readonly frozen: boolean;
      readonly isBaseSuspect: boolean;
      readonly awaitsLeases: boolean;
      readonly state: StateScope | null;
    },
    store: LineageStore,
    incoming: IncomingPacks,
    options: SnapshotCallOptions = {},
  ): Promise<ScanResult> {
    await incoming.beginScan();
    return await this.#call({ store, incoming }, options, (watched) =>
      this.#peer.call('snapshot/scan', params, watched),
    );
  }

  /**
   * An abort after the first change of a file no longer ends it: names are moved to the end. So this settles when the sidecar has
   * answered, and nothing changes in the workspace afterwards.
   */
  async restore(
    params: {
      readonly root: string;
      readonly path: string | null;
      readonly dryRun: boolean;
      readonly scannedRoot: string | null;
      readonly state: StateScope | null;
    },
    store: LineageStore,
    options: SnapshotCallOptions = {},
  ): Promise<RestoreResult> {
    const { signal: cancel, onProgress } = options;
    return await this.#call({ store, incoming: null }, { onProgress }, (watched) =>
      this.#peer.call('snapshot/restore', params, { ...watched, cancel }),
    );
  }

  /**
   * Asks the sidecar to save its scan cache for the session's next sidecar. False if there is nothing to save, or if
   * the sidecar is busy; with `isLast` it first ends what it does.
   */
  async saveScanCache(
    isLast: boolean,
    store: LineageStore,
    options: SnapshotCallOptions = {},
  ): Promise<boolean> {
    const { isSaved } = await this.#call({ store, incoming: null, acceptsCache: true }, options, (watched) =>
      this.#peer.call('snapshot/save-scan-cache', { isLast }, watched),
    );
    return isSaved;
  }

  /** How many messages the sidecar has sent, answers included. */
  get messagesReceived(): number {
    return this.#messagesReceived;
  }

  get isClosed(): boolean {
    return this.#peer.isClosed;
  }

  close(): void {
    this.#peer.close();
  }

  async #call<T>(
    context: Pick<CallContext, 'store' | 'incoming'> & Partial<Pick<CallContext, 'acceptsCache'>>,
    { signal, onProgress }: SnapshotCallOptions,
    call: (options: SnapshotCallOptions) => Promise<T>,
  ): Promise<T> {
    const cache = new ScanCacheFile(context.store.directory, this.#sessionId);
    try {
      return await withStallTimeout(async (refresh, stuck) => {
        const onActivity = (): void => {
          this.#messagesReceived += 1;
          refresh();
        };
        this.#context = { acceptsCache: false, ...context, cache, onActivity };
        const result = await call({
          signal: signal === undefined ? stuck : AbortSignal.any([stuck, signal]),
          onProgress: (progress) => {
            onActivity();
            onProgress?.(progress);
          },
        });
        onActivity();
        return result;
      });
    } finally {
      this.#context = null;
      await cache.close();
    }
  }

  #activeContext(): CallContext {
    const context = this.#context;
    if (context === null)
      throw new HoldfastError(
        'invalid_request',
        'The store serves requests only during a snapshot or restore',
      );
    context.onActivity();
    return context;
  }

  #activeIncoming(): IncomingPacks {
    const { incoming } = this.#activeContext();
    if (incoming === null)
      throw new HoldfastError('invalid_request', 'The store accepts packs only during a scan');
    return incoming;
  }

  #activeCache(): ScanCacheFile {
    const { cache, acceptsCache } = this.#activeContext();
    if (!acceptsCache)
      throw new HoldfastError(
        'invalid_request',
        'The store accepts a scan cache only when it has asked for one',
      );
    return cache;
  }
}

function wrongHashCount(): HoldfastError {
  return new HoldfastError(
    'invalid_params',
    'The number of hashes after the call differs from the number it states',
  );
}
