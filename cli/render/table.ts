import { truncate, padEnd, textWidth, sanitizeLine } from './text.ts';
import type { Paint } from './style.ts';

export interface Column<Row> {
  readonly title: string;
  readonly value: (row: Row) => string;
  readonly align?: 'left' | 'right';
  readonly paint?: (row: Row) => Paint;
  /** When the terminal is too narrow, columns shrink in order of this number, highest first. 0 (default): never. */
  readonly shrinkPriority?: number;
}

const GAP = 2;
/** A shrinking column keeps at least this width. */
const NARROWEST = 8;

/**
 * Formats rows as an aligned table with a header. Sanitizes every cell, and truncates cells so that a line fits into
 * `width` columns (Infinity: never). Omits columns in which every cell is empty.
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

/** Reduces the widths of shrinkable columns in order of priority until the line fits. */
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

/** Formats `Name  value` lines with aligned values. Omits empty values. */
export function formatFields(
  pairs: readonly (readonly [string, string | null | undefined])[],
  label: Paint,
): string[] {
  const shown = pairs.filter((pair): pair is readonly [string, string] => (pair[1] ?? '') !== '');
  const width = Math.max(0, ...shown.map(([name]) => textWidth(name)));
  return shown.map(([name, value]) => `${label(padEnd(name, width))}  ${sanitizeLine(value)}`);
}
