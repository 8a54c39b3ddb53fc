// A thread that compresses frames, one after the other, while their files are still being read.
import { parentPort } from 'node:worker_threads';
import type { CompressorAnswer, CompressorRequest } from './compressor.ts';
import { packInPlace } from './pack-in-place.ts';

const port = parentPort;
port?.on('message', ({ raw }: CompressorRequest) => {
  const { encoding, stored, checksum } = packInPlace(Buffer.from(raw.buffer, raw.byteOffset, raw.byteLength));
  port.postMessage({ length: stored.length, encoding, checksum } satisfies CompressorAnswer);
});
