import { useState } from 'preact/hooks';
import { formatBytes, formatCount } from '../format.ts';
import type { PageSnapshot } from '../late-messages.ts';
import { ChangeList } from './change-list.tsx';
import type { LateModel } from './late-model.ts';
import { RestorePreview } from './restore-preview.tsx';
import type { SnapshotList } from './snapshot-list.ts';
import { ORIGIN } from '../../protocol/snapshot-tree.ts';
import { authorOf, namedWithTime, titleOf } from './snapshot-labels.ts';

/** Snapshots that one can be compared with, the newest ones. */
const MAX_CHOICES = 1000;

interface Props {
  readonly model: LateModel;
  readonly list: SnapshotList;
  readonly snapshot: PageSnapshot;
  /** The node that it follows; null for none. */
  readonly below: string | null;
}

/** One snapshot: what can be done with it, and what differs from another one or from now. */
export function SnapshotDetails({ model, list, snapshot, below }: Props) {
  const { id, pinned, files, bytes, createdAt } = snapshot;
  const author = authorOf(snapshot);
  const before = below === ORIGIN ? (list.graph.origin?.snapshotId ?? null) : below;
  const [other, setOther] = useState(before);
  const [isRestoring, setRestoring] = useState(model.page.saved.restore === true);
  const preview = (isOpen: boolean): void => {
    setRestoring(isOpen);
    model.page.keep({ restore: isOpen || undefined });
  };
  const { page } = model;
  const remove = async (): Promise<void> => {
    const answer = await model.ask('deleteSnapshot', { snapshot: id });
    if (answer?.deleted === true) model.snapshots.drop(id);
  };
  return (
    <section class="snapshot-details" aria-label={`Snapshot “${titleOf(snapshot)}”`}>
      <p class="quiet">
        {new Date(createdAt).toLocaleString()} · {formatCount(files, 'file')}, {formatBytes(bytes)}
      </p>
      {author !== '' && <p class="quiet">{author}</p>}
      <div class="actions">
        <button class="primary" aria-expanded={isRestoring} onClick={() => preview(!isRestoring)}>
          Restore…
        </button>
        <button
          class="secondary"
          onClick={() => void page.ask('forkSnapshot', { snapshot: id }).then(() => model.snapshots.read())}
        >
          Fork…
        </button>
        <button
          class="secondary"
          onClick={() =>
            void model
              .ask('pinSnapshot', { snapshot: id, pinned: !pinned })
              .then(() => model.snapshots.read())
          }
        >
          {pinned ? 'Unpin' : 'Pin'}
        </button>
        <button class="secondary" onClick={() => void model.ask('pickSnapshotFile', { snapshot: id })}>
          Open a File…
        </button>
        <button class="secondary" onClick={() => void remove()}>
          Delete…
        </button>
      </div>
      {isRestoring ? (
        <RestorePreview model={model} snapshot={snapshot} onClose={() => preview(false)} />
      ) : (
        <Comparison {...{ model, list, id, before, other, setOther }} />
      )}
    </section>
  );
}

interface ComparisonProps {
  readonly model: LateModel;
  readonly list: SnapshotList;
  readonly id: string;
  /** What the snapshot follows; null for none. */
  readonly before: string | null;
  readonly other: string | null;
  readonly setOther: (other: string | null) => void;
}

/** What differs between the snapshot and another one, or now. */
function Comparison({ model, list, id, before, other, setOther }: ComparisonProps) {
  const { page } = model;
  const others = list.snapshots.filter((one) => one.id !== id && one.id !== before).slice(0, MAX_CHOICES);
  const sides = other === null ? null : sidesOf(list, id, other);
  return (
    <>
      <div class="compare">
        <label>
          Compared with{' '}
          <select value={other ?? ''} onChange={({ currentTarget }) => setOther(currentTarget.value || null)}>
            {before === null ? (
              <option value="">Choose…</option>
            ) : (
              <option value={before}>{named(list, before)} (the one before)</option>
            )}
            <option value="now">Now, the workspace as it is</option>
            {others.map((one) => (
              <option key={one.id} value={one.id}>
                {namedWithTime(one)}
              </option>
            ))}
          </select>
        </label>
        {sides !== null && (
          <button
            class="link"
            onClick={() =>
              void page.ask('compareSnapshots', {
                from: sides.from,
                to: sides.to === 'now' ? null : sides.to,
              })
            }
          >
            Open All Differences
          </button>
        )}
      </div>
      {sides !== null && (
        <ChangeList key={`${sides.from} ${sides.to}`} model={model} snapshot={id} {...sides} />
      )}
    </>
  );
}

function named(list: SnapshotList, id: string): string {
  const one = list.snapshots.find((snapshot) => snapshot.id === id);
  return one === undefined ? 'What the session began with' : namedWithTime(one);
}

/** The older one is on the left. What is not in the list is older than all of it. */
function sidesOf(
  list: SnapshotList,
  id: string,
  other: string,
): { readonly from: string; readonly to: string } {
  if (other === 'now') return { from: id, to: other };
  const places = list.snapshots.map((one) => one.id);
  const isNewer = places.includes(other) && places.indexOf(other) < places.indexOf(id);
  return isNewer ? { from: id, to: other } : { from: other, to: id };
}

/** The files of now: what differs from the snapshot that they follow. */
export function NowDetails({ model, below }: { readonly model: LateModel; readonly below: string | null }) {
  return (
    <section class="snapshot-details" aria-label="The files of now">
      <div class="actions">
        <button class="primary" onClick={() => void model.page.ask('command', { command: 'createSnapshot' })}>
          Create Snapshot
        </button>
        {below !== null && below !== ORIGIN && (
          <button
            class="secondary"
            onClick={() => void model.page.ask('compareSnapshots', { from: below, to: null })}
          >
            Open All Differences
          </button>
        )}
      </div>
      {below !== null && below !== ORIGIN && (
        <ChangeList key={below} model={model} snapshot={below} from={below} to="now" />
      )}
    </section>
  );
}
