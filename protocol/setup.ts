import { z } from 'zod';
import { ErrorDataSchema } from './error-data.ts';
import { EgressRuleSchema } from './egress.ts';
import { TimeSchema } from './entities.ts';
import { ProfileNameSchema } from './profile-name.ts';
import { SecretNameSchema } from './secret-name.ts';
import { DurationSchema } from './units.ts';

/** Hosts of package sources, by the name that `setup.egress` may have. */
export const PACKAGE_HOSTS = {
  npm: ['registry.npmjs.org'],
  pypi: ['pypi.org', 'files.pythonhosted.org'],
  debian: ['deb.debian.org', 'security.debian.org'],
} as const;
export type PackageHosts = keyof typeof PACKAGE_HOSTS;

/** Of each kind. */
export const MAX_PACKAGES = 200;
const MAX_SETUP_RULES = 100;
const MAX_COMMANDS = 100;
const MAX_SETUP_SECRETS = 20;
/** Timers of Node take less than 25 days. */
const MAX_SETUP_TIMEOUT_MS = 24 * 3_600_000;

const PACKAGE_PATTERNS = {
  /** A name that ends in `-` would remove the package. */
  apt: /^[a-z0-9][a-z0-9+.]*(?:-[a-z0-9+.]+)*(?:=[A-Za-z0-9.+:~-]+)?$/,
  npm: /^(?:@[a-z0-9~][a-z0-9._~-]*\/)?[a-z0-9~][a-z0-9._~-]*(?:@[A-Za-z0-9.^~<>=*+-]+)?$/,
  pip: /^[A-Za-z0-9][A-Za-z0-9._-]*(?:\[[A-Za-z0-9,._-]+\])?(?:(?:===?|>=|<=|~=|!=|<|>)[A-Za-z0-9.*+!_,<>=~-]+)?$/,
} as const;
const PACKAGE_CHARACTERS = 200;

/** A list of packages, each a name with an optional version: never an option, a path or an address. */
const packages = (pattern: RegExp, example: string) =>
  z
    .array(z.string().max(PACKAGE_CHARACTERS).regex(pattern, `a package such as ${example}`))
    .min(1)
    .max(MAX_PACKAGES);

export const PackagesSchema = z.strictObject({
  apt: packages(PACKAGE_PATTERNS.apt, 'ripgrep').optional(),
  npm: packages(PACKAGE_PATTERNS.npm, 'typescript@5.9').optional(),
  pip: packages(PACKAGE_PATTERNS.pip, 'ruff==0.14').optional(),
});

/** Whether the schema takes this as one of its packages. */
export function isPackage(kind: keyof typeof PACKAGE_PATTERNS, name: string): boolean {
  return name.length <= PACKAGE_CHARACTERS && PACKAGE_PATTERNS[kind].test(name);
}

export type Packages = z.infer<typeof PackagesSchema>;

/** What `findStartProblems` allows is less, in bytes. */
const ScriptSchema = z
  .string()
  .min(1)
  .max(65_536)
  .refine((text) => !text.includes('\0'), 'it must not contain a NUL character');

/** `setup.resume` as the one script that runs. One stream keeps the order in which it writes. */
export function resumeScriptOf(resume: string | readonly string[]): string {
  return ['exec 2>&1', resume].flat().join('\n');
}

export const SetupSchema = z.strictObject({
  /** `auto`: what package.json, requirements.txt and pyproject.toml of the project name. */
  packages: z.union([z.literal('auto'), PackagesSchema]).optional(),
  /** Shell commands that run as the agent's user in a workspace, after the packages are installed. The first that fails ends them. */
  run: z.union([ScriptSchema, z.array(ScriptSchema).min(1).max(MAX_COMMANDS)]).optional(),
  /** Runs in each new sandbox of a session that had one before. */
  resume: z.union([ScriptSchema, z.array(ScriptSchema).min(1).max(MAX_COMMANDS)]).optional(),
  secrets: z
    .array(SecretNameSchema)
    .max(MAX_SETUP_SECRETS)
    .refine((names) => new Set(names).size === names.length, 'each name once')
    .optional(),
  /** Hosts that the setup may reach. Default: those of the package sources it needs. */
  egress: z
    .array(z.union([z.enum(['npm', 'pypi', 'debian']), EgressRuleSchema]))
    .max(MAX_SETUP_RULES)
    .optional(),
  timeout: DurationSchema.refine((ms) => ms <= MAX_SETUP_TIMEOUT_MS, 'at most 24h').optional(),
});

