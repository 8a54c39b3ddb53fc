import { z } from 'zod';
import { ProfileSummarySchema } from './entities.ts';

const count = z.number().int().nonnegative();

/** Above this a deploy warns of what every new workspace begins with: each session gets a copy. */
export const LARGE_SEED_BYTES = 100_000_000;

/** What ignore files kept out of a deploy; `.git` is never part of one, and does not count. */
export const IgnoredFilesSchema = z.object({
  files: count,
  bytes: count,
  /** False: there is more than was counted. */
  complete: z.boolean(),
  /** The largest first: files and folders that a rule names, not what is in them. */
  largest: z.array(z.object({ path: z.string(), files: count, bytes: count })),
});
export type IgnoredFiles = z.infer<typeof IgnoredFilesSchema>;

/** What a new workspace begins with. */
export const SeedSizeSchema = z.object({ files: count, bytes: count });

export const DeployResultSchema = z.object({
  profile: ProfileSummarySchema,
  replaced: z.boolean(),
  unchanged: z.boolean(),
  /** What a person should know of it, one sentence each. */
  warnings: z.array(z.string()).default([]),
  ignored: IgnoredFilesSchema,
  /** Null: it begins empty, or the folder that it is to begin with is not there. */
  seed: SeedSizeSchema.nullable(),
});
export type DeployResult = z.infer<typeof DeployResultSchema>;
