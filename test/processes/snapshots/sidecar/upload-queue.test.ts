import { randomBytes } from 'node:crypto';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test, vi } from 'vitest';
import { HoldfastError } from '../../../../protocol/errors.ts';
import { FRAME } from '../../../../snapshot-format/frames.ts';
import { hashOf, OBJECT_KINDS } from '../../../../snapshot-format/objects.ts';
import { PackIndex } from '../../../../snapshot-format/pack-index.ts';
import { Compressor } from '../../../../sidecar/snapshots/compressor.ts';
import { COUNTERS } from '../../../../sidecar/snapshots/compressor-messages.ts';
import { UploadQueue } from '../../../../sidecar/snapshots/upload-queue.ts';
import { UploadBuffers } from '../../../../sidecar/snapshots/upload-buffers.ts';
import type { RemoteStore } from '../../../../sidecar/snapshots/store.ts';
import { InMemoryPackFile } from '../../../../supervisor/snapshots/store/pack-files.ts';
import { rejectedError, temporaryDirectory } from '../../../fixtures/store/temporary-home.ts';
import { MemoryStore } from '../../../fixtures/snapshots/memory-store.ts';

const MIB = 2 ** 20;

/** Adds so many objects of a MiB each that are like no other. */
async function fill(outbox: UploadQueue, count: number): Promise<void> {
  for (let at = 0; at < count; at += 1) {
    outbox.add(OBJECT_KINDS.blob, randomBytes(MIB));
    if (outbox.isFull) await outbox.flush();
  }
}

/** A store whose answers to `sealed` wait for `release`, and how many wait at most. */
function slowStore(kept: MemoryStore): { store: RemoteStore; release: () => void; most: () => number } {
  const held = Promise.withResolvers<undefined>();
  let waiting = 0;
  let most = 0;
  const store: RemoteStore = {
    ...kept.store(),
    sealed: async (...pack) => {
      waiting += 1;
      most = Math.max(most, waiting);
      await held.promise;
      waiting -= 1;
      await kept.store().sealed(...pack);
    },
  };
  return { store, release: () => held.resolve(undefined), most: () => most };
}

test('while the store checks packs the next ones are sent, within a bound, and the end waits for all', async () => {
  const kept = new MemoryStore();
  const { store, release, most } = slowStore(kept);
  const outbox = new UploadQueue(store, false, new Set());
  try {
    const filled = fill(outbox, 8);
    await filled;
    expect(kept.objects.size).toBe(0);
    let isOver = false;
    const rest = fill(outbox, 70)
      .then(() => outbox.end())
      .then(() => void (isOver = true));
    while (most() < 6) await new Promise(setImmediate);
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(isOver).toBe(false);
    expect(most()).toBe(6);
    // What is sent ahead is bounded: six packs are checked, of 1 to 2 MiB, and the next one waits for its seal.
    expect(kept.calls.get('put') ?? 0).toBeLessThanOrEqual(7);
    release();
    await rest;
    expect(kept.objects.size).toBe(78);
    expect(outbox.newObjects).toBe(78);
    expect(outbox.newBytes).toBe(kept.bytes);
    // The first ones are short, and each is a part of what was there before.
    const sizes = kept.packs().map((pack) => pack.length / MIB);
    expect(sizes.slice(0, 4).map(Math.round)).toEqual([1, 1, 1, 1]);
    let before = 0;
    for (const size of sizes) {
      expect(size).toBeLessThan(Math.max(1, before / 4) + 1.1);
      before += size;
    }
    expect(sizes.length).toBeLessThan(20);
  } finally {
    outbox.close();
  }
});

test('packs at the end are short, so that little is left to check then', async () => {
  const kept = new MemoryStore();
  const sizes: number[] = [];
  const store: RemoteStore = {
    ...kept.store(),
    sealed: (pack, bytes, objects) => {
      sizes.push(bytes / MIB);
      return kept.store().sealed(pack, bytes, objects);
    },
  };
  const outbox = new UploadQueue(store, false, new Set());
  try {
    await fill(outbox, 60);
    const long = sizes.length;
    outbox.startDraining();
    await fill(outbox, 5);
    await outbox.end();
    expect(Math.max(...sizes.slice(0, long))).toBeGreaterThan(6);
    // One was begun before.
    expect(sizes.length).toBeGreaterThan(long + 2);
    for (const size of sizes.slice(long + 1)) expect(size).toBeLessThan(2.1);
    expect(kept.objects.size).toBe(65);
  } finally {
    outbox.close();
  }
});

