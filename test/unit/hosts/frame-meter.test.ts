import { expect, test } from 'vitest';
import { FrameMeter } from '../../../hosts/base/frame-meter.ts';
import { randomOf } from '../../fixtures/hosts/cuts.ts';

const [DATA, SETTINGS, PING, WINDOW] = [0, 4, 6, 8];

function frame(type: number, bytes: number): Buffer {
  const all = Buffer.alloc(9 + bytes);
  all.writeUIntBE(bytes, 0, 3);
  all.writeUInt8(type, 3);
  return all;
}

function times(count: number, ...frames: Buffer[]): Buffer {
  return Buffer.concat(Array.from({ length: count }, () => frames).flat());
}

test('a file of any size is no flood', () => {
  const meter = new FrameMeter(0);
  // 2 MiB in frames of 16 KiB, and the two windows that belong to them.
  const part = Buffer.concat([times(128, frame(DATA, 16_384)), times(2, frame(WINDOW, 4))]);
  for (let n = 0; n < 500; n += 1) expect(meter.accept(part, 0)).toBe(true);
});

test.for([
  ['pings', frame(PING, 8)],
  ['settings', frame(SETTINGS, 6)],
  ['unknown frames', frame(0x77, 100)],
  ['empty data', frame(DATA, 0)],
  ['tiny data', frame(DATA, 15)],
] as const)('%s are a flood when they come faster than they could be meant', ([, one]) => {
  const meter = new FrameMeter(0);
  expect(meter.accept(times(10_000, one), 0)).toBe(true);
  expect(meter.accept(one, 0)).toBe(false);
});

test('what comes slowly is no flood, however long', () => {
  const meter = new FrameMeter(0);
  for (let second = 1; second <= 100; second += 1)
    expect(meter.accept(times(1000, frame(DATA, 3)), second * 1000)).toBe(true);
});

test('frames are counted the same however the bytes are cut', () => {
  const random = randomOf(7);
  const bytes = times(5_000, frame(PING, 8), frame(DATA, 1000), frame(DATA, 0));
  const meter = new FrameMeter(0);
  let isAccepted = true;
  for (let at = 0; at < bytes.length;) {
    const end = at + 1 + Math.floor(random() * 400);
    isAccepted &&= meter.accept(bytes.subarray(at, end), 0);
    at = end;
  }
  expect(isAccepted).toBe(true);
  expect(meter.accept(frame(PING, 8), 0)).toBe(false);
});
