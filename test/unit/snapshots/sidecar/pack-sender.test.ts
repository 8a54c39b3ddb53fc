import { randomBytes } from 'node:crypto';
import { expect, test } from 'vitest';
import { HoldfastError } from '../../../../protocol/errors.ts';
import { packRaw } from '../../../../snapshot-format/frames.ts';
import { hashOf, OBJECT_KINDS } from '../../../../snapshot-format/objects.ts';
import { FrameMemory } from '../../../../sidecar/snapshots/frame-memory.ts';
import { OutboxMemory } from '../../../../sidecar/snapshots/outbox-memory.ts';
import { PackSender } from '../../../../sidecar/snapshots/pack-sender.ts';
import { errorOf } from '../../store/temporary-home.ts';
import { KeptStore } from '../kept-store.ts';

const MIB = 2 ** 20;
const FULL = new HoldfastError('no_space', 'The snapshot could not be stored');

/** A sender with more frames than it takes at once, whose store has not answered, and the fourth of which is still being compressed. */
function busySender(): { sender: PackSender; refuse: () => void; goOn: () => void } {
  const memory = new OutboxMemory();
  const refused = Promise.withResolvers<never>();
  const compressed = Promise.withResolvers<undefined>();
  let frames = 0;
  const store = { ...new KeptStore().store(), put: () => refused.promise, sealed: () => refused.promise };
  const pack = async (raw: Buffer): Promise<ReturnType<typeof packRaw>> => {
    frames += 1;
    if (frames > 3) await compressed.promise;
    return packRaw(raw);
  };
  const sender = new PackSender(store, memory, { pack, close: () => undefined });
  for (let at = 0; at < 9; at += 1) {
    const frame = new FrameMemory(Buffer.from(memory.frame(MIB)), MIB);
    const body = randomBytes(MIB);
    frame.add(hashOf(OBJECT_KINDS.blob, body), OBJECT_KINDS.blob, body);
    sender.send(frame);
  }
  return { sender, refuse: () => refused.reject(FULL), goOn: () => compressed.resolve(undefined) };
}

const turn = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 20));

test('whoever waits for room is told when the store refuses something, whatever is being compressed', async () => {
  const { sender, refuse, goOn } = busySender();
  await turn();
  const waiting = errorOf(sender.room());
  refuse();
  expect(await waiting).toBe(FULL);
  goOn();
  expect(await errorOf(sender.end())).toBe(FULL);
});

test('and when the sender is closed', async () => {
  const { sender, goOn } = busySender();
  await turn();
  const waiting = expect(sender.room()).rejects.toThrow('nothing is sent any more');
  sender.close();
  await waiting;
  goOn();
});
