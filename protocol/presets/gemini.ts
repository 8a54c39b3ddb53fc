import type { Preset } from './preset.ts';

export const gemini: Preset = {
  title: 'Gemini CLI',
  packages: ['@google/gemini-cli@0.61.0'],
  triedWith: '0.61.0',
  acp: ['gemini', '--experimental-acp'],
  command: ['gemini', '--yolo', '--skip-trust', '-p'],
  continues: ['gemini', '--yolo', '--skip-trust', '--resume', 'latest', '-p'],
  state: ['.gemini'],
  caches: ['.npm'],
  signIn: ['.gemini/oauth_creds.json', '.gemini/google_accounts.json', '.gemini/mcp-oauth-tokens.json'],
  login: {
    refused: 'Google’s terms forbid other software to use the sign-in of Gemini CLI',
    from: 'https://aistudio.google.com/apikey',
  },
  configuration: ['.gemini/GEMINI.md', '.gemini/settings.json', '.gemini/commands'],
  endpoint: { baseUrl: 'GOOGLE_GEMINI_BASE_URL', key: 'GEMINI_API_KEY' },
  credential: { name: 'gemini', env: {} },
  env: {},
  asking: null,
  hosts: {
    model: ['generativelanguage.googleapis.com'],
    unasked: ['play.googleapis.com'],
  },
  quirks: [
    'A key is used if GOOGLE_GEMINI_BASE_URL is set, which credentials do, or if security.auth.selectedType in ~/.gemini/settings.json says so.',
    'usageStatisticsEnabled: false in its settings ends the calls to play.googleapis.com.',
    'general.sessionRetention.enabled: false keeps it from deleting loaded conversations.',
    'Loading a conversation in the clock minute in which it began destroys it.',
    'It reads NODE_EXTRA_CA_CERTS and ignores SSL_CERT_FILE.',
  ],
};
