import { z } from 'zod';
import { SessionRefSchema } from './ids.ts';
import { WorkspacePathSchema } from './files.ts';

/** Paths that one `files/changed` names at most; more changes at once are an overflow. */
export const MAX_CHANGES_PER_BATCH = 2000;

const globs = z.array(z.string().min(1).max(1000)).max(200).optional();

export const WatchParamsSchema = z.object({
  /** A folder, or one file. */
  path: WorkspacePathSchema,
  /** Default true: all folders below as well. */
  recursive: z.boolean().optional(),
  /** Globs of paths relative to `path`; a folder that one matches is not looked into. `X/**` stands for `X` and all below it. */
  excludes: globs,
});

/** `polling`: at least a part is looked at every few seconds, as the machine has no watches left for it. */
export const WatchModeSchema = z.enum(['inotify', 'polling']);
export type WatchMode = z.infer<typeof WatchModeSchema>;

export const FileChangeSchema = z.object({
  path: z.string(),
  kind: z.enum(['created', 'changed', 'deleted']),
});
export type FileChange = z.infer<typeof FileChangeSchema>;

const batch = {
  /** Each path once. A rename is a deletion and a creation. */
  changes: z.array(FileChangeSchema),
  /** More happened than could be kept: look at everything again. */
  overflow: z.boolean(),
  mode: WatchModeSchema,
};

const watch = z.object({ watch: z.string().min(1).max(64) });

/** supervisor → sidecar. */
export const WATCH_SIDECAR_METHODS = {
  'files/watch-open': { params: WatchParamsSchema, result: watch.extend({ mode: WatchModeSchema }) },
  /** Answers as soon as there is something, with nothing after `waitMs`. What was answered is forgotten. */
  'files/watch-next': {
    params: watch.extend({ waitMs: z.number().int().min(0).max(60_000) }),
    result: z.object(batch),
  },
  'files/watch-close': { params: watch, result: z.object({}) },
} as const;

/** client → supervisor. */
export const WATCH_METHODS = {
  /** From the answer on, `files/changed` tells of every change, at most 100 ms late; `files/unwatch` or the end of the connection ends it. */
  'files/watch': {
    params: WatchParamsSchema.extend({ session: SessionRefSchema }),
    result: z.object({ subscription: z.string(), mode: WatchModeSchema }),
  },
  'files/unwatch': { params: z.object({ subscription: z.string() }), result: z.object({}) },
} as const;

/** supervisor → client. */
export const WATCH_NOTIFICATIONS = {
  'files/changed': {
    params: z.object({
      subscription: z.string(),
      ...batch,
      /** Nothing more will come: the session, or what was watched, is gone. */
      ended: z.boolean(),
    }),
  },
} as const;
