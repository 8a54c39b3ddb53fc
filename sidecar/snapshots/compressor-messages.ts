import type { Encoding } from '../../snapshot-format/frames.ts';

/** Data given to the thread at its start. */
export interface CompressorOptions {
  /** Indexed by COUNTERS: 1 once the thread runs, and the number of bytes it has finished. */
  readonly counters: Int32Array<SharedArrayBuffer>;
}

/** Counters in shared memory: the scanning thread receives messages only while it waits. */
export const COUNTERS = { running: 0, doneBytes: 1 } as const;

export interface CompressorRequest {
  readonly raw: Uint8Array<SharedArrayBuffer>;
}

/** The result is in the memory of the request. */
export interface CompressorAnswer {
  readonly length: number;
  readonly encoding: Encoding;
  readonly checksum: number;
}
