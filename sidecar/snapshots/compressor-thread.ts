// A thread that compresses frames, one after the other, while their files are still being read.
import { parentPort } from 'node:worker_threads';
import { packRaw } from '../../protocol/snapshots/frames.ts';
import type { CompressorAnswer, CompressorRequest } from './compressor.ts';

const port = parentPort;
port?.on('message', ({ raw, length }: CompressorRequest) => {
  const { encoding, stored, checksum } = packRaw(Buffer.from(raw, 0, length));
  // What it did not make smaller is still in the memory that goes back.
  const own = new Uint8Array(stored);
  const answer: CompressorAnswer = { raw, stored: own, encoding, checksum };
  port.postMessage(answer, [raw, own.buffer]);
});
