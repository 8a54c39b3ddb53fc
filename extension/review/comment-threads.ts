import type { ReviewComment } from '../../protocol/review-comments.ts';
import type { ReviewFile } from '../../protocol/review.ts';
import type { Side } from './change-uri.ts';
import type { Lines } from './review-model.ts';

/** How one comment looks in the editor. All texts are plain. */
export interface CommentThreadModel {
  readonly id: string;
  readonly side: Side;
  /** The change on whose document it is shown; null where the review has none of this path. */
  readonly file: ReviewFile | null;
  /** As in the workspace. */
  readonly path: string;
  /** Where its lines are now, or where they were. */
  readonly lines: Lines;
  readonly label: string;
  readonly isSent: boolean;
  readonly isAddressed: boolean;
  /** The text, after the lines that it is about where they are there no more. */
  readonly entries: readonly { readonly author: string; readonly text: string }[];
}

export function threadOf(comment: ReviewComment, files: readonly ReviewFile[]): CommentThreadModel {
  const { id, path, side, now, lines, quote, text, sent, addressed } = comment;
  const isOutdated = now !== null && now.lines === null;
  const original = { author: 'The lines as they were', text: quote.replace(/\r?\n$/, '') };
  const sending = sent === null ? 'not sent' : 'sent';
  return {
    ...{ id, side, path, isSent: sent !== null, isAddressed: addressed },
    file: files.find((file) => pathOn(file, side) === path) ?? null,
    lines: now?.lines ?? lines,
    label: capitalize(addressed ? 'addressed' : isOutdated ? `outdated, ${sending}` : sending),
    entries: [...(isOutdated ? [original] : []), { author: 'You', text }],
  };
}

/** The path that a side of a change has in its tree. */
export function pathOn({ path, oldPath }: Pick<ReviewFile, 'path' | 'oldPath'>, side: Side): string {
  return side === 'base' ? (oldPath ?? path) : path;
}

/** The lines of a range; one that ends before the first character of a line is not about that line. */
export function linesIn(
  start: { readonly line: number },
  end: { readonly line: number; readonly character: number },
): Lines {
  const isBefore = end.character === 0 && end.line > start.line;
  return { start: start.line, end: isBefore ? end.line : end.line + 1 };
}

/** Whether the documents of a change show lines that a comment can be about. */
export function hasLines({ kind, type }: Pick<ReviewFile, 'kind' | 'type'>): boolean {
  return type === 'file' && kind !== 'mode' && kind !== 'typechange';
}

function capitalize(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
