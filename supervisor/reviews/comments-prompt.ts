import type { ReviewComment } from '../../protocol/review-comments.ts';

/** What of the commented lines a prompt repeats. */
const QUOTED_LINES = 12;
const QUOTED_CHARACTERS = 200;
const WORKSPACE = '/workspace/';

/** A prompt with the comments of a person, by path and line as they are now. */
export function commentsPrompt(comments: readonly ReviewComment[]): string {
  const one = ({ path, side, lines, now, quote, text }: ReviewComment): string => {
    const at = now?.lines ?? lines;
    const name = path.startsWith(WORKSPACE) ? path.slice(WORKSPACE.length) : path;
    const range = at.end - at.start === 1 ? `${at.start + 1}` : `${at.start + 1}-${at.end}`;
    const state = side === 'base' ? ' (as it was before)' : now?.lines === null ? ' (changed since)' : '';
    return [`${name}:${range}${state}`, ...quoted(quote), text.trim()].join('\n');
  };
  const what = comments.length === 1 ? 'a comment' : `${comments.length} comments`;
  return `I reviewed your changes and have ${what}:\n\n${comments.map(one).join('\n\n')}\n`;
}

function quoted(quote: string): string[] {
  const lines = quote.replace(/\n$/, '').split('\n');
  const shown = lines.slice(0, QUOTED_LINES).map((line) => `> ${line.slice(0, QUOTED_CHARACTERS)}`);
  return lines.length > shown.length ? [...shown, '> …'] : shown;
}
