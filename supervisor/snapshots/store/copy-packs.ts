import { copyFile, link, mkdir, open } from 'node:fs/promises';
import { join } from 'node:path';
import { TimeSlice } from '../../../protocol/time-slice.ts';
import type { LineageStore, NewPack, StoredPack } from './lineage-store.ts';

/**
 * Makes `target` have all that `source` has. Does nothing for packs that were copied before: were we killed in between, it has some of
 * them. Packs never change, so that a link is as good as a copy.
 */
export async function copyPacks(
  source: LineageStore,
  target: LineageStore,
  nextId: () => string,
): Promise<void> {
  const copies: NewPack[] = [];
  for (const pack of source.packs) {
    if (await hasObjectsOf(target, pack)) continue;
    await mkdir(target.incomingDirectory, { recursive: true, mode: 0o700 });
    const copy = join(target.incomingDirectory, `${nextId()}-${pack.name}`);
    await link(pack.path, copy).catch(() => copyDurably(pack.path, copy));
    copies.push({ path: copy });
  }
  await target.publish(copies);
}

async function hasObjectsOf(store: LineageStore, { index }: StoredPack): Promise<boolean> {
  const slices = new TimeSlice();
  for (let at = 0; at < index.objects; at += 1) {
    if (!store.hasTrustedCopy(index.object(at).hash)) return false;
    if (slices.isUsedUp) await slices.yieldToEventLoop();
  }
  return true;
}

/** A published pack must survive a crash of the machine. */
async function copyDurably(from: string, to: string): Promise<void> {
  await copyFile(from, to);
  const file = await open(to, 'r');
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}
