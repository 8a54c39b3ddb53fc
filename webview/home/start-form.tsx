import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { ATTACHMENT_LIMITS } from '../../protocol/attachment-names.ts';
import { chooseFiles } from '../choose-files.ts';
import { formatBytes, plain } from '../format.ts';
import { MAX_FIRST_PROMPT } from '../home-messages.ts';
import type { HomeFile, HomeState, Start } from '../home-messages.ts';
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
  const [text, setText] = useState(() => model.draft.draft);
  const [kept, setKept] = useState(() => model.draft.files);
  /** Files that are being read. */
  const [reading, setReading] = useState(0);
  const [chosen, setChosen] = useState<string | null>(null);
  const [isStarting, setStarting] = useState(false);
  const box = useRef<HTMLTextAreaElement>(null);
  const files = kept.filter(({ upload }) => !model.lost.has(upload));
  const groups = optionsOf(state);
  const all = groups.flatMap(({ options }) => options);
  const option = all.find(({ key }) => key === chosen) ?? all[0];
  const input = option?.input ?? 'prompt';
  // Nothing has to be written for a handler, such as the example.
  const prompt = input === 'json' && text.trim() === '' ? '{}' : text;
  const canStart = option !== undefined && canStartOn(state, option.from);
  const isPossible = canStart && prompt.trim() !== '' && !isStarting && reading === 0;

  useEffect(() => {
    model.draft = { draft: text, files };
  }, [model, text, files.length]);
  useLayoutEffect(() => {
    const element = box.current;
    if (element === null) return;
    element.style.height = 'auto';
    element.style.height = `${Math.min(element.scrollHeight, MAX_HEIGHT)}px`;
  }, [text]);
  useEffect(() => box.current?.focus(), []);

  const attach = (chosen: FileList | null | undefined): void => {
    const room = ATTACHMENT_LIMITS.count - files.length - reading;
    if ((chosen?.length ?? 0) > room)
      model.fail(`A prompt has at most ${ATTACHMENT_LIMITS.count} files. The others were left out.`);
    for (const file of [...(chosen ?? [])].slice(0, Math.max(0, room))) {
      setReading((many) => many + 1);
      model
        .attach(file)
        .then((one) => setKept((earlier) => [...earlier, one]))
        .catch((error: unknown) => model.fail(error))
        .finally(() => setReading((many) => many - 1));
    }
  };
  const remove = ({ upload }: HomeFile): void => {
    setKept((earlier) => earlier.filter((one) => one.upload !== upload));
    void model.ask('dropUpload', { upload });
    box.current?.focus();
  };
  const start = async (): Promise<void> => {
    if (!isPossible) return;
    setStarting(true);
    const result = await model.ask('start', { from: option.from, prompt, files });
    setStarting(false);
    if (result?.session === undefined || result.session === null) return;
    model.started = result.session;
    setText('');
    setKept([]);
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
      onDragOver={(event) => {
        if (event.dataTransfer?.types.includes('Files') === true) event.preventDefault();
      }}
      onDrop={(event) => {
        if (event.dataTransfer?.files.length !== 0) event.preventDefault();
        attach(event.dataTransfer?.files);
      }}
    >
      {files.length > 0 && (
        <ul class="files" aria-label="Attachments">
          {files.map((one) => (
            <li key={one.upload}>
              <Icon name="file" /> {plain(one.name)} <span class="quiet">{formatBytes(one.bytes)}</span>
              <button
                class="icon"
                type="button"
                title="Remove"
                aria-label={`Remove ${plain(one.name)}`}
                onClick={() => remove(one)}
              >
                <Icon name="close" />
              </button>
            </li>
          ))}
        </ul>
      )}
      {reading > 0 && (
        <p class="quiet" role="status">
          Attaching…
        </p>
      )}
      <textarea
        ref={box}
        rows={2}
        value={text}
        aria-label={input === 'json' ? 'First input, as JSON' : 'First prompt'}
        placeholder={
          input === 'json' ? 'Input as JSON, such as {"city": "Lima"}; {} if empty' : 'Describe a task'
        }
        onInput={({ currentTarget }) => {
          if (currentTarget.value.length <= MAX_FIRST_PROMPT) setText(currentTarget.value);
          else {
            currentTarget.value = text;
            model.fail(`A prompt has at most ${MAX_FIRST_PROMPT} characters. Attach longer texts.`);
          }
        }}
        onPaste={(event) => {
          const pasted = event.clipboardData?.files;
          if (pasted?.length) event.preventDefault();
          attach(pasted);
        }}
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
        <button
          class="icon"
          type="button"
          onClick={() => chooseFiles(attach)}
          title="Attach files"
          aria-label="Attach files"
        >
          <Icon name="attach" />
        </button>
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
