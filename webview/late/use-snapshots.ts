import { useEffect, useState } from 'preact/hooks';
import type { LateModel } from './late-model.ts';
import type { SnapshotList } from './snapshot-list.ts';

/** The snapshots of the session, read when they are first shown and when they have changed. */
export function useSnapshots(model: LateModel) {
  const [list, setList] = useState<SnapshotList | null>(model.snapshots.list);
  const [why, setWhy] = useState<string | null>(null);
  useEffect(() => {
    const end = model.snapshots.onChange(() => {
      setList(model.snapshots.list);
      setWhy(model.snapshots.why);
    });
    model.snapshots.read();
    return end;
  }, [model]);
  return {
    list,
    /** Why they could not be read; null if they were. */
    why,
    readAgain: () => model.snapshots.read(),
    readOlder: () => model.snapshots.readOlder(),
  };
}
