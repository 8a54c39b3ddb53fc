import { z } from 'zod';
import { ATTACHMENT_LIMITS, attachmentName } from './attachment-names.ts';
import { ContentIdSchema, ContentSchema } from './contents.ts';
import { SessionRefSchema } from './ids.ts';
import { WorkspacePathSchema } from './files.ts';

/** A name that `attachmentName` makes: also the name of a file, and safe to print. */
export const AttachmentNameSchema = z
  .string()
  .min(1)
  .max(ATTACHMENT_LIMITS.nameBytes)
  .refine((name) => name === attachmentName(name), 'the name of a file, without a folder');

/** An attachment of a prompt. `image`: a picture that can be drawn; its type follows from its bytes. */
export const AttachmentSchema = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('image'), name: AttachmentNameSchema, content: ContentSchema }),
  z.object({ kind: z.literal('file'), name: AttachmentNameSchema, content: ContentSchema }),
  z.object({ kind: z.literal('link'), path: WorkspacePathSchema }),
]);
export type Attachment = z.infer<typeof AttachmentSchema>;

export const AttachmentsSchema = z.array(AttachmentSchema).max(ATTACHMENT_LIMITS.count);

/** How a client names an attachment: a content of the session, as an upload or an earlier prompt stored it, or a path below /workspace. */
export const AttachmentRefSchema = z.union([
  z.object({ content: ContentIdSchema, name: z.string().max(4096) }),
  z.object({ path: WorkspacePathSchema }),
]);
export type AttachmentRef = z.infer<typeof AttachmentRefSchema>;

export const ATTACHMENT_METHODS = {
  /**
   * Stores a file as a content of the session, for a prompt to name. The payload is its bytes from `offset` on, at most 1 MiB; parts
   * come in order, and `total` stays the same. `upload` is a name of the client's choice. `content`: null until everything has come.
   * What no prompt has named after a week is removed. Errors: `not_found` when earlier parts are gone (begin again at 0),
   * `file_too_large`, `overloaded` while too much is being uploaded or waits for a prompt.
   */
  'attachment/upload': {
    params: z.object({
      session: SessionRefSchema,
      upload: z.string().min(1).max(64),
      offset: z.number().int().nonnegative(),
      total: z.number().int().nonnegative(),
    }),
    result: z.object({ content: ContentSchema.nullable(), kind: z.enum(['image', 'file']).nullable() }),
    bytes: 'params',
    repeat: 'safe',
    whenDamaged: 'refused',
  },
} as const;
