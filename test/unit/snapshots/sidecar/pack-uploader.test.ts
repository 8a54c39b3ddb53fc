import { randomBytes } from 'node:crypto';
import { expect, test } from 'vitest';
import { HoldfastError } from '../../../../protocol/errors.ts';
import { compressFrame } from '../../../../snapshot-format/frames.ts';
import { hashOf, OBJECT_KINDS } from '../../../../snapshot-format/objects.ts';
import { FrameBuilder } from '../../../../sidecar/snapshots/frame-builder.ts';
import { UploadBuffers } from '../../../../sidecar/snapshots/upload-buffers.ts';
import { PackUploader } from '../../../../sidecar/snapshots/pack-uploader.ts';
import { rejectedError } from '../../../fixtures/store/temporary-home.ts';
import { MemoryStore } from '../../../fixtures/snapshots/memory-store.ts';

const MIB = 2 ** 20;
const FULL = new HoldfastError('no_space', 'The snapshot could not be stored');

/** A sender with more frames than it takes at once, whose store has not answered, and the fourth of which is still being compressed. */
function busySender(): { sender: PackUploader; refuse: () => void; goOn: () => void } {
  const memory = new UploadBuffers();
  const refused = Promise.withResolvers<never>();
  const compressed = Promise.withResolvers<undefined>();
  let frames = 0;
  const store = { ...new MemoryStore().store(), put: () => refused.promise, sealed: () => refused.promise };
  const pack = async (raw: Buffer): Promise<ReturnType<typeof compressFrame>> => {
    frames += 1;
    if (frames > 3) await compressed.promise;
    return compressFrame(raw);
  };
  const sender = new PackUploader(store, memory, { compress: pack, close: () => undefined });
  for (let at = 0; at < 9; at += 1) {
    const frame = new FrameBuilder(Buffer.from(memory.acquireFrame(MIB)), MIB);
    const body = randomBytes(MIB);
    frame.add(hashOf(OBJECT_KINDS.blob, body), OBJECT_KINDS.blob, body);
    sender.send(frame);
  }
  return { sender, refuse: () => refused.reject(FULL), goOn: () => compressed.resolve(undefined) };
}

const turn = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 20));

test('waiting for capacity fails as soon as the store refuses a pack, even while frames are compressed', async () => {
  const { sender, refuse, goOn } = busySender();
  await turn();
  const waiting = rejectedError(sender.waitForCapacity());
  refuse();
  expect(await waiting).toBe(FULL);
  goOn();
  expect(await rejectedError(sender.end())).toBe(FULL);
});

test('waiting for capacity fails when the uploader is closed', async () => {
  const { sender, goOn } = busySender();
  await turn();
  const waiting = expect(sender.waitForCapacity()).rejects.toThrow('the upload is closed');
  sender.close();
  await waiting;
  goOn();
});
