import { z } from 'zod';
import { DeployResultSchema, IgnoredFilesSchema } from './deploy-result.ts';
import { HoldfastError } from './errors.ts';
import { ProfileNameSchema } from './profile.ts';
import { formatPath, parsePath, PATH_LIMITS, WORKSPACE } from './paths.ts';

/** Limits of a project with its git history. `pathBytes`: of all paths together, which are kept in memory while it is written. */
export const PROJECT_LIMITS = {
  bytes: 2 ** 30,
  files: 200_000,
  depth: 200,
  pathBytes: 32 * 2 ** 20,
} as const;
/** The most entries of one `profile/deploy/append`. */
export const APPEND_ENTRIES = 2000;
/** Maximum size of holdfast.yaml. */
export const PROFILE_BYTES = 256 * 1024;

/** Relative to the tree's root; its names are written as protocol/paths.ts says. */
const path = z.string().min(1).max(PATH_LIMITS.characters);
const blobId = z.string().regex(/^[0-9a-f]{40}$/);

/** A parent folder precedes its entries. */
export const ProjectEntrySchema = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('folder'), path }),
  z.strictObject({
    kind: z.literal('file'),
    path,
    size: z.int().nonnegative(),
    executable: z.boolean(),
    /** Its blob in the commit that is checked out; null if git does not track it, or without git. */
    head: blobId.nullable().optional(),
  }),
  z.strictObject({
    kind: z.literal('link'),
    path,
    /** Base64 of its text, which is bytes. */
    target: z.base64().max(2 * PATH_LIMITS.pathBytes),
    head: blobId.nullable().optional(),
  }),
]);
export type ProjectEntry = z.infer<typeof ProjectEntrySchema>;

/**
 * `code`: what sandboxes mount. `history`: the git directory that workspaces start with. `configuration`: what HOME starts with,
 * without links.
 */
export const PROJECT_TREES = ['code', 'history', 'configuration'] as const;
export type ProjectTree = (typeof PROJECT_TREES)[number];

const text = z.string().max(4096);
/** Where a project comes from, as git knows it on the client's machine. */
export const ProjectOriginSchema = z.strictObject({
  /** Top folder of the work tree. */
  root: text,
  /** The project's folder inside it, with a slash at the end; empty for the top folder. */
  prefix: text,
  /** The commit that is checked out; null before the first. */
  head: blobId.nullable(),
  /** Null for a detached HEAD. */
  branch: text.nullable(),
  /** URL of the remote `origin`, without credentials. */
  remote: text.nullable(),
});
export type ProjectOrigin = z.infer<typeof ProjectOriginSchema>;

/** How a file of a deployed version relates to the commit of its origin. */
export const SourceFileSchema = z.object({
  path,
  /** Its content as a git blob. */
  blob: blobId,
  /** Its blob in the commit; null if git does not track it. */
  head: blobId.nullable(),
});
export type SourceFile = z.infer<typeof SourceFileSchema>;

/** A secret for all profiles that a project sends to a host of its own choice: its sessions, or its setup, which may reach that host. */
export const SecretDestinationSchema = z.object({
  secret: z.string().max(200),
  host: z.string().max(300),
  by: z.enum(['sessions', 'setup']),
});
export type SecretDestination = z.infer<typeof SecretDestinationSchema>;
/** More than any profile has. */
const destinations = z.array(SecretDestinationSchema).max(10_000);

const upload = z.string().min(1).max(64);
const opId = z.string().min(1).max(128).optional();

/**
 * A deploy is an upload: begin, append until everything is there, commit. The client reads the project on its own machine and applies
 * the ignore files; the supervisor checks every path, type and size again. An upload ends with its connection.
 */
export const DEPLOY_METHODS = {
  /** Checks holdfast.yaml before anything is sent. `result`: the first result of the `opId`; then there is nothing to upload. */
  'profile/deploy/begin': {
    params: z.object({
      /** The project's folder on the client's machine, for people. */
      source: z.string().min(1).max(4096),
      /** Content of holdfast.yaml. */
      profile: z.string().max(PROFILE_BYTES),
      opId,
    }),
    result: z.object({
      upload: upload.nullable(),
      /** Whether the git history has to be sent. */
      history: z.boolean(),
      result: DeployResultSchema.nullable(),
      /** What a person has to agree to, and has not with the version that is deployed. `commit` fails without it. */
      destinations: destinations.default([]),
    }),
    repeat: 'opId',
    whenDamaged: 'refused',
  },
  /** The bytes behind the message are the contents of the files in order; the last file may continue in the next message. */
  'profile/deploy/append': {
    params: z.object({
      upload,
      tree: z.enum(PROJECT_TREES),
      entries: z.array(ProjectEntrySchema).max(APPEND_ENTRIES),
    }),
    result: z.object({}),
    bytes: 'params',
    repeat: 'never',
    whenDamaged: 'refused',
  },
  'profile/deploy/commit': {
    params: z.object({
      upload,
      ignored: IgnoredFilesSchema,
      origin: ProjectOriginSchema.nullable(),
      /** What the setup left with one of its secrets in it is removed, instead of ending the deploy. */
      removeSecretFiles: z.boolean().optional(),
      /** What a person agreed to. Errors otherwise: `confirmation_required`. */
      destinations: destinations.optional(),
      opId,
    }),
    result: DeployResultSchema,
    repeat: 'opId',
    whenDamaged: 'refused',
  },
  'profile/deploy/abort': {
    params: z.object({ upload }),
    result: z.object({}),
    repeat: 'never',
    whenDamaged: 'refused',
  },
} as const;

export const SOURCE_METHODS = {
  /** Where a deployed version comes from, and its files by path. Default: the current version. */
  'profile/source': {
    params: z.object({
      profile: ProfileNameSchema,
      version: z.int().positive().optional(),
      limit: z.int().min(1).max(5000).optional(),
      cursor: z.string().max(20).optional(),
    }),
    result: z.object({
      profile: z.string(),
      version: z.int(),
      /** Null without git, or if an earlier version of Holdfast deployed it. */
      origin: ProjectOriginSchema.nullable(),
      files: z.array(SourceFileSchema),
      nextCursor: z.string().nullable(),
    }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
} as const;

/** Names of a relative path. Errors: `invalid_params`. */
export function parseProjectPath(relative: string): Buffer[] {
  const names = parsePath(`${WORKSPACE}/${relative}`);
  if (names.length > PROJECT_LIMITS.depth + 1)
    throw new HoldfastError('invalid_params', `The path ${JSON.stringify(relative)} is too deep`);
  return names;
}

/** The reverse of `parseProjectPath`. */
export function formatProjectPath(names: readonly Uint8Array[]): string {
  return formatPath(names).slice(WORKSPACE.length + 1);
}
