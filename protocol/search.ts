import { z } from 'zod';
import { SessionRefSchema } from './ids.ts';
import { leaveOutNewer } from './newer-values.ts';
import { WorkspacePathSchema } from './files.ts';

export const SEARCH_LIMITS = {
  results: { default: 2000, max: 100_000 },
  previewCharacters: { default: 250, max: 10_000 },
  /** Files larger than this (bytes) are skipped. */
  fileSize: { default: 16 * 2 ** 20, max: 64 * 2 ** 20 },
  timeMs: { default: 60_000, max: 600_000 },
  names: { default: 500, max: 10_000 },
} as const;

const count = z.number().int().nonnegative();
const globs = z.array(z.string().min(1).max(1000)).max(200).optional();
const token = z.string().min(1).max(64);

/** Which files are searched. The same as ripgrep's `--glob`, `--hidden` and `--no-ignore`. */
const where = {
  /** A folder; default /workspace. */
  path: WorkspacePathSchema.optional(),
  include: globs,
  exclude: globs,
  /** Default false. */
  hidden: z.boolean().optional(),
  /** Honour .gitignore, .ignore and .rgignore; default true. */
  ignoreFiles: z.boolean().optional(),
};

export const SearchParamsSchema = z.object({
  ...where,
  pattern: z.string().min(1).max(10_000),
  /** `fixed`: literal text. `regex` (default): ripgrep's syntax. */
  syntax: z.enum(['regex', 'fixed']).optional(),
  /** `smart` (default): exact if the pattern has a capital letter. */
  letterCase: z.enum(['exact', 'ignore', 'smart']).optional(),
  word: z.boolean().optional(),
  /** `path`: sort by path, so that a search that stops at its limit gives the same lines each time. Default `none`. */
  sort: z.enum(['none', 'path']).optional(),
  before: count.max(100).optional(),
  after: count.max(100).optional(),
  limit: z.number().int().min(1).max(SEARCH_LIMITS.results.max).optional(),
  previewCharacters: z.number().int().min(20).max(SEARCH_LIMITS.previewCharacters.max).optional(),
  maxFileSize: z.number().int().min(1).max(SEARCH_LIMITS.fileSize.max).optional(),
  timeLimitMs: z.number().int().min(1).max(SEARCH_LIMITS.timeMs.max).optional(),
});
export type SearchParams = z.infer<typeof SearchParamsSchema>;

/** One line of the results. Columns count UTF-16 code units from 0; a byte that is not UTF-8 counts as one. */
export const SearchLineSchema = z.object({
  path: z.string(),
  kind: z.enum(['match', 'context']),
  /** From 1. */
  line: z.number().int().positive(),
  /** The part of the line around the first match, without its newline. */
  preview: z.string(),
  /** Column at which the preview begins. */
  previewStart: count,
  /** The matches, as columns of the whole line; empty for context lines. */
  ranges: z.array(z.object({ start: count, end: count })),
});
export type SearchLine = z.infer<typeof SearchLineSchema>;

export const SearchSummarySchema = z.object({
  /** Number of matching lines that were reported, and of files that contain them. */
  matches: count,
  files: count,
  /** Why the search stopped early; null if it is complete. */
  stopped: z.enum(['limit', 'time']).nullable(),
  /** Lines that were skipped: longer than 4 MiB, or changed before they could be reported. */
  skipped: count,
});
export type SearchSummary = z.infer<typeof SearchSummarySchema>;

const FindParamsSchema = z.object({
  ...where,
  /** Fuzzy match: every letter must occur in the path, in order, ignoring case. Empty: all files. */
  query: z.string().max(1000),
  limit: z.number().int().min(1).max(SEARCH_LIMITS.names.max).optional(),
});
export type FindParams = z.infer<typeof FindParamsSchema>;
const FoundNamesSchema = z.object({ paths: z.array(z.string()), more: z.boolean() });

const UsageParamsSchema = z.object({
  path: WorkspacePathSchema.optional(),
  /** How many levels of folders below `path` are listed; default 3. */
  depth: count.max(32).optional(),
  limit: z.number().int().min(1).max(1000).optional(),
});
export const FolderUsageSchema = z.object({ path: z.string(), bytes: count, files: count });
export type FolderUsage = z.infer<typeof FolderUsageSchema>;
const UsageSchema = z.object({
  /** Totals of everything below `path`. A file with several hard links counts once. */
  bytes: count,
  files: count,
  directories: count,
  /** Folders with their total contents, the largest first. */
  folders: z.array(FolderUsageSchema),
});
export type UsageByFolder = z.infer<typeof UsageSchema>;

/** supervisor → sidecar. */
export const SEARCH_SIDECAR_METHODS = {
  'files/search-open': { params: SearchParamsSchema, result: z.object({ search: token }) },
  /** The next page of results, after at most `waitMs`. The last page has the summary. */
  'files/search-next': {
    params: z.object({ search: token, waitMs: count.max(60_000) }),
    result: z.object({ lines: z.array(SearchLineSchema), summary: SearchSummarySchema.nullable() }),
  },
  'files/search-close': { params: z.object({ search: token }), result: z.object({}) },
  'files/find': { params: FindParamsSchema, result: FoundNamesSchema },
  'files/usage': { params: UsageParamsSchema, result: UsageSchema },
} as const;

/** client → supervisor. */
export const SEARCH_METHODS = {
  /** Lines arrive as `files/found` notifications before the response. Cancelling the request ends the search. */
  'files/search': {
    params: SearchParamsSchema.extend({ session: SessionRefSchema, token }),
    result: SearchSummarySchema,
    repeat: 'never',
    whenDamaged: 'refused',
  },
  /** Files by name, the best match first. */
  'files/find': {
    params: FindParamsSchema.extend({ session: SessionRefSchema }),
    result: FoundNamesSchema,
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  'files/usage': {
    params: UsageParamsSchema.extend({ session: SessionRefSchema }),
    result: UsageSchema,
    repeat: 'safe',
    whenDamaged: 'refused',
  },
} as const;

/** supervisor → client. */
export const SEARCH_NOTIFICATIONS = {
  /** `token` is that of the request. */
  'files/found': { params: z.object({ token, lines: leaveOutNewer(z.array(SearchLineSchema)) }) },
} as const;
