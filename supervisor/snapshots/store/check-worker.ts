// Runs in a thread of its own, because checking the packs of a large snapshot takes seconds.
import { closeSync, constants, openSync, readSync } from 'node:fs';
import { parentPort } from 'node:worker_threads';
import { FRAME } from '../../../snapshot-format/frames.ts';
import { snapshotDamaged } from '../../../snapshot-format/objects.ts';
import type { PackFile } from '../../../snapshot-format/pack-index.ts';
import { storageError } from '../../store/storage-error.ts';
import { PackChecker } from './check-pack.ts';
import type { CheckAnswer, CheckRequest } from './check-thread.ts';

const { O_RDONLY, O_NOFOLLOW } = constants;
const checker = new PackChecker();
/** Reused for the stored bytes of each frame. */
const frameBuffer = Buffer.allocUnsafeSlow(FRAME.maxBytes);
let queue = Promise.resolve();

parentPort?.on('message', (request: CheckRequest) => {
  queue = queue.then(() => perform(request));
});

async function perform(request: CheckRequest): Promise<void> {
  let answer: CheckAnswer;
  const transfer: ArrayBuffer[] = [];
  try {
    const { index, missing } = await checked(request);
    const tables = index.encode();
    const encoded = missing.encode();
    answer = { tables, frames: index.frames, missing: encoded };
    transfer.push(tables.buffer as ArrayBuffer, encoded.buffer as ArrayBuffer);
  } catch (error) {
    const typed = storageError(error, 'The snapshot could not be stored');
    answer = { failure: { message: typed.message, data: typed.toData() } };
  }
  parentPort?.postMessage(answer, transfer);
}

async function checked({ path, bytes }: CheckRequest): ReturnType<PackChecker['check']> {
  const fd = openSync(path, O_RDONLY | O_NOFOLLOW);
  const fileWith = (memory: (length: number) => Buffer): PackFile => ({
    size: bytes,
    read: (offset, length) => Promise.resolve(readAll(fd, offset, memory(length))),
  });
  try {
    return await checker.check(
      fileWith((length) => Buffer.allocUnsafeSlow(length)),
      fileWith((length) => frameBuffer.subarray(0, length)),
    );
  } finally {
    closeSync(fd);
  }
}

function readAll(fd: number, offset: number, bytes: Buffer): Buffer {
  for (let done = 0; done < bytes.length;) {
    const count = readSync(fd, bytes, done, bytes.length - done, offset + done);
    if (count === 0) throw snapshotDamaged('a pack ends too early');
    done += count;
  }
  return bytes;
}
