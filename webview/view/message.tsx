import { useState } from 'preact/hooks';
import { plain } from '../format.ts';
import type { PageModel } from '../page-model.ts';
import type { Row } from '../timeline.ts';
import { Code } from './code.tsx';
import { Icon } from './icon.tsx';
import { MarkdownText } from './markdown-text.tsx';

interface Props {
  readonly model: PageModel;
  readonly row: Extract<Row, { kind: 'message' }>;
}

/** What the agent said or thought, or the output of a program. */
export function Message({ model, row }: Props) {
  const { role, text, isLive, isRemoved } = row;
  if (isRemoved) return <p class="quiet">The text was removed from the history.</p>;
  switch (role) {
    case 'agent':
      return (
        // Read aloud once, when it is whole, and not again with each word.
        <div class={`message${isLive ? ' live' : ''}`} aria-busy={isLive}>
          <MarkdownText model={model} text={text} />
          <WholeText model={model} row={row} />
        </div>
      );
    case 'thought':
      return (
        <details class="thought">
          <summary>
            <Icon name="lightbulb" />
            <span>{isLive ? 'Thinking…' : 'Thought'}</span>
            <span class="excerpt">{firstLine(text)}</span>
          </summary>
          <MarkdownText model={model} text={text} />
        </details>
      );
    case 'stdout':
    case 'stderr':
      return (
        <div class={`output ${role}`}>
          {role === 'stderr' && <span class="label">Errors and messages (stderr)</span>}
          <Code
            model={model}
            text={plain(text)}
            label={role === 'stderr' ? 'Messages of the agent' : 'Output of the agent'}
          />
          <WholeText model={model} row={row} />
        </div>
      );
  }
}

/** A text that is longer than what came with the item. */
function WholeText({ model, row }: Props) {
  const [whole, setWhole] = useState<{ text: string; isCut: boolean } | null>(null);
  const { cut } = row;
  if (cut === null) return null;
  if (whole !== null) {
    return (
      <pre tabIndex={0} class="whole">
        {plain(whole.text)}
        {whole.isCut ? '\n…' : ''}
      </pre>
    );
  }
  const show = (): void => {
    model.request('content', { sha256: cut }).then(setWhole, (error: unknown) => model.fail(error));
  };
  return (
    <button class="link" onClick={show}>
      Show the whole text
    </button>
  );
}

function firstLine(text: string): string {
  const line = plain(text).trim().split('\n', 1)[0] ?? '';
  return line.length > 120 ? `${line.slice(0, 120)}…` : line;
}
