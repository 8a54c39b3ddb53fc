import type { Encoding } from '../../snapshot-format/frames.ts';

/** What the thread is told when it is made. */
export interface CompressorOptions {
  /** By `COUNTERS`: 1 once it runs, and how many bytes of frames it is done with. */
  readonly counters: Int32Array<SharedArrayBuffer>;
}

/** What the thread says of itself in memory that both see: messages are heard only when the one that reads has to wait. */
export const COUNTERS = { running: 0, doneBytes: 1 } as const;

export interface CompressorRequest {
  readonly raw: Uint8Array<SharedArrayBuffer>;
}

/** What was made of it lies where it was. */
export interface CompressorAnswer {
  readonly length: number;
  readonly encoding: Encoding;
  readonly checksum: number;
}
