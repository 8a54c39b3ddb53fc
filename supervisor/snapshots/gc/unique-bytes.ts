import type { Hash } from '../../../snapshot-format/objects.ts';
import type { TimeSlice } from '../../../protocol/time-slice.ts';
import type { LineageStore } from '../store/lineage-store.ts';
import { Marks, markTree, type ObjectLocation, storedBytes } from './marks.ts';

/** Bytes on disk that only these trees need. Unreadable objects do not count. */
export async function uniqueBytes(
  store: LineageStore,
  mine: readonly Hash[],
  others: readonly Hash[],
  slices: TimeSlice,
): Promise<number> {
  const marks = new Marks();
  const onLost = (): void => undefined;
  for (const root of others) await markTree(store, marks, root, slices, { onLost });
  let bytes = 0;
  const onMark = (place: ObjectLocation): void => {
    bytes += storedBytes(place);
  };
  for (const root of mine) await markTree(store, marks, root, slices, { onMark, onLost });
  return Math.round(bytes);
}
