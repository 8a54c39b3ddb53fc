import type { VNode } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { insertMention, isMentionable, mentionAt } from '../mentions.ts';
import type { PageModel } from '../page-model.ts';
import { Icon } from './icon.tsx';

/** A person types faster than files are found. */
const DELAY_MS = 80;
const LIST = 'mention-list';

interface Options {
  readonly model: PageModel;
  readonly text: string;
  readonly caret: number;
  readonly onChoose: (text: string, caret: number) => void;
}

interface Mentions {
  /** The list of files while a person writes a mention. */
  readonly list: VNode | null;
  /** For the text box, so that a screen reader follows. */
  readonly aria: Readonly<Record<string, string>>;
  /** Whether the key was for the list. */
  readonly onKeyDown: (event: KeyboardEvent) => boolean;
}

/** Completes the `@` mention at the caret with files of the workspace. The focus stays in the text. */
export function useMentions({ model, text, caret, onChoose }: Options): Mentions {
  const mention = model.state.input === 'json' ? null : mentionAt(text, caret);
  const query = mention?.query ?? null;
  const [paths, setPaths] = useState<readonly string[]>([]);
  const [active, setActive] = useState(0);
  /** The mention whose list a person has closed. */
  const [closed, setClosed] = useState<number | null>(null);

  useEffect(() => {
    if (query === null) {
      setPaths([]);
      setClosed(null);
      return undefined;
    }
    let isCurrent = true;
    const show = (found: readonly string[]): void => {
      if (!isCurrent) return;
      setPaths(found.filter(isMentionable));
      setActive(0);
    };
    const timer = setTimeout(() => {
      // Without a sandbox there are no files to choose from; the mention can be written all the same.
      model.request('findFiles', { query }).then(
        (found) => show(found.paths),
        () => show([]),
      );
    }, DELAY_MS);
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [model, query]);

  if (mention === null || mention.start === closed || paths.length === 0) {
    return { list: null, aria: { 'aria-haspopup': 'listbox' }, onKeyDown: () => false };
  }
  const choose = (path: string | undefined): void => {
    if (path === undefined) return;
    const inserted = insertMention(text, mention, path);
    setPaths([]);
    onChoose(inserted.text, inserted.caret);
  };
  const onKeyDown = (event: KeyboardEvent): boolean => {
    const count = paths.length;
    if (event.key === 'ArrowDown') setActive((active + 1) % count);
    else if (event.key === 'ArrowUp') setActive((active + count - 1) % count);
    else if (event.key === 'Escape') setClosed(mention.start);
    else if ((event.key === 'Enter' && !event.shiftKey) || event.key === 'Tab') choose(paths[active]);
    else return false;
    event.preventDefault();
    return true;
  };
  const list = (
    <ul class="mentions" id={LIST} role="listbox" aria-label="Files of the workspace">
      {paths.map((path, index) => (
        <li
          key={path}
          id={`${LIST}-${index}`}
          role="option"
          aria-selected={index === active}
          ref={(row) => {
            if (index === active) row?.scrollIntoView({ block: 'nearest' });
          }}
          // Before the text box loses the focus.
          onMouseDown={(event) => {
            event.preventDefault();
            choose(path);
          }}
        >
          <Icon name="file" />
          <span class="name">{path.slice(path.lastIndexOf('/') + 1)}</span>
          <span class="folder">{path.slice(0, Math.max(0, path.lastIndexOf('/')))}</span>
        </li>
      ))}
    </ul>
  );
  const aria = {
    'aria-haspopup': 'listbox',
    'aria-autocomplete': 'list',
    'aria-controls': LIST,
    'aria-activedescendant': `${LIST}-${active}`,
  };
  return { list, aria, onKeyDown };
}
