import { z } from 'zod';
import { StoredCredentialSchema } from '../../protocol/credentials.ts';
import { ProfileSchema, agentSchema } from '../../protocol/profile.ts';
import type { Profile } from '../../protocol/profile.ts';

const ms = z.number().nonnegative().optional();
const bytes = z.number().nonnegative().optional();

/** A profile as it is stored: durations in ms and sizes in bytes where a person writes `5m` or `2GiB`. */
export const StoredProfileSchema = ProfileSchema.extend({
  agent: agentSchema(ms),
  workspace: ProfileSchema.shape.workspace.unwrap().extend({ limit: bytes }).optional(),
  setup: ProfileSchema.shape.setup.unwrap().extend({ timeout: ms }).optional(),
  limits: ProfileSchema.shape.limits
    .unwrap()
    .extend({ memory: bytes, output: bytes, home: bytes })
    .optional(),
  credentials: z.array(StoredCredentialSchema).optional(),
  idle: z.strictObject({ pause: ms, stop: ms, expire: ms }).optional(),
  retention: z.strictObject({ snapshots: ms, events: ms, artifacts: ms, memory: ms }).optional(),
}) satisfies z.ZodType<Profile>;
