import { z } from 'zod';

/** The most that one `content/read` returns. */
export const CONTENT_READ_BYTES = 4 * 2 ** 20;

export const ContentIdSchema = z.string().regex(/^[0-9a-f]{64}$/, 'a content is named by its SHA-256');

/** Names a prompt or an output. Its bytes are stored once per session, outside the events that name it. */
export const ContentSchema = z.object({
  sha256: ContentIdSchema,
  bytes: z.number().int().nonnegative(),
  /** One of those below, or that of a picture. Another home may have written it: it is safe to print. */
  mediaType: z
    .string()
    .max(100)
    .regex(/^[\x20-\x7e]*$/, 'a media type is printable ASCII'),
});
export type Content = z.infer<typeof ContentSchema>;

export const TEXT = 'text/plain; charset=utf-8';
export const JSON_TEXT = 'application/json';
export const BINARY = 'application/octet-stream';

/** Whether the bytes can be shown as text. */
export function isText(content: Content): boolean {
  return content.mediaType !== BINARY;
}

export const CONTENT_METHODS = {
  /**
   * Returns bytes of a content that an event of the session names; empty at the end. Fails with `not_found` if the
   * content was removed on purpose, and with `home_damaged` if it is missing.
   */
  'content/read': {
    params: z.object({
      session: z.string().max(200),
      id: ContentIdSchema,
      offset: z.number().int().nonnegative(),
      limit: z.number().int().min(1).max(CONTENT_READ_BYTES).optional(),
    }),
    result: z.object({ offset: z.number().int(), total: z.number().int(), mediaType: z.string() }),
    bytes: 'result',
    repeat: 'safe',
    whenDamaged: 'refused',
  },
} as const;

/** What became of the contents that the events of a session name. */
export const ContentsVerificationSchema = z.object({
  /** Contents whose bytes have the hash that the event names. */
  intact: z.number().int(),
  /** Contents that were removed on purpose. Their hashes stay. */
  removed: z.number().int(),
  /** Contents that are altered or missing, each at the first event that names it; at most 100. */
  damaged: z.array(
    z.object({ seq: z.number().int(), sha256: z.string(), problem: z.enum(['altered', 'missing']) }),
  ),
});
export type ContentsVerification = z.infer<typeof ContentsVerificationSchema>;
