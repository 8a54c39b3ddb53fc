// Unpacks and verifies frames, one after the other, while files are created from earlier ones.
import { parentPort } from 'node:worker_threads';
import { extractObject, parseFrameTable, decompressFrame } from '../../snapshot-format/frames.ts';
import type { UnpackerAnswer, UnpackerRequest } from './unpacker.ts';

const port = parentPort;
port?.on('message', ({ stored, encoding, rawLength, table }: UnpackerRequest) => {
  let raw: Buffer | null = null;
  try {
    const unpacked = decompressFrame(encoding, rawLength, Buffer.from(stored));
    for (const record of parseFrameTable(Buffer.from(table), rawLength)) extractObject(unpacked, record);
    raw = unpacked;
  } catch {
    // The reader unpacks it again and reports the error.
  }
  // Shared memory cannot be transferred.
  const isOwn = raw !== null && raw.byteOffset === 0 && raw.buffer.byteLength < 2 * raw.length;
  const given = raw === null || isOwn ? raw : new Uint8Array(raw);
  const answer: UnpackerAnswer = { raw: given };
  port.postMessage(answer, given === null ? [] : [given.buffer as ArrayBuffer]);
});
