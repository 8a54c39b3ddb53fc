import { z } from 'zod';
import { AGENT_HOME_FIELDS } from './agent-home.ts';
import { ToolKindSchema } from './agent-events.ts';
import { CredentialSchema, MAX_CREDENTIALS } from './credentials.ts';
import { EgressRuleSchema } from './egress.ts';
import { PRESET_NAMES, type PresetName } from './presets/names.ts';
import { ProfileNameSchema } from './profile-name.ts';
import { SecretNameSchema } from './secret-name.ts';
import { DevcontainerSchema, DockerfileSchema } from './dockerfile.ts';
import { SetupSchema } from './setup.ts';
import {
  type KindsThatRun,
  type Runner,
  type RunnerOf,
  TURN_KINDS,
  TURN_KIND_NAMES,
  type TurnKind,
} from './turn-kinds.ts';
import { DurationSchema, SizeSchema } from './units.ts';

/**
 * The schema of `holdfast.yaml`. It also accepts fields that this version does not support yet. Deploy refuses those
 * (`unsupportedFields`), so that no field is silently ignored.
 */

export { ProfileNameSchema };

const CommandSchema = z.array(z.string().max(32_768)).min(1).max(256);

const PresetNameSchema = z.enum(PRESET_NAMES);

/** What an agent is, by how it runs. */
const AGENT_FIELDS = {
  worker: {
    /** Path inside the profile's directory: `agent.py`, `agent.mjs`, `agent.js`, `agent.cjs`. */
    entry: z
      .string()
      .regex(/^[^/\0][^\0]*\.(py|mjs|cjs|js)$/, 'a .py, .mjs, .cjs or .js file in the profile folder'),
  },
  program: {
    command: CommandSchema,
    /** How the prompt is passed: on stdin (default), or as the last argument. */
    prompt: z.enum(['stdin', 'argument']).default('stdin'),
    preset: PresetNameSchema.optional(),
  },
  conversation: { command: CommandSchema, preset: PresetNameSchema.optional() },
} as const satisfies Record<Runner, z.core.$ZodLooseShape>;

type AgentShape<K extends TurnKind, T> = {
  readonly protocol: z.ZodLiteral<K>;
  readonly timeout: T;
} & (typeof AGENT_FIELDS)[RunnerOf<K>] &
  typeof AGENT_HOME_FIELDS;
type AgentVariant<T> = {
  [K in TurnKind]: AgentShape<K, T> extends infer S extends z.core.$ZodLooseShape
    ? z.ZodObject<S, z.core.$strict>
    : never;
}[TurnKind];

/** The schema of `agent`, a variant for each kind of turn. `timeout`: of its field, which a person writes otherwise than it is stored. */
export function agentSchema<T extends z.ZodType>(timeout: T) {
  const variant = (kind: TurnKind): AgentVariant<T> => {
    const fields = AGENT_FIELDS[TURN_KINDS[kind].runs];
    const schema = z.strictObject({ protocol: z.literal(kind), ...fields, timeout, ...AGENT_HOME_FIELDS });
    // TypeScript does not follow that the kind decides about its fields.
    return schema as unknown as AgentVariant<T>;
  };
  const [first, ...others] = TURN_KIND_NAMES;
  return z.discriminatedUnion('protocol', [variant(first), ...others.map(variant)]);
}

export const AgentSchema = agentSchema(DurationSchema.optional());

const PRESET_KINDS = TURN_KIND_NAMES.filter((kind) => TURN_KINDS[kind].presetCommand !== null);

/** `agent` as a person may write it with a preset (`presets/apply.ts`), which fills in the rest. */
export const PresetAgentSchema = z.strictObject({
  preset: PresetNameSchema,
  protocol: z.enum(PRESET_KINDS).optional(),
  command: CommandSchema.optional(),
  prompt: z.enum(['stdin', 'argument']).optional(),
  timeout: DurationSchema.optional(),
  ...AGENT_HOME_FIELDS,
});

/**
 * What is answered to a request of an agent. The first rule that matches counts: its kind of tool, all paths of the call (below
 * /workspace) and the command. `*` stands for any characters.
 */
export const PermissionRuleSchema = z.strictObject({
  answer: z.enum(['allow', 'reject', 'ask']),
  kind: ToolKindSchema.optional(),
  path: z.string().min(1).max(1000).optional(),
  command: z.string().min(1).max(1000).optional(),
});
export type PermissionRule = z.infer<typeof PermissionRuleSchema>;

export const PermissionsSchema = z.union([
  z.enum(['ask', 'allow']),
  z.strictObject({ rules: z.array(PermissionRuleSchema).min(1).max(100) }),
]);
export type Permissions = z.infer<typeof PermissionsSchema>;

