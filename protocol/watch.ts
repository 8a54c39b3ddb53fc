import { z } from 'zod';
import { SessionRefSchema } from './ids.ts';
import { WorkspacePathSchema } from './files.ts';

/** Maximum number of paths in one `files/changed`. More changes at once are an overflow. */
export const MAX_CHANGES_PER_BATCH = 2000;

const globs = z.array(z.string().min(1).max(1000)).max(200).optional();

export const WatchParamsSchema = z.object({
  /** A directory or a file. */
  path: WorkspacePathSchema,
  /** Watch all subdirectories; default true. */
  recursive: z.boolean().optional(),
  /** Globs of paths relative to `path`. Matching directories are not watched. `X/**` means `X` and everything below it. */
  excludes: globs,
});

/** `polling`: at least a part is scanned every few seconds, because the machine has no inotify watches left. */
export const WatchModeSchema = z.enum(['inotify', 'polling']);
export type WatchMode = z.infer<typeof WatchModeSchema>;

export const FileChangeSchema = z.object({
  path: z.string(),
  kind: z.enum(['created', 'changed', 'deleted']),
});
export type FileChange = z.infer<typeof FileChangeSchema>;

const batch = {
  /** Each path occurs once. A rename is a deletion and a creation. */
  changes: z.array(FileChangeSchema),
  /** Changes were lost: read everything again. */
  overflow: z.boolean(),
  mode: WatchModeSchema,
};

const watch = z.object({ watch: z.string().min(1).max(64) });

/** supervisor → sidecar. */
export const WATCH_SIDECAR_METHODS = {
  'files/watch-open': { params: WatchParamsSchema, result: watch.extend({ mode: WatchModeSchema }) },
  /** Long poll: responds as soon as there are changes, or with none after `waitMs`. Each change is reported once. */
  'files/watch-next': {
    params: watch.extend({ waitMs: z.number().int().min(0).max(60_000) }),
    result: z.object(batch),
  },
  'files/watch-close': { params: watch, result: z.object({}) },
} as const;

/** client → supervisor. */
export const WATCH_METHODS = {
  /**
   * After the response, `files/changed` reports every change within 100 ms. `files/unwatch` or the end of the
   * connection ends the subscription.
   */
  'files/watch': {
    params: WatchParamsSchema.extend({ session: SessionRefSchema }),
    result: z.object({ subscription: z.string(), mode: WatchModeSchema }),
    repeat: 'never',
    whenDamaged: 'refused',
  },
  'files/unwatch': {
    params: z.object({ subscription: z.string() }),
    result: z.object({}),
    repeat: 'never',
    whenDamaged: 'refused',
  },
} as const;

/** supervisor → client. */
export const WATCH_NOTIFICATIONS = {
  'files/changed': {
    params: z.object({
      subscription: z.string(),
      ...batch,
      /** The subscription has ended: the session or the watched path was deleted. */
      ended: z.boolean(),
    }),
  },
} as const;
