import { z } from 'zod';
import {
  AnsweredBySchema,
  PERMISSION_KINDS,
  PermissionIdSchema,
  PermissionOptionSchema,
  ToolKindSchema,
  ToolLocationSchema,
} from './agent-events.ts';
import { SessionIdSchema, SessionRefSchema, TurnIdSchema } from './ids.ts';

export const PERMISSION_LIMITS = {
  /** Permissions of a turn that wait at the same time. */
  waiting: 32,
  /** Permissions of one turn. Further ones are rejected. */
  perTurn: 1000,
  /** Bytes of a stored tool call; a longer one is cut, and says so. */
  callBytes: 64 * 1024,
} as const;

/** A request of an agent that waits for a person, or was answered. */
export const PermissionSchema = z.object({
  id: PermissionIdSchema,
  sessionId: SessionIdSchema,
  sessionName: z.string(),
  profile: z.string(),
  turnId: TurnIdSchema,
  kind: ToolKindSchema,
  title: z.string(),
  locations: z.array(ToolLocationSchema),
  options: z.array(PermissionOptionSchema),
  askedAt: z.number(),
  answeredAt: z.number().nullable(),
  answer: PermissionOptionSchema.nullable(),
  by: AnsweredBySchema.nullable(),
});
export type Permission = z.infer<typeof PermissionSchema>;

const opId = z.string().min(1).max(200).optional();

export const PERMISSION_METHODS = {
  /** Oldest first. Without `all` only those that wait. */
  'permission/list': {
    params: z.object({
      session: SessionRefSchema.optional(),
      all: z.boolean().optional(),
      limit: z.number().int().min(1).max(500).optional(),
      /** `next` of the page before. */
      after: z.string().max(20).optional(),
    }),
    result: z.object({ permissions: z.array(PermissionSchema), next: z.string().nullable() }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /**
   * Answers a permission, once: a second answer fails with `conflict`, which names the first. `answer` is the id of an
   * option or a kind; a kind that the agent does not offer falls back from always to once, never from reject to allow.
   */
  'permission/answer': {
    params: z.object({
      permission: PermissionIdSchema,
      answer: z.union([z.enum(PERMISSION_KINDS), z.string().min(1).max(200)]),
      opId,
    }),
    result: z.object({ permission: PermissionSchema }),
    repeat: 'opId',
    whenDamaged: 'refused',
  },
} as const;
