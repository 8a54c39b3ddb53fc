import type { SearchLine } from '../../protocol/search.ts';

/** The matching lines of one file, in order. */
export interface FileResult {
  readonly path: string;
  readonly lines: readonly SearchLine[];
}

/** The results of a search so far, grouped by file, and sorted by path and line number. */
export class SearchResults {
  readonly #files = new Map<string, SearchLine[]>();
  #sorted: FileResult[] | null = null;

  add(lines: readonly SearchLine[]): void {
    if (lines.length > 0) this.#sorted = null;
    for (const line of lines) {
      const lines = this.#files.get(line.path);
      if (lines === undefined) this.#files.set(line.path, [line]);
      else lines.push(line);
    }
  }

  get files(): readonly FileResult[] {
    this.#sorted ??= [...this.#files]
      .map(([path, lines]) => ({ path, lines: lines.sort((a, b) => a.line - b.line) }))
      .sort((a, b) => comparePaths(a.path, b.path));
    return this.#sorted;
  }

  has(line: unknown): line is SearchLine {
    return this.files.some(({ lines }) => lines.some((one) => one === line));
  }
}

const names = new Intl.Collator('en', { numeric: true });

/** Compares folder by folder, and numbers in names as numbers. A total order. */
export function comparePaths(a: string, b: string): number {
  const left = a.split('/');
  const right = b.split('/');
  for (let at = 0; at < Math.min(left.length, right.length); at += 1) {
    const [one = '', other = ''] = [left[at], right[at]];
    const order = names.compare(one, other) || (one < other ? -1 : one > other ? 1 : 0);
    if (order !== 0) return order;
  }
  return left.length - right.length;
}

/** The label of a result: the line number, then the line; and the ranges of the matches in the label. */
export function resultLabel(
  line: SearchLine,
  show: (text: string) => string,
): { label: string; highlights: [number, number][] } {
  const shown = line.preview.trimStart();
  const from = line.previewStart + line.preview.length - shown.length;
  const text = show(shown);
  const number = `${String(line.line)}: `;
  // Sanitizing has changed the columns.
  if (text !== shown) return { label: number + text, highlights: [] };
  const highlights = line.ranges
    .map(({ start, end }): [number, number] => [
      number.length + Math.max(0, start - from),
      number.length + Math.min(shown.length, end - from),
    ])
    .filter(([start, end]) => end > start);
  return { label: number + text, highlights };
}
