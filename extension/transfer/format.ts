import { sanitize } from '../base/sanitize.ts';
import type { TransferReport } from './transfer.ts';

/** "3 files (1 executable), 2 links; 1 left out" */
export function formatReport(report: TransferReport): string {
  const { files, executables, links, existing, leftOutCount } = report;
  const executable = executables === 0 ? '' : ` (${String(executables)} executable)`;
  const done = [`${counted(files, 'file')}${executable}`, ...(links === 0 ? [] : [counted(links, 'link')])];
  const not = [
    ...(existing === 0 ? [] : [`${String(existing)} there already`]),
    ...(leftOutCount === 0 ? [] : [`${String(leftOutCount)} left out`]),
  ];
  return [done.join(', '), ...(not.length === 0 ? [] : [not.join(', ')])].join('; ');
}

/** One line for each name. */
export function formatLeftOut({ leftOut, leftOutCount }: TransferReport): string {
  const more = leftOutCount - leftOut.length;
  const lines = leftOut.map(({ path, why }) => `${sanitize(path, 1_000)}: ${why}`);
  return [...lines, ...(more > 0 ? [`and ${String(more)} more`] : []), ''].join('\n');
}

function counted(count: number, noun: string): string {
  return `${String(count)} ${noun}${count === 1 ? '' : 's'}`;
}
