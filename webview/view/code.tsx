import { useMemo } from 'preact/hooks';
import { highlight } from '../highlight.ts';
import type { Language } from '../languages.ts';
import { sanitizeCode } from '../markdown.ts';
import type { PageModel } from '../page-model.ts';
import { CopyButton } from './copy-button.tsx';

interface Props {
  readonly model: PageModel;
  /** Without control characters: `plain`. */
  readonly text: string;
  readonly label: string;
  readonly language?: Language | undefined;
}

/** Text of a program, in a box that scrolls and can be copied. */
export function Code({ model, text, label, language }: Props) {
  const html = useMemo(() => {
    const highlighted = highlight(text, language);
    return highlighted === undefined ? undefined : sanitizeCode(highlighted);
  }, [text, language]);
  return (
    <div class="code">
      {html === undefined ? (
        <pre tabIndex={0} aria-label={label}>
          {text}
        </pre>
      ) : (
        <pre tabIndex={0} aria-label={label} dangerouslySetInnerHTML={{ __html: html }} />
      )}
      <CopyButton model={model} text={text} label={label} />
    </div>
  );
}
