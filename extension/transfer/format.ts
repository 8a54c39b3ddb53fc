import { formatCount } from '../base/format.ts';
import { sanitize } from '../base/sanitize.ts';
import type { TransferReport } from './transfer.ts';

/** `3 files (1 executable), 2 links; 1 skipped` */
export function formatReport(report: TransferReport): string {
  const { files, executables, links, existing, leftOutCount } = report;
  const executable = executables === 0 ? '' : ` (${String(executables)} executable)`;
  const copied = [
    `${formatCount(files, 'file')}${executable}`,
    ...(links === 0 ? [] : [formatCount(links, 'link')]),
  ];
  const skipped = [
    ...(existing === 0 ? [] : [`${String(existing)} already existed`]),
    ...(leftOutCount === 0 ? [] : [`${String(leftOutCount)} skipped`]),
  ];
  return [copied.join(', '), ...(skipped.length === 0 ? [] : [skipped.join(', ')])].join('; ');
}

/** One line per file that was left out, with the reason. */
export function formatLeftOut({ leftOut, leftOutCount }: TransferReport): string {
  const more = leftOutCount - leftOut.length;
  const lines = leftOut.map(({ path, why }) => `${sanitize(path, 1_000)}: ${why}`);
  return [...lines, ...(more > 0 ? [`and ${String(more)} more`] : []), ''].join('\n');
}
