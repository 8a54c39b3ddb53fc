import { createContext, runInContext } from 'node:vm';
import { HoldfastError } from '../../protocol/errors.ts';
import type { SearchLine } from '../../protocol/search.ts';
import type { SearchQuery } from './search-query.ts';

/** The sidecar reports at most this many matches per line. */
const MAX_RANGES = 200;
/** Longer lines are those of minified files and data. */
const MAX_LINE_CHARACTERS = 20_000;
/**
 * The time limit for all groups of one file: the person's pattern on the agent's text may backtrack almost endlessly.
 */
const GROUPS_TIMEOUT_MS = 1_000;

/** An edit in one line. Line and columns count from 0. */
export interface LineEdit {
  readonly line: number;
  readonly start: number;
  readonly end: number;
  readonly text: string;
}
/** Why a file is skipped. */
export type SkipReason =
  'changed' | 'too many matches in a line' | 'line too long' | 'not UTF-8' | 'ambiguous groups';
export type FileEdits = { readonly edits: readonly LineEdit[] } | { readonly leftOut: SkipReason };

/**
 * The replacement text of one query. For a regular expression it may contain `$1`, `$<name>`, `$&`, `$$`, `\n` and
 * `\t`.
 */
export class Replacement {
  readonly #query: SearchQuery;
  readonly #parts: readonly Part[];
  readonly #timeoutMs: number;

  constructor(query: SearchQuery, text: string, timeoutMs = GROUPS_TIMEOUT_MS) {
    this.#query = query;
    this.#timeoutMs = timeoutMs;
    this.#parts = query.regex ? parseReplacement(text) : [text];
  }

  /**
   * The edits for the matches that a search found in a file. `lines`: the file's current lines, from 0. Errors:
   * `invalid_params`, `timeout`.
   */
  editsFor(found: readonly SearchLine[], lines: (line: number) => string | undefined): FileEdits {
    const matches: Match[] = [];
    for (const { line, preview, previewStart, ranges } of found) {
      const text = lines(line - 1);
      if (text === undefined) return { leftOut: 'changed' };
      if (preview.includes('\uFFFD')) return { leftOut: 'not UTF-8' };
      if (text.length > MAX_LINE_CHARACTERS) return { leftOut: 'line too long' };
      if (ranges.length >= MAX_RANGES) return { leftOut: 'too many matches in a line' };
      // The search counts a byte order mark as a character of the first line. The editor does not show it.
      const shift = [0, ...(line === 1 ? [1] : [])].find((by) =>
        text.slice(Math.max(0, previewStart - by)).startsWith(preview.slice(previewStart < by ? by : 0)),
      );
      if (shift === undefined) return { leftOut: 'changed' };
      for (const { start, end } of ranges) {
        if (start < previewStart || end > previewStart + preview.length) return { leftOut: 'line too long' };
        matches.push({ line: line - 1, text, start: Math.max(0, start - shift), end: end - shift });
      }
    }
    const groups = this.#groupsOf(matches);
    if (groups === null) return { leftOut: 'ambiguous groups' };
    return {
      edits: matches.map(({ line, text, start, end }, index) => ({
        line,
        start,
        end,
        text: this.#textOf(groups[index] ?? { all: [text.slice(start, end)], named: {} }),
      })),
    };
  }

  #textOf({ all, named }: Groups): string {
    return this.#parts
      .map((part) =>
        typeof part === 'string'
          ? part
          : ((typeof part.group === 'number' ? all[part.group] : named[part.group]) ?? ''),
      )
      .join('');
  }

  /** Null where JavaScript matches differently from ripgrep. Empty where the replacement refers to no group. */
  #groupsOf(matches: readonly Match[]): readonly (Groups | undefined)[] | null {
    const isNeeded = this.#parts.some((part) => typeof part !== 'string' && part.group !== 0);
    if (!isNeeded || matches.length === 0) return [];
    const source = this.#query.pattern.replaceAll('(?P<', '(?<');
    const lines: Record<number, string> = {};
    for (const { line, text } of matches) lines[line] = text;
    const places = matches.map(({ line, start, end }) => ({ line, start, end }));
    const input = JSON.stringify({ source, flags: this.#query.matchCase ? '' : 'i', lines, matches: places });
    const found = run(input, this.#timeoutMs);
    return found.some((groups) => groups === null) ? null : found.map((groups) => groups ?? undefined);
  }
}

interface Match {
  readonly line: number;
  readonly text: string;
  readonly start: number;
  readonly end: number;
}
interface Groups {
  readonly all: readonly (string | null)[];
  readonly named: Readonly<Record<string, string | null>>;
}
type Part = string | { readonly group: number | string };

const TOKEN = /\$(?:(?<sign>\$)|(?<all>&)|(?<number>\d{1,2})|<(?<name>[^>]+)>)|\\(?<escape>[nt\\])/g;

function parseReplacement(text: string): Part[] {
  const parts: Part[] = [];
  let from = 0;
  for (const { 0: token, index, groups = {} } of text.matchAll(TOKEN)) {
    parts.push(text.slice(from, index));
    from = index + token.length;
    const { sign, all, number, name, escape } = groups;
    if (sign !== undefined) parts.push('$');
    else if (all !== undefined) parts.push({ group: 0 });
    else if (number !== undefined) parts.push({ group: Number(number) });
    else if (name !== undefined) parts.push({ group: name });
    else parts.push({ n: '\n', t: '\t' }[escape ?? ''] ?? '\\');
  }
  parts.push(text.slice(from));
  return parts;
}

// Matches at the position that ripgrep reported. If the length differs, tries again on the line up to the end of
// ripgrep's match.
const SCRIPT = `(() => {
  const { source, flags, lines, matches } = JSON.parse(input);
  const make = (text) => {
    try { return new RegExp(text, flags + 'yu'); } catch { return new RegExp(text, flags + 'y'); }
  };
  const usual = make(source);
  const upToEnd = make('(?:' + source + ')$');
  return JSON.stringify(matches.map(({ line, start, end }) => {
    for (const [expression, text] of [[usual, lines[line]], [upToEnd, lines[line].slice(0, end)]]) {
      expression.lastIndex = start;
      const match = expression.exec(text);
      if (match !== null && match[0].length === end - start) return { all: [...match], named: { ...match.groups } };
    }
    return null;
  }));
})()`;

/** Runs in a separate context, because only `runInContext` can interrupt a regular expression. */
function run(input: string, timeoutMs: number): (Groups | null)[] {
  try {
    const context = createContext(Object.assign(Object.create(null) as object, { input }));
    return JSON.parse(String(runInContext(SCRIPT, context, { timeout: timeoutMs }))) as (Groups | null)[];
  } catch (error) {
    // The error may come from the other context, which has its own `Error` class.
    const code = typeof error === 'object' && error !== null && 'code' in error ? error.code : undefined;
    if (code === 'ERR_SCRIPT_EXECUTION_TIMEOUT') {
      throw new HoldfastError('timeout', 'Finding the groups of the matches takes too long', {
        why: 'the regular expression backtracks too often on a matching line',
        next: 'use a simpler regular expression, or a replacement without $1',
        cause: error,
      });
    }
    throw new HoldfastError('invalid_params', 'The groups of the regular expression cannot be used', {
      why: 'JavaScript does not accept the expression, although ripgrep does',
      next: 'use syntax that both accept, or a replacement without $1',
      cause: error,
    });
  }
}
