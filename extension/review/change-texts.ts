import type { ReviewFile } from '../../protocol/review.ts';
import { REVIEW_LIMITS } from '../../protocol/review.ts';
import { formatBytes } from '../base/format.ts';
import { formatMode } from '../snapshots/format.ts';
import type { Side } from './change-uri.ts';

/** What a read of one side gave; null where it has no file. */
export interface SideContent {
  readonly size: number;
  readonly bytes: Uint8Array;
}

export type SideTexts = Readonly<Record<Side, string>>;

/** A carriage return that people see. The editor takes a lone one for the end of a line, and hides one before it. */
const VISIBLE_RETURN = '\u240d';

/** Both sides of a change as the diff editor shows them. Lines are those that hunks count. */
export function textsOf(
  file: Pick<ReviewFile, 'kind' | 'type' | 'oldMode' | 'newMode'>,
  base: SideContent | null,
  target: SideContent | null,
): SideTexts {
  if (file.kind === 'mode') return { base: modeText(file.oldMode), target: modeText(file.newMode) };
  const texts = { base: textOf(base), target: textOf(target) };
  const isUniform = isAllCrLf(texts.base) && isAllCrLf(texts.target);
  return isUniform
    ? texts
    : { base: withVisibleReturns(texts.base), target: withVisibleReturns(texts.target) };
}

function textOf(content: SideContent | null): string {
  if (content === null) return '';
  const { size, bytes } = content;
  const isWhole = size <= bytes.length && size < REVIEW_LIMITS.textBytes;
  if (isWhole && !bytes.includes(0)) return Buffer.from(bytes).toString('utf8');
  return `${isWhole ? 'Binary file' : 'File'} of ${formatBytes(size)}. It is accepted or rejected as a whole.\n`;
}

function isAllCrLf(text: string): boolean {
  return !/(?:^|[^\r])\n|\r(?!\n)/.test(text);
}

function withVisibleReturns(text: string): string {
  return text.replaceAll('\r', VISIBLE_RETURN);
}

function modeText(mode: number | null): string {
  return mode === null ? '' : `File mode ${formatMode(mode)}\n`;
}
