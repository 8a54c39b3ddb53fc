import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { ATTACHMENT_LIMITS } from '../../protocol/attachment-names.ts';
import type { Attachment } from '../../protocol/attachments.ts';
import type { ConversationItem } from '../../protocol/conversation.ts';
import { chooseFiles } from '../choose-files.ts';
import type { Written } from '../draft.ts';
import { plain } from '../format.ts';
import { loadLateViews } from '../late.ts';
import { MAX_PROMPT } from '../messages.ts';
import type { PageModel } from '../page-model.ts';
import { Attachments } from './attachments.tsx';
import { Icon } from './icon.tsx';
import { useMentions } from './mention-list.tsx';

const { count: MAX_FILES } = ATTACHMENT_LIMITS;

/** A prompt that waits and is in the box, and what was there before. */
interface Edited {
  readonly turnId: string;
  readonly own: Written;
}

/**
 * Where a person writes to the agent. Prompts that wait are above it and can be edited and taken back. Hidden, it keeps what is
 * written, and uploads go on.
 */
export function PromptBox({ model, isShown }: { readonly model: PageModel; readonly isShown: boolean }) {
  const [text, setText] = useState(() => model.draft.text);
  const [attachments, setAttachments] = useState(() => model.draft.attachments);
  /** Files that are being uploaded. */
  const [reading, setReading] = useState(0);
  const [isSending, setSending] = useState(false);
  const [edited, setEdited] = useState<Edited | null>(null);
  const [caret, setCaret] = useState(0);
  const box = useRef<HTMLTextAreaElement>(null);
  /** Where the caret goes once the text is drawn. */
  const nextCaret = useRef<number | null>(null);
  /** How far back in the earlier prompts a person has gone; 0: their own text. */
  const [back, setBack] = useState(0);
  const { session, input, host, isDeleted } = model.state;
  const isRunning = session !== null && session.runningTurn !== null;
  const isPossible = session !== null && !isDeleted && host === 'connected';

  useEffect(() => {
    model.draft = edited === null ? { text, attachments } : edited.own;
  }, [model, text, attachments, edited]);
  useLayoutEffect(() => {
    if (nextCaret.current !== null) box.current?.setSelectionRange(nextCaret.current, nextCaret.current);
    nextCaret.current = null;
  }, [text]);
  const mentions = useMentions({
    model,
    text,
    caret,
    onChoose: (next, at) => {
      nextCaret.current = at;
      setText(next);
      setCaret(at);
    },
  });

  const isReady = isPossible && !isSending && reading === 0 && (text.trim() !== '' || attachments.length > 0);
  /** The first of `files`; a person is told if that leaves some out. */
  const first = <T,>(files: readonly T[], most: number = MAX_FILES): T[] => {
    if (files.length > most)
      model.fail(`A prompt can have at most ${MAX_FILES} files. The others were left out.`);
    return files.slice(0, Math.max(0, most));
  };
  /** Each file is added when it is there, whatever else is being read. One that cannot be sent is reported and left out. */
  const attach = (files: FileList | null | undefined): void => {
    for (const file of first([...(files ?? [])], MAX_FILES - attachments.length - reading)) {
      setReading((many) => many + 1);
      loadLateViews(model)
        .then((views) => views.attach(file))
        .then((one) => setAttachments((earlier) => first([...earlier, one])))
        .catch((error: unknown) => model.fail(error))
        .finally(() => setReading((many) => many - 1));
    }
  };
  const send = async (): Promise<void> => {
    if (!isReady) return;
    setSending(true);
    if (edited !== null) await save(edited);
    else if (await model.send({ text, attachments })) leave({ text: '', attachments: [] });
    setSending(false);
    box.current?.focus();
  };
  const save = async ({ turnId, own }: Edited): Promise<void> => {
    if (await model.ask('edit', { turnId, text, attachments })) leave(own);
    // It has begun meanwhile: what was written can be sent as another prompt.
    else if (!model.conversation.queued.some((item) => item.turnId === turnId)) {
      leave({
        text: [text, own.text].filter((part) => part !== '').join('\n'),
        attachments: first([...attachments, ...own.attachments]),
      });
    }
  };
  const leave = (next: Written): void => {
    setEdited(null);
    setText(next.text);
    setAttachments(next.attachments);
    setBack(0);
  };
  const recall = (step: number): boolean => {
    const earlier = model.conversation.items.flatMap((item) =>
      item.type === 'prompt' && item.text !== null && !item.cut ? [item.text] : [],
    );
    const next = back + step;
    if (next < 0 || next > earlier.length) return false;
    setBack(next);
    setText(next === 0 ? '' : (earlier.at(-next) ?? ''));
    return true;
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.isComposing || mentions.onKeyDown(event)) return;
    if (event.key === 'Enter' && !event.shiftKey && !event.altKey) {
      event.preventDefault();
      void send();
    }
    if (event.key === 'Escape' && edited !== null) {
      event.preventDefault();
      leave(edited.own);
    }
    const isUntouched = text === '' || back > 0;
    if (event.key === 'ArrowUp' && isUntouched && recall(1)) event.preventDefault();
    if (event.key === 'ArrowDown' && back > 0 && recall(-1)) event.preventDefault();
  };
  const edit = async (item: ConversationItem): Promise<void> => {
    const { turnId } = item;
    if (turnId === null || edited?.turnId === turnId || reading > 0) return;
    const whole = await wholeText(model, item);
    if (whole === null) return;
    setEdited({ turnId, own: edited === null ? { text, attachments } : edited.own });
    setText(whole);
    setAttachments(item.type === 'prompt' ? (item.attachments ?? []) : []);
    setBack(0);
    box.current?.focus();
  };
  const takeBack = async (item: ConversationItem): Promise<void> => {
    if (item.turnId === null || !(await model.ask('takeBack', { turnId: item.turnId }))) return;
    model.forgetSent(item.text);
    if (edited?.turnId === item.turnId) leave(edited.own);
  };
  const sendLabel = edited !== null ? 'Save this prompt' : isRunning ? 'Add to the queue' : 'Send';

  return (
    <div
      class="prompt-area"
      hidden={!isShown}
      onDragOver={(event) => {
        if (event.dataTransfer?.types.includes('Files') === true) event.preventDefault();
      }}
      onDrop={(event) => {
        if (event.dataTransfer?.files.length !== 0) event.preventDefault();
        attach(event.dataTransfer?.files);
      }}
    >
      <Queue
        model={model}
        edited={edited?.turnId ?? null}
        onEdit={(item) => void edit(item)}
        onTakeBack={(item) => void takeBack(item)}
      />
      {mentions.list}
      <div class="prompt-box">
        {attachments.length > 0 && (
          <Attachments
            model={model}
            attachments={attachments}
            onRemove={(removed) => {
              setAttachments((now) => now.filter((one) => one !== removed));
              box.current?.focus();
            }}
          />
        )}
        {reading > 0 && (
          <p class="quiet" role="status">
            Attaching…
          </p>
        )}
        <textarea
          ref={box}
          rows={1}
          value={text}
          disabled={session === null || isDeleted}
          aria-label={input === 'json' ? 'Input for the agent, as JSON' : 'Prompt for the agent'}
          placeholder={placeholder(input, isRunning)}
          onInput={(event) => {
            if (event.currentTarget.value.length > MAX_PROMPT) {
              // Cut, it would lose its end, and as it is, a reload would lose all of it.
              event.currentTarget.value = text;
              model.fail(`A prompt has at most ${MAX_PROMPT} characters. Attach longer texts.`);
              return;
            }
            setBack(0);
            setText(event.currentTarget.value);
            setCaret(event.currentTarget.selectionStart);
          }}
          onSelect={(event) => setCaret(event.currentTarget.selectionStart)}
          onKeyDown={onKeyDown}
          onPaste={(event) => {
            const files = event.clipboardData?.files;
            if (files?.length) event.preventDefault();
            attach(files);
          }}
          {...mentions.aria}
        />
        <div class="bar">
          <span class="quiet hint">
            {edited === null
              ? 'Enter sends · Shift+Enter adds a line · @ mentions a file'
              : 'Enter saves the prompt that waits · Escape leaves it as it was'}
          </span>
          <button
            class="icon"
            disabled={!isPossible}
            onClick={() => chooseFiles(attach)}
            title="Attach files"
            aria-label="Attach files"
          >
            <Icon name="attach" />
          </button>
          <Pickers model={model} isPossible={isPossible} />
          {isRunning && (
            <button
              class="round secondary"
              onClick={() => void model.ask('stop', {})}
              title="Stop the running turn"
              aria-label="Stop the running turn"
            >
              <Icon name="debug-stop" />
            </button>
          )}
          <button
            class="round primary"
            disabled={!isReady}
            onClick={() => void send()}
            title={sendLabel}
            aria-label={sendLabel}
          >
            <Icon name={edited === null ? 'arrow-up' : 'check'} />
          </button>
        </div>
      </div>
    </div>
  );
}

