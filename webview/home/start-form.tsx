import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { plain } from '../format.ts';
import type { HomeState, Start } from '../home-messages.ts';
import { Icon } from '../view/icon.tsx';
import type { HomeModel } from './home-model.ts';

const MAX_HEIGHT = 240;

interface Option {
  /** The source as JSON, which names it among the options. */
  readonly key: string;
  readonly from: Start;
  readonly name: string;
  readonly input: 'prompt' | 'json';
}

interface Props {
  readonly model: HomeModel;
  readonly state: HomeState;
}

/** A new session with its first prompt: what it starts from, and what the agent should do. */
export function StartForm({ model, state }: Props) {
  const [text, setText] = useState(() => model.draft);
  const [chosen, setChosen] = useState<string | null>(null);
  const [isStarting, setStarting] = useState(false);
  const box = useRef<HTMLTextAreaElement>(null);
  const groups = optionsOf(state);
  const all = groups.flatMap(({ options }) => options);
  const option = all.find(({ key }) => key === chosen) ?? all[0];
  const input = option?.input ?? 'prompt';
  // Nothing has to be written for a handler, such as the example.
  const prompt = input === 'json' && text.trim() === '' ? '{}' : text;
  const canStart = option !== undefined && canStartOn(state, option.from);
  const isPossible = canStart && prompt.trim() !== '' && !isStarting;

  useEffect(() => {
    model.draft = text;
  }, [model, text]);
  useLayoutEffect(() => {
    const element = box.current;
    if (element === null) return;
    element.style.height = 'auto';
    element.style.height = `${Math.min(element.scrollHeight, MAX_HEIGHT)}px`;
  }, [text]);
  useEffect(() => box.current?.focus(), []);

  const start = async (): Promise<void> => {
    if (!isPossible) return;
    setStarting(true);
    const result = await model.ask('start', { from: option.from, prompt });
    setStarting(false);
    if (result?.session === undefined || result.session === null) return;
    model.started = result.session;
    setText('');
    model.changed();
    box.current?.focus();
  };
  return (
    <form
      class="start"
      onSubmit={(event) => {
        event.preventDefault();
        void start();
      }}
    >
      <textarea
        ref={box}
        rows={2}
        value={text}
        aria-label={input === 'json' ? 'First input, as JSON' : 'First prompt'}
        placeholder={
          input === 'json' ? 'Input as JSON, such as {"city": "Lima"}; {} if empty' : 'Describe a task'
        }
        onInput={({ currentTarget }) => setText(currentTarget.value)}
        onKeyDown={(event) => {
          if (event.isComposing || event.key !== 'Enter' || event.shiftKey || event.altKey) return;
          event.preventDefault();
          void start();
        }}
      />
      <div class="bar">
        <label>
          <span class="quiet">in a new session of</span>{' '}
          <select value={option?.key} onChange={({ currentTarget }) => setChosen(currentTarget.value)}>
            {groups.map(({ label, options }) => (
              <optgroup key={label} label={label}>
                {options.map(({ key, name }) => (
                  <option key={key} value={key}>
                    {name}
                  </option>
                ))}
              </optgroup>
            ))}
          </select>
        </label>
        <button class="primary" type="submit" disabled={!isPossible}>
          {isStarting ? (
            <>
              <Icon name="loading" spin /> Starting…
            </>
          ) : (
            'Start'
          )}
        </button>
      </div>
    </form>
  );
}

/** Folders and the example go to the host of the window, the first. */
function canStartOn({ hosts, images }: HomeState, from: Start): boolean {
  const [own] = hosts;
  const host = from.kind === 'profile' ? hosts.find(({ name }) => name === from.host) : own;
  return host?.state === 'connected' && (host !== own || images !== 'missing');
}

/** Deployed profiles, open folders, the example; each group that has any. */
function optionsOf({ profiles, folders, hosts }: HomeState): { label: string; options: Option[] }[] {
  const option = (from: Start, name: string, input: Option['input']): Option => ({
    key: JSON.stringify(from),
    from,
    name,
    input,
  });
  const titleOf = (host: string): string =>
    hosts.length === 1 ? '' : ` – ${plain(hosts.find(({ name }) => name === host)?.title ?? host)}`;
  return [
    {
      label: 'Deployed',
      options: profiles.map(({ host, name, input }) =>
        option({ kind: 'profile', host, name }, `${plain(name)}${titleOf(host)}`, input),
      ),
    },
    {
      label: 'Open folders',
      options: folders.map(({ uri, name }) => option({ kind: 'folder', uri }, plain(name), 'prompt')),
    },
    {
      label: 'Examples',
      options: [option({ kind: 'example' }, 'The example, which counts its turns', 'json')],
    },
  ].filter(({ options }) => options.length > 0);
}
