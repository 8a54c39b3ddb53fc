import { z } from 'zod';
import { SessionRefSchema, SnapshotIdSchema } from './ids.ts';
import { PATH_LIMITS } from './paths.ts';

/** The most bytes that one message carries; larger files are a sequence of reads, or begin, append and commit. */
export const FILE_CHUNK_BYTES = 4 * 2 ** 20;
/** Entries of one page of a listing. */
export const LIST_LIMITS = { default: 2000, max: 5000 } as const;

/** `/workspace/…`, names spelled as protocol/paths.ts says. What is wrong with a path is said by whoever resolves it. */
export const WorkspacePathSchema = z.string().max(PATH_LIMITS.characters);

export const FILE_TYPES = ['file', 'directory', 'symlink', 'fifo', 'socket', 'device'] as const;
export const FileTypeSchema = z.enum(FILE_TYPES);
export type FileType = z.infer<typeof FileTypeSchema>;

/**
 * What a file held when it was looked at. Up to 4 MiB it is a hash of the content, above that of inode, size, mtime and
 * ctime (docs/files.md). Compare versions only for equality.
 */
export const FileVersionSchema = z.string().min(1).max(100);

const size = z.number().int().nonnegative();

export const FileStatSchema = z.object({
  type: FileTypeSchema,
  /** Bytes, as `stat` says; a link's is the length of its text. */
  size,
  mtimeMs: z.number().int(),
  /** The same in nanoseconds since 1970, decimal: more digits than a number holds. */
  mtimeNs: z.string(),
  /** Permission bits, set-id and sticky bits included: at most 0o7777. */
  mode: z.number().int().nonnegative(),
  /** Text of a link, spelled as names are; null for everything else. */
  link: z.string().nullable(),
  /** What a link leads to inside the workspace; null when it leads nowhere or out of it, and for everything else. */
  linkType: FileTypeSchema.nullable(),
});
export type FileStat = z.infer<typeof FileStatSchema>;

export const FileEntrySchema = FileStatSchema.extend({ name: z.string() });
export type FileEntry = z.infer<typeof FileEntrySchema>;

export const WriteResultSchema = z.object({
  version: FileVersionSchema,
  size,
  mtimeMs: z.number().int(),
  mtimeNs: z.string(),
  /** There was no such file before. */
  created: z.boolean(),
  /** The file had other names: they keep the old content, this one has the new. */
  hardlinked: z.boolean(),
});
export type WriteResult = z.infer<typeof WriteResultSchema>;

/**
 * What a write expects to find; one of the three must be given. `ifVersion`: exactly this, else `conflict` with
 * `details.version`. `overwrite`: any file. `create`: nothing, else `file_exists`. `create` and `overwrite`: either.
 */
const expectation = {
  ifVersion: FileVersionSchema.optional(),
  overwrite: z.boolean().optional(),
  create: z.boolean().optional(),
  /** Of a file that is made anew; default 0o644. One that is there keeps its own. */
  mode: z.number().int().min(0).max(0o777).optional(),
};
const at = z.object({ path: WorkspacePathSchema });
const upload = z.string().min(1).max(64);
const nothing = z.object({});
const moved = z.object({
  from: WorkspacePathSchema,
  to: WorkspacePathSchema,
  overwrite: z.boolean().optional(),
});

