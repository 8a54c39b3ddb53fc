import { z } from 'zod';
import { ProjectOriginSchema } from './deploy.ts';
import { SessionRefSchema } from './ids.ts';
import { PATH_LIMITS } from './paths.ts';

export const HEAD_LIMITS = {
  /** Files of a commit. */
  files: 200_000,
  /** Files of one request, and of one answer. */
  entries: 2000,
  /** Bytes of all contents that the session's history lacks, and of those in one request. */
  bytes: 128 * 2 ** 20,
  requestBytes: 4 * 2 ** 20,
} as const;

const count = z.number().int().nonnegative();
const upload = z.string().min(1).max(64);
const gitId = z.string().regex(/^[0-9a-f]{40}$/);

/** A file or a link of a commit. */
export const HeadEntrySchema = z.strictObject({
  /** Relative to the project's folder, as protocol/deploy.ts says. */
  path: z.string().min(1).max(PATH_LIMITS.characters),
  mode: z.enum(['100644', '100755', '120000']),
  blob: gitId,
  /** Bytes of the blob. */
  size: count,
  /** Whether the commit that was deployed has the path, too. */
  wasDeployed: z.boolean(),
});
export type HeadEntry = z.infer<typeof HeadEntrySchema>;

/**
 * A commit of the person's repository as the base of a review: the client lists its files, and sends the contents that the session's
 * history lacks. Then `review/open` with `head:COMMIT` and the upload. An upload ends there, with `review/base/end`, and with its connection.
 */
export const REVIEW_BASE_METHODS = {
  /** `upload` null: the open review has this commit as its base, so that there is nothing to send. */
  'review/base/begin': {
    params: z.object({ session: SessionRefSchema, commit: gitId }),
    result: z.object({
      upload: upload.nullable(),
      /** Where the project came from, and the folder of it that the workspace holds, with a slash at the end; empty for all. */
      origin: ProjectOriginSchema,
      folder: z.string().max(PATH_LIMITS.characters),
    }),
    repeat: 'never',
    whenDamaged: 'refused',
  },
  /** Each path once. */
  'review/base/append': {
    params: z.object({ upload, entries: z.array(HeadEntrySchema).max(HEAD_LIMITS.entries) }),
    result: z.object({}),
    repeat: 'never',
    whenDamaged: 'refused',
  },
  /** The blobs whose contents the client has to send, from `from` on, in the order in which it sends them. Ends the list of files. */
  'review/base/missing': {
    params: z.object({ upload, from: count }),
    result: z.object({ blobs: z.array(gitId).max(HEAD_LIMITS.entries), next: count.nullable() }),
    repeat: 'never',
    whenDamaged: 'refused',
  },
  /** The bytes behind the message are contents of missing blobs in order; the last one may continue in the next message. */
  'review/base/contents': {
    params: z.object({ upload }),
    result: z.object({}),
    bytes: 'params',
    repeat: 'never',
    whenDamaged: 'refused',
  },
  /** Gives up an upload, whose place others can have then. Does nothing if it has ended. */
  'review/base/end': {
    params: z.object({ upload }),
    result: z.object({}),
    repeat: 'never',
    whenDamaged: 'refused',
  },
} as const;
