import { z } from 'zod';
import { CheckRunIdSchema, CheckSubjectSchema } from './checks.ts';
import { ContentSchema } from './contents.ts';
import { HandoffIdSchema, HandoffTargetSchema, ManifestIdSchema } from './handoff.ts';
import {
  ArtifactIdSchema,
  HomeIdSchema,
  SessionIdSchema,
  SessionRefSchema,
  SnapshotIdSchema,
  TurnIdSchema,
} from './ids.ts';
import { OpenPortsSchema } from './open-ports.ts';
import { ReviewIdSchema } from './review.ts';
import { TurnKindSchema } from './turn-kinds.ts';
import { eventType } from './event-type.ts';
import { readNewerAs } from './newer-values.ts';

/** Characters of an envelope in a file. */
export const ENVELOPE_CHARACTERS = 2 ** 20;
export const STATEMENT_TYPE = 'application/vnd.in-toto+json';

/** A signed statement, as DSSE (Dead Simple Signing Envelope) has it. The payload is base64. */
export const EnvelopeSchema = z.strictObject({
  payloadType: z.literal(STATEMENT_TYPE),
  payload: z.string().max(ENVELOPE_CHARACTERS),
  signatures: z
    .array(z.strictObject({ keyid: z.string().regex(/^[0-9a-f]{64}$/), sig: z.string().max(200) }))
    .length(1),
});
export type Envelope = z.infer<typeof EnvelopeSchema>;

export const MANIFEST_LIMITS = {
  /** Turns, hosts, steps of handoffs, checks and changed files that a manifest lists; it counts the others. */
  turns: 200,
  hosts: 200,
  handoffs: 100,
  checks: 50,
  changes: 100,
  /** The newest events of the history that it looks at, and ms until it stops looking. */
  events: 100_000,
  readMs: 5000,
  /** The same for one that is made with a snapshot or a resume. */
  eventsByItself: 20_000,
  readMsByItself: 500,
} as const;

export const MANIFEST_TYPE = 'urn:holdfast:manifest:1';
const IN_TOTO_STATEMENT = 'https://in-toto.io/Statement/v1';

const count = z.number().int().nonnegative();
const text = z.string().max(4096);
const hash = z.string().regex(/^[0-9a-f]{64}$/);
const gitId = z.string().regex(/^(?:[0-9a-f]{40}|[0-9a-f]{64})$/);
const time = z.string().max(40);

export const MANIFEST_REASONS = ['now', 'handoff', 'snapshot', 'resume', 'artifact'] as const;

/** A step of a handoff: `approved` is what a person agreed to before anything was written. */
export const ManifestHandoffSchema = z.object({
  step: z.enum(['approved', 'made', 'undone']),
  at: time,
  handoff: HandoffIdSchema,
  manifest: ManifestIdSchema,
  to: HandoffTargetSchema,
  commit: gitId.nullable(),
  tree: gitId.nullable(),
  snapshot: SnapshotIdSchema,
  files: count,
  /** Quarantined files that the person let through, and those that stayed behind. */
  released: count,
  quarantined: count,
});

/** Connections to one host. `host` is `*` where the history counts many together. */
export const ManifestHostSchema = z.object({
  host: z.string().max(300),
  port: z.number().int(),
  allowed: count,
  denied: count,
  failed: count,
  bytesOut: count,
  bytesIn: count,
});

/** A check of the profile that has ended. */
export const ManifestCheckSchema = z.object({
  id: CheckRunIdSchema,
  name: z.string().max(64),
  /** SHA-256 of the command. */
  command: hash,
  of: CheckSubjectSchema,
  /** The tree that it judged; `accepted`: the accepted tree of the review, of a check of that. */
  tree: hash,
  accepted: hash.nullable(),
  exitCode: z.number().int(),
  at: time,
});

