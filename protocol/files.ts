import { z } from 'zod';
import { SessionRefSchema, SnapshotIdSchema } from './ids.ts';
import { PATH_LIMITS } from './paths.ts';

/** Maximum bytes per message. Larger files need several reads, or begin, append and commit. */
export const FILE_CHUNK_BYTES = 4 * 2 ** 20;
/** Number of entries in one page of a listing. */
export const LIST_LIMITS = { default: 2000, max: 5000 } as const;

/** `/workspace/…`, with names encoded as in protocol/paths.ts. Whoever resolves a path validates it. */
export const WorkspacePathSchema = z.string().max(PATH_LIMITS.characters);

export const FILE_TYPES = ['file', 'directory', 'symlink', 'fifo', 'socket', 'device'] as const;
export const FileTypeSchema = z.enum(FILE_TYPES);
export type FileType = z.infer<typeof FileTypeSchema>;

/**
 * Identifies the content of a file. For files up to 4 MiB a hash of the content, for larger ones a hash of inode, size,
 * mtime and ctime (docs/files.md). Compare versions only for equality.
 */
export const FileVersionSchema = z.string().min(1).max(100);

const size = z.number().int().nonnegative();

export const FileStatSchema = z.object({
  type: FileTypeSchema,
  /** In bytes, as in `stat`. For a symbolic link the length of its target. */
  size,
  mtimeMs: z.number().int(),
  /** The same in nanoseconds since 1970, as decimal text because it exceeds a JSON number. */
  mtimeNs: z.string(),
  /** Permission, set-id and sticky bits: at most 0o7777. */
  mode: z.number().int().nonnegative(),
  /** Target of a symbolic link, encoded like names; null for other types. */
  link: z.string().nullable(),
  /** Type of the link's target if that is inside the workspace; otherwise null. */
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
  /** The file did not exist before. */
  created: z.boolean(),
  /** The file had other hard links, which keep the old content. */
  hardlinked: z.boolean(),
});
export type WriteResult = z.infer<typeof WriteResultSchema>;

/**
 * The precondition of a write. At least one is required. `ifVersion`: the file has this version, else `conflict` with
 * `details.version`. `overwrite`: the file exists. `create`: no file exists, else `file_exists`. `create` and
 * `overwrite`: either.
 */
