import createDOMPurify from 'dompurify';
import MarkdownIt from 'markdown-it';
import { highlight } from './highlight.ts';
import { languageNamed } from './languages.ts';
import { GrowingMarkdown } from './markdown-parts.ts';
import type { Env, MarkdownPart } from './markdown-parts.ts';

/** A link that does something only when a person clicks, and then goes through the extension. */
export const LINK = 'data-link';

/** A button that copies the code beside it. */
export const COPY = 'data-copy';

const parser = new MarkdownIt({ html: false, linkify: false, typographer: false, breaks: false });
parser.renderer.rules['fence'] = (tokens, index) => {
  const { content = '', info = '' } = tokens[index] ?? {};
  const code = content.replace(/\n$/, '');
  const html = highlight(code, languageNamed(info.trim().split(/[\s{:,]/, 1)[0] ?? ''));
  const button = `<button type="button" class="icon copy" ${COPY}="" title="Copy the code" aria-label="Copy the code"><span class="codicon codicon-copy"></span></button>`;
  return `<div class="code"><pre tabindex="0"><code>${html ?? parser.utils.escapeHtml(code)}</code></pre>${button}</div>`;
};
// Every link is inert: its address is an attribute of ours, which the page hands to the extension.
parser.validateLink = (url) => /^(https?:|mailto:)/i.test(url) || isPath(url);
parser.renderer.rules['link_open'] = (tokens, index) => {
  const href = String(tokens[index]?.attrGet('href') ?? '');
  const address = parser.utils.escapeHtml(href);
  return `<a href="#" ${LINK}="${address}" title="${address}">`;
};
// Nothing remote is loaded, and nothing local that an agent names either.
parser.renderer.rules['image'] = (tokens, index) => {
  const image = tokens[index];
  const text = image === undefined || image.content === '' ? 'image' : image.content;
  return `<span class="image">${parser.utils.escapeHtml(text)}</span>`;
};

const purify = createDOMPurify(window);
const ALLOWED = {
  ALLOWED_TAGS: [
    ...['a', 'p', 'br', 'hr', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'ul', 'ol', 'li', 'blockquote'],
    ...['strong', 'em', 's', 'code', 'pre', 'table', 'thead', 'tbody', 'tr', 'th', 'td', 'span'],
    // Of code, which the renderer makes; HTML of an agent never gets here.
    ...['div', 'button'],
  ],
  ALLOWED_ATTR: ['href', LINK, COPY, 'title', 'class', 'start', 'type', 'tabindex', 'aria-label'],
  // Not addresses to the browser; the page looks at a link's when a person clicks.
  ADD_URI_SAFE_ATTR: [LINK, COPY, 'start', 'type', 'tabindex', 'aria-label'],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  ALLOWED_URI_REGEXP: /^#$/,
};

/** A text that is rendered in parts, see `GrowingMarkdown`. */
export const growingMarkdown = (): GrowingMarkdown => new GrowingMarkdown(parser);

/** Markdown that an agent wrote as HTML that does nothing by itself. */
export function renderMarkdown({ source, references }: MarkdownPart): string {
  if (references === null) return `<pre class="unformatted">${parser.utils.escapeHtml(source)}</pre>`;
  const env: Env = { references: JSON.parse(references) as NonNullable<Env['references']> };
  return purify.sanitize(parser.render(source, env), ALLOWED);
}

/** Highlighted code, with nothing in it but colours. */
export function sanitizeCode(html: string): string {
  return purify.sanitize(html, { ALLOWED_TAGS: ['span'], ALLOWED_ATTR: ['class'] });
}

function isPath(url: string): boolean {
  return /^(\/workspace\/|\.{0,2}\/)?[\w][\w./ %#:-]*$/.test(url) && !/^[a-z][a-z0-9+.-]*:/i.test(url);
}
