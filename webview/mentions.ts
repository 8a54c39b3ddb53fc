/** The mention of a file that is being written before the caret. */
export interface OpenMention {
  /** Where its `@` is. */
  readonly start: number;
  /** What is written of the path. */
  readonly query: string;
}

/** A part of a prompt: text, or the path that is mentioned by it. */
export type PromptPart =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'file'; readonly text: string; readonly path: string };

const OPEN = /(?:^|[\s(])@(?:"([^"\n]*)|([^\s"@]*))$/;
const MENTION = /(^|[\s(])(@(?:"([^"\n]+)"|([^\s"@]*[\w/])))/g;
/** A long prompt is mostly pasted text. */
const MAX_PROMPT = 100_000;

/** The mention that ends at the caret; null for none. A path with spaces is in quotes: `@"a b.txt"`. */
export function mentionAt(text: string, caret: number): OpenMention | null {
  const line = text.slice(text.lastIndexOf('\n', caret - 1) + 1, caret);
  const match = OPEN.exec(line);
  if (match === null) return null;
  const query = match[1] ?? match[2] ?? '';
  const marks = match[1] === undefined ? 1 : 2;
  return { start: caret - query.length - marks, query };
}

/** The text with the mention written out, and where the caret is then. */
export function insertMention(
  text: string,
  { start, query }: OpenMention,
  path: string,
): { readonly text: string; readonly caret: number } {
  const marks = text.charAt(start + 1) === '"' ? 2 : 1;
  const before = text.slice(0, start);
  const after = text.slice(start + marks + query.length).replace(/^"/, '');
  const mention = /\s/.test(path) ? `@"${path}"` : `@${path}`;
  const gap = /^\s/.test(after) ? '' : ' ';
  return { text: `${before}${mention}${gap}${after}`, caret: before.length + mention.length + 1 };
}

/** A prompt as its text and the files that it mentions. A word such as `@someone` is no file. */
export function promptParts(prompt: string): readonly PromptPart[] {
  if (prompt.length > MAX_PROMPT) return [{ kind: 'text', text: prompt }];
  const parts: PromptPart[] = [];
  let end = 0;
  for (const match of prompt.matchAll(MENTION)) {
    const [, before = '', mention = '', quoted, word] = match;
    const path = quoted ?? word ?? '';
    if (quoted === undefined && !/[./]/.test(path)) continue;
    const start = match.index + before.length;
    if (start > end) parts.push({ kind: 'text', text: prompt.slice(end, start) });
    parts.push({ kind: 'file', text: mention, path });
    end = start + mention.length;
  }
  if (end < prompt.length) parts.push({ kind: 'text', text: prompt.slice(end) });
  return parts;
}

/** Whether a path can be mentioned: a name that an agent chose may hide or reorder text, or end the line. */
export function isMentionable(path: string): boolean {
  return path !== '' && !/["\n\r\t]|[^\P{C}]/u.test(path);
}
