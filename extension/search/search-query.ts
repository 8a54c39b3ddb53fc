import { z } from 'zod';
import { HoldfastError } from '../../protocol/errors.ts';
import type { SearchParams, SearchSummary } from '../../protocol/search.ts';
import { formatCount } from '../base/format.ts';

const LIMITS = { lines: 5_000, previewCharacters: 1_000, globs: 100, globCharacters: 900 } as const;
/** Version control data is excluded, as in VS Code's own search. */
export const ALWAYS_EXCLUDED = ['**/.git', '**/.hg', '**/.svn'] as const;

/** How to search. `include` and `exclude` are comma-separated globs as a person types them. */
export interface SearchOptions {
  readonly matchCase: boolean;
  readonly wholeWord: boolean;
  readonly regex: boolean;
  readonly include: string;
  readonly exclude: string;
}
export type SearchToggle = 'matchCase' | 'wholeWord' | 'regex';
export interface SearchQuery extends SearchOptions {
  readonly pattern: string;
}

export const DEFAULT_OPTIONS: SearchOptions = {
  matchCase: false,
  wholeWord: false,
  regex: false,
  include: '',
  exclude: '',
};

/** A function, because zod is in the second bundle, which must not load at activation. */
const querySchema = () => {
  const option = z.boolean().default(false);
  const globs = z.string().max(10_000).default('');
  return z.strictObject({
    pattern: z.string().min(1).max(10_000),
    matchCase: option,
    wholeWord: option,
    regex: option,
    include: globs,
    exclude: globs,
  });
};

/**
 * Parses the argument of a program that runs the command: the text, or the text with options. Errors: `invalid_params`.
 */
export function parseQuery(given: unknown): SearchQuery {
  const parsed = querySchema().safeParse(typeof given === 'string' ? { pattern: given } : given);
  if (parsed.success) return parsed.data;
  throw new HoldfastError('invalid_params', 'The search is not valid', {
    next: 'pass the text to search for, or { pattern, matchCase, wholeWord, regex, include, exclude }',
  });
}

/**
 * Converts typed globs to globs for ripgrep, with the meaning they have in VS Code: a name matches a file or a folder
 * with all of its content, at any depth; with `./` in front only at the workspace's root. Commas inside braces do not
 * separate globs. Errors: `invalid_params`.
 */
export function parseGlobs(text: string): string[] {
  const globs = split(text).flatMap((typed) => {
    const isAnchored = typed.startsWith('./') || typed.startsWith('/');
    const trimmed = typed.replace(/^(\.\/|\/)+/, '').replace(/\/+$/, '');
    if (trimmed === '' || trimmed === '.') return [];
    const glob = isAnchored ? `/${trimmed}` : trimmed.startsWith('**/') ? trimmed : `**/${trimmed}`;
    return trimmed === '**' || trimmed.endsWith('/**') ? [glob] : [glob, `${glob}/**`];
  });
  const isTooLong = globs.some((glob) => glob.length > LIMITS.globCharacters);
  if (isTooLong || globs.length > 2 * LIMITS.globs) {
    throw new HoldfastError('invalid_params', 'There are too many file patterns, or one is too long', {
      why: `the limit is ${LIMITS.globs} patterns of ${LIMITS.globCharacters} characters each`,
      next: 'use fewer or shorter patterns',
    });
  }
  return globs;
}

function split(text: string): string[] {
  const parts: string[] = [];
  let depth = 0;
  let part = '';
  for (const character of text) {
    if (character === '{') depth += 1;
    if (character === '}') depth = Math.max(0, depth - 1);
    if (character === ',' && depth === 0) {
      parts.push(part);
      part = '';
    } else part += character;
  }
  return [...parts, part].map((one) => one.trim());
}

/** The request for a query. Sorted by path, so that a truncated search returns the same lines each time. */
export function searchParams(query: SearchQuery): SearchParams {
  const include = parseGlobs(query.include);
  return {
    pattern: query.pattern,
    syntax: query.regex ? 'regex' : 'fixed',
    letterCase: query.matchCase ? 'exact' : 'ignore',
    word: query.wholeWord,
    hidden: true,
    sort: 'path',
    limit: LIMITS.lines,
    previewCharacters: LIMITS.previewCharacters,
    ...(include.length === 0 ? {} : { include }),
    exclude: [...ALWAYS_EXCLUDED, ...parseGlobs(query.exclude)],
  };
}

/** The options that differ from the default: `match case, regular expression, in src, not in *.min.js`. */
export function formatOptions(options: SearchOptions): string {
  const { include, exclude } = options;
  return [
    options.matchCase ? 'match case' : '',
    options.wholeWord ? 'whole word' : '',
    options.regex ? 'regular expression' : '',
    include.trim() === '' ? '' : `in ${include.trim()}`,
    exclude.trim() === '' ? '' : `not in ${exclude.trim()}`,
  ]
    .filter((part) => part !== '')
    .join(', ');
}

/** How many results a search has, and why there may be more. */
export function formatSummary({ matches, files, stopped, skipped }: SearchSummary): string {
  if (matches === 0 && stopped === null) return 'No results found.';
  const found = `${formatCount(matches, 'line')} in ${formatCount(files, 'file')}`;
  const more =
    stopped === 'limit'
      ? '. The results are truncated: narrow the search to see the rest'
      : stopped === 'time'
        ? '. The search took too long and was stopped: narrow it to see the rest'
        : '';
  const left =
    skipped === 0 ? '' : `. ${formatCount(skipped, 'line')} skipped: too long, or changed during the search`;
  return `${found}${more}${left}.`;
}