const MAX_CHECKS = 32;
/** Shell commands by name. */
export const ChecksSchema = z
  .record(z.string().regex(/^[\p{L}\p{N}][\p{L}\p{N} _.:-]{0,63}$/u), z.string().min(1).max(10_000))
  .refine((checks) => Object.keys(checks).length <= MAX_CHECKS, `at most ${MAX_CHECKS} checks`);

/** What git fetches over HTTP. A password is a secret, and never in the address. */
const RepositorySchema = z.strictObject({
  url: z
    .string()
    .max(2000)
    .regex(
      /^https?:\/\/[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::\d{1,5})?\/[^\s?#\\\p{C}]+$/u,
      'an address with http or https, without user, password and query, such as https://git.example.com/team/project.git',
    )
    .refine((text) => URL.canParse(text), 'an address with http or https'),
  /** Branch, tag or commit. Default: the branch that the repository names. */
  ref: z
    .string()
    .max(250)
    .regex(
      /^(?!.*(?:\.\.|@\{|\/\/|\.lock$|[./]$))[A-Za-z0-9_][A-Za-z0-9._/+@-]*$/,
      'a branch, a tag or a commit',
    )
    .optional(),
  /** Commits of history; default: all of it. */
  depth: z.number().int().min(1).max(1_000_000).optional(),
  /** Name of the secret that is the password or token. */
  secret: SecretNameSchema.optional(),
  /** Default: `x-access-token`. */
  user: z
    .string()
    .min(1)
    .max(200)
    .regex(/^[^\s:\p{C}]+$/u, 'a name without spaces and colons')
    .optional(),
});

const SeedFolderSchema = z
  .string()
  .min(1)
  .max(1000)
  .refine((path) => !path.startsWith('/') && !path.split('/').includes('..'), 'a folder inside the project');

export const ProfileSchema = z.strictObject({
  name: ProfileNameSchema,
  image: z
    .string()
    .min(1)
    .max(255)
    .regex(/^[^\s\0-][^\s\0]*$/)
    .optional(),
  dockerfile: DockerfileSchema.optional(),
  /** The image or the Dockerfile of the project's devcontainer.json. */
  devcontainer: DevcontainerSchema.optional(),
  agent: AgentSchema,
  persistence: z.enum(['ephemeral', 'persistent']).default('ephemeral'),
  workspace: z
    .strictObject({
      scope: z.enum(['session', 'profile']).default('session'),
      backing: z.enum(['directory', 'volume']).optional(),
      limit: SizeSchema.optional(),
      /** Directory of the project that a new workspace starts with; default `.`. False: it starts empty. */
      seed: z
        .union([
          SeedFolderSchema,
          z.literal(false),
          z.strictObject({
            path: SeedFolderSchema.optional(),
            /** Include the git history. The project must be the top of its repository. */
            git: z.boolean().optional(),
          }),
        ])
        .optional(),
      ignore: z.array(z.string()).max(1000).optional(),
      /** Cloned by the setup; new workspaces begin with the clone instead of the project. */
      repository: RepositorySchema.optional(),
    })
    .optional(),
  setup: SetupSchema.optional(),
  egress: z.array(EgressRuleSchema).max(1000).optional(),
  credentials: z.array(CredentialSchema).max(MAX_CREDENTIALS).optional(),
  env: z.record(z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/), z.string()).optional(),
  limits: z
    .strictObject({
      memory: SizeSchema.optional(),
      cpus: z.number().positive().max(1024).optional(),
      pids: z.number().int().min(16).max(1_000_000).optional(),
      /** Maximum output of one turn in bytes. Beyond it the turn ends with `output_limit`. */
      output: SizeSchema.optional(),
      /** Maximum size of the agent's HOME in bytes. Above it the session refuses new turns. */
      home: SizeSchema.optional(),
      /** Tokens that a turn may add to the agent's context, as the agent reports them. Beyond it a person is asked. */
      tokens: z.number().int().min(1).max(1_000_000_000_000).optional(),
      /** What a turn may cost, as the agent reports it, in its own currency. Beyond it a person is asked. */
      cost: z.number().positive().max(1_000_000).optional(),
    })
    .optional(),
  runtime: z
    .string()
    .regex(/^[A-Za-z0-9._-]{1,64}$/)
    .default('default'),
  idle: z
    .strictObject({
      pause: DurationSchema.optional(),
      stop: DurationSchema.optional(),
      expire: DurationSchema.optional(),
    })
    .optional(),
  retention: z
    .strictObject({
      snapshots: DurationSchema.optional(),
      events: DurationSchema.optional(),
      artifacts: DurationSchema.optional(),
      memory: DurationSchema.optional(),
    })
    .optional(),
  checks: ChecksSchema.optional(),
  /**
   * What an agent that asks may do. Default: `allow` where a snapshot before each turn is required, otherwise `ask`. This spares
   * people questions and protects nothing: the sandbox does.
   */
  permissions: PermissionsSchema.optional(),
  /**
   * The snapshot before a turn. `auto`: if it takes long or fails, the turn starts without it and says so. `required`:
   * the turn waits for it, and fails without a complete snapshot.
   */
  snapshots: z.enum(['auto', 'required']).default('auto'),
});
/** A profile after parsing: durations in ms, sizes in bytes. */
export type Profile = z.infer<typeof ProfileSchema>;

export interface Seed {
  /** Directory of the project, relative. */
  readonly folder: string;
  /** Include the git history. */
  readonly git: boolean;
  readonly ignore: readonly string[];
}

/** What a new workspace of the profile starts with; null for an empty one. */
export function seedOf({ workspace }: Pick<Profile, 'workspace'>): Seed | null {
  const { repository, ignore = [] } = workspace ?? {};
  const seed = workspace?.seed ?? (repository === undefined ? '.' : false);
  if (seed === false) return null;
  if (typeof seed === 'string') return { folder: seed, git: false, ignore };
  return { folder: seed.path ?? '.', git: seed.git ?? false, ignore };
}

/** Whether new sessions begin with what the setup left, instead of the files of the project. */
export function hasTemplate({ setup, workspace }: Pick<Profile, 'setup' | 'workspace'>): boolean {
  return setup?.run !== undefined || workspace?.repository !== undefined;
}

/** The secrets that the setup needs: those that it is given, and that of the repository. */
export function setupSecretsOf({ setup, workspace }: Pick<Profile, 'setup' | 'workspace'>): string[] {
  const ofRepository = workspace?.repository?.secret;
  return [...new Set([...(setup?.secrets ?? []), ...(ofRepository === undefined ? [] : [ofRepository])])];
}

export type AgentConfig = z.infer<typeof AgentSchema>;
export type AgentThatRuns<R extends Runner> = Extract<AgentConfig, { protocol: KindsThatRun<R> }>;

/** The preset that it names; null for none. */
export function presetOf(agent: AgentConfig): PresetName | null {
  return ('preset' in agent ? agent.preset : undefined) ?? null;
}

/** What the profile answers to an agent that asks. */
export function permissionsOf<Given>({
  permissions,
  snapshots,
}: {
  readonly permissions?: Given | undefined;
  readonly snapshots?: unknown;
}): Given | 'allow' | 'ask' {
  return permissions ?? (snapshots === 'required' ? 'allow' : 'ask');
}

const SECOND = 1000;

export const PROFILE_DEFAULTS = {
  idle: { pause: 5 * 60 * SECOND, stop: 3600 * SECOND, expire: 30 * 86_400 * SECOND },
  limits: { memory: 4 * 2 ** 30, cpus: 2, pids: 1024, output: 2 ** 30, home: 4 * 2 ** 30 },
  /** Default timeout of a turn. */
  turnTimeout: 12 * 3600 * SECOND,
} as const;

export interface UnsupportedField {
  /** Path as in the published schema: `*` is any item of a list or any alternative of a union. */
  readonly field: string;
  /** Only this value is unsupported. Default: the whole field. */
  readonly value?: string;
  /** What to do instead. */
  readonly next: string;
}

/** Fields that parse but that this version does not support. Deploy refuses them, and the published schema says so. */
export const UNSUPPORTED_FIELDS: readonly UnsupportedField[] = [
  { field: 'setup.egress.*.*.methods', next: 'remove it; rules are for hosts and ports only' },
  { field: 'setup.egress.*.*.path', next: 'remove it; rules are for hosts and ports only' },
  { field: 'workspace.scope', value: 'profile', next: 'use `session`' },
  { field: 'egress.*.methods', next: 'remove it; rules are for hosts and ports only' },
  { field: 'egress.*.path', next: 'remove it; rules are for hosts and ports only' },
  { field: 'retention', next: 'remove it; nothing is deleted by age yet' },
];

/** The unsupported fields that a profile uses, each with what to do instead. */
export function unsupportedFields(profile: Profile): { field: string; next: string }[] {
  return UNSUPPORTED_FIELDS.flatMap(({ field, value, next }) => {
    const used = valuesAt(profile, field.split('.')).some((one) =>
      value === undefined ? one !== undefined : one === value,
    );
    const shown = `${field.replaceAll('.*', '')}${value === undefined ? '' : `: ${value}`}`;
    return used ? [{ field: shown, next }] : [];
  });
}

function valuesAt(value: unknown, path: readonly string[]): unknown[] {
  const [key, ...rest] = path;
  if (key === undefined) return [value];
  if (Array.isArray(value)) return value.flatMap((item) => valuesAt(item, key === '*' ? rest : path));
  if (typeof value !== 'object' || value === null) return [];
  if (key === '*') return valuesAt(value, rest);
  return valuesAt(Object.getOwnPropertyDescriptor(value, key)?.value, rest);
}
