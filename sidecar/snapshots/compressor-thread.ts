// Compresses frames, one after the other, while files are still being read.
import { parentPort, workerData } from 'node:worker_threads';
import {
  type CompressorAnswer,
  type CompressorOptions,
  type CompressorRequest,
  COUNTERS,
} from './compressor-messages.ts';
import { compressInPlace } from './compress-in-place.ts';

const port = parentPort;
const { counters } = workerData as CompressorOptions;
port?.on('message', ({ raw }: CompressorRequest) => {
  const { byteLength } = raw;
  const { encoding, stored, checksum } = compressInPlace(Buffer.from(raw.buffer, raw.byteOffset, byteLength));
  port.postMessage({ length: stored.length, encoding, checksum } satisfies CompressorAnswer);
  Atomics.add(counters, COUNTERS.doneBytes, byteLength);
});
Atomics.store(counters, COUNTERS.running, 1);
