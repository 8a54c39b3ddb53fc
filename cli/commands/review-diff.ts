import type { Command } from 'commander';
import { HoldfastError } from '../../protocol/errors.ts';
import { type Hunk, type ReviewFile, REVIEW_LIMITS, type REVIEW_SIDES } from '../../protocol/review.ts';
import type { Context } from '../context.ts';
import { NO_PAGER } from '../pager.ts';
import type { Registry } from '../registry.ts';
import { formatFileHeader, formatHunk, formatWholeText } from '../render/review.ts';
import { formatSize } from '../render/quantity.ts';
import { parseWorkspacePath } from '../workspace-path.ts';
import { allFiles } from './review.ts';

/** A new or deleted text of more bytes is not shown. */
const MAX_WHOLE_TEXT = 256 * 1024;

/** `review diff`: the text of changes, with the ids of hunks for `accept` and `reject`. */
export function registerReviewDiff(registry: Registry, review: Command): void {
  const command = registry
    .command(review, {
      usage: 'diff <session> [path]',
      description: 'show changes line by line, with the ids of their hunks',
      operands: ['session'],
      examples: ['holdfast review diff default', 'holdfast review diff default src/main.ts'],
    })
    .option('--no-pager', NO_PAGER);
  registry.setAction(
    command,
    async (context, options: { pager?: boolean }, session: string, path: string | undefined) => {
      context.usePager(options.pager);
      const only = path === undefined ? null : parseWorkspacePath(path);
      const { files } = await allFiles(context, session);
      const shown = files.filter((file) => only === null || isAtOrBelow(file.path, only));
      if (shown.length === 0 && only !== null) {
        throw new HoldfastError('not_found', `${only} is not part of the review`, {
          why: 'it does not differ from the base',
          next: 'see `holdfast review SESSION`',
        });
      }
      const documents: { file: ReviewFile; hunks: Hunk[] }[] = [];
      for (const { path: one } of shown) {
        const found = await context.call('review/file', { session, path: one });
        if (context.json) documents.push(found);
        else await context.print(...(await linesOf(context, session, found.file, found.hunks)), '');
      }
      if (context.json) await context.printJson({ files: documents });
      return undefined;
    },
  );
}

async function linesOf(
  context: Context,
  session: string,
  file: ReviewFile,
  hunks: readonly Hunk[],
): Promise<string[]> {
  const { style } = context;
  const header = formatFileHeader(file, style);
  if (hunks.length > 0) {
    const base = (await textOf(context, session, file.path, 'base')) ?? [];
    const target = (await textOf(context, session, file.path, 'target')) ?? [];
    return [...header, ...hunks.flatMap((hunk) => formatHunk(hunk, base, target, style))];
  }
  const isNew = file.kind === 'added';
  if (file.type === 'file' && (isNew || file.kind === 'deleted')) {
    const size = (isNew ? file.newBytes : file.oldBytes) ?? 0;
    const text =
      size > MAX_WHOLE_TEXT ? null : await textOf(context, session, file.path, isNew ? 'target' : 'base');
    if (text !== null) return [...header, ...formatWholeText(isNew ? '+' : '-', text, style)];
  }
  if (file.type === 'directory') return [...header, style.dim('a folder, decided as a whole')];
  const size = (bytes: number | null): string => (bytes === null ? 'nothing' : formatSize(bytes));
  return [...header, style.dim(`${size(file.oldBytes)} → ${size(file.newBytes)}, decided as a whole`)];
}

/** The lines of a text, without their ends; null for what is no text. */
async function textOf(
  context: Context,
  session: string,
  path: string,
  side: (typeof REVIEW_SIDES)[number],
): Promise<string[] | null> {
  const { bytes, release } = await context
    .client()
    .callWithBytes('review/read', { session, path, side }, { signal: context.interrupted });
  const own = Buffer.from(bytes);
  release();
  if (own.includes(0) || own.length >= REVIEW_LIMITS.textBytes) return null;
  const lines = own.toString('utf8').split('\n');
  if (lines.at(-1) === '') lines.pop();
  return lines;
}

function isAtOrBelow(path: string, folder: string): boolean {
  return path === folder || path.startsWith(`${folder}/`);
}
