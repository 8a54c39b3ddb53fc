import { z } from 'zod';
import { WorkspacePathSchema } from '../protocol/files.ts';
import { MAX_MISSING_PATHS } from '../protocol/snapshots.ts';
import { FRAME } from './frames.ts';
import { SNAPSHOT_LIMITS } from './objects.ts';

const count = z.number().int().nonnegative();
export const RootHashSchema = z.string().regex(/^[0-9a-f]{64}$/);

export const SNAPSHOT_WIRE_LIMITS = {
  /** Hashes of one `store/have`. */
  have: 32_768,
  /** Hashes of one `store/read`. */
  read: 1000,
  /** `store/put` calls that wait for an answer. */
  putsInFlight: 4,
} as const;

export const ScanResultSchema = z.object({
  root: RootHashSchema,
  /** False: more than the budget would have had to be read. `root` is then of no use; what was read is not read again. */
  complete: z.boolean(),
  /** Everything that is no directory; a file with several names counts each. */
  files: count,
  /** Without the top one. */
  directories: count,
  /** Sizes of regular files; a file with several names counts once. */
  bytes: count,
  /** What had to be read, because it is new or looks otherwise than at the last scan. */
  changedFiles: count,
  changedBytes: count,
  /** Objects that were sent, and the bytes that they take in the packs. */
  newObjects: count,
  newBytes: count,
  scanMs: z.number().nonnegative(),
  readMs: z.number().nonnegative(),
  /** Something changed while it ran: the result is not of one moment. */
  changedDuringScan: z.boolean(),
  /**
   * Files that could not be read, because programs hold leases on them: in the tree stands only that they are there (`missing.ts`). The
   * first of their paths.
   */
  missing: count.default(0),
  missingPaths: z.array(z.string().max(20_000)).max(MAX_MISSING_PATHS).default([]),
});
export type ScanResult = z.infer<typeof ScanResultSchema>;

export const RestoreResultSchema = z.object({
  /** Names that were not there, had other content or another type, were not in the snapshot, or differed in their attributes only. */
  created: count,
  replaced: count,
  removed: count,
  touched: count,
  /** Content that was written (or would be). */
  bytes: count,
});
export type RestoreResult = z.infer<typeof RestoreResultSchema>;

/** supervisor → sidecar. During a call the sidecar calls `store/*` back on the same connection. One at a time. */
export const SNAPSHOT_CALLS = {
  /**
   * `base`: hash of a tree all of whose objects the store has and keeps until this is over, the newest one; null: the store is
   * empty, or nothing in it need be shared. `budgetBytes`: give up (`complete: false`) where more content than this had to be
   * read. `isBaseSuspect`: something of the base was found damaged; the store is asked for all of it. `frozen`: nothing else runs in the workspace, so a file that changes under our hands is an error and not `moved`. `awaitsLeases`: wait until the kernel takes leases from programs that do not give them up.
   */
  'snapshot/scan': {
    params: z.object({
      base: RootHashSchema.nullable(),
      budgetBytes: count.nullable(),
      frozen: z.boolean(),
      isBaseSuspect: z.boolean().default(false),
      awaitsLeases: z.boolean().default(false),
    }),
    result: ScanResultSchema,
  },
  /**
   * Makes the workspace, or what is at `path`, as it is in that tree. May be repeated after whatever death. Reads and checks
   * all that it needs before it touches anything. `seen`: the tree that a scan has just found, in a workspace that nobody writes to since;
   * where it was the last one, there is no other look. `dryRun` only counts. Progress is notified. `file_not_found` where the tree
   * has nothing at `path`: a restore of a path never removes it.
   */
  'snapshot/restore': {
    params: z.object({
      root: RootHashSchema,
      path: WorkspacePathSchema.nullable(),
      dryRun: z.boolean(),
      seen: RootHashSchema.nullable().default(null),
    }),
    result: RestoreResultSchema,
  },
  /**
   * Sends what scans know as the session's cache (`cache/*`), so that the next sidecar need not read everything again. False where
   * that is not worth it, or something else is being done. `cancelled` where something else came in between. `last`: the sidecar is
   * ended then; what is being done ends first, with `connection_closed` and as if never begun.
   */
  'snapshot/save-scan-cache': {
    params: z.object({ isLast: z.boolean() }),
    result: z.object({ isSaved: z.boolean() }),
  },
} as const;

const SentFrameSchema = z.object({
  /** Records of its table (FRAME.recordBytes each), which come first, and its stored bytes, which follow. */
  objects: count.max(FRAME.maxObjects),
  stored: count.max(FRAME.maxBytes),
  raw: count.max(FRAME.maxBytes),
  encoding: count.max(1),
});

/** sidecar → supervisor, on the connection of a `snapshot/*` call and only while it runs. */
export const STORE_CALLS = {
  /** Hashes (32 bytes each) behind the call; behind the answer one bit for each, the lowest first: 1 where the store has it. */
  'store/have': {
    params: z.object({ hashes: count.max(SNAPSHOT_WIRE_LIMITS.have) }),
    result: z.object({}),
    bytes: 'both',
  },
  /** The next bytes of a pack. Packs are numbered from 0 in each scan, and each is written from offset 0 on without gaps. */
  'store/put': {
    params: z.object({ pack: count, offset: count }),
    result: z.object({}),
    bytes: 'params',
  },
  /**
   * The pack is complete and has this many bytes. The store answers when it has checked all of it, and its objects count as had then; the
   * next packs may be put meanwhile. A short one is checked while the answer is on its way: that it is refused comes with what follows, and
   * is known before anything is published.
   */
  'store/seal': {
    params: z.object({ pack: count, bytes: count, objects: count }),
    result: z.object({}),
  },
  /**
   * Hashes behind the call. Behind the answer whole frames with some of the objects, the first one asked for always among them,
   * as many as one message carries: per frame its table, then its stored bytes. What did not come is asked for again.
   * `snapshot_damaged` where the first one is not in the store.
   */
  'store/read': {
    params: z.object({ hashes: count.min(1).max(SNAPSHOT_WIRE_LIMITS.read) }),
    result: z.object({ frames: z.array(SentFrameSchema).max(1000) }),
    bytes: 'both',
  },
  /** Behind the answer the next bytes of the session's cache; none at its end, or where there is none. */
  'cache/read': {
    params: z.object({ offset: count }),
    result: z.object({}),
    bytes: 'result',
  },
  /** The next bytes of another one, from offset 0 on without gaps. Only during `snapshot/save-scan-cache`, like the next. */
  'cache/put': {
    params: z.object({ offset: count }),
    result: z.object({}),
    bytes: 'params',
  },
  /** It is complete, has this many bytes, and is the session's from now on. */
  'cache/seal': {
    params: z.object({ bytes: count }),
    result: z.object({}),
  },
} as const;

export const HASH_BYTES = SNAPSHOT_LIMITS.hashBytes;