/** The calls as the sidecar answers them; clients add the session. All fail with the `file_*` codes, see docs/files.md. */
export const FILES_SIDECAR_METHODS = {
  'files/stat': {
    /** `follow` (default true): of a link, what it leads to. `version`: say that too (reads the file). */
    params: at.extend({ follow: z.boolean().optional(), version: z.boolean().optional() }),
    result: FileStatSchema.extend({ version: FileVersionSchema.nullable() }),
  },
  /** Entries with their stats (links themselves), in byte order of their names. `cursor` is the last answer's `nextCursor`. */
  'files/list': {
    params: at.extend({
      cursor: z.string().max(PATH_LIMITS.characters).optional(),
      limit: z.number().int().min(1).max(LIST_LIMITS.max).optional(),
    }),
    result: z.object({ entries: z.array(FileEntrySchema), nextCursor: z.string().nullable() }),
  },
  /**
   * Up to `length` bytes from `offset` on, behind the answer; fewer only at the end. With `ifVersion` it fails with
   * `conflict` when the file has changed: pieces that all carry the first one's version are of one file.
   */
  'files/read': {
    params: at.extend({
      offset: size.optional(),
      length: z.number().int().min(0).max(FILE_CHUNK_BYTES).optional(),
      ifVersion: FileVersionSchema.optional(),
    }),
    result: z.object({
      offset: size,
      size,
      version: FileVersionSchema,
      mtimeMs: z.number().int(),
      mode: z.number().int(),
    }),
    bytes: 'result',
  },
  /** The whole new content behind the message. */
  'files/write': { params: at.extend(expectation), result: WriteResultSchema, bytes: 'params' },
  /** The same for more than one message: begin, append until all is there, commit. What is not committed leaves no trace. */
  'files/begin': { params: at.extend(expectation), result: z.object({ upload }) },
  'files/append': { params: z.object({ upload, offset: size }), result: z.object({ size }), bytes: 'params' },
  'files/commit': { params: z.object({ upload, size }), result: WriteResultSchema },
  'files/abort': { params: z.object({ upload }), result: nothing },
  /** An empty file where there was nothing. */
  'files/create': { params: at.extend({ mode: expectation.mode }), result: WriteResultSchema },
  /** With `parents`, folders on the way are made too, and one that is there already is no error. */
  'files/mkdir': {
    params: at.extend({ parents: z.boolean().optional() }),
    result: z.object({ created: z.boolean() }),
  },
  /** A link with exactly this text, spelled as names are, wherever that leads; `file_exists` where there is something. */
  'files/symlink': {
    params: at.extend({ link: z.string().min(1).max(PATH_LIMITS.characters) }),
    result: nothing,
  },
  /** Without `overwrite`: `file_exists` where there is something. With it a file replaces a file, a folder an empty folder. */
  'files/rename': { params: moved, result: nothing },
  /** Files, links as links, folders with all in them. `skipped`: sockets, FIFOs and devices. `overwrite` is for files only. */
  'files/copy': { params: moved, result: z.object({ files: size, bytes: size, skipped: size }) },
  /** A link goes itself, never what it leads to. A folder that is not empty needs `recursive`. */
  'files/delete': {
    params: at.extend({ recursive: z.boolean().optional() }),
    result: z.object({ files: size, bytes: size }),
  },
} as const;

function ofSession<P extends z.ZodRawShape>(params: z.ZodObject<P>) {
  return params.extend({ session: SessionRefSchema });
}

/**
 * Of a session's workspace, or with `snapshot` of what was in it then, read-only: where a session is named too, a snapshot that
 * is not of its lineage is `not_found`. One of the two must be given.
 */
function ofSessionOrSnapshot<P extends z.ZodRawShape>(params: z.ZodObject<P>) {
  return params.extend({ session: SessionRefSchema.optional(), snapshot: SnapshotIdSchema.optional() });
}

/** client → supervisor. Part of METHODS. */
export const FILES_METHODS = {
  'files/stat': {
    ...FILES_SIDECAR_METHODS['files/stat'],
    params: ofSessionOrSnapshot(FILES_SIDECAR_METHODS['files/stat'].params),
  },
  'files/list': {
    ...FILES_SIDECAR_METHODS['files/list'],
    params: ofSessionOrSnapshot(FILES_SIDECAR_METHODS['files/list'].params),
  },
  'files/read': {
    ...FILES_SIDECAR_METHODS['files/read'],
    params: ofSessionOrSnapshot(FILES_SIDECAR_METHODS['files/read'].params),
  },
  'files/write': {
    ...FILES_SIDECAR_METHODS['files/write'],
    params: ofSession(FILES_SIDECAR_METHODS['files/write'].params),
  },
  'files/begin': {
    ...FILES_SIDECAR_METHODS['files/begin'],
    params: ofSession(FILES_SIDECAR_METHODS['files/begin'].params),
  },
  'files/append': {
    ...FILES_SIDECAR_METHODS['files/append'],
    params: ofSession(FILES_SIDECAR_METHODS['files/append'].params),
  },
  'files/commit': {
    ...FILES_SIDECAR_METHODS['files/commit'],
    params: ofSession(FILES_SIDECAR_METHODS['files/commit'].params),
  },
  'files/abort': {
    ...FILES_SIDECAR_METHODS['files/abort'],
    params: ofSession(FILES_SIDECAR_METHODS['files/abort'].params),
  },
  'files/create': {
    ...FILES_SIDECAR_METHODS['files/create'],
    params: ofSession(FILES_SIDECAR_METHODS['files/create'].params),
  },
  'files/mkdir': {
    ...FILES_SIDECAR_METHODS['files/mkdir'],
    params: ofSession(FILES_SIDECAR_METHODS['files/mkdir'].params),
  },
  'files/symlink': {
    ...FILES_SIDECAR_METHODS['files/symlink'],
    params: ofSession(FILES_SIDECAR_METHODS['files/symlink'].params),
  },
  'files/rename': {
    ...FILES_SIDECAR_METHODS['files/rename'],
    params: ofSession(FILES_SIDECAR_METHODS['files/rename'].params),
  },
  'files/copy': {
    ...FILES_SIDECAR_METHODS['files/copy'],
    params: ofSession(FILES_SIDECAR_METHODS['files/copy'].params),
  },
  'files/delete': {
    ...FILES_SIDECAR_METHODS['files/delete'],
    params: ofSession(FILES_SIDECAR_METHODS['files/delete'].params),
  },
} as const;
