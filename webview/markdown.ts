import createDOMPurify from 'dompurify';
import MarkdownIt from 'markdown-it';
import { plain } from './format.ts';

/** A link that does something only when a person clicks, and then goes through the extension. */
export const LINK = 'data-link';

/** Longer texts are shown as they are: nobody reads them formatted, and the parser would hold up the page. */
const MAX_MARKDOWN = 200_000;

const parser = new MarkdownIt({ html: false, linkify: false, typographer: false, breaks: false });
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
  ],
  ALLOWED_ATTR: ['href', LINK, 'title', 'class', 'start'],
  // Not addresses to the browser; the page looks at a link's when a person clicks.
  ADD_URI_SAFE_ATTR: [LINK, 'start'],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  ALLOWED_URI_REGEXP: /^#$/,
};

/** Markdown that an agent wrote as HTML that does nothing by itself. */
export function renderMarkdown(text: string): string {
  const source = plain(text);
  if (source.length > MAX_MARKDOWN) return `<pre>${parser.utils.escapeHtml(source)}</pre>`;
  return purify.sanitize(parser.render(source), ALLOWED);
}

function isPath(url: string): boolean {
  return /^(\/workspace\/|\.{0,2}\/)?[\w][\w./ %#:-]*$/.test(url) && !/^[a-z][a-z0-9+.-]*:/i.test(url);
}
