import { memo } from 'preact/compat';
import { useMemo } from 'preact/hooks';
import { COPY, LINK, growingMarkdown, renderMarkdown } from '../markdown.ts';
import type { MarkdownPart } from '../markdown-parts.ts';
import type { PageModel } from '../page-model.ts';

interface Props {
  readonly model: PageModel;
  readonly text: string;
}

/** Markdown of an agent. Links go through the extension; nothing else in it reacts. */
export const MarkdownText = memo(function MarkdownText({ model, text }: Props) {
  const markdown = useMemo(growingMarkdown, []);
  const parts = useMemo(() => markdown.parts(text), [markdown, text]);
  const open = (event: MouseEvent): void => {
    const target = event.target instanceof Element ? event.target : null;
    const code = target?.closest(`[${COPY}]`)?.parentElement?.querySelector('pre');
    if (code !== null && code !== undefined) void model.copy(code.textContent);
    const link = target?.closest(`[${LINK}]`) ?? null;
    if (link === null) return;
    event.preventDefault();
    const address = link.getAttribute(LINK) ?? '';
    if (/^(https?|mailto):/i.test(address)) void model.ask('openLink', { url: address });
    else void model.ask('openFile', locationOf(address));
  };
  return (
    <div class="markdown" onClick={open}>
      {parts.map((part, index) => (
        <Part key={index} {...part} />
      ))}
    </div>
  );
});

/** Sanitized in `renderMarkdown`; the policy of the page allows no script in it either. */
const Part = memo((part: MarkdownPart) => <div dangerouslySetInnerHTML={{ __html: renderMarkdown(part) }} />);

/** `src/a.ts:12` and `src/a.ts#L12` name a line. */
function locationOf(address: string): { path: string; line: number | null } {
  const match = /^(.*?)(?::|#L)(\d+)/.exec(address);
  const [path, line] = match === null ? [address, null] : [match[1] ?? '', Number(match[2])];
  return { path: decode(path.replace(/#.*$/, '')), line };
}

function decode(path: string): string {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}
