import { z } from 'zod';
import { ContentSchema } from './contents.ts';
import { SessionRefSchema } from './ids.ts';
import { ReviewIdSchema } from './review.ts';
import { eventType } from './event-type.ts';

export const CHECK_LIMITS = {
  /** Bytes of a check's output that are kept: the first ones and the last ones. */
  keptStart: 64 * 1024,
  keptEnd: 192 * 1024,
  /** Results that one answer lists. */
  listed: 100,
} as const;

export const CheckRunIdSchema = z.string().regex(/^chk-[a-z2-7]{16}$/);
const count = z.number().int().nonnegative();
const name = z.string().min(1).max(64);
const rootHash = z.string().regex(/^[0-9a-f]{64}$/, 'the hash of a tree');

/**
 * What is judged. `workspace`: the files as they are, in the session's own sandbox. `accepted`: exactly what is accepted in the
 * session's review, with the ignored files of its target, in a sandbox of its own.
 */
export const CHECK_SUBJECTS = ['workspace', 'accepted'] as const;
export const CheckSubjectSchema = z.enum(CHECK_SUBJECTS);
export type CheckSubject = z.infer<typeof CheckSubjectSchema>;

const checkResult = {
  checkId: CheckRunIdSchema,
  name,
  command: z.string(),
  of: CheckSubjectSchema,
  /** The tree that the check began with. What it writes itself, and what an agent writes meanwhile, is not in it. */
  tree: rootHash,
  /** With `accepted`: the review, and the hash of its accepted tree, which `tree` has besides ignored files. */
  review: z.object({ id: ReviewIdSchema, accepted: rootHash, ignored: count }).nullable(),
  exitCode: z.number().int(),
  ms: count,
  /** Standard output and errors as they came; of a long output the beginning and the end. */
  content: ContentSchema,
  /** Bytes of the whole output. */
  outputBytes: count,
  /**
   * With `accepted`, the hash of what the result depends on: tree, command, image and the version of the profile, which has the environment.
   * Null where it is not known, and in results of earlier versions.
   */
  key: z
    .string()
    .regex(/^[0-9a-f]{64}$/)
    .nullable()
    .default(null),
};
export const CheckResultSchema = z.object(checkResult);
export type CheckResult = z.infer<typeof CheckResultSchema>;

/** A check has ended by itself. One that was cancelled, or whose sandbox was lost, has no result. */
export const CHECK_EVENTS = {
  'check.ended': eventType(CheckResultSchema, { isInManifests: true }),
} as const;

/** client → supervisor. Part of METHODS. */
export const CHECK_METHODS = {
  /**
   * Runs one check of the profile and answers when it has ended; it ends with the request. Its output also comes as
   * `check/output` under the name `output`, which the client chooses. One of `accepted` that passed before does not run again while its
   * `key` is the same. `not_found` without such a check or, with
   * `accepted`, without a review; `cancelled`, `sandbox_lost`.
   */
  'check/run': {
    params: z.object({
      session: SessionRefSchema,
      name,
      of: CheckSubjectSchema.optional(),
      /** Also if it passed on the same tree before. */
      again: z.boolean().optional(),
      output: z.string().min(1).max(64).optional(),
    }),
    result: z.object({
      check: CheckResultSchema,
      /** It did not run: this is an earlier result. */
      cached: z.boolean().default(false),
    }),
    repeat: 'never',
    whenDamaged: 'refused',
  },
  /** The checks of the profile in their order, and the newest result of each that has one for what is asked. */
  'check/list': {
    params: z.object({ session: SessionRefSchema, of: CheckSubjectSchema.optional() }),
    result: z.object({
      checks: z.array(z.object({ name, command: z.string(), last: CheckResultSchema.nullable() })),
    }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
} as const;

/** supervisor → client. Part of NOTIFICATIONS. */
export const CHECK_NOTIFICATIONS = {
  'check/output': {
    params: z.object({ output: z.string().max(64), stream: z.enum(['stdout', 'stderr']) }),
    bytes: 'params',
  },
} as const;
