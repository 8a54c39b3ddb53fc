import { z } from 'zod';
import { OpIdSchema, TimeSchema } from './entities.ts';
import { WorkspacePathSchema } from './files.ts';
import { SessionRefSchema, TurnIdSchema } from './ids.ts';
import { eventType } from './event-type.ts';

export const COMMENT_LIMITS = {
  /** Characters of a comment. */
  text: 4000,
  /** Lines that a comment is about, and their bytes. */
  lines: 200,
  quoteBytes: 16 * 1024,
  /** Comments of a session. */
  comments: 500,
  /** Comments of one prompt; the others wait for the next one. */
  sent: 50,
} as const;

export const CommentIdSchema = z.string().regex(/^cmt-[a-z2-7]{16}$/);
/** Lines from 0; `end` is exclusive. */
const lines = z.object({ start: z.number().int().nonnegative(), end: z.number().int().positive() });

/** A remark of a person about lines of a reviewed file. */
export const ReviewCommentSchema = z.object({
  id: CommentIdSchema,
  path: z.string(),
  /** `base`: lines that were removed or changed. */
  side: z.enum(['base', 'target']),
  /** Where the lines were when it was made, and their text. */
  lines,
  quote: z.string(),
  text: z.string(),
  createdAt: TimeSchema,
  /** The prompt that took it to the agent; null before. */
  sent: z.object({ turnId: TurnIdSchema, at: TimeSchema }).nullable(),
  /** Where the same lines are in the open review; null without one. `lines` null: they are there no more. */
  now: z.object({ lines: lines.nullable() }).nullable(),
  /** It was sent, and its lines have changed since. */
  addressed: z.boolean(),
});
export type ReviewComment = z.infer<typeof ReviewCommentSchema>;

/** The comments of a session are others now; `comments` are those that were added, removed or sent. Their text is no part of it. */
export const REVIEW_COMMENT_EVENTS = {
  'review.commented': eventType(
    z.object({
      what: z.enum(['added', 'removed', 'sent']),
      comments: z.array(CommentIdSchema).max(COMMENT_LIMITS.comments),
    }),
  ),
} as const;

const session = z.object({ session: SessionRefSchema });
const opId = OpIdSchema.optional();

/** client → supervisor. Part of METHODS. */
export const REVIEW_COMMENT_METHODS = {
  /** Comments on lines of the open review. `not_found` without a review or without these lines. */
  'review/comment': {
    params: session.extend({
      path: WorkspacePathSchema,
      side: z.enum(['base', 'target']).optional(),
      lines,
      text: z
        .string()
        .max(COMMENT_LIMITS.text)
        .refine((text) => text.trim() !== '', 'a comment says something'),
      opId,
    }),
    result: z.object({ comment: ReviewCommentSchema }),
    repeat: 'opId',
    whenDamaged: 'refused',
  },
  /** The comments of the session, by path and line. */
  'review/comments': {
    params: session,
    result: z.object({ comments: z.array(ReviewCommentSchema).max(COMMENT_LIMITS.comments) }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /** Removes a comment. What was sent stays sent. */
  'review/uncomment': {
    params: session.extend({ comment: CommentIdSchema }),
    result: z.object({ removed: z.boolean() }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /**
   * Sends the comments that were not sent yet as one prompt with paths, lines and quotes. Each is sent once, also when the supervisor
   * is killed meanwhile. `not_found` if there is none.
   */
  'review/send': {
    params: session,
    result: z.object({ turnId: TurnIdSchema, sent: z.number().int(), left: z.number().int() }),
    repeat: 'never',
    whenDamaged: 'refused',
  },
} as const;