const expectation = {
  ifVersion: FileVersionSchema.optional(),
  overwrite: z.boolean().optional(),
  create: z.boolean().optional(),
  /** Mode of a new file; default 0o644. An existing file keeps its mode. */
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

/** supervisor → sidecar. Clients add the session. Errors: the `file_*` codes, see docs/files.md. */
export const FILES_SIDECAR_METHODS = {
  'files/stat': {
    /** `follow` (default true): follow a symbolic link. `version`: also compute the version, which reads the file. */
    params: at.extend({ follow: z.boolean().optional(), version: z.boolean().optional() }),
    result: FileStatSchema.extend({ version: FileVersionSchema.nullable() }),
  },
  /** Entries with their `lstat`, in byte order of their names. `cursor` is `nextCursor` of the previous page. */
  'files/list': {
    params: at.extend({
      cursor: z.string().max(PATH_LIMITS.characters).optional(),
      limit: z.number().int().min(1).max(LIST_LIMITS.max).optional(),
    }),
    result: z.object({ entries: z.array(FileEntrySchema), nextCursor: z.string().nullable() }),
  },
  /**
   * Up to `length` bytes from `offset` on, after the response; fewer only at the end of the file. With `ifVersion` it
   * fails with `conflict` if the file has changed, so that all chunks of a file belong together.
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
  /** The payload is the whole new content. */
  'files/write': { params: at.extend(expectation), result: WriteResultSchema, bytes: 'params' },
  /** Writes a large file in several messages: begin, append, commit. Without commit nothing changes. */
  'files/begin': { params: at.extend(expectation), result: z.object({ upload }) },
  'files/append': { params: z.object({ upload, offset: size }), result: z.object({ size }), bytes: 'params' },
  'files/commit': { params: z.object({ upload, size }), result: WriteResultSchema },
  'files/abort': { params: z.object({ upload }), result: nothing },
  /** Creates an empty file. */
  'files/create': { params: at.extend({ mode: expectation.mode }), result: WriteResultSchema },
  /** With `parents`, creates missing parent directories and accepts an existing directory, as `mkdir -p`. */
  'files/mkdir': {
    params: at.extend({ parents: z.boolean().optional() }),
    result: z.object({ created: z.boolean() }),
  },
  /** Creates a symbolic link with this target, encoded like names. The target is not checked. */
  'files/symlink': {
    params: at.extend({ link: z.string().min(1).max(PATH_LIMITS.characters) }),
    result: nothing,
  },
  /** Without `overwrite`, `file_exists` if the target exists. With it a file replaces a file, and a directory an empty directory. */
  'files/rename': { params: moved, result: nothing },
  /** Copies files, symbolic links and directories recursively. `skipped`: sockets, FIFOs and devices. `overwrite` is for files only. */
  'files/copy': { params: moved, result: z.object({ files: size, bytes: size, skipped: size }) },
  /** Deletes a symbolic link itself, never its target. A non-empty directory needs `recursive`. */
  'files/delete': {
    params: at.extend({ recursive: z.boolean().optional() }),
    result: z.object({ files: size, bytes: size }),
  },
} as const;

function ofSession<P extends z.ZodRawShape>(params: z.ZodObject<P>) {
  return params.extend({ session: SessionRefSchema });
}

/**
 * Reads the workspace of a session or, with `snapshot`, the files of a snapshot. One of the two is required. With both,
 * a snapshot of another lineage is `not_found`.
 */
function ofSessionOrSnapshot<P extends z.ZodRawShape>(params: z.ZodObject<P>) {
  return params.extend({ session: SessionRefSchema.optional(), snapshot: SnapshotIdSchema.optional() });
}

/** client → supervisor. Part of METHODS. */
export const FILES_METHODS = {
  'files/stat': {
    ...FILES_SIDECAR_METHODS['files/stat'],
    params: ofSessionOrSnapshot(FILES_SIDECAR_METHODS['files/stat'].params),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  'files/list': {
    ...FILES_SIDECAR_METHODS['files/list'],
    params: ofSessionOrSnapshot(FILES_SIDECAR_METHODS['files/list'].params),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  'files/read': {
    ...FILES_SIDECAR_METHODS['files/read'],
    params: ofSessionOrSnapshot(FILES_SIDECAR_METHODS['files/read'].params),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  'files/write': {
    ...FILES_SIDECAR_METHODS['files/write'],
    params: ofSession(FILES_SIDECAR_METHODS['files/write'].params),
    repeat: 'ifVersion',
    whenDamaged: 'refused',
  },
  'files/begin': {
    ...FILES_SIDECAR_METHODS['files/begin'],
    params: ofSession(FILES_SIDECAR_METHODS['files/begin'].params),
    repeat: 'never',
    whenDamaged: 'refused',
  },
  'files/append': {
    ...FILES_SIDECAR_METHODS['files/append'],
    params: ofSession(FILES_SIDECAR_METHODS['files/append'].params),
    repeat: 'never',
    whenDamaged: 'refused',
  },
  'files/commit': {
    ...FILES_SIDECAR_METHODS['files/commit'],
    params: ofSession(FILES_SIDECAR_METHODS['files/commit'].params),
    repeat: 'never',
    whenDamaged: 'refused',
  },
  'files/abort': {
    ...FILES_SIDECAR_METHODS['files/abort'],
    params: ofSession(FILES_SIDECAR_METHODS['files/abort'].params),
    repeat: 'never',
    whenDamaged: 'refused',
  },
  'files/create': {
    ...FILES_SIDECAR_METHODS['files/create'],
    params: ofSession(FILES_SIDECAR_METHODS['files/create'].params),
    repeat: 'never',
    whenDamaged: 'refused',
  },
  'files/mkdir': {
    ...FILES_SIDECAR_METHODS['files/mkdir'],
    params: ofSession(FILES_SIDECAR_METHODS['files/mkdir'].params),
    repeat: 'never',
    whenDamaged: 'refused',
  },
  'files/symlink': {
    ...FILES_SIDECAR_METHODS['files/symlink'],
    params: ofSession(FILES_SIDECAR_METHODS['files/symlink'].params),
    repeat: 'never',
    whenDamaged: 'refused',
  },
  'files/rename': {
    ...FILES_SIDECAR_METHODS['files/rename'],
    params: ofSession(FILES_SIDECAR_METHODS['files/rename'].params),
    repeat: 'never',
    whenDamaged: 'refused',
  },
  'files/copy': {
    ...FILES_SIDECAR_METHODS['files/copy'],
    params: ofSession(FILES_SIDECAR_METHODS['files/copy'].params),
    repeat: 'never',
    whenDamaged: 'refused',
  },
  'files/delete': {
    ...FILES_SIDECAR_METHODS['files/delete'],
    params: ofSession(FILES_SIDECAR_METHODS['files/delete'].params),
    repeat: 'never',
    whenDamaged: 'refused',
  },
} as const;
