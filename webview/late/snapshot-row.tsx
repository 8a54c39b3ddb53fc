import { formatTime, plain } from '../format.ts';
import { Icon } from '../view/icon.tsx';
import type { GraphRow } from '../../protocol/snapshot-lanes.ts';
import { Lanes, widthOf } from './lanes.tsx';
import type { LateModel } from './late-model.ts';
import { NowDetails, SnapshotDetails } from './snapshot-details.tsx';
import type { SnapshotList } from './snapshot-list.ts';
import type { PageSnapshot } from '../late-messages.ts';
import type { Entry, Restored } from '../../protocol/snapshot-tree.ts';
import { authorOf, factsOf, titleOf } from './snapshot-labels.ts';

interface Props {
  readonly model: LateModel;
  readonly entry: Entry<PageSnapshot>;
  readonly row: GraphRow;
  readonly lanes: number;
  readonly list: SnapshotList;
  /** The id of the row below. */
  readonly below: string | null;
  readonly isSelected: boolean;
  /** The one row that Tab reaches. */
  readonly isTabStop: boolean;
  readonly onSelect: () => void;
}

/** A row of the graph: its lines, what it is, and, if it is selected, what changed in it and what can be done with it. */
export function SnapshotRow(props: Props) {
  const { model, entry, row, lanes, list, below, isSelected, isTabStop, onSelect } = props;
  const tabIndex = isTabStop ? 0 : -1;
  const isPinned = entry.kind === 'snapshot' && entry.snapshot.pinned;
  const isOpen = below === null && list.next !== null;
  const open = (session: string): void => void model.ask('openSession', { session });
  return (
    <li class={`${entry.kind}${isSelected ? ' selected' : ''}`} style={{ paddingLeft: widthOf(lanes) }}>
      <Lanes {...{ row, lanes, isPinned, isOpen }} kind={entry.kind} />
      {entry.kind === 'now' && (
        <div class="what">
          <button class="row-title" tabIndex={tabIndex} aria-expanded={isSelected} onClick={onSelect}>
            Now
          </button>
          <span class="quiet">The workspace as it is{follows(entry, below, list)}</span>
          <RestoredFrom restored={entry.restored} list={list} />
          {isSelected && <NowDetails model={model} below={entry.parent} />}
        </div>
      )}
      {entry.kind === 'fork' && (
        <div class="what">
          <button class="row-title" tabIndex={tabIndex} onClick={() => open(entry.fork.sessionId)}>
            <Icon name="repo-forked" /> {plain(entry.fork.name)}
          </button>
          <span class="quiet">
            Session forked from “{titleWith(list, entry.fork.snapshotId)}” · {formatTime(entry.fork.at)}
          </span>
        </div>
      )}
      {entry.kind === 'origin' && <Origin entry={entry} tabIndex={tabIndex} onOpen={open} />}
      {entry.kind === 'snapshot' && (
        <div class="what">
          <button
            class="row-title"
            tabIndex={tabIndex}
            aria-expanded={isSelected}
            title={authorOf(entry.snapshot)}
            onClick={onSelect}
          >
            {isPinned && (
              <>
                <Icon name="pinned" /> <span class="hidden">Pinned:</span>
              </>
            )}
            {titleOf(entry.snapshot)}
          </button>
          <time class="quiet">{formatTime(entry.snapshot.createdAt)}</time>
          <span class="quiet facts">
            {factsOf(entry.snapshot)}
            {follows(entry, below, list)}
          </span>
          <RestoredFrom restored={entry.restored} list={list} />
          {isSelected && (
            <SnapshotDetails
              key={entry.id}
              {...{ model, list, below: entry.parent }}
              snapshot={entry.snapshot}
            />
          )}
        </div>
      )}
    </li>
  );
}

interface OriginProps {
  readonly entry: Extract<Entry, { kind: 'origin' }>;
  readonly tabIndex: number;
  readonly onOpen: (session: string) => void;
}

function Origin({ entry, tabIndex, onOpen }: OriginProps) {
  const { session } = entry.origin;
  return (
    <div class="what">
      <button
        class="row-title"
        tabIndex={tabIndex}
        aria-disabled={session === null}
        onClick={() => session !== null && onOpen(session.id)}
      >
        <Icon name="repo-forked" /> {session === null ? 'A deleted session' : plain(session.name)}
      </button>
      <span class="quiet">This session was forked from a snapshot of it</span>
    </div>
  );
}

function RestoredFrom({
  restored,
  list,
}: {
  readonly restored: Restored | null;
  readonly list: SnapshotList;
}) {
  if (restored === null) return null;
  return (
    <span class="restored">
      <Icon name="history" /> Goes on from “{titleWith(list, restored.snapshotId)}”, restored{' '}
      {formatTime(restored.at)}
    </span>
  );
}

/** What the lines say, for those who do not see them: what the row follows, where that is not the row below. */
function follows({ parent }: Entry, below: string | null, list: SnapshotList) {
  if (parent === null || parent === below) return null;
  return <span class="hidden">. Follows “{titleWith(list, parent)}”</span>;
}

function titleWith(list: SnapshotList, id: string): string {
  const snapshot = list.snapshots.find((one) => one.id === id);
  if (snapshot !== undefined) return titleOf(snapshot);
  return id === list.graph.origin?.snapshotId || id === 'origin' ? 'the beginning' : 'a deleted snapshot';
}
