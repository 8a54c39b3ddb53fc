import { z } from 'zod';

const RequestIdSchema = z.union([z.string(), z.number()]);

/** Notifications that every peer understands. */
export const PEER_NOTIFICATIONS = {
  /** Progress of one pending request, by its id. `of` is null if the total is unknown. */
  progress: {
    params: z.object({
      request: RequestIdSchema,
      stage: z.string(),
      done: z.number().nullable(),
      of: z.number().nullable(),
      unit: z.string().nullable(),
    }),
  },
  cancel: { params: z.object({ request: RequestIdSchema }) },
} as const satisfies Record<string, { params: z.ZodType }>;
