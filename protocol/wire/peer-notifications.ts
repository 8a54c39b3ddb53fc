import { z } from 'zod';

const RequestIdSchema = z.union([z.string(), z.number()]);

/** What every peer understands, whatever it serves. */
export const PEER_NOTIFICATIONS = {
  /** Progress of one pending request, by its id: pulls, clean-ups, deploys. `of` is null when the end is not known. */
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
