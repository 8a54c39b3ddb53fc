import { z } from 'zod';
import { ConfigurationListSchema } from './agent-config.ts';
import { ProfileSummarySchema } from './entities.ts';

const count = z.number().int().nonnegative();

/** Deploy warns if every new workspace starts with more than this, because each session gets a copy. */
export const LARGE_SEED_BYTES = 100_000_000;

/** The files that ignore files excluded from a deploy. `.git` is never deployed and does not count. */
export const IgnoredFilesSchema = z.object({
  files: count,
  bytes: count,
  /** False: there are more files than were counted. */
  complete: z.boolean(),
  /** The largest excluded files and folders. Does not list the contents of an excluded folder. */
  largest: z.array(z.object({ path: z.string(), files: count, bytes: count })),
});
export type IgnoredFiles = z.infer<typeof IgnoredFilesSchema>;

/** The size of the files that a new workspace starts with. */
export const SeedSizeSchema = z.object({ files: count, bytes: count });

export const DeployResultSchema = z.object({
  profile: ProfileSummarySchema,
  replaced: z.boolean(),
  unchanged: z.boolean(),
  /** Warnings for people, one sentence each. */
  warnings: z.array(z.string()).default([]),
  /** The preset that the profile takes its agent from. */
  preset: z.string().nullable().default(null),
  ignored: IgnoredFilesSchema,
  /** Null: a new workspace starts empty, or the seed folder does not exist. */
  seed: SeedSizeSchema.nullable(),
  /** What the client read of `agent.config`, and what it left out. The client adds it; the supervisor does not know what was left out. */
  configuration: ConfigurationListSchema.nullable().default(null),
});
export type DeployResult = z.infer<typeof DeployResultSchema>;