test('a pack that is refused when others are on their way ends it with what was said, at the latest at the end', async () => {
  const kept = new MemoryStore();
  const refusal = new HoldfastError('snapshot_damaged', 'A snapshot cannot be read', { why: 'of the first' });
  const store: RemoteStore = {
    ...kept.store(),
    sealed: (pack, ...rest) => (pack === 0 ? Promise.reject(refusal) : kept.store().sealed(pack, ...rest)),
  };
  const outbox = new UploadQueue(store, false, new Set());
  try {
    const error = await rejectedError(fill(outbox, 3).then(() => outbox.end()));
    expect(error).toMatchObject({ code: 'snapshot_damaged', why: 'of the first' });
    expect(await rejectedError(outbox.end())).toBe(error);
  } finally {
    outbox.close();
  }
});

test('where the thread that compresses ends, the scan ends, and nothing half is sealed', async () => {
  const kept = new MemoryStore();
  const folder = temporaryDirectory();
  const program = join(folder, 'ends.cjs');
  const runs = join(folder, 'runs');
  writeFileSync(
    program,
    `const { parentPort, workerData } = require('node:worker_threads');
parentPort.on('message', () => process.exit(3));
Atomics.store(workerData.counters, ${COUNTERS.running}, 1);
require('node:fs').writeFileSync(${JSON.stringify(runs)}, '');`,
  );
  const memory = new UploadBuffers();
  const compressor = new Compressor(memory, program);
  const outbox = new UploadQueue(kept.store(), false, new Set(), memory, compressor);
  try {
    compressor.start();
    await vi.waitUntil(() => existsSync(runs), { timeout: 30_000 });
    const error = await rejectedError(fill(outbox, 40).then(() => outbox.end()));
    expect(error).toMatchObject({ code: 'internal', why: 'the compressor thread exited' });
  } finally {
    outbox.close();
  }
  // All that went to the thread is missing, and what came after that.
  expect(kept.objects.size).toBe(0);
});

test('what is read into an upload queue is what its store has, also duplicates and large files', async () => {
  for (const asks of [false, true]) {
    const kept = new MemoryStore();
    const outbox = new UploadQueue(kept.store(), asks, new Set());
    const bodies = Array.from({ length: 300 }, (_, at) =>
      at % 7 === 3 ? Buffer.from(`again ${at % 2}`) : randomBytes(at % 100 === 0 ? MIB : 1 + at * 20),
    );
    const hashes = [];
    try {
      for (const body of bodies) {
        const room = outbox.allocate(body.length);
        room.set(body);
        hashes.push(outbox.add(OBJECT_KINDS.blob, room));
        if (outbox.isFull) await outbox.flush();
      }
      await outbox.end();
    } finally {
      outbox.close();
    }
    // It has checked each body by its hash.
    expect(hashes).toEqual(bodies.map((body) => hashOf(OBJECT_KINDS.blob, body)));
    for (const hash of hashes) expect(kept.objects.has(hash.toString('hex'))).toBe(true);
    expect(outbox.newObjects).toBe(new Set(bodies.map((body) => body.toString('latin1'))).size);
  }
});

test('the store is asked once for what was read, not for what names something that it lacks, and sent nothing that it has', async () => {
  const kept = new MemoryStore();
  const old = Buffer.from('known to the store');
  const earlier = new UploadQueue(kept.store(), true, new Set());
  earlier.add(OBJECT_KINDS.blob, old);
  await earlier.end();
  earlier.close();
  kept.calls.clear();

  const outbox = new UploadQueue(kept.store(), true, new Set());
  try {
    const read = [old, randomBytes(70_000), Buffer.from('new')].map((body) =>
      outbox.add(OBJECT_KINDS.blob, body),
    );
    outbox.startDraining();
    const [oldHash, large, small] = read;
    if (oldHash === undefined || large === undefined || small === undefined) throw new Error('three objects');
    const tree = outbox.add(OBJECT_KINDS.list, Buffer.from('a tree'), [oldHash, small]);
    outbox.add(OBJECT_KINDS.list, Buffer.from('above it'), [tree]);
    await outbox.end();
    expect(kept.calls.get('have')).toBe(1);
    expect(outbox.newObjects).toBe(4);
  } finally {
    outbox.close();
  }
  kept.calls.clear();

  // A tree that names only what the store has may be there itself: it is asked for.
  const again = new UploadQueue(kept.store(), true, new Set());
  try {
    const hash = again.add(OBJECT_KINDS.blob, old);
    again.startDraining();
    again.add(OBJECT_KINDS.list, Buffer.from('a tree'), [hash]);
    again.add(OBJECT_KINDS.list, Buffer.from('another tree'), [hash]);
    await again.end();
    expect(kept.calls.get('have')).toBe(2);
    expect(again.newObjects).toBe(1);
  } finally {
    again.close();
  }
});