/** What a setup may add to its base image, and what its `run` may leave in the workspace, bytes. */
export const SETUP_DISK_BYTES = 10 * 2 ** 30;
/** How many files `run` may leave in the workspace, and in HOME. */
export const SETUP_FILES = 1_000_000;
/** Maximum duration of `setup.resume`, ms: whatever uses the session waits for it. */
export const SETUP_RESUME_TIMEOUT_MS = 60_000;
/** Default maximum duration of a setup, ms. */
export const SETUP_TIMEOUT_MS = 10 * 60_000;
/** How much of a setup's output is kept. */
export const SETUP_LOG_BYTES = 1024 * 1024;

/**
 * `running`: its container works. `done`: the prepared image exists. `failed`, `cancelled`: there is no image; run it again.
 * `removed`: there was an image, and it was collected.
 */
export const SETUP_STATES = ['running', 'done', 'failed', 'cancelled', 'removed'] as const;

const count = z.number().int().nonnegative();
const TemplateExtentSchema = z.object({ files: count, bytes: count });

export const SetupStatusSchema = z.object({
  id: z.string(),
  profile: ProfileNameSchema,
  state: z.enum(SETUP_STATES),
  /** What it is doing, or what it did last: `apt`, `npm`, `pip`, `clone`, `run`. */
  step: z.string(),
  startedAt: TimeSchema,
  endedAt: TimeSchema.nullable(),
  /** Why it failed. */
  error: z.object({ message: z.string(), data: ErrorDataSchema }).nullable(),
  baseImage: z.string(),
  /** The prepared image; null unless `done`. */
  image: z.string().nullable(),
  /** What the setup added to the base image. */
  bytes: z.number().int().nonnegative().nullable(),
  /** What new sessions begin with: what `run` left in the workspace and in HOME. Null unless `done`, and without `run`. */
  template: z
    .object({ workspace: TemplateExtentSchema, home: TemplateExtentSchema })
    .nullable()
    .default(null),
  /** Whether new sandboxes of the profile start from it. */
  current: z.boolean(),
});
export type SetupStatus = z.infer<typeof SetupStatusSchema>;

const profile = z.object({ profile: ProfileNameSchema });

export const SETUP_METHODS = {
  /**
   * Runs the setup of a profile again, also when it succeeded before, and answers when it has ended; it ends with the request. New
   * sandboxes start from its image. What its log keeps also comes as `setup/output` under the name `output`, which the client
   * chooses. Errors: `not_found`, `invalid_state` without a setup, `setup_failed`, `timeout`, `cancelled`.
   */
  'setup/run': {
    params: profile.extend({
      output: z.string().min(1).max(64).optional(),
      /** What it left with one of its secrets in it is removed, instead of ending the setup. */
      removeSecretFiles: z.boolean().optional(),
    }),
    result: z.object({ setup: SetupStatusSchema }),
    repeat: 'never',
    whenDamaged: 'refused',
  },
  /** The setups of a profile that are known, the newest first. */
  'setup/status': {
    params: profile,
    result: z.object({ setups: z.array(SetupStatusSchema) }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /**
   * The output of a profile's newest setup, or of the one with this id, as the payload. `truncated`: there was more.
   * Errors: `not_found`.
   */
  'setup/log': {
    params: profile.extend({ id: z.string().max(64).optional() }),
    result: z.object({ setup: SetupStatusSchema, truncated: z.boolean() }),
    bytes: 'result',
    repeat: 'safe',
    whenDamaged: 'refused',
  },
} as const;

/** supervisor → client. Part of NOTIFICATIONS. */
export const SETUP_NOTIFICATIONS = {
  'setup/output': { params: z.object({ output: z.string().max(64) }), bytes: 'params' },
} as const;
