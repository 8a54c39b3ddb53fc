import { memo } from 'preact/compat';
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { formatTime, plain } from '../format.ts';
import { promptParts } from '../mentions.ts';
import type { PageModel } from '../page-model.ts';
import { matches, timeline } from '../timeline.ts';
import type { Filter, Row } from '../timeline.ts';
import { Attachments } from './attachments.tsx';
import { Icon } from './icon.tsx';
import { Mark, Notice, Plan, TurnEnd } from './marks.tsx';
import { Message } from './message.tsx';
import { Permission } from './permission.tsx';
import { ToolCall } from './tool-call.tsx';

/** So close to an end the next page is read, in pixels. */
const NEAR = 600;
/** So close to the end the view follows what is new. */
const FOLLOW = 40;
/** What is laid out for the first time above a row moves it for some frames. */
const SETTLING_FRAMES = 10;
/** So long after a scroll the place is kept, in milliseconds. */
const KEEP_PLACE_MS = 300;

interface Props {
  readonly model: PageModel;
  readonly filter: Filter;
}

/**
 * The conversation. The model has a window of it; the browser lays out only what is on the screen
 * (`content-visibility`). The view follows the end while a person is there, and stays where it is otherwise.
 */
export function TimelineView({ model, filter }: Props) {
  const { conversation } = model;
  const { items, live, cursors } = conversation;
  const box = useRef<HTMLDivElement>(null);
  const isFollowing = useRef(true);
  const anchor = useRef<{ readonly key: string; readonly top: number } | null>(null);
  const [isAway, setAway] = useState(false);
  const shown = useRef(model.found);
  const keeping = useRef<ReturnType<typeof setTimeout>>(undefined);
  const rows = useMemo(() => timeline(items, live), [items, live, live.length]).filter((row) =>
    matches(row, filter),
  );

  useEffect(() => void model.returnToPlace(), [model]);

  // What is laid out for the first time changes its size, and what a person unfolds too.
  useEffect(() => {
    const column = box.current?.firstElementChild;
    if (column === null || column === undefined) return undefined;
    const observer = new ResizeObserver(() => {
      const element = box.current;
      if (element !== null && isFollowing.current) element.scrollTop = element.scrollHeight;
    });
    observer.observe(column);
    return () => observer.disconnect();
  }, [conversation.isLoaded]);

  // The browser anchors what is inserted above, but not while the view is at the very top.
  useLayoutEffect(() => {
    const element = box.current;
    if (element === null) return;
    if (model.found !== null && model.found !== shown.current) {
      isFollowing.current = false;
      anchor.current = null;
      element
        .querySelector(`[data-key="${CSS.escape(model.found.key)}"]`)
        ?.scrollIntoView({ block: 'center' });
    }
    shown.current = model.found;
    const { returnsTo } = model;
    if (returnsTo !== null) {
      model.returnsTo = null;
      isFollowing.current = false;
      anchor.current = null;
      setAway(true);
      holdAt(element, returnsTo, SETTLING_FRAMES);
    }
    if (isFollowing.current && cursors.after === null) element.scrollTop = element.scrollHeight;
    else if (anchor.current !== null) {
      const row = element.querySelector(`[data-key="${CSS.escape(anchor.current.key)}"]`);
      if (row !== null) element.scrollTop += row.getBoundingClientRect().top - anchor.current.top;
    }
  });

  const onScroll = (): void => {
    const element = box.current;
    if (element === null) return;
    const below = element.scrollHeight - element.scrollTop - element.clientHeight;
    isFollowing.current = below <= FOLLOW;
    setAway(below > FOLLOW || cursors.after !== null);
    anchor.current = isFollowing.current ? null : firstVisible(element);
    const { top } = element.getBoundingClientRect();
    const row = anchor.current === null ? null : { ...anchor.current, top: anchor.current.top - top };
    clearTimeout(keeping.current);
    keeping.current = setTimeout(() => model.keepPlace(row), KEEP_PLACE_MS);
    if (element.scrollTop < NEAR) void model.readMore('before');
    if (below < NEAR) void model.readMore('after');
  };
  const toEnd = (): void => {
    isFollowing.current = true;
    anchor.current = null;
    setAway(false);
    if (cursors.after === null) model.changed();
    else void model.readEnd();
  };

  if (!conversation.isLoaded)
    return (
      <div class="timeline loading" aria-busy="true" role="status">
        Loading…
      </div>
    );
  return (
    <div class="timeline-frame">
      <div
        class="timeline"
        ref={box}
        onScroll={onScroll}
        role="log"
        // Who reads further up is not told what is loaded there.
        aria-live={isAway ? 'off' : 'polite'}
        aria-relevant="additions"
        tabIndex={0}
        aria-label="Conversation"
      >
        <div class="column">
          {cursors.before !== null && <p class="quiet center">Loading earlier messages…</p>}
          {rows.length === 0 && <Empty model={model} filter={filter} />}
          {rows.map((row) => (
            <RowView key={row.key} model={model} row={row} isFound={row.key === model.found?.key} />
          ))}
          <Working model={model} />
        </div>
      </div>
      {isAway && (
        <button class="to-end" onClick={toEnd} title="Go to the latest message">
          <Icon name="arrow-down" /> Latest
        </button>
      )}
    </div>
  );
}