/** The mode and the model of the agent. A choice that is refused goes back to what counts. */
function Pickers({ model, isPossible }: { readonly model: PageModel; readonly isPossible: boolean }) {
  return model.pickers.map(({ what, value, options }) => (
    <select
      key={what}
      class="picker"
      value={value}
      disabled={!isPossible}
      aria-label={`The agent's ${what}`}
      title={`The agent's ${what}`}
      onChange={({ currentTarget: box }) => {
        void model.ask('choose', { what, value: box.value }).then((isChosen) => {
          if (!isChosen) box.value = value;
        });
      }}
    >
      {options.map((option) => (
        <option key={option.value} value={option.value}>
          {option.name}
        </option>
      ))}
    </select>
  ));
}

interface QueueProps {
  readonly model: PageModel;
  /** The turn whose prompt is in the box. */
  readonly edited: string | null;
  readonly onEdit: (item: ConversationItem) => void;
  readonly onTakeBack: (item: ConversationItem) => void;
}

function Queue({ model, edited, onEdit, onTakeBack }: QueueProps) {
  const { queued } = model.conversation;
  // A prompt whose turn is about to run waits only for its sandbox.
  const waiting = queued.filter(({ turnId }) => turnId !== model.state.session?.runningTurn);
  if (waiting.length === 0) return null;
  return (
    <ol class="queue" aria-label="Prompts that wait">
      {waiting.map((item) => (
        <li key={item.id} class={item.turnId === edited ? 'edited' : undefined}>
          <Icon name="clock" />
          <span class="text">{item.type === 'prompt' && labelOf(item)}</span>
          <button class="icon" title="Edit" aria-label="Edit this prompt" onClick={() => onEdit(item)}>
            <Icon name="edit" />
          </button>
          <button
            class="icon"
            title="Take back"
            aria-label="Take this prompt back"
            onClick={() => onTakeBack(item)}
          >
            <Icon name="close" />
          </button>
        </li>
      ))}
    </ol>
  );
}

/** A prompt in one line, with what it brings along. */
function labelOf({ preview, attachments = [] }: Extract<ConversationItem, { type: 'prompt' }>): string {
  const names = attachments.map((one: Attachment) => (one.kind === 'link' ? one.path : one.name));
  return plain([preview, ...names].filter((part) => part !== '').join(' · '));
}

/** Null if it cannot be edited here; the page says why. */
async function wholeText(model: PageModel, item: ConversationItem): Promise<string | null> {
  const sha256 = item.contents.at(0)?.sha256;
  if (item.text !== null && !item.cut) return item.text;
  try {
    if (item.text === null || sha256 === undefined) throw new Error('This prompt is not text');
    const { text, isCut } = await model.request('content', { sha256 });
    if (isCut) throw new Error('This prompt is too long for the page; use `holdfast turn edit`');
    return text;
  } catch (error) {
    model.fail(error);
    return null;
  }
}

function placeholder(input: 'prompt' | 'json', isRunning: boolean): string {
  if (input === 'json') return 'Input as JSON, such as {"city": "Lima"}';
  return isRunning ? 'Add a prompt to the queue' : 'What should the agent do?';
}
