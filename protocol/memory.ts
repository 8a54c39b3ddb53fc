import { z } from 'zod';
import { OpIdSchema, SessionRefSchema, TimeSchema } from './entities.ts';
import { TurnIdSchema } from './ids.ts';

/**
 * The memory of a session: a short text with what matters beyond one conversation, such as conventions, open questions
 * and last results. Every change is a version, which the history keeps.
 */
export const MEMORY_BYTES = 8 * 1024;

const count = z.number().int().nonnegative();
const session = z.object({ session: SessionRefSchema });

export const MemoryVersionSchema = z.object({
  /** From 1. */
  version: count,
  author: z.enum(['person', 'agent', 'supervisor']),
  at: TimeSchema,
  bytes: count,
});
export type MemoryVersion = z.infer<typeof MemoryVersionSchema>;

export const MemorySchema = MemoryVersionSchema.extend({ text: z.string() });
export type Memory = z.infer<typeof MemorySchema>;

export const MEMORY_METHODS = {
  /** Null for a session without a memory. Fails with `not_found` for a version that it never had. */
  'memory/show': {
    params: session.extend({ version: count.min(1).optional() }),
    result: z.object({ memory: MemorySchema.nullable() }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /**
   * Replaces the memory by at most 8 KiB of text; the same text makes no new version. `ifVersion`: the version that the
   * text is based on, 0 for none; fails with `conflict` if there is a newer one.
   */
  'memory/set': {
    params: session.extend({
      text: z.string().max(MEMORY_BYTES),
      ifVersion: count.optional(),
      opId: OpIdSchema.optional(),
    }),
    result: z.object({ memory: MemorySchema }),
    repeat: 'opId',
    whenDamaged: 'refused',
  },
  /**
   * Asks the agent for it, in a turn of its own with a fixed prompt: its answer, at most 8 KiB of it, becomes the next version. Answers when
   * the turn has ended, at the latest a minute after `timeoutMs` (default 60,000), with null and the reason if the agent wrote none. A
   * repeated `opId` waits for the same turn. Fails with `not_supported` for handlers and commands.
   */
  'memory/request': {
    params: session.extend({
      timeoutMs: z.number().int().min(1000).max(600_000).optional(),
      opId: OpIdSchema,
    }),
    result: z.object({
      turnId: TurnIdSchema,
      memory: MemorySchema.nullable(),
      why: z.string().nullable(),
    }),
    repeat: 'opId',
    whenDamaged: 'refused',
  },
  /** Newest first. `before`: continue with versions before this one; null when there are none. */
  'memory/history': {
    params: session.extend({
      before: count.min(1).optional(),
      limit: z.number().int().min(1).max(1000).optional(),
    }),
    result: z.object({ versions: z.array(MemoryVersionSchema), before: count.nullable() }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
} as const;