interface RowProps {
  readonly model: PageModel;
  readonly row: Row;
  /** The search leads to it. */
  readonly isFound: boolean;
}

const RowView = memo(
  ({ model, row, isFound }: RowProps) => (
    <div data-key={row.key} class={`row row-${row.kind}${isFound ? ' found' : ''}`}>
      <RowContent model={model} row={row} />
    </div>
  ),
  (before, after) => before.isFound === after.isFound && isSame(before.row, after.row),
);

function RowContent({ model, row }: Omit<RowProps, 'isFound'>) {
  switch (row.kind) {
    case 'prompt':
      return (
        <article class="prompt" aria-label="Your prompt">
          <PromptText model={model} text={plain(row.item.text ?? row.item.preview)} />
          {row.item.attachments !== undefined && (
            <Attachments model={model} attachments={row.item.attachments} />
          )}
          <time dateTime={row.item.time}>{formatTime(row.item.time)}</time>
        </article>
      );
    case 'message':
      return <Message model={model} row={row} />;
    case 'plan':
      return <Plan row={row} />;
    case 'tool':
      return <ToolCall model={model} row={row} />;
    case 'permission':
      return <Permission model={model} row={row} />;
    case 'notice':
      return <Notice row={row} />;
    case 'mark':
      return <Mark model={model} row={row} />;
    case 'end':
      return <TurnEnd model={model} row={row} />;
  }
}

/** A prompt, in which mentions of files are links. */
function PromptText({ model, text }: { readonly model: PageModel; readonly text: string }) {
  return (
    <div class="text">
      {promptParts(text).map((part, index) =>
        part.kind === 'text' ? (
          part.text
        ) : (
          <button
            key={index}
            class="link"
            onClick={() => void model.ask('openFile', { path: part.path, line: null })}
          >
            {part.text}
          </button>
        ),
      )}
    </div>
  );
}

function isSame(a: Row, b: Row): boolean {
  if (a.kind === 'message' && b.kind === 'message') {
    return a.text === b.text && a.isLive === b.isLive && a.cut === b.cut && a.isRemoved === b.isRemoved;
  }
  if (a.kind === 'end' && b.kind === 'end') return a.item === b.item && a.usage === b.usage;
  return 'item' in a && 'item' in b && a.item === b.item;
}

function Empty({ model, filter }: Props) {
  if (filter !== 'all') return <p class="quiet center">Nothing of this kind in the part that is loaded.</p>;
  return (
    <div class="empty">
      <Icon name="comment-discussion" />
      <h2>Nothing has happened yet</h2>
      <p>
        {model.state.input === 'json'
          ? 'Send the agent its first input below.'
          : 'Tell the agent below what to do.'}
      </p>
    </div>
  );
}

/** One line while a turn runs, so that a silent agent does not look like a dead one. */
function Working({ model }: { model: PageModel }) {
  const { session } = model.state;
  if (session?.runningTurn === null || session?.runningTurn === undefined) return null;
  const isWaiting = model.conversation.items.some((item) => item.type === 'permission' && item.by === null);
  return (
    <p class="working" role="status">
      <Icon name={isWaiting ? 'bell-dot' : 'loading'} spin={!isWaiting} />{' '}
      {isWaiting ? 'Waiting for you' : 'Working…'}
    </p>
  );
}

/** Scrolls so that a row is where it was, in this frame and some more. */
function holdAt(
  box: HTMLElement,
  place: { readonly key: string; readonly top: number },
  frames: number,
): void {
  const row = box.querySelector(`[data-key="${CSS.escape(place.key)}"]`);
  if (row === null) return;
  box.scrollTop += row.getBoundingClientRect().top - box.getBoundingClientRect().top - place.top;
  if (frames > 0) requestAnimationFrame(() => holdAt(box, place, frames - 1));
}

function firstVisible(box: HTMLElement): { key: string; top: number } | null {
  const edge = box.getBoundingClientRect().top;
  for (const row of box.querySelectorAll<HTMLElement>('[data-key]')) {
    const { top, bottom } = row.getBoundingClientRect();
    if (bottom > edge) return { key: row.dataset['key'] ?? '', top };
  }
  return null;
}
