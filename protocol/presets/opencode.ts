import type { Preset } from './preset.ts';

export const opencode: Preset = {
  title: 'OpenCode',
  packages: ['opencode-ai@1.18.33'],
  triedWith: '1.18.33',
  acp: ['opencode', 'acp'],
  command: ['opencode', 'run'],
  continues: ['opencode', 'run', '--continue'],
  state: ['.local/share/opencode', '.local/state/opencode', '.config/opencode'],
  caches: ['.cache/opencode', '.npm'],
  signIn: ['.local/share/opencode/auth.json', '.local/share/opencode/mcp-auth.json'],
  login: {
    refused: 'it has no sign-in of its own for a model: its providers keep theirs for their own clients',
    from: 'https://platform.claude.com/settings/keys',
  },
  configuration: [
    '.config/opencode/AGENTS.md',
    '.config/opencode/opencode.json',
    '.config/opencode/agents',
    '.config/opencode/commands',
    '.config/opencode/skills',
  ],
  endpoint: null,
  credential: {
    name: 'anthropic',
    env: {
      OPENCODE_CONFIG_CONTENT: JSON.stringify({
        model: 'anthropic/claude-sonnet-4-5',
        provider: {
          anthropic: {
            options: { baseURL: '{env:ANTHROPIC_BASE_URL}/v1', apiKey: '{env:ANTHROPIC_API_KEY}' },
            models: { 'claude-sonnet-4-5': {} },
          },
        },
      }),
    },
  },
  env: { OPENCODE_DISABLE_MODELS_FETCH: '1', OPENCODE_DISABLE_AUTOUPDATE: '1' },
  // By itself it asks for almost nothing.
  asking: {
    ask: { OPENCODE_PERMISSION: JSON.stringify({ edit: 'ask', bash: 'ask' }) },
    allow: {},
  },
  hosts: {
    model: ['opencode.ai'],
    unasked: ['registry.npmjs.org', 'models.opencode.ai'],
  },
  quirks: [
    'Another endpoint is a provider in opencode.json, with apiKey: "{env:NAME}".',
    'It asks the npm registry at each start.',
    'OPENCODE_PERMISSION overrides `permission` in its configuration. The preset has it ask before it edits a file or runs a command, unless the profile says `permissions: allow`.',
    'Its package needs its install script.',
    'It serves an API without a password on its loopback, through which any process of the sandbox can approve its requests.',
  ],
};
