import { CREDENTIAL_PRESETS } from '../protocol/credential-presets.ts';
import { PRESETS } from '../protocol/presets/index.ts';
import type { PresetName } from '../protocol/presets/names.ts';
import { ProfileNameSchema } from '../protocol/profile-name.ts';

/** A first `holdfast.yaml`, which works without changes. */
export interface StarterProfile {
  /** The name of its profile. */
  readonly name: string;
  readonly text: string;
  /** The npm packages of its agent, in the versions that were tried. */
  readonly packages: readonly string[];
  /** The secret that its agent needs; null for none. */
  readonly secret: string | null;
}

/** The name of a profile for a folder: its own in small letters, where that is possible. */
export function profileNameFor(folder: string): string {
  const plain = folder
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .replace(/^-+|-+$/g, '');
  return ProfileNameSchema.safeParse(plain).success ? plain : 'project';
}

/** `preset` null: each turn runs its prompt as a shell script, and a person puts the agent there. */
export function starterProfile(name: string, preset: PresetName | null): StarterProfile {
  return preset === null ? programStarter(name) : presetStarter(name, preset);
}

function programStarter(name: string): StarterProfile {
  const lines = [
    `name: ${name}`,
    '# Each turn runs this program with its prompt on standard input. Put your agent here.',
    'agent: { protocol: command, command: [sh] }',
    '# /workspace outlives the sandbox.',
    'persistence: persistent',
  ];
  return { name, text: `${lines.join('\n')}\n`, packages: [], secret: null };
}

function presetStarter(name: string, preset: PresetName): StarterProfile {
  const { title, packages, credential } = PRESETS[preset];
  const { host, secret } = CREDENTIAL_PRESETS[credential.name];
  const lines = [
    `name: ${name}`,
    `# ${title}`,
    `agent: { preset: ${preset} }`,
    '# /workspace outlives the sandbox.',
    'persistence: persistent',
    `# Requests to ${host} get the secret ${secret} on their way out. The sandbox never holds it.`,
    `credentials: [${credential.name}]`,
    '# Installs the agent and what package.json, requirements.txt and pyproject.toml name, once.',
    'setup: { packages: auto }',
    'limits: { memory: 2GiB, pids: 512 }',
  ];
  return { name, text: `${lines.join('\n')}\n`, packages, secret };
}
