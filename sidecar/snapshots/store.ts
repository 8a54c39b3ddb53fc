import type { Hash } from '../../snapshot-format/objects.ts';

/** Header of a frame that the store sends. */
export interface FrameHeader {
  readonly objects: number;
  readonly stored: number;
  readonly raw: number;
  readonly encoding: number;
}

/**
 * The supervisor's store for the duration of one call. Every method rejects when that call is cancelled or its
 * connection closes.
 */
export interface RemoteStore {
  /** Returns whether the store has the object at an index of `hashes`. */
  have(hashes: readonly Hash[]): Promise<(index: number) => boolean>;
  /**
   * Uploads at most PUT_BYTES. The caller may reuse the memory after the call returns. At most
   * `SNAPSHOT_WIRE_LIMITS.putsInFlight` calls at a time.
   */
  put(pack: number, offset: number, bytes: Buffer): Promise<void>;
  sealed(pack: number, bytes: number, objects: number): Promise<void>;
  /** Frames with some of the objects, always including the first, followed by their tables and stored bytes. */
  read(hashes: readonly Hash[]): Promise<{ frames: readonly FrameHeader[]; bytes: Buffer }>;
  /**
   * The next bytes of the scan cache that the session's last sidecar left. None at the end, or if there is no cache.
   */
  readCache(offset: number): Promise<Buffer>;
  /** Uploads the next bytes of the scan cache for the next sidecar, at most PUT_BYTES. */
  putCache(offset: number, bytes: Buffer): Promise<void>;
  /** The cache is complete, and the next sidecar reads it. */
  sealCache(bytes: number): Promise<void>;
}

/** What a running task needs from outside. */
export interface TaskRuntime {
  readonly store: RemoteStore;
  /** Throws if the task must end. Cheap. */
  check(): void;
  progress(stage: string, done: number, of?: number): void;
}
