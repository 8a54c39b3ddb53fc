import { z } from 'zod';
import { ContentIdSchema, ContentSchema } from './contents.ts';
import { SessionRefSchema } from './ids.ts';
import { WorkspacePathSchema } from './files.ts';

/** What a prompt brings along beside its text. */
export const ATTACHMENT_LIMITS = {
  /** Of one prompt. */
  count: 20,
  /** Of one file, and of all files of one prompt. */
  bytes: 10 * 2 ** 20,
  promptBytes: 32 * 2 ** 20,
  /** Of one message of an upload. */
  chunkBytes: 2 ** 20,
  /** Bytes of a name. */
  nameBytes: 200,
} as const;

const NOT_IN_NAMES = /[\p{C}\p{Zl}\p{Zp}/\\]/u;

/** A name that `attachmentName` makes: also the name of a file, and safe to print. */
export const AttachmentNameSchema = z
  .string()
  .min(1)
  .max(ATTACHMENT_LIMITS.nameBytes)
  .refine((name) => name === attachmentName(name), 'the name of a file, without a folder');

/**
 * The name under which an attachment is shown and handed to an agent: the last part of `given`, without characters that end a line,
 * hide or turn around what is shown.
 */
export function attachmentName(given: string): string {
  const last = given.split(/[/\\]/).findLast((part) => part.trim() !== '') ?? '';
  const characters = Array.from(last.toWellFormed(), (one) => (NOT_IN_NAMES.test(one) ? '_' : one));
  let name = '';
  for (const one of characters.join('').trim()) {
    if (new TextEncoder().encode(name + one).length > ATTACHMENT_LIMITS.nameBytes) break;
    name += one;
  }
  name = name.trim();
  return name === '' || name === '.' || name === '..' ? 'attachment' : name;
}

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
