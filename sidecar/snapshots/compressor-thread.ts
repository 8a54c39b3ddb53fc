// A thread that compresses frames, one after the other, while their files are still being read.
import { parentPort } from 'node:worker_threads';
import { ENCODINGS, packRaw } from '../../protocol/snapshots/frames.ts';
import type { CompressorAnswer, CompressorRequest } from './compressor.ts';

const port = parentPort;
port?.on('message', ({ raw }: CompressorRequest) => {
  const { encoding, stored, checksum } = packRaw(Buffer.from(raw.buffer, raw.byteOffset, raw.byteLength));
  // In its own place: it is never longer.
  if (encoding !== ENCODINGS.raw) raw.set(stored);
  port.postMessage({ length: stored.length, encoding, checksum } satisfies CompressorAnswer);
});
