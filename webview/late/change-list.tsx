import { useEffect, useState } from 'preact/hooks';
import { plain } from '../format.ts';
import type { PageChange, PageChanges } from '../late-messages.ts';
import { Icon } from '../view/icon.tsx';
import type { LateModel } from './late-model.ts';

const KINDS: Readonly<Record<PageChange['kind'], { readonly icon: string; readonly word: string }>> = {
  added: { icon: 'diff-added', word: 'Added' },
  modified: { icon: 'diff-modified', word: 'Changed' },
  deleted: { icon: 'diff-removed', word: 'Deleted' },
  renamed: { icon: 'diff-renamed', word: 'Renamed' },
  mode: { icon: 'lock', word: 'Mode or time changed' },
  typechange: { icon: 'diff-modified', word: 'Type changed' },
};

const WORKSPACE = /^\/workspace\//;

interface Props {
  readonly model: LateModel;
  /** Ids of snapshots; one of them may be `now`. */
  readonly from: string;
  readonly to: string;
  /** The one of them whose files open as they were. */
  readonly snapshot: string;
  /** Called with the totals, in words, when the list is drawn. */
  readonly onShown?: (totals: string) => void;
}

/** The files that differ between two snapshots. Each opens as a difference, or as it was. */
export function ChangeList({ model, from, to, snapshot, onShown }: Props) {
  const [found, setFound] = useState<PageChanges | null>(null);
  const [why, setWhy] = useState<string | null>(null);
  const [cursor, setCursor] = useState<string | undefined>(undefined);
  useEffect(() => {
    let isOver = false;
    model.request('changes', { from, to, cursor }).then(
      (page) => {
        if (!isOver)
          setFound((known) => ({ ...page, changes: [...(known?.changes ?? []), ...page.changes] }));
      },
      (error: unknown) => {
        if (!isOver) setWhy(error instanceof Error ? error.message : String(error));
      },
    );
    return () => {
      isOver = true;
    };
  }, [model, from, to, cursor]);
  useEffect(() => {
    if (found !== null) onShown?.(found.totals);
  }, [found]);
  if (why !== null) return <p role="status">{plain(why)}</p>;
  if (found === null) {
    return (
      <p class="quiet" role="status">
        Comparing…
      </p>
    );
  }
  const { changes, totals, nextCursor, caveat } = found;
  return (
    <>
      <p class="quiet" role="status">
        {totals.charAt(0).toUpperCase() + totals.slice(1)}
        {caveat === null ? '' : `; ${caveat}`}
      </p>
      <ul class="changes" aria-label="Files that differ">
        {changes.map((change) => (
          <Change key={change.path} {...{ model, from, to, snapshot, change }} />
        ))}
      </ul>
      {nextCursor !== null && (
        <button class="link" onClick={() => setCursor(nextCursor)}>
          Show More
        </button>
      )}
    </>
  );
}

function Change({ model, from, to, snapshot, change }: Props & { readonly change: PageChange }) {
  const { path, oldPath, kind, type } = change;
  const { icon, word } = KINDS[kind];
  const shown = plain([oldPath, path].flatMap((one) => one?.replace(WORKSPACE, '') ?? []).join(' → '));
  const isFile = type === 'file';
  const isLeft = snapshot === from;
  const wasThere = kind !== (isLeft ? 'added' : 'deleted');
  const at = isLeft ? (oldPath ?? path) : path;
  return (
    <li class={kind}>
      <Icon name={icon} /> <span class="hidden">{word}:</span>{' '}
      {isFile && kind !== 'mode' ? (
        <button class="link" onClick={() => void model.ask('openChange', { from, to, path, oldPath, kind })}>
          {shown}
        </button>
      ) : (
        <span>{shown}</span>
      )}
      {isFile && wasThere && (
        <button
          class="link as-it-was"
          aria-label={`Open ${shown} as it was`}
          onClick={() => void model.ask('openSnapshotFile', { snapshot, path: at })}
        >
          As It Was
        </button>
      )}
      {type !== 'file' && <span class="quiet">{type}</span>}
    </li>
  );
}
