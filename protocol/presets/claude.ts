import type { Preset } from './preset.ts';

export const claude: Preset = {
  title: 'Claude Code',
  packages: ['@anthropic-ai/claude-code@2.1.316', '@agentclientprotocol/claude-agent-acp@0.100.0'],
  triedWith: '2.1.316',
  acp: ['claude-agent-acp'],
  command: ['claude', '--dangerously-skip-permissions', '-p'],
  continues: ['claude', '--dangerously-skip-permissions', '--continue', '-p'],
  state: ['.claude', '.claude.json'],
  caches: ['.npm'],
  signIn: ['.claude/.credentials.json'],
  login: {
    refused:
      'Anthropic’s terms keep the sign-in with a Claude account for Claude Code and its own apps, and let no other product offer it',
    from: 'https://platform.claude.com/settings/keys',
  },
  configuration: [
    '.claude/CLAUDE.md',
    '.claude/settings.json',
    '.claude/skills',
    '.claude/commands',
    '.claude/agents',
    '.claude.json',
  ],
  endpoint: { baseUrl: 'ANTHROPIC_BASE_URL', key: 'ANTHROPIC_API_KEY' },
  credential: { name: 'anthropic', env: {} },
  env: { CLAUDE_CODE_MAX_RETRIES: '1', DISABLE_AUTOUPDATER: '1' },
  asking: null,
  hosts: {
    model: ['api.anthropic.com'],
    unasked: ['downloads.claude.ai', 'github.com', 'registry.npmjs.org'],
  },
  quirks: [
    'It calls api.anthropic.com even with another base URL.',
    'Without CLAUDE_CODE_MAX_RETRIES it is silent for minutes after a refused key.',
    'It prints once, at the end; --output-format stream-json --verbose --include-partial-messages streams.',
    '"Allow for this session" survives a kill and a resume.',
  ],
};
