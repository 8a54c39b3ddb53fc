import { z } from 'zod';
import { ATTACHMENT_LIMITS } from '../protocol/attachment-names.ts';
import { ContentIdSchema, ContentSchema } from '../protocol/contents.ts';
import { RuleOriginSchema } from '../protocol/egress.ts';
import { SessionIdSchema, SnapshotIdSchema } from '../protocol/ids.ts';
import {
  ChangeSchema,
  SnapshotGraphSchema,
  SnapshotSchema,
  SnapshotUsageSchema,
} from '../protocol/snapshots.ts';
import type { HandlersOf, MessageMap, RequestMap } from './link.ts';

/**
 * What the late views of the session page and the extension say to each other, beside `messages.ts`. Both sides parse what
 * they receive, and a message without a handler does not compile.
 */

const nothing = z.object({});

/** Rules, hosts and credentials that the page shows of each. */
export const MAX_RECORD_ROWS = 500;
const count = z.number().int().nonnegative();
const text = z.string().max(5000);

/** What a session may do, and what it did as its manifest says. */
export const SessionRecordSchema = z.object({
  rules: z
    .array(
      z.object({
        host: text,
        effect: z.enum(['allow', 'deny']),
        from: RuleOriginSchema,
        isUnread: z.boolean(),
      }),
    )
    .max(MAX_RECORD_ROWS),
  credentials: z.array(z.object({ name: text, host: text })).max(MAX_RECORD_ROWS),
  /** `why`: what is wrong with the signature; null for nothing. */
  signature: z.object({ keyId: text, why: z.string().nullable() }),
  madeAt: text.nullable(),
  /** The manifest in words. */
  facts: z.array(z.object({ label: text, value: text })).max(50),
  hosts: z
    .array(z.object({ host: text, port: z.number().int(), allowed: count, denied: count, failed: count }))
    .max(MAX_RECORD_ROWS),
  snapshots: SnapshotUsageSchema,
});
export type SessionRecord = z.infer<typeof SessionRecordSchema>;

/** What a manifest says. */
const SessionManifestSchema = SessionRecordSchema.omit({ rules: true, snapshots: true });
export type SessionManifest = z.infer<typeof SessionManifestSchema>;

/** Manifests that are kept, of which the page offers the newest. */
export const MAX_MANIFESTS = 200;
const KeptManifestSchema = z.object({ id: text, madeAt: text, reason: text });
export type KeptManifest = z.infer<typeof KeptManifestSchema>;

/** Snapshots that the page reads at a time. */
export const SNAPSHOT_PAGE = 200;
/** Files that differ, which the page reads at a time. */
export const CHANGE_PAGE = 100;

const PageSnapshotSchema = SnapshotSchema.pick({
  ...{ id: true, createdAt: true, reason: true, label: true, pinned: true, files: true, bytes: true },
  ...{ changedFiles: true, newBytes: true, eventSeq: true, turn: true, duringTurn: true, missing: true },
  author: true,
});
export type PageSnapshot = z.infer<typeof PageSnapshotSchema>;

const SnapshotPageSchema = z.object({
  /** Newest first. */
  snapshots: z.array(PageSnapshotSchema).max(SNAPSHOT_PAGE),
  /** Where older ones begin; null for the end. */
  next: z.string().max(400).nullable(),
  graph: SnapshotGraphSchema,
  usage: SnapshotUsageSchema,
});
export type SnapshotPage = z.infer<typeof SnapshotPageSchema>;

const path = z.string().max(4096);
const PageChangeSchema = ChangeSchema.pick({ path: true, oldPath: true, kind: true, type: true });
export type PageChange = z.infer<typeof PageChangeSchema>;

const PageChangesSchema = z.object({
  changes: z.array(PageChangeSchema).max(CHANGE_PAGE),
  /** How much differs in all, in words, and why that may be incomplete. */
  totals: text,
  caveat: text.nullable(),
  nextCursor: z.string().nullable(),
});
export type PageChanges = z.infer<typeof PageChangesSchema>;

/** Characters of a search, and matches that the page reads at a time. */
export const MAX_SEARCH = 200;
export const SEARCH_PAGE = 50;

