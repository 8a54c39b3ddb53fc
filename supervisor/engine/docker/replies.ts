import { z } from 'zod';
import { HoldfastError } from '../../../protocol/errors.ts';

/** The parts of the engine's replies that we rely on. */

export const VersionReply = z.object({
  Version: z.string(),
  ApiVersion: z.string().regex(/^\d+\.\d+$/),
  MinAPIVersion: z.string().optional(),
  KernelVersion: z.string().optional(),
  Components: z.array(z.object({ Name: z.string(), Version: z.string().default('') })).nullish(),
});

export const InfoReply = z.object({
  /** Not every engine with this API has an id. */
  ID: z.string().default(''),
  Name: z.string().default(''),
  KernelVersion: z.string().default(''),
  OperatingSystem: z.string().default(''),
  DockerRootDir: z.string().default(''),
  SecurityOptions: z.array(z.string()).nullish(),
  NCPU: z.number().default(0),
  Runtimes: z.record(z.string(), z.unknown()).nullish(),
  DefaultRuntime: z.string().nullish(),
  Driver: z.string().nullish(),
  CgroupVersion: z.string().nullish(),
  LiveRestoreEnabled: z.boolean().nullish(),
  MemoryLimit: z.boolean().default(false),
  CpuCfsQuota: z.boolean().default(false),
  PidsLimit: z.boolean().default(false),
  SystemTime: z.string().nullish(),
});
export type InfoReply = z.infer<typeof InfoReply>;

const Labels = z.record(z.string(), z.string()).nullish();

export const ContainerListReply = z.array(
  z.object({ Id: z.string(), Names: z.array(z.string()), State: z.string(), Labels }),
);
export type ContainerSummary = z.infer<typeof ContainerListReply>[number];

export const ContainerReply = z.object({
  Id: z.string(),
  State: z.object({
    Status: z.string(),
    Running: z.boolean(),
    ExitCode: z.number().int(),
    OOMKilled: z.boolean(),
    Error: z.string().default(''),
  }),
  Config: z.object({ Labels }),
});

/** An engine leaves the size out while the container has written nothing. */
export const ContainerSizeReply = z.object({ SizeRw: z.number().default(0) });

export const ProcessesReply = z.object({ Processes: z.array(z.unknown()) });
export const CreatedReply = z.object({ Id: z.string() });
export const WaitReply = z.object({ StatusCode: z.number().int() });
export const VolumeListReply = z.object({
  Volumes: z.array(z.object({ Name: z.string(), Labels })).nullish(),
});
export const VolumeReply = z.object({ Name: z.string(), Labels });
export const ImageReply = z.object({
  Id: z.string(),
  RepoDigests: z.array(z.string()).nullish(),
  Size: z.number().nonnegative().optional(),
  Config: z
    .object({
      Labels,
      OnBuild: z.array(z.string()).nullish(),
      Volumes: z.record(z.string(), z.unknown()).nullish(),
    })
    .nullish(),
});
export const ImageListReply = z.array(
  z.object({ Id: z.string(), RepoTags: z.array(z.string()).nullish(), Labels }),
);
/** What a registry says of an image. */
export const DistributionReply = z.object({ Descriptor: z.object({ digest: z.string() }) });
export const BuildImagesReply = z.array(
  z.object({
    Id: z.string(),
    RepoTags: z.array(z.string()).nullish(),
    Labels,
    Created: z.number(),
    /** With all that it is built on. */
    Size: z.number().default(0),
    ParentId: z.string().default(''),
  }),
);
export const ExecReply = z.object({ Running: z.boolean(), ExitCode: z.number().int().nullable() });

export const EventReply = z.object({
  Type: z.string().default(''),
  Action: z.string().default(''),
  Actor: z.object({ ID: z.string().default(''), Attributes: z.record(z.string(), z.string()).nullish() }),
});

/** A message of the classic builder. */
export const BuildLine = z.object({
  stream: z.string().optional(),
  status: z.string().optional(),
  error: z.string().optional(),
  /** The id of the image, at the end. */
  aux: z.object({ ID: z.string() }).optional(),
});

export const PullLine = z.object({
  status: z.string().optional(),
  id: z.string().optional(),
  error: z.string().optional(),
  progressDetail: z.object({ current: z.number().optional(), total: z.number().optional() }).optional(),
});

export function parseReply<T>(schema: z.ZodType<T>, what: string, value: unknown): T {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw new HoldfastError('engine_error', what, {
    why: `the engine sent an unexpected reply: ${z.prettifyError(parsed.error)}`,
    next: 'use Docker 20.10 or newer',
    cause: parsed.error,
  });
}
