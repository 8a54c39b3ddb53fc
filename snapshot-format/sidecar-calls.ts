import { z } from 'zod';
import { HOME_LIMITS, HomePathSchema } from '../protocol/agent-home.ts';
import { WorkspacePathSchema } from '../protocol/files.ts';
import { MAX_MISSING_PATHS } from '../protocol/snapshots.ts';
import { FRAME } from './frames.ts';

const count = z.number().int().nonnegative();
export const RootHashSchema = z.string().regex(/^[0-9a-f]{64}$/);

export const SNAPSHOT_WIRE_LIMITS = {
  /** Hashes of one `store/have`. */
  have: 32_768,
  /** Hashes of one `store/read`. */
  read: 1000,
  /** `store/put` calls that may wait for an answer at once. */
  putsInFlight: 4,
} as const;

export const ScanResultSchema = z.object({
  root: RootHashSchema,
  /**
   * False: the scan had to read more than its budget. `root` is then meaningless; the content already read is not read
   * again.
   */
  complete: z.boolean(),
  /** Everything except directories; each hard link counts. */
  files: count,
  /** Directories without the root. */
  directories: count,
  /** Sizes of regular files; a file with several hard links counts once. */
  bytes: count,
  /** Files that were read because they are new or differ from the last scan, and their bytes. */
  changedFiles: count,
  changedBytes: count,
  /** Objects that were sent, and their bytes in the packs. */
  newObjects: count,
  newBytes: count,
  scanMs: z.number().nonnegative(),
  readMs: z.number().nonnegative(),
  /** The workspace changed during the scan, so the tree may mix different states. */
  changedDuringScan: z.boolean(),
  /**
   * How many files could not be read because programs hold leases on them, and the first of their paths. The tree
   * records only that they exist (`missing-entry.ts`).
   */
  missing: count.default(0),
  missingPaths: z.array(z.string().max(20_000)).max(MAX_MISSING_PATHS).default([]),
});
export type ScanResult = z.infer<typeof ScanResultSchema>;

/** The part of HOME that a call is about instead of the workspace. */
export const StateScopeSchema = z.object({
  /** What is scanned and restored; null: all of HOME. */
  paths: z.array(HomePathSchema).max(HOME_LIMITS.paths).nullable(),
  /** What is left out, with everything below it. */
  except: z.array(HomePathSchema).max(HOME_LIMITS.paths).default([]),
  /** Files with which an agent signs in: never part of a tree. */
  signIn: z.array(HomePathSchema).max(HOME_LIMITS.signInFiles),
});
export type StateScope = z.input<typeof StateScopeSchema>;

export const RestoreResultSchema = z.object({
  /** Names that did not exist, had other content or type, were not in the snapshot, or differed only in attributes. */
  created: count,
  replaced: count,
  removed: count,
  touched: count,
  /** Bytes of content written, or to be written with `dryRun`. */
  bytes: count,
});
export type RestoreResult = z.infer<typeof RestoreResultSchema>;

/**
 * supervisor → sidecar, one call at a time. During a call the sidecar calls `store/*` and `cache/*` on the same
 * connection.
 */