/** What a session did, as far as the supervisor has it in the history. */
export const ManifestSchema = z.object({
  id: ManifestIdSchema,
  /**
   * `handoff`, `artifact`: stored with it. `now`: made because somebody asked. `snapshot`, `resume`: made by itself when a snapshot was created
   * or a sandbox was started; lists and history are as of that moment.
   */
  reason: z.enum(MANIFEST_REASONS),
  /** The handoff that it was made for. */
  handoff: HandoffIdSchema.nullable(),
  madeAt: time,
  home: HomeIdSchema,
  session: z.object({
    id: SessionIdSchema,
    name: text,
    profile: text,
    createdAt: time,
    /** The snapshot that it was forked from; its history begins with that of the source. */
    forkedFrom: SnapshotIdSchema.nullable(),
    model: text.nullable(),
  }),
  /** The version of the session's memory; 0 for none. */
  memory: count,
  /** The newest snapshot. `root`: hash of its tree. */
  snapshot: z.object({ id: SnapshotIdSchema, root: hash, at: time }).nullable(),
  /**
   * What the workspace began with. `exact`: its tree; otherwise that of the oldest snapshot. `commit`: what was checked
   * out in the repository at deploy.
   */
  base: z
    .object({
      root: hash,
      exact: z.boolean(),
      folder: text,
      remote: text.nullable(),
      branch: text.nullable(),
      commit: gitId.nullable(),
    })
    .nullable(),
  /** The newest sandbox. `identity`: the id or digest that the engine reports. */
  image: z
    .object({ name: text, identity: text.nullable(), codeVersion: count.nullable(), generation: count })
    .nullable(),
  /** The newest first. `model`: as the agent says. `status`: null while it has not ended. */
  turns: z.object({
    total: count,
    listed: z
      .array(
        z.object({
          id: TurnIdSchema,
          kind: TurnKindSchema,
          at: time,
          prompt: z.object({ sha256: hash, bytes: count }).nullable(),
          status: z.string().max(50).nullable(),
          model: z.string().max(100).nullable(),
        }),
      )
      .max(MANIFEST_LIMITS.turns),
  }),
  /** Those with allowed connections first. The totals are of all hosts. */
  egress: z.object({
    hosts: count,
    allowed: count,
    denied: count,
    failed: count,
    bytesOut: count,
    bytesIn: count,
    listed: z.array(ManifestHostSchema).max(MANIFEST_LIMITS.hosts),
  }),
  /** What the profile grants now, by name; never a value. */
  credentials: z.array(z.object({ name: text, host: text, secret: text })).max(64),
  /** The newest first. */
  handoffs: z.object({
    total: count,
    listed: z.array(ManifestHandoffSchema).max(MANIFEST_LIMITS.handoffs),
  }),
  /** The newest first. Null in manifests of earlier versions, as are the fields below. */
  checks: z
    .object({ total: count, listed: z.array(ManifestCheckSchema).max(MANIFEST_LIMITS.checks) })
    .nullable()
    .default(null),
  /** What people answered when the agent asked for a permission. */
  permissions: z.object({ asked: count, allowed: count, rejected: count }).nullable().default(null),
  /** The session's review, or the newest that has ended: paths by what was decided. `partly`: by lines. Null for none. */
  review: z
    .object({ id: ReviewIdSchema, ended: z.boolean(), accepted: count, rejected: count, partly: count })
    .nullable()
    .default(null),
  /**
   * Files of the newest snapshot that differ from what the workspace began with. `complete`: all were counted. Null if the
   * trees cannot be compared.
   */
  changes: z
    .object({
      counted: count,
      complete: z.boolean(),
      listed: z.array(z.string().max(300)).max(MANIFEST_LIMITS.changes),
    })
    .nullable()
    .default(null),
  /** What prepared the image of the sandbox: equal keys make equal images. Null without a setup. */
  setup: z.object({ key: text, imageId: text.nullable() }).nullable().default(null),
  /**
   * The session was imported: `home` wrote its history up to that home's event `eventSeq`, `keyId` signed it, and lists and totals have
   * nothing of that part. Null for others.
   */
  importedFrom: z.object({ home: HomeIdSchema, keyId: hash, eventSeq: count }).nullable().default(null),
  /** Where programs of the sandbox listened when it was made. Null if no sandbox ran, or it did not answer. */
  ports: OpenPortsSchema.nullable().default(null),
  /** The artifact that it was made for: its subject is the list of that artifact's files. Null for others. */
  artifact: ArtifactIdSchema.nullable().default(null),
  /** The last event and its hash, which covers all events before it. Lists and totals are of the events from `first` on. */
  history: z.object({ seq: count, hash, first: count }),
});
export type Manifest = z.infer<typeof ManifestSchema>;

/** An in-toto Statement. At a handoff the subjects are the commit and its tree, where there is a commit. */
export const ManifestStatementSchema = z.object({
  _type: z.literal(IN_TOTO_STATEMENT),
  subject: z
    .array(z.object({ name: z.string().max(100), digest: z.record(z.string().max(40), z.string().max(64)) }))
    .min(1)
    .max(4),
  predicateType: z.literal(MANIFEST_TYPE),
  predicate: ManifestSchema,
});
export type ManifestStatement = z.infer<typeof ManifestStatementSchema>;

export function statementOf(predicate: Manifest, subject: ManifestStatement['subject']): ManifestStatement {
  return { _type: IN_TOTO_STATEMENT, subject, predicateType: MANIFEST_TYPE, predicate };
}

/** A manifest was made and is kept: the content is its envelope. */
export const MANIFEST_EVENTS = {
  'manifest.made': eventType(
    z.object({
      manifestId: ManifestIdSchema,
      handoffId: HandoffIdSchema,
      keyId: hash,
      content: ContentSchema.nullable(),
    }),
  ),
} as const;

export const KeptManifestSchema = z.object({
  id: ManifestIdSchema,
  reason: readNewerAs(z.enum(MANIFEST_REASONS), () => 'now'),
  madeAt: time,
  /** What it was made for. */
  handoff: HandoffIdSchema.nullable(),
  snapshot: SnapshotIdSchema.nullable(),
});

/** client → supervisor. Part of METHODS. */
export const MANIFEST_METHODS = {
  /**
   * Makes and signs a manifest of what is there now, which is not kept; with `id` returns one that is kept. Fails with `not_found`
   * if the session has none with this id.
   */
  'manifest/show': {
    params: z.object({ session: SessionRefSchema, id: ManifestIdSchema.optional() }),
    result: z.object({ envelope: EnvelopeSchema }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /** The manifests of a session that are kept, the newest first: all those of handoffs, and the newest of the others. */
  'manifest/list': {
    params: z.object({ session: SessionRefSchema }),
    result: z.object({ manifests: z.array(KeptManifestSchema) }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /** The public key of this home, in PEM, and its id: the SHA-256 of its DER form. */
  'manifest/key': {
    params: z.object({}),
    result: z.object({ publicKey: z.string().max(2000), keyId: hash }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
} as const;
