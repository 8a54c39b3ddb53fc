import { useEffect, useRef, useState } from 'preact/hooks';
import { formatNumber, formatTime, plain } from '../format.ts';
import type { FoundItem } from '../late-messages.ts';
import { MAX_SEARCH } from '../late-messages.ts';
import { Icon } from '../view/icon.tsx';
import type { LateModel } from './late-model.ts';

/** So long after the last letter the words are searched. */
const PAUSE_MS = 250;

interface Found {
  readonly text: string;
  /** Newest first. */
  readonly results: readonly FoundItem[];
  /** Where older ones begin; null if these are all. */
  readonly next: string | null;
  /** False while older conversations are still being indexed. */
  readonly complete: boolean;
}

/** Finds words in the whole conversation, also in what the page has not read, and goes from match to match. */
export function FindBar({ model }: { readonly model: LateModel }) {
  const [text, setText] = useState('');
  const [found, setFound] = useState<Found | null>(null);
  const [at, setAt] = useState(0);
  const [why, setWhy] = useState<string | null>(null);
  const box = useRef<HTMLInputElement>(null);
  /** The newest request; what an older one answers is not shown. */
  const asked = useRef(0);
  const words = text.trim();
  useEffect(() => box.current?.focus(), []);

  const read = async (known: Found | null): Promise<Found | null> => {
    const mine = ++asked.current;
    try {
      const cursor = known?.next ?? undefined;
      const { results, next, complete } = await model.request('search', { text: words, cursor });
      if (asked.current !== mine) return null;
      setWhy(null);
      const all = { text: words, results: [...(known?.results ?? []), ...results], next, complete };
      setFound(all);
      return all;
    } catch (error) {
      if (asked.current === mine) setWhy(error instanceof Error ? error.message : String(error));
      return null;
    }
  };
  const show = (from: Found, index: number): void => {
    const result = from.results[index];
    if (result === undefined) return;
    setAt(index);
    void model.page.showItem(result);
  };
  const search = async (): Promise<void> => {
    const all = await read(null);
    if (all !== null) show(all, 0);
  };
  const older = async (): Promise<void> => {
    if (found?.text !== words) return search();
    if (at + 1 < found.results.length) show(found, at + 1);
    else if (found.next !== null) {
      const all = await read(found);
      if (all !== null) show(all, Math.min(at + 1, all.results.length - 1));
    }
  };
  const newer = (): void => {
    if (found !== null) show(found, Math.max(0, at - 1));
  };
  useEffect(() => {
    asked.current += 1;
    setFound(null);
    if (words === '') return undefined;
    const timer = setTimeout(() => void search(), PAUSE_MS);
    return () => clearTimeout(timer);
  }, [words]);

  const close = (): void => model.page.find(false);
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key === 'Escape') close();
    else if (event.key === 'Enter' && event.target === box.current)
      if (event.shiftKey) newer();
      else void older();
    else return;
    event.preventDefault();
  };
  const shown = found?.results[at];
  return (
    <div class="find" role="search" onKeyDown={onKeyDown}>
      <input
        ref={box}
        type="search"
        aria-label="Find in the conversation"
        placeholder="Find in the whole conversation"
        maxLength={MAX_SEARCH}
        value={text}
        onInput={({ currentTarget }) => setText(currentTarget.value)}
      />
      <span class="quiet" role="status">
        {why === null ? statusOf(words, found, at) : plain(why)}
      </span>
      <button
        class="icon"
        title="Match before (Enter)"
        aria-label="Match before"
        disabled={found === null || (at + 1 >= found.results.length && found.next === null)}
        onClick={() => void older()}
      >
        <Icon name="arrow-up" />
      </button>
      <button
        class="icon"
        title="Match after (Shift+Enter)"
        aria-label="Match after"
        disabled={found === null || at === 0}
        onClick={newer}
      >
        <Icon name="arrow-down" />
      </button>
      <button class="icon" title="Close (Escape)" aria-label="Close the search" onClick={close}>
        <Icon name="close" />
      </button>
      {shown !== undefined && (
        <p class="quiet excerpt">
          {formatTime(shown.time)} · {plain(shown.excerpt)}
        </p>
      )}
    </div>
  );
}

function statusOf(words: string, found: Found | null, at: number): string {
  if (words === '') return '';
  if (found === null) return 'Searching…';
  const { results, next, complete } = found;
  const partly = complete ? '' : ' (older conversations are still being indexed)';
  if (results.length === 0) return `Nothing found${partly}`;
  return `${at + 1} of ${formatNumber(results.length)}${next === null ? '' : '+'}${partly}`;
}