export const SNAPSHOT_CALLS = {
  /**
   * `base`: the root of the newest tree whose objects the store keeps during this call; null: share nothing with the
   * store. `budgetBytes`: stop with `complete: false` when more content than this has to be read. `isBaseSuspect`:
   * objects of the base were found damaged, so ask the store about all of them. `frozen`: nothing else runs in the
   * workspace, so a file that changes during the scan is an error and not `changedDuringScan`. `awaitsLeases`: wait
   * until the kernel breaks leases that programs hold on files. `state`: scan the agent's state in HOME instead of the
   * workspace; the tree then begins at HOME.
   */
  'snapshot/scan': {
    params: z.object({
      base: RootHashSchema.nullable(),
      budgetBytes: count.nullable(),
      frozen: z.boolean(),
      isBaseSuspect: z.boolean().default(false),
      awaitsLeases: z.boolean().default(false),
      state: StateScopeSchema.nullable().default(null),
    }),
    result: ScanResultSchema,
  },
  /**
   * Restores the workspace, or one path, to a tree. May be repeated after any crash. Reads and checks all content
   * before it changes anything. `scannedRoot`: the tree that a scan has just found; nobody has written to the workspace
   * since, so it is not scanned again if that was the last scan. `dryRun` only counts. Sends progress. `file_not_found`
   * when the tree has nothing at `path`: a restore of a path never removes it.
   */
  'snapshot/restore': {
    params: z.object({
      root: RootHashSchema,
      path: WorkspacePathSchema.nullable(),
      dryRun: z.boolean(),
      scannedRoot: RootHashSchema.nullable().default(null),
      state: StateScopeSchema.nullable().default(null),
    }),
    result: RestoreResultSchema,
  },
  /**
   * Sends the scan cache of the session (`cache/*`), so that the next sidecar need not read all files again. `isSaved`
   * is false if there is little to save, or if the sidecar is busy. `cancelled` when another call interrupts it.
   * `isLast`: the sidecar is about to be stopped, so a running call is ended first with `connection_closed` and without
   * effect.
   */
  'snapshot/save-scan-cache': {
    params: z.object({ isLast: z.boolean() }),
    result: z.object({ isSaved: z.boolean() }),
  },
} as const;

const SentFrameSchema = z.object({
  /**
   * The number of records in its table (FRAME.recordBytes each), and the length of the stored bytes that follow the
   * table.
   */
  objects: count.max(FRAME.maxObjects),
  stored: count.max(FRAME.maxBytes),
  raw: count.max(FRAME.maxBytes),
  encoding: count.max(1),
});

/** sidecar → supervisor, on the connection of a `snapshot/*` call and only during that call. */
export const STORE_CALLS = {
  /**
   * Payload: hashes of 32 bytes. Payload of the answer: one bit for each hash, lowest first; 1 if the store has the
   * object.
   */
  'store/have': {
    params: z.object({ hashes: count.max(SNAPSHOT_WIRE_LIMITS.have) }),
    result: z.object({}),
    bytes: 'both',
  },
  /**
   * Payload: the next bytes of a pack. Packs are numbered from 0 in each scan and written from offset 0 without gaps.
   */
  'store/put': {
    params: z.object({ pack: count, offset: count }),
    result: z.object({}),
    bytes: 'params',
  },
  /**
   * The pack is complete and has this many bytes. The store answers when it has checked the pack; from then on its
   * objects count as present. The next packs may be put meanwhile. A small pack is checked after the answer: a
   * rejection is then reported by a later call, in any case before anything is published.
   */
  'store/seal': {
    params: z.object({ pack: count, bytes: count, objects: count }),
    result: z.object({}),
  },
  /**
   * Payload: hashes. Payload of the answer: whole frames with some of the objects, always including the first, as many
   * as one message carries; for each frame its table, then its stored bytes. The caller requests the other objects
   * again. `snapshot_damaged` when the first object is not in the store.
   */
  'store/read': {
    params: z.object({ hashes: count.min(1).max(SNAPSHOT_WIRE_LIMITS.read) }),
    result: z.object({ frames: z.array(SentFrameSchema).max(1000) }),
    bytes: 'both',
  },
  /** Payload of the answer: the next bytes of the session's scan cache; empty at its end or without a cache. */
  'cache/read': {
    params: z.object({ offset: count }),
    result: z.object({}),
    bytes: 'result',
  },
  /** Payload: the next bytes of a new cache, from offset 0 without gaps. Only during `snapshot/save-scan-cache`. */
  'cache/put': {
    params: z.object({ offset: count }),
    result: z.object({}),
    bytes: 'params',
  },
  /**
   * The new cache is complete, has this many bytes, and replaces the old one. Only during `snapshot/save-scan-cache`.
   */
  'cache/seal': {
    params: z.object({ bytes: count }),
    result: z.object({}),
  },
} as const;
