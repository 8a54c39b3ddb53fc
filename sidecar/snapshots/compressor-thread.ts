// A thread that compresses frames, one after the other, while their files are still being read.
import { parentPort, workerData } from 'node:worker_threads';
import {
  type CompressorAnswer,
  type CompressorPlaces,
  type CompressorRequest,
  SAID,
} from './compressor-messages.ts';
import { packInPlace } from './pack-in-place.ts';

const port = parentPort;
const { said } = workerData as CompressorPlaces;
port?.on('message', ({ raw }: CompressorRequest) => {
  const { byteLength } = raw;
  const { encoding, stored, checksum } = packInPlace(Buffer.from(raw.buffer, raw.byteOffset, byteLength));
  port.postMessage({ length: stored.length, encoding, checksum } satisfies CompressorAnswer);
  Atomics.add(said, SAID.done, byteLength);
});
Atomics.store(said, SAID.runs, 1);
