import { z } from 'zod';
import { OpIdSchema, SessionNameSchema, SessionSchema } from './entities.ts';
import { HomeIdSchema, SessionRefSchema, SnapshotIdSchema } from './ids.ts';
import { ProfileNameSchema } from './profile.ts';
import { SnapshotSchema } from './snapshots.ts';

/** What one message of an upload or a download carries at most. */
export const BUNDLE_CHUNK_BYTES = 2 * 2 ** 20;

/** Of the history in a bundle. */
export const MOST_BUNDLE_EVENTS = 20_000;

export const BUNDLE_TYPE = 'urn:holdfast:bundle:1';

/** An upload or a download of a bundle. It belongs to the connection that began it. */
const handle = z.string().regex(/^[0-9a-f]{32}$/);
const count = z.number().int().nonnegative();
export const KeyIdSchema = z.string().regex(/^[0-9a-f]{64}$/);

/** Who signed a bundle. `own`: the home that imports it. */
export const BundleSignerSchema = z.object({ keyId: KeyIdSchema, home: HomeIdSchema, own: z.boolean() });

/** client → supervisor. Part of METHODS. */
export const BUNDLE_METHODS = {
  /**
   * Begins to export what `session` is now, or what it was at `snapshot`. With `session` a snapshot is created first if files have
   * changed. The bundle is made while it is read, and nothing of it is stored.
   */
  'bundle/export': {
    params: z.union([
      z.object({ session: SessionRefSchema, opId: OpIdSchema.optional() }),
      z.object({ snapshot: SnapshotIdSchema }),
    ]),
    result: z.object({ bundle: handle, snapshot: SnapshotSchema, keyId: KeyIdSchema }),
    repeat: 'never',
    whenDamaged: 'refused',
  },
  /** The next bytes, at most BUNDLE_CHUNK_BYTES. After the last ones (`end`) the export is over. */
  'bundle/read': {
    params: z.object({ bundle: handle }),
    result: z.object({ end: z.boolean() }),
    bytes: 'result',
    repeat: 'never',
    whenDamaged: 'refused',
  },
  /**
   * Begins to import a bundle as a new session of `profile`. `key`: the id of the key that must have signed it; default: that of this
   * home. Fails with `confirmation_required`, and the id in `details.keyId`, at the first bytes of a bundle that another key signed.
   */
  'bundle/import': {
    params: z.object({
      profile: ProfileNameSchema,
      name: SessionNameSchema.optional(),
      key: KeyIdSchema.optional(),
    }),
    result: z.object({ bundle: handle }),
    repeat: 'never',
    whenDamaged: 'refused',
  },
  /** The next bytes, at most BUNDLE_CHUNK_BYTES. A bundle that is refused ends the import. */
  'bundle/append': {
    params: z.object({ bundle: handle }),
    result: z.object({}),
    bytes: 'params',
    repeat: 'never',
    whenDamaged: 'refused',
  },
  /** Everything was sent. The session exists completely when this answers; its files are copied in the background (`hydration`). */
  'bundle/commit': {
    params: z.object({ bundle: handle, opId: OpIdSchema.optional() }),
    result: z.object({
      session: SessionSchema,
      snapshot: SnapshotSchema,
      signedBy: BundleSignerSchema,
      /** Of the history, and of the prompts and outputs that it names. */
      events: count,
      contents: count,
    }),
    repeat: 'opId',
    whenDamaged: 'refused',
  },
  /**
   * Of a move: goes on with an export or an import that a connection of the same client began and that broke since. `offset`: how many
   * bytes of the file lie before those that the next `bundle/read` returns, or that the next `bundle/append` brings; bytes that may
   * have been lost on their way are returned again. Errors: `interrupted` once it was given up, two minutes after the connection ended.
   */
  'bundle/resume': {
    params: z.object({ bundle: handle }),
    result: z.object({ offset: count }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /** Ends an export or an import; an import leaves nothing. */
  'bundle/abort': {
    params: z.object({ bundle: handle }),
    result: z.object({}),
    repeat: 'never',
    whenDamaged: 'refused',
  },
} as const;
