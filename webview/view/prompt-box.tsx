import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { ConversationItem } from '../../protocol/conversation.ts';
import { plain } from '../format.ts';
import type { PageModel } from '../page-model.ts';
import { Icon } from './icon.tsx';
import { useMentions } from './mention-list.tsx';

const MAX_HEIGHT = 240;

/** Where a person writes to the agent. Prompts that wait are above it and can be edited and taken back. */
export function PromptBox({ model }: { readonly model: PageModel }) {
  const [text, setText] = useState(() => model.bridge.draft);
  const [isSending, setSending] = useState(false);
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
    model.bridge.draft = text;
  }, [model, text]);
  useLayoutEffect(() => {
    const element = box.current;
    if (element === null) return;
    element.style.height = 'auto';
    element.style.height = `${Math.min(element.scrollHeight, MAX_HEIGHT)}px`;
    if (nextCaret.current !== null) element.setSelectionRange(nextCaret.current, nextCaret.current);
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

  const send = async (): Promise<void> => {
    if (text.trim() === '' || !isPossible || isSending) return;
    setSending(true);
    if (await model.ask('prompt', { text })) {
      setText('');
      setBack(0);
    }
    setSending(false);
    box.current?.focus();
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
    const isUntouched = text === '' || back > 0;
    if (event.key === 'ArrowUp' && isUntouched && recall(1)) event.preventDefault();
    if (event.key === 'ArrowDown' && back > 0 && recall(-1)) event.preventDefault();
  };
  const edit = async (item: ConversationItem): Promise<void> => {
    if (item.turnId === null || !(await model.ask('takeBack', { turnId: item.turnId }))) return;
    setText((own) => [item.text ?? '', own].filter((part) => part !== '').join('\n'));
    box.current?.focus();
  };

  return (
    <div class="prompt-area">
      <Queue model={model} onEdit={(item) => void edit(item)} />
      {mentions.list}
      <div class="prompt-box">
        <textarea
          ref={box}
          rows={1}
          value={text}
          disabled={session === null || isDeleted}
          aria-label={input === 'json' ? 'Input for the agent, as JSON' : 'Prompt for the agent'}
          placeholder={placeholder(input, isRunning)}
          onInput={(event) => {
            setBack(0);
            setText(event.currentTarget.value);
            setCaret(event.currentTarget.selectionStart);
          }}
          onSelect={(event) => setCaret(event.currentTarget.selectionStart)}
          onKeyDown={onKeyDown}
          {...mentions.aria}
        />
        <div class="bar">
          <span class="quiet hint">Enter sends · Shift+Enter adds a line · @ mentions a file</span>
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
            disabled={!isPossible || isSending || text.trim() === ''}
            onClick={() => void send()}
            title={isRunning ? 'Add to the queue' : 'Send'}
            aria-label={isRunning ? 'Add to the queue' : 'Send'}
          >
            <Icon name="arrow-up" />
          </button>
        </div>
      </div>
    </div>
  );
}

interface QueueProps {
  readonly model: PageModel;
  readonly onEdit: (item: ConversationItem) => void;
}

function Queue({ model, onEdit }: QueueProps) {
  const { queued } = model.conversation;
  // A prompt whose turn is about to run waits only for its sandbox.
  const waiting = queued.filter(({ turnId }) => turnId !== model.state.session?.runningTurn);
  if (waiting.length === 0) return null;
  return (
    <ol class="queue" aria-label="Prompts that wait">
      {waiting.map((item) => (
        <li key={item.id}>
          <Icon name="clock" />
          <span class="text">{plain(item.type === 'prompt' ? item.preview : '')}</span>
          <button class="icon" title="Edit" aria-label="Edit this prompt" onClick={() => onEdit(item)}>
            <Icon name="edit" />
          </button>
          <button
            class="icon"
            title="Take back"
            aria-label="Take this prompt back"
            onClick={() => {
              if (item.turnId !== null) void model.ask('takeBack', { turnId: item.turnId });
            }}
          >
            <Icon name="close" />
          </button>
        </li>
      ))}
    </ol>
  );
}

function placeholder(input: 'prompt' | 'json', isRunning: boolean): string {
  if (input === 'json') return 'Input as JSON, such as {"city": "Lima"}';
  return isRunning ? 'Add a prompt to the queue' : 'What should the agent do?';
}
