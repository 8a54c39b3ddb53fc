import type { TimeSlice } from '../../protocol/time-slice.ts';
import type { Frame } from '../../snapshot-format/frames.ts';
import type { Hash } from '../../snapshot-format/objects.ts';
import { PackWriter } from '../../snapshot-format/pack-writer.ts';
import { FrameCopy } from './gc/frame-copy.ts';
import { Marks, markTree } from './gc/marks.ts';
import type { LineageStore } from './store/lineage-store.ts';

/** One pack at a time is in memory. */
const PACK_BYTES = 8 * 2 ** 20;

export interface TreePack {
  readonly bytes: Buffer;
  readonly objects: number;
}

/**
 * Packs that together hold everything that these trees need, each object once. The caller holds the lineage's lock until the end.
 * Errors: `snapshot_damaged`.
 */
export async function* treePacks(
  store: LineageStore,
  roots: readonly Hash[],
  slices: TimeSlice,
): AsyncGenerator<TreePack> {
  const needed = new Marks();
  for (const root of roots) {
    await markTree(store, needed, root, slices, {
      onLost: (_reference, error) => {
        throw error;
      },
    });
  }
  let writer = new PackWriter(PACK_BYTES);
  let parts: Buffer[] = [];
  const frames: Frame[] = [];
  const copy = new FrameCopy((frame) => {
    frames.push(frame);
    return Promise.resolve();
  });
  const finish = (): TreePack => {
    const { objects } = writer;
    const bytes = Buffer.concat([...parts, writer.end()]);
    writer = new PackWriter(PACK_BYTES);
    parts = [];
    return { bytes, objects };
  };
  const take = function* (): Generator<TreePack> {
    for (const frame of frames.splice(0)) {
      if (writer.isFull) yield finish();
      parts.push(...writer.append(frame));
    }
  };
  for (const pack of store.packs) {
    for (const [index, all] of pack.index.objectsByFrame().entries()) {
      if (slices.isUsedUp) await slices.yieldToEventLoop();
      const wanted = all.filter(({ hash }) => needed.has(pack, pack.index.indexOf(hash)));
      if (wanted.length === 0) continue;
      await copy.add(pack, index, all, wanted);
      yield* take();
    }
  }
  await copy.end();
  yield* take();
  if (writer.length > 0) yield finish();
}
