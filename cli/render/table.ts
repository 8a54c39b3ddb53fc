import { truncate, padEnd, textWidth, sanitizeLine } from './text.ts';
import type { Paint } from './style.ts';

export interface Column<Row> {
  readonly title: string;
  readonly value: (row: Row) => string;
  readonly align?: 'left' | 'right';
  readonly paint?: (row: Row) => Paint;
  /** When the terminal is too narrow, columns give way in order of this number, highest first; 0 never does. */
  readonly shrinkPriority?: number;
}

const GAP = 2;
/** A column that gives way keeps at least this much. */
const NARROWEST = 8;

/**
 * Rows under their titles, aligned, every cell made visible and cut so that a line fits into `width` columns
 * (Infinity: nothing is cut). Columns in which every row is empty are left out.
 */
export function formatTable<Row>(
  rows: readonly Row[],
  columns: readonly Column<Row>[],
  options: { readonly width: number; readonly header: Paint },
): string[] {
  const used = columns
    .map((column) => ({ column, cells: rows.map((row) => sanitizeLine(column.value(row))) }))
    .filter(({ cells }) => cells.some((cell) => cell !== ''));
  const widths = used.map(({ column, cells }) =>
    cells.reduce((widest, cell) => Math.max(widest, textWidth(cell)), textWidth(column.title)),
  );
  shrink(
    widths,
    used.map(({ column }) => column.shrinkPriority ?? 0),
    options.width,
  );
  const line = (cell: (index: number) => { text: string; paint: Paint }) =>
    used
      .map(({ column }, index) => {
        const { text, paint } = cell(index);
        const width = widths[index] ?? 0;
        const short = truncate(text, width);
        const padding = ' '.repeat(Math.max(0, width - textWidth(short)));
        const painted = short === '' ? '' : paint(short);
        return column.align === 'right' ? padding + painted : painted + padding;
      })
      .join(' '.repeat(GAP))
      .trimEnd();
  return [
    line((index) => ({ text: used[index]?.column.title ?? '', paint: options.header })),
    ...rows.map((row, at) =>
      line((index) => ({
        text: used[index]?.cells[at] ?? '',
        paint: used[index]?.column.paint?.(row) ?? ((text) => text),
      })),
    ),
  ];
}

/** Takes columns away from the widest of those that give way first, until the line fits or nothing gives way any more. */
function shrink(widths: number[], shrinkPriority: readonly number[], width: number): void {
  const excess = () => widths.reduce((sum, one) => sum + one, 0) + GAP * (widths.length - 1) - width;
  const order = shrinkPriority
    .map((rank, index) => ({ rank, index }))
    .filter(({ rank }) => rank > 0)
    .sort((a, b) => b.rank - a.rank);
  for (const { index } of order) {
    const over = excess();
    if (over <= 0) return;
    const current = widths[index] ?? 0;
    widths[index] = Math.max(Math.min(NARROWEST, current), current - over);
  }
}

/** `Name: value` pairs, values aligned. Empty values are left out. */
export function formatFields(
  pairs: readonly (readonly [string, string | null | undefined])[],
  label: Paint,
): string[] {
  const shown = pairs.filter((pair): pair is readonly [string, string] => (pair[1] ?? '') !== '');
  const width = Math.max(0, ...shown.map(([name]) => textWidth(name)));
  return shown.map(([name, value]) => `${label(padEnd(name, width))}  ${sanitizeLine(value)}`);
}
