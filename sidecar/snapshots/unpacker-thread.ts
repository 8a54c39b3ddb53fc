// A thread that unpacks frames and checks what is in them, one after the other, while files are made of those before.
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
    // Whoever reads it finds out what is wrong.
  }
  // Memory that is shared with others cannot be given away.
  const isOwn = raw !== null && raw.byteOffset === 0 && raw.buffer.byteLength < 2 * raw.length;
  const given = raw === null || isOwn ? raw : new Uint8Array(raw);
  const answer: UnpackerAnswer = { raw: given };
  port.postMessage(answer, given === null ? [] : [given.buffer as ArrayBuffer]);
});
