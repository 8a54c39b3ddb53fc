import { useState } from 'preact/hooks';
import type { Snapshot } from '../../protocol/snapshots.ts';
import { formatBytes, formatCount, formatTime, plain } from '../format.ts';
import { Icon } from '../view/icon.tsx';
import { snapshotReason } from '../view/marks.tsx';
import type { LateModel } from './late-model.ts';

/** The snapshots of the session over time, newest first, and what can be done with one or two of them. */
export function Snapshots({ model }: { readonly model: LateModel }) {
  const { snapshots } = model.page;
  const [selected, setSelected] = useState<string | null>(null);
  if (snapshots === null)
    return (
      <div class="timeline loading" role="status">
        Loading…
      </div>
    );
  if (snapshots.length === 0) {
    return (
      <div class="timeline">
        <div class="empty">
          <Icon name="device-camera" />
          <h2>No snapshots yet</h2>
          <p>One is created before every turn. You can also create one now.</p>
          <button
            class="primary"
            onClick={() => void model.page.ask('command', { command: 'createSnapshot' })}
          >
            Create Snapshot
          </button>
        </div>
      </div>
    );
  }
  return (
    <div class="timeline" tabIndex={0} aria-label="Snapshots">
      <ol class="column snapshots">
        <li class="now">
          <span class="dot" aria-hidden="true" />
          <div class="what">
            <strong>Now</strong>
            <span class="quiet"> the workspace as it is</span>
          </div>
        </li>
        {snapshots.map((snapshot) => (
          <Entry
            key={snapshot.id}
            model={model}
            snapshot={snapshot}
            selected={selected}
            onSelect={(id) => setSelected(id === selected ? null : id)}
          />
        ))}
      </ol>
    </div>
  );
}

interface EntryProps {
  readonly model: LateModel;
  readonly snapshot: Snapshot;
  readonly selected: string | null;
  readonly onSelect: (id: string) => void;
}

function Entry({ model, snapshot, selected, onSelect }: EntryProps) {
  const { id, label, reason, turn, createdAt, changedFiles, newBytes, pinned, missing } = snapshot;
  const title = label ?? turn?.prompt ?? snapshotReason(reason);
  const facts = [
    snapshotReason(reason),
    formatTime(createdAt),
    formatCount(changedFiles, 'changed file'),
    `+${formatBytes(newBytes)}`,
    missing > 0 ? `${formatCount(missing, 'file')} missing` : null,
  ].filter((fact) => fact !== null);
  return (
    <li class={selected === id ? 'selected' : ''}>
      <span class="dot" aria-hidden="true" />
      <div class="what">
        <span class="title">
          {pinned && <Icon name="pinned" />} {plain(title)}
        </span>
        <span class="quiet">{facts.join(' · ')}</span>
        <span class="actions">
          <button
            class="link"
            onClick={() => void model.page.ask('compareSnapshots', { from: id, to: null })}
          >
            Compare with Now
          </button>
          {selected === null || selected === id ? (
            <button class="link" aria-pressed={selected === id} onClick={() => onSelect(id)}>
              {selected === id ? 'Selected for comparison' : 'Select to Compare'}
            </button>
          ) : (
            <button
              class="link"
              onClick={() => void model.page.ask('compareSnapshots', { from: selected, to: id })}
            >
              Compare with Selected
            </button>
          )}
          <button class="link" onClick={() => void model.page.ask('restoreSnapshot', { snapshot: id })}>
            Restore…
          </button>
          <button class="link" onClick={() => void model.page.ask('forkSnapshot', { snapshot: id })}>
            Fork…
          </button>
          <button
            class="link"
            onClick={() => void model.page.ask('pinSnapshot', { snapshot: id, pinned: !pinned })}
          >
            {pinned ? 'Unpin' : 'Pin'}
          </button>
        </span>
      </div>
    </li>
  );
}
