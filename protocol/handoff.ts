import { z } from 'zod';
import { ProjectOriginSchema } from './deploy.ts';
import { SessionIdSchema, SessionRefSchema, SnapshotIdSchema } from './ids.ts';
import { PATH_LIMITS } from './paths.ts';
import { ReviewIdSchema } from './review.ts';
import { eventType } from './event-type.ts';

export const HANDOFF_LIMITS = {
  /** Changed files of one handoff. */
  files: 200_000,
  /** Their bytes together. */
  bytes: 2 ** 30,
  /** Entries of one page. */
  entries: 500,
  /** Bytes of contents in one answer. */
  answerBytes: 4 * 2 ** 20,
} as const;

/** How changes leave the sandbox. `worktree`: a new branch in a new worktree; `tree`: into the current working tree. */
export const HANDOFF_TARGETS = ['worktree', 'branch', 'tree', 'patch', 'dir'] as const;
export const HandoffTargetSchema = z.enum(HANDOFF_TARGETS);
export type HandoffTarget = z.infer<typeof HandoffTargetSchema>;

export const HandoffIdSchema = z.string().regex(/^hand-[a-z2-7]{16}$/);
export const ManifestIdSchema = z.string().regex(/^man-[a-z2-7]{16}$/);
const rootHash = z.string().regex(/^[0-9a-f]{64}$/, 'the hash of a tree');
const gitId = z.string().regex(/^(?:[0-9a-f]{40}|[0-9a-f]{64})$/);
const count = z.number().int().nonnegative();
const opId = z.string().min(1).max(128).optional();

/** One side of a changed path. Other kinds, such as pipes, cannot be handed off. */
export const HandoffSideSchema = z.object({
  type: z.enum(['file', 'symlink', 'other']),
  executable: z.boolean(),
  /** Bytes of the file, or of the link's text. */
  size: count,
});
export type HandoffSide = z.infer<typeof HandoffSideSchema>;

/** A path whose type, content or executable bit differs. Folders are not listed: git has none. */
export const HandoffEntrySchema = z.object({
  /** As protocol/paths.ts writes it, below /workspace. */
  path: z.string().max(PATH_LIMITS.characters),
  before: HandoffSideSchema.nullable(),
  after: HandoffSideSchema.nullable(),
});
export type HandoffEntry = z.infer<typeof HandoffEntrySchema>;

/** What a session's workspace began with, and where that came from. */
export const HandoffBaseSchema = z.object({
  /**
   * `review`: the base of the session's review. `seeded`: exactly what the workspace began with. `snapshot`: the oldest
   * snapshot, because that is not known.
   */
  kind: z.enum(['review', 'seeded', 'snapshot']),
  root: rootHash,
  /** Null without git, or if it is not known. */
  origin: ProjectOriginSchema.nullable(),
  /** The folder of the project that the workspace holds, with a slash at the end; empty for all of it. */
  folder: z.string().max(PATH_LIMITS.characters),
});

/** What left the sandbox, and to where. */
const handedOver = {
  /** Roots of the two trees, and the snapshot of the second. */
  base: rootHash,
  target: rootHash,
  snapshot: SnapshotIdSchema,
  to: HandoffTargetSchema,
  /** Git's ids of what was made; null where there is no commit, and before it is made. */
  commit: gitId.nullable(),
  tree: gitId.nullable(),
  branch: z.string().max(500).nullable(),
  files: count,
  /** Quarantined files that a person let through, and those that stayed behind. */
  released: count,
  quarantined: count,
  /**
   * The review whose accepted changes it brings into the repository, all of them. `made` ends the review; `undone` opens it
   * again, unless another one was begun. Null if it ends none.
   */
  review: ReviewIdSchema.nullable(),
};

const step = z.object({
  handoffId: HandoffIdSchema,
  manifestId: ManifestIdSchema,
  ...handedOver,
  // Events of earlier versions lack it.
  review: handedOver.review.default(null),
});

/** A person approved a handoff, before anything was written; it was made; it was undone. */
export const HANDOFF_EVENTS = {
  'handoff.approved': eventType(step, { isInManifests: true }),
  'handoff.made': eventType(step, { isInManifests: true }),
  'handoff.undone': eventType(step, { isInManifests: true }),
} as const;

/** client → supervisor. Part of METHODS. The client applies a handoff: the repository is the person's. */
export const HANDOFF_METHODS = {
  /**
   * Says what would be handed off: what is accepted in the session's review, or everything if it was never reviewed or
   * `unreviewed` is asked for. For everything it creates the snapshot `before-handoff`. Changes nothing else.
   * `invalid_state` if nothing is accepted.
   */
  'handoff/begin': {
    params: z.object({ session: SessionRefSchema, unreviewed: z.boolean().optional(), opId }),
    result: z.object({
      handoff: HandoffIdSchema,
      /** Chosen before the commit, which names it. The manifest exists once the handoff is recorded. */
      manifest: ManifestIdSchema,
      sessionId: SessionIdSchema,
      sessionName: z.string(),
      profile: z.string(),
      base: HandoffBaseSchema,
      target: z.object({
        /** `review`: what is accepted of the snapshot. */
        kind: z.enum(['review', 'snapshot']),
        snapshot: SnapshotIdSchema,
        root: rootHash,
        /** Paths that the snapshot lacks because they could not be read. */
        missing: count,
      }),
      /** The review whose accepted changes are handed off, and how many of its changed paths are not wholly accepted. */
      review: z.object({ id: ReviewIdSchema, notAccepted: count }).nullable(),
      /** Work that runs: what it changes later is not part of the handoff. */
      running: count,
      /** Beginnings of the session's prompts, oldest first, for the commit's message. */
      prompts: z.array(z.string()).max(20),
    }),
    repeat: 'opId',
    whenDamaged: 'refused',
  },
  /** The changed paths between two trees of the session's lineage, by path. */
  'handoff/changes': {
    params: z.object({
      session: SessionRefSchema,
      base: rootHash,
      target: rootHash,
      cursor: z.string().max(PATH_LIMITS.characters).optional(),
    }),
    result: z.object({
      entries: z.array(HandoffEntrySchema).max(HANDOFF_LIMITS.entries),
      nextCursor: z.string().nullable(),
    }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /**
   * Contents of one side of some entries of the page with this cursor, from `offset` of the first one on, as the
   * payload. `sizes`: bytes of each entry in this answer; fewer than `wanted` if the answer is full.
   */
  'handoff/contents': {
    params: z.object({
      session: SessionRefSchema,
      base: rootHash,
      target: rootHash,
      cursor: z.string().max(PATH_LIMITS.characters).optional(),
      side: z.enum(['before', 'after']),
      /** Indices of the page's entries, ascending. */
      wanted: z.array(count).min(1).max(HANDOFF_LIMITS.entries),
      offset: count,
    }),
    result: z.object({ sizes: z.array(count).max(HANDOFF_LIMITS.entries) }),
    bytes: 'result',
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /**
   * Records a step of a handoff in the session's history: `approved` before anything is written, `made` with what was
   * written, `undone`. A repeated step of the same handoff changes nothing.
   */
  'handoff/record': {
    params: z.object({
      session: SessionRefSchema,
      handoff: HandoffIdSchema,
      step: z.enum(['approved', 'made', 'undone']),
      manifest: ManifestIdSchema,
      ...handedOver,
    }),
    result: z.object({ recorded: z.boolean() }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
} as const;
