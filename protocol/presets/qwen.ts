import type { Preset } from './preset.ts';

export const qwen: Preset = {
  title: 'Qwen Code',
  packages: ['@qwen-code/qwen-code@0.24.4'],
  triedWith: '0.24.4',
  acp: ['qwen', '--acp'],
  command: ['qwen', '--yolo', '-p'],
  continues: ['qwen', '--yolo', '--continue', '-p'],
  state: ['.qwen'],
  caches: ['.npm'],
  signIn: ['.qwen/oauth_creds.json'],
  login: {
    refused: 'Qwen ended the sign-in with a Qwen account in April 2026',
    from: 'https://modelstudio.console.alibabacloud.com/',
  },
  configuration: ['.qwen/QWEN.md', '.qwen/settings.json', '.qwen/commands', '.qwen/skills', '.qwen/agents'],
  endpoint: { baseUrl: 'OPENAI_BASE_URL', key: 'OPENAI_API_KEY' },
  credential: { name: 'openai', env: { OPENAI_MODEL: 'gpt-5' } },
  env: {},
  asking: null,
  hosts: { model: ['dashscope.aliyuncs.com'], unasked: [] },
  quirks: [
    'The model is named in OPENAI_MODEL.',
    'It sets its mode to auto after a conversation was loaded.',
    'It offers two options of the same kind: tell them apart by id.',
  ],
};
