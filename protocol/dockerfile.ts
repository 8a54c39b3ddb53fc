import { z } from 'zod';

/** A file of the project. */
const ProjectFileSchema = z
  .string()
  .min(1)
  .max(1000)
  .refine(
    (path) => !path.startsWith('/') && !path.includes('\0') && !path.split('/').includes('..'),
    'a file inside the project',
  );

export const ImageNameSchema = z
  .string()
  .min(1)
  .max(255)
  .regex(/^[A-Za-z0-9][A-Za-z0-9_.:@/-]*$/, 'an image such as registry/name:tag');

const ArgsSchema = z
  .record(z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/), z.string().max(4096))
  .refine((args) => Object.keys(args).length <= 100, 'at most 100');

export const DockerfileSchema = z.union([
  ProjectFileSchema,
  z.strictObject({
    path: ProjectFileSchema,
    /** Images without a registry that it may begin with or copy from. */
    from: z.array(ImageNameSchema).max(20).optional(),
    args: ArgsSchema.optional(),
  }),
]);

const FromSchema = z.array(ImageNameSchema).max(20);

/** True: the devcontainer.json at its usual place. */
export const DevcontainerSchema = z.union([
  z.literal(true),
  z.strictObject({ path: ProjectFileSchema.optional(), from: FromSchema.optional() }),
]);

export interface DevcontainerUse {
  /** Relative to the project; undefined: its usual place. */
  readonly path: string | undefined;
  readonly from: readonly string[];
}

export function devcontainerOf(
  devcontainer: z.output<typeof DevcontainerSchema> | undefined,
): DevcontainerUse | null {
  if (devcontainer === undefined) return null;
  const { path, from = [] } = devcontainer === true ? {} : devcontainer;
  return { path, from };
}

/** A Dockerfile to build. */
export interface DockerfileUse {
  /** Relative to the project. */
  readonly path: string;
  /** Folder of the project that its sources are relative to; `.` for the project. */
  readonly context: string;
  readonly from: readonly string[];
  readonly args: Readonly<Record<string, string>>;
  /** The stage that becomes the image; undefined: the last one. */
  readonly target?: string | undefined;
}

export function dockerfileOf(
  dockerfile: z.output<typeof DockerfileSchema> | undefined,
): DockerfileUse | null {
  if (dockerfile === undefined) return null;
  const { path, from = [], args = {} } = typeof dockerfile === 'string' ? { path: dockerfile } : dockerfile;
  return { path, context: '.', from, args };
}