/** An item of the conversation with the words. `at`: its place, see `conversation/read`. */
const FoundItemSchema = z.object({
  id: count,
  at: count,
  time: text,
  excerpt: text,
});
export type FoundItem = z.infer<typeof FoundItemSchema>;

const snapshot = z.object({ snapshot: SnapshotIdSchema });
/** From one snapshot to another. `now`: the files of now. */
const side = z.union([SnapshotIdSchema, z.literal('now')]);
const sides = z.object({ from: side, to: side });

/** extension → page. */
export const TO_LATE = {
  /** Snapshots were created, deleted, restored or forked, or differ otherwise. */
  snapshotsChanged: nothing,
} as const satisfies MessageMap;
export type ToLate = typeof TO_LATE;

/** page → extension. Each has a result, or fails with the sentence of an error. */
export const LATE_REQUESTS = {
  record: { params: nothing, result: SessionRecordSchema },
  /** As `attachment/upload` of the protocol; the bytes are base64. */
  upload: {
    params: z.object({
      upload: z.string().min(1).max(64),
      offset: count,
      total: count,
      bytes: z.string().max(2 * ATTACHMENT_LIMITS.chunkBytes),
    }),
    result: z.object({ content: ContentSchema.nullable(), kind: z.enum(['image', 'file']).nullable() }),
  },
  /** All bytes of a picture in base64, after a look at what they are. Fails for anything else. */
  picture: {
    params: z.object({ sha256: ContentIdSchema }),
    result: z.object({ mediaType: text, width: count, height: count, bytes: z.string() }),
  },
  /** Puts a manifest of the session as it is now on the clipboard, signed. */
  copyManifest: { params: nothing, result: nothing },
  /** Those that are kept, newest first. `reason`: in words. */
  manifests: {
    params: nothing,
    result: z.object({ manifests: z.array(KeptManifestSchema).max(MAX_MANIFESTS) }),
  },
  /** One that is kept. */
  manifest: { params: z.object({ id: z.string().min(1).max(100) }), result: SessionManifestSchema },
  /** Words of the whole conversation; the last one may be the beginning of one. Newest first. */
  search: {
    params: z.object({ text: z.string().min(1).max(MAX_SEARCH), cursor: z.string().max(20).optional() }),
    result: z.object({
      results: z.array(FoundItemSchema).max(SEARCH_PAGE),
      next: z.string().nullable(),
      complete: z.boolean(),
    }),
  },
  snapshots: {
    params: z.object({ cursor: z.string().max(400).optional() }),
    result: SnapshotPageSchema,
  },
  changes: {
    params: sides.extend({ cursor: z.string().max(12_400).optional() }),
    result: PageChangesSchema,
  },
  /** Opens the difference of one file. `path`, `oldPath`, `kind`: as in `changes`. */
  openChange: {
    params: sides.extend({ path, oldPath: path.optional(), kind: ChangeSchema.shape.kind }),
    result: nothing,
  },
  /** Opens a file as it was. */
  openSnapshotFile: { params: snapshot.extend({ path }), result: nothing },
  /** Lets a person choose which. */
  pickSnapshotFile: { params: snapshot, result: nothing },
  pinSnapshot: { params: snapshot.extend({ pinned: z.boolean() }), result: nothing },
  /**
   * `seen`: the totals that the person saw; where they differ by now, the person is asked again. Not restored: the person does not
   * want it any more, or lets running work go on.
   */
  restoreSnapshot: { params: snapshot.extend({ seen: text }), result: z.object({ restored: z.boolean() }) },
  /** After the person has confirmed it. */
  deleteSnapshot: { params: snapshot, result: z.object({ deleted: z.boolean() }) },
  /** Opens the page of another session. */
  openSession: { params: z.object({ session: SessionIdSchema }), result: nothing },
} as const satisfies RequestMap;
export type LateRequests = typeof LATE_REQUESTS;
export type LateRequestName = keyof LateRequests;

/** The handlers of the extension: one for each request. */
export type LateRequestHandlers = HandlersOf<LateRequests>;
