import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { formatBytes, formatCount, plain } from '../format.ts';
import { Icon } from '../view/icon.tsx';
import { layoutGraph } from '../../protocol/snapshot-lanes.ts';
import type { LateModel } from './late-model.ts';
import { NotReadYet } from './not-read-yet.tsx';
import { SnapshotRow } from './snapshot-row.tsx';
import { entriesOf } from '../../protocol/snapshot-tree.ts';
import { useSnapshots } from './use-snapshots.ts';

/** What the arrow keys do to the place in the list of `count` rows. */
const MOVES: Readonly<Record<string, (at: number, count: number) => number>> = {
  ArrowDown: (at) => at + 1,
  ArrowUp: (at) => at - 1,
  PageDown: (at) => at + 10,
  PageUp: (at) => at - 10,
  Home: () => 0,
  End: (_, count) => count - 1,
};

/** The snapshots of the session as a graph over time, newest first, and what can be done with them. */
export function Snapshots({ model }: { readonly model: LateModel }) {
  const { list, why, readAgain, readOlder } = useSnapshots(model);
  const [selected, setSelected] = useState<string | null>(model.page.saved.snapshot ?? null);
  const [current, setCurrent] = useState(selected);
  const rows = useRef<HTMLOListElement>(null);
  useEffect(() => model.page.keep({ snapshot: selected ?? undefined }), [model, selected]);
  const entries = useMemo(
    () => (list === null ? [] : entriesOf(list.snapshots, list.graph, list.next === null)),
    [list],
  );
  const isShown = entries.some(({ id }) => id === selected);
  // A restore of it was asked for, and it is older than what was read.
  useEffect(() => {
    if (list?.next !== null && list !== null && !isShown && model.page.saved.restore === true) readOlder();
  }, [list, isShown]);
  const layout = useMemo(() => layoutGraph(entries), [entries]);
  // Drawn again only when it differs: the page is drawn with every word of a running turn.
  const drawn = useMemo(() => {
    if (list === null) return null;
    const tabStop = entries.some(({ id }) => id === current) ? current : (entries[0]?.id ?? null);
    return entries.map((entry, at) => {
      const row = layout.rows[at];
      return row === undefined ? null : (
        <SnapshotRow
          key={entry.id}
          {...{ model, entry, row, list, lanes: layout.lanes }}
          below={entries[at + 1]?.id ?? null}
          isSelected={entry.id === selected}
          isTabStop={entry.id === tabStop}
          onSelect={() => {
            setCurrent(entry.id);
            setSelected(entry.id === selected ? null : entry.id);
            model.page.keep({ restore: undefined });
          }}
        />
      );
    });
  }, [model, list, entries, layout, selected, current]);

  if (list === null) return <NotReadYet why={why} again={readAgain} />;
  const create = (): void => void model.page.ask('command', { command: 'createSnapshot' });
  if (list.snapshots.length === 0 && list.graph.origin === null) {
    return (
      <div class="timeline">
        <div class="empty">
          <Icon name="device-camera" />
          <h2>No snapshots yet</h2>
          <p>One is created before every turn. You can also create one now.</p>
          <button class="primary" onClick={create}>
            Create Snapshot
          </button>
        </div>
      </div>
    );
  }
  const onKeyDown = (event: KeyboardEvent): void => {
    const titles = [...(rows.current?.querySelectorAll<HTMLElement>('.row-title') ?? [])];
    const at = titles.indexOf(event.target as HTMLElement);
    const move = MOVES[event.key];
    if (at === -1 || move === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const to = Math.max(0, Math.min(titles.length - 1, move(at, titles.length)));
    setCurrent(entries[to]?.id ?? null);
    titles[to]?.focus();
  };
  const { usage } = list;
  return (
    <div class="timeline">
      <div class="column">
        <p class="graph-head quiet">
          <span>
            {formatCount(usage.snapshots, 'snapshot')} · {formatBytes(usage.bytes)} on disk
          </span>
          <button class="link" onClick={create}>
            Create Snapshot
          </button>
        </p>
        {why !== null && (
          <p role="status">
            {plain(why)}{' '}
            <button class="link" onClick={readAgain}>
              Try Again
            </button>
          </p>
        )}
        <ol ref={rows} class="graph" aria-label="Snapshots, newest first" onKeyDown={onKeyDown}>
          {drawn}
        </ol>
        {list.next !== null && (
          <p class="center">
            <button class="secondary" onClick={readOlder}>
              Show Older Snapshots
            </button>
          </p>
        )}
      </div>
    </div>
  );
}
