import { z } from 'zod';
import { SessionRefSchema } from './ids.ts';
import { WorkspacePathSchema } from './files.ts';

export const SEARCH_LIMITS = {
  results: { default: 2000, max: 100_000 },
  previewCharacters: { default: 250, max: 10_000 },
  /** Bytes of a file above which it is left out. */
  fileSize: { default: 16 * 2 ** 20, max: 64 * 2 ** 20 },
  timeMs: { default: 60_000, max: 600_000 },
  names: { default: 500, max: 10_000 },
} as const;

const count = z.number().int().nonnegative();
const globs = z.array(z.string().min(1).max(1000)).max(200).optional();
const token = z.string().min(1).max(64);

/** Which files are looked at. The same as ripgrep's `--glob`, `--hidden` and `--no-ignore`. */
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
  /** `fixed` takes the pattern as it stands; `regex` (default) is ripgrep's syntax. */
  syntax: z.enum(['regex', 'fixed']).optional(),
  /** `smart` (default): exact when the pattern has a capital letter. */
  letterCase: z.enum(['exact', 'ignore', 'smart']).optional(),
  word: z.boolean().optional(),
  /** `path`: files in the order of their paths, so that a search that stops at its limit stops at the same line each time. Default `none`. */
  sort: z.enum(['none', 'path']).optional(),
  before: count.max(100).optional(),
  after: count.max(100).optional(),
  limit: z.number().int().min(1).max(SEARCH_LIMITS.results.max).optional(),
  previewCharacters: z.number().int().min(20).max(SEARCH_LIMITS.previewCharacters.max).optional(),
  maxFileSize: z.number().int().min(1).max(SEARCH_LIMITS.fileSize.max).optional(),
  timeLimitMs: z.number().int().min(1).max(SEARCH_LIMITS.timeMs.max).optional(),
});
export type SearchParams = z.infer<typeof SearchParamsSchema>;

/** One line. Columns count UTF-16 units from 0, as editors do; a byte that is not UTF-8 counts as one. */
export const SearchLineSchema = z.object({
  path: z.string(),
  kind: z.enum(['match', 'context']),
  /** From 1. */
  line: z.number().int().positive(),
  /** The part of the line around the first match, without its newline. */
  preview: z.string(),
  /** Column at which the preview begins. */
  previewStart: count,
  /** Columns in the whole line; empty for context. */
  ranges: z.array(z.object({ start: count, end: count })),
});
export type SearchLine = z.infer<typeof SearchLineSchema>;

export const SearchSummarySchema = z.object({
  /** Matching lines that were told of, and files that they are in. */
  matches: count,
  files: count,
  /** Why there may be more than was told of; null when that was all. */
  stopped: z.enum(['limit', 'time']).nullable(),
  /** Lines left out: longer than 4 MiB, or changed before they could be told of. */
  skipped: count,
});
export type SearchSummary = z.infer<typeof SearchSummarySchema>;

const FindParamsSchema = z.object({
  ...where,
  /** Every letter must occur in the path, in order, without regard to case; empty: all files. */
  query: z.string().max(1000),
  limit: z.number().int().min(1).max(SEARCH_LIMITS.names.max).optional(),
});
export type FindParams = z.infer<typeof FindParamsSchema>;
const FoundNamesSchema = z.object({ paths: z.array(z.string()), more: z.boolean() });

const UsageParamsSchema = z.object({
  path: WorkspacePathSchema.optional(),
  /** How many levels below `path` folders are told apart; default 3. */
  depth: count.max(32).optional(),
  limit: z.number().int().min(1).max(1000).optional(),
});
export const FolderUsageSchema = z.object({ path: z.string(), bytes: count, files: count });
export type FolderUsage = z.infer<typeof FolderUsageSchema>;
const UsageSchema = z.object({
  /** Sums of all below `path`; a file with several names counts once. */
  bytes: count,
  files: count,
  directories: count,
  /** Folders with what is in them and below, the biggest first. */
  folders: z.array(FolderUsageSchema),
});
export type UsageByFolder = z.infer<typeof UsageSchema>;

/** supervisor → sidecar. */
export const SEARCH_SIDECAR_METHODS = {
  'files/search-open': { params: SearchParamsSchema, result: z.object({ search: token }) },
  /** The next page, at most `waitMs` later; `summary` with the last one. */
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
  /** Lines arrive as `files/found` before the answer; cancelling the request ends the search. */
  'files/search': {
    params: SearchParamsSchema.extend({ session: SessionRefSchema, token }),
    result: SearchSummarySchema,
  },
  /** Files by name, the best first. */
  'files/find': { params: FindParamsSchema.extend({ session: SessionRefSchema }), result: FoundNamesSchema },
  'files/usage': { params: UsageParamsSchema.extend({ session: SessionRefSchema }), result: UsageSchema },
} as const;

/** supervisor → client. */
export const SEARCH_NOTIFICATIONS = {
  /** `token` is the request's own. */
  'files/found': { params: z.object({ token, lines: z.array(SearchLineSchema) }) },
} as const;