test('outboxes that use the same memory one after the other send what is theirs, also after one that was given up', async () => {
  const kept = new MemoryStore();
  const memory = new UploadBuffers();
  const failing: RemoteStore = {
    ...kept.store(),
    have: () => Promise.reject(new HoldfastError('connection_closed', 'gone')),
  };
  for (let round = 0; round < 6; round += 1) {
    const isGivenUp = round % 3 === 1;
    const outbox = new UploadQueue(isGivenUp ? failing : kept.store(), true, new Set(), memory);
    const hashes = [];
    try {
      for (let at = 0; at < 40; at += 1) {
        // Some of it is stored as it is, since nothing makes it smaller.
        const body = at % 2 === 0 ? randomBytes(20_000) : Buffer.alloc(20_000, `${round} ${at}`);
        const room = outbox.allocate(body.length);
        room.set(body);
        hashes.push(outbox.add(OBJECT_KINDS.blob, room));
      }
      outbox.startDraining();
      hashes.push(outbox.add(OBJECT_KINDS.list, Buffer.from(`tree ${round}`), hashes.slice(0, 1)));
      if (isGivenUp) await rejectedError(outbox.end());
      else await outbox.end();
    } finally {
      outbox.close();
    }
    // It has checked each body by its hash.
    for (const hash of hashes) expect(kept.objects.has(hash.toString('hex'))).toBe(!isGivenUp);
  }
});

/** A store that answers what it has when it is told to. */
function askedStore(kept: MemoryStore): { store: RemoteStore; answer: () => void; asked: () => number } {
  const answered = Promise.withResolvers<undefined>();
  let asked = 0;
  const store: RemoteStore = {
    ...kept.store(),
    have: async (hashes) => {
      asked += 1;
      await answered.promise;
      return await kept.store().have(hashes);
    },
  };
  return { store, answer: () => answered.resolve(undefined), asked: () => asked };
}

test('the store is asked, and sent what it lacks, while more is added', async () => {
  const kept = new MemoryStore();
  const outbox = new UploadQueue(kept.store(), true, new Set());
  try {
    for (let at = 0; at < 600 && (kept.calls.get('sealed') ?? 0) === 0; at += 1) {
      outbox.add(OBJECT_KINDS.blob, randomBytes(50_000));
      if (outbox.isFull) await outbox.flush();
    }
    expect(kept.calls.get('have')).toBeGreaterThan(3);
    expect(kept.calls.get('sealed')).toBeGreaterThan(0);
    await outbox.end();
  } finally {
    outbox.close();
  }
});

test('what waits for the answer of a slow store is bounded: whoever reads waits too', async () => {
  const kept = new MemoryStore();
  const { store, answer } = askedStore(kept);
  const outbox = new UploadQueue(store, true, new Set());
  let added = 0;
  try {
    const filling = (async () => {
      for (; added < 200; added += 1) {
        const room = outbox.allocate(100_000);
        randomBytes(100_000).copy(room);
        outbox.add(OBJECT_KINDS.blob, room);
        if (outbox.isFull) await outbox.flush();
      }
    })();
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(added * 100_000).toBeLessThan(5 * MIB);
    answer();
    await filling;
    await outbox.end();
    expect(kept.objects.size).toBe(200);
  } finally {
    outbox.close();
  }
});

test('an outbox that was given up says nothing more to the store, whatever that answers', async () => {
  const kept = new MemoryStore();
  const { store, answer, asked } = askedStore(kept);
  const outbox = new UploadQueue(store, true, new Set());
  for (let at = 0; at < 20; at += 1) outbox.add(OBJECT_KINDS.blob, randomBytes(100_000));
  await vi.waitUntil(() => asked() > 0);
  outbox.close();
  answer();
  await expect(outbox.end()).rejects.toThrow('the upload is closed');
  await new Promise((resolve) => setTimeout(resolve, 50));
  expect(asked()).toBe(1);
  expect(kept.calls.get('put')).toBeUndefined();
});

test('the first frames of a scan are short, those of a large one are not', async () => {
  const kept = new MemoryStore();
  const outbox = new UploadQueue(kept.store(), false, new Set());
  try {
    for (let at = 0; at < 4500; at += 1) {
      outbox.add(OBJECT_KINDS.blob, Buffer.alloc(20_000, `${at} `));
      if (outbox.isFull) await outbox.flush();
    }
    await outbox.end();
  } finally {
    outbox.close();
  }
  const lengths: number[] = [];
  for (const pack of kept.packs()) {
    const index = await PackIndex.read(new InMemoryPackFile(pack));
    for (let frame = 0; frame < index.frames; frame += 1) lengths.push(index.frame(frame).rawLength);
  }
  const { shortBytes, targetBytes } = FRAME;
  const inShort = lengths
    .filter((length) => length < shortBytes + 20_000)
    .reduce((sum, each) => sum + each, 0);
  expect(inShort).toBeGreaterThan(60 * MIB);
  expect(Math.max(...lengths)).toBeGreaterThanOrEqual(targetBytes);
});
