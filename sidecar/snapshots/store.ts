import type { Hash } from '../../snapshot-format/objects.ts';

/** A frame as the store sends it. */
export interface FrameHeader {
  readonly objects: number;
  readonly stored: number;
  readonly raw: number;
  readonly encoding: number;
}

/** The supervisor's store, for the length of one call. Every call rejects when that call is cancelled or its connection ends. */
export interface RemoteStore {
  /** Whether it has the object at an index of `hashes`. */
  have(hashes: readonly Hash[]): Promise<(index: number) => boolean>;
  /** At most PUT_BYTES, which may change once it was called; at most `SNAPSHOT_WIRE_LIMITS.putsInFlight` at a time. */
  put(pack: number, offset: number, bytes: Buffer): Promise<void>;
  sealed(pack: number, bytes: number, objects: number): Promise<void>;
  /** Frames with some of the objects, the first always among them; behind them their tables and stored bytes. */
  read(hashes: readonly Hash[]): Promise<{ frames: readonly FrameHeader[]; bytes: Buffer }>;
  /** The next bytes of the cache that this session's last sidecar left; none at its end, or where there is none. */
  readCache(offset: number): Promise<Buffer>;
  /** The next bytes of the cache for the next sidecar, while it is kept; at most PUT_BYTES. */
  putCache(offset: number, bytes: Buffer): Promise<void>;
  /** It is complete: the next sidecar reads this one. */
  sealCache(bytes: number): Promise<void>;
}

/** What one piece of work needs of the world around it. */
export interface TaskRuntime {
  readonly store: RemoteStore;
  /** Throws when the work is to end. Cheap. */
  check(): void;
  progress(stage: string, done: number, of?: number): void;
}
