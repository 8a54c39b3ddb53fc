import { z } from 'zod';
import { BUNDLE_TYPE, KeyIdSchema, MOST_BUNDLE_EVENTS } from '../../protocol/bundles.ts';
import { ProjectOriginSchema } from '../../protocol/deploy.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { HomeIdSchema, SessionIdSchema, SnapshotIdSchema, TurnIdSchema } from '../../protocol/ids.ts';
import { ReviewBaseSchema, ReviewFileIdSchema, ReviewIdSchema } from '../../protocol/review.ts';
import { SnapshotReasonSchema } from '../../protocol/snapshots.ts';
import { RootHashSchema } from '../../snapshot-format/sidecar-calls.ts';
import { decisionStateSchema } from '../store/reviews.ts';

/**
 * A bundle is a tar archive, compressed with zstd, with these members in this order:
 *
 * - `bundle.json`: BundleHeadSchema, which is checked before anything larger is parsed;
 * - `session.json`: BundleSessionSchema;
 * - `events.jsonl`: the history, a BundleEventSchema per line;
 * - `contents/SHA256`: the prompts and outputs that events name, sorted;
 * - `packs/NUMBER-OBJECTS.pack`: the trees of the snapshots, as the store has them; numbered from 0;
 * - `statement.json`: an envelope with a BundleStatementSchema, whose subject is the hash of every byte before this member.
 */
export const MEMBERS = {
  head: 'bundle.json',
  session: 'session.json',
  events: 'events.jsonl',
  statement: 'statement.json',
  content: /^contents\/(?<sha256>[0-9a-f]{64})$/,
  pack: /^packs\/(?<number>0|[1-9]\d{0,6})-(?<objects>[1-9]\d{0,6})\.pack$/,
} as const;

/** What an export does not exceed, and an import refuses. The supervisor holds session and history of an import in memory. */
export const BUNDLE_LIMITS = {
  headBytes: 4096,
  sessionBytes: 2 * 2 ** 20,
  eventsBytes: 8 * 2 ** 20,
  events: MOST_BUNDLE_EVENTS,
  contents: 20_000,
  contentBytes: 2 ** 30,
  contentsBytes: 16 * 2 ** 30,
  /** Of all turns together, each counted as often as it is named. */
  promptsBytes: 2 ** 28,
  packs: 100_000,
  statementBytes: 64 * 2 ** 10,
  /** JSON values: of the session, and of anything else that is parsed in one piece. */
  sessionValues: 50_000,
  values: 10_000,
  decisions: 5000,
  /** Ranges of lines in a list of a decision. */
  ranges: 10_000,
  comments: 2000,
} as const;

const count = z.number().int().nonnegative();
const time = z.number().int().nonnegative().max(8_640_000_000_000_000);
const text = z.string().max(4096);

const BundleSnapshotSchema = z.strictObject({
  id: SnapshotIdSchema,
  createdAt: time,
  reason: SnapshotReasonSchema,
  label: z.string().max(200).nullable(),
  root: RootHashSchema,
  stateRoot: RootHashSchema.nullable(),
  files: count,
  directories: count,
  bytes: count,
  eventSeq: count,
  duringTurn: z.boolean(),
  missing: count,
  missingPaths: z.array(z.string().max(20_000)).max(100),
});
export type BundleSnapshot = z.infer<typeof BundleSnapshotSchema>;

const BundleReviewSchema = z.strictObject({
  id: ReviewIdSchema,
  createdAt: time,
  updatedAt: time,
  endedAt: time.nullable(),
  baseSpec: ReviewBaseSchema,
  baseSnapshot: SnapshotIdSchema.nullable(),
  baseRoot: RootHashSchema,
  targetSnapshot: SnapshotIdSchema,
  targetRoot: RootHashSchema,
  acceptedRoot: RootHashSchema.nullable(),
  revision: count,
  decisions: z
    .array(
      z.strictObject({
        path: z.string().max(20_000),
        fileId: ReviewFileIdSchema,
        state: decisionStateSchema(BUNDLE_LIMITS.ranges),
      }),
    )
    .max(BUNDLE_LIMITS.decisions),
});
export type BundleReview = z.infer<typeof BundleReviewSchema>;

const BundleCommentSchema = z.strictObject({
  path: z.string().max(20_000),
  side: z.enum(['base', 'target']),
  start: count,
  end: count,
  /** Base64. */
  quote: z.base64().max(2 ** 20),
  text: z.string().max(2 ** 20),
  createdAt: time,
  turnId: TurnIdSchema.nullable(),
  sentAt: time.nullable(),
});

/** Who made a bundle. */
export const BundleHeadSchema = z.strictObject({
  format: z.literal(1),
  home: HomeIdSchema,
  /** Ed25519, PEM. */
  publicKey: z.string().max(2000),
});
export type BundleHead = z.infer<typeof BundleHeadSchema>;

export const BundleSessionSchema = z.strictObject({
  madeAt: time,
  session: z.strictObject({
    id: SessionIdSchema,
    name: z.string().min(1).max(200),
    profile: z.string().min(1).max(200),
    tags: z.array(z.string().min(1).max(64)).max(100),
    pinned: z.boolean(),
    starred: z.boolean(),
  }),
  /** The snapshot whose files the workspace gets; the others are those of reviews. */
  snapshot: SnapshotIdSchema,
  snapshots: z.array(BundleSnapshotSchema).min(1).max(8),
  /** What the workspace began with, if it is known. */
  base: z
    .strictObject({ root: RootHashSchema, origin: ProjectOriginSchema.nullable(), folder: text })
    .nullable(),
  reviews: z.array(BundleReviewSchema).max(2),
  comments: z.array(BundleCommentSchema).max(BUNDLE_LIMITS.comments),
  /** The signed checkpoint that the history begins with, if it was cut: a CheckpointEnvelopeSchema as text. */
  checkpoint: z.string().max(8192).optional(),
});
export type BundleSession = z.infer<typeof BundleSessionSchema>;

/** An event of the history. `data` is checked with the schema of its type. */
export const BundleEventSchema = z.strictObject({
  seq: z.number().int().positive(),
  at: time,
  type: z.string().max(100),
  data: z.record(z.string(), z.unknown()),
});
export type BundleEvent = z.infer<typeof BundleEventSchema>;

/** An in-toto Statement. */
export const BundleStatementSchema = z.strictObject({
  _type: z.literal('https://in-toto.io/Statement/v1'),
  subject: z
    .array(z.strictObject({ name: z.literal('bundle'), digest: z.strictObject({ sha256: KeyIdSchema }) }))
    .length(1),
  predicateType: z.literal(BUNDLE_TYPE),
  predicate: z.strictObject({ home: HomeIdSchema, session: SessionIdSchema, madeAt: time }),
});
export type BundleStatement = z.infer<typeof BundleStatementSchema>;

/** All trees of a bundle: their packs hold everything that these roots need. */
export function rootsOf({ snapshots, base, reviews }: BundleSession): string[] {
  const roots = [
    ...snapshots.flatMap(({ root, stateRoot }) => [root, stateRoot]),
    base?.root ?? null,
    ...reviews.flatMap(({ baseRoot, targetRoot, acceptedRoot }) => [baseRoot, targetRoot, acceptedRoot]),
  ];
  return [...new Set(roots.filter((root) => root !== null))];
}

/** For whatever is not as an export makes it. */
export function refusedBundle(why: string, cause?: unknown): HoldfastError {
  return new HoldfastError('snapshot_damaged', 'The session was not imported', {
    why,
    next: 'export it again with `holdfast snapshot export`',
    cause,
  });
}
