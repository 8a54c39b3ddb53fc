import type { ReviewComment } from '../../protocol/review-comments.ts';
import { plainLines } from '../base/plain-lines.ts';

/** What of the commented lines a prompt repeats. */
const QUOTED_LINES = 12;
const QUOTED_CHARACTERS = 200;
const WORKSPACE = '/workspace/';
/** What ends a line, hides or reorders text. */
const HIDDEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/**
 * A prompt with the comments of a person, by path and line as they are now. The agent chose names and lines: none of them can pass for
 * words of the person, because each stays on its line, and quoted lines begin with `> `.
 */
export function commentsPrompt(comments: readonly ReviewComment[]): string {
  const one = ({ path, side, lines, now, quote, text }: ReviewComment): string => {
    const at = now?.lines ?? lines;
    const name = shown(path.startsWith(WORKSPACE) ? path.slice(WORKSPACE.length) : path);
    const range = at.end - at.start === 1 ? `${at.start + 1}` : `${at.start + 1}-${at.end}`;
    const state = side === 'base' ? ' (as it was before)' : now?.lines === null ? ' (changed since)' : '';
    return [`${name}:${range}${state}`, ...quoted(quote), text.trim()].join('\n');
  };
  const what = comments.length === 1 ? 'a comment' : `${comments.length} comments`;
  return `I reviewed your changes and have ${what}:\n\n${comments.map(one).join('\n\n')}\n`;
}

function shown(name: string): string {
  return name.replaceAll(HIDDEN, (character) => `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`);
}

function quoted(quote: string): string[] {
  const lines = plainLines(quote.replace(/\r?\n$/, ''));
  const shown = lines.slice(0, QUOTED_LINES).map((line) => `> ${line.slice(0, QUOTED_CHARACTERS)}`);
  return lines.length > shown.length ? [...shown, '> …'] : shown;
}
