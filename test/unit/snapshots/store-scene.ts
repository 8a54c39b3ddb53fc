import { existsSync, readdirSync } from 'node:fs';
import { afterEach, expect } from 'vitest';
import { hashOf, OBJECT_KINDS } from '../../../snapshot-format/objects.ts';
import { Incoming } from '../../../supervisor/snapshots/store/incoming.ts';
import type { LineageStore } from '../../../supervisor/snapshots/store/lineage-store.ts';
import { LineageStores } from '../../../supervisor/snapshots/store/stores.ts';
import type { Home } from '../../../supervisor/store/home.ts';
import { errorOf, sessionId, temporaryHome } from '../store/temporary-home.ts';
import { objectsOf } from './small-tree.ts';
import type { StoredObjects } from './stored-objects.ts';

export const MIB = 2 ** 20;
export const LINEAGE = sessionId(0);
export const OTHER = sessionId(1);
const opened: LineageStores[] = [];

afterEach(async () => {
  for (const stores of opened.splice(0)) await stores.close();
});

export function storesOf(home: Home): LineageStores {
  const stores = new LineageStores(home);
  opened.push(stores);
  return stores;
}

/** Sends one pack as a sidecar does, in pieces. */
export async function send(incoming: Incoming, pack: number, bytes: Buffer, objects: number): Promise<void> {
  const half = Math.floor(bytes.length / 2);
  await Promise.all([
    incoming.put(pack, 0, bytes.subarray(0, half)),
    incoming.put(pack, half, bytes.subarray(half)),
  ]);
  await incoming.seal(pack, bytes.length, objects);
}

export async function take(store: LineageStore, objects: StoredObjects, root: string): Promise<number> {
  const incoming = new Incoming(store, () => Promise.resolve(64 * MIB));
  try {
    await incoming.beginScan();
    await send(incoming, 0, objects.pack(), objects.bodies.size);
    await incoming.publish(root);
    return incoming.published;
  } finally {
    await incoming.close();
  }
}

export const TREE = { 'a.txt': 'one', empty: '', folder: { 'b.txt': 'two', deep: { 'c.txt': 'three' } } };
export const { objects: WHOLE, root: ROOT } = objectsOf(TREE);

/** Bytes that zstd makes no smaller. */
export function noise(seed: number): Buffer {
  const out = Buffer.alloc(MIB / 2);
  for (let at = 0; at < out.length; at += 32)
    hashOf(OBJECT_KINDS.blob, Buffer.from(`${seed} ${at}`)).copy(out, at);
  return out;
}

/** What a sidecar is told when it does this, and that nothing of it is in the store afterwards. */
export async function refusal(act: (incoming: Incoming) => Promise<unknown>): Promise<string> {
  const home = temporaryHome();
  return await storesOf(home).use(LINEAGE, async (store) => {
    const incoming = new Incoming(store, () => Promise.resolve(64 * MIB));
    await incoming.beginScan();
    const error = await errorOf(act(incoming));
    // Whatever it says from now on is refused as well.
    expect((await errorOf(incoming.publish('0'.repeat(64)))).code).toBe(error.code);
    await incoming.close();
    expect(store.packs).toEqual([]);
    expect(existsSync(store.packsDirectory)).toBe(false);
    expect(existsSync(store.incomingDirectory) ? readdirSync(store.incomingDirectory) : []).toEqual([]);
    return `${error.code}: ${error.why ?? ''}`;
  });
}
