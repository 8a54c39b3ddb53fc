import { CREDENTIAL_PRESETS } from '../credential-presets.ts';
import type { Preset } from './preset.ts';

export const codex: Preset = {
  title: 'Codex',
  packages: ['@openai/codex@0.166.0', '@agentclientprotocol/codex-acp@2.6.0'],
  triedWith: '0.166.0',
  acp: ['codex-acp'],
  command: ['codex', 'exec', '--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox'],
  continues: [
    'codex',
    'exec',
    '--skip-git-repo-check',
    '--dangerously-bypass-approvals-and-sandbox',
    'resume',
    '--last',
  ],
  state: ['.codex'],
  caches: ['.npm'],
  signIn: ['.codex/auth.json'],
  login: {
    refused:
      'the sign-in with a ChatGPT account is for OpenAI’s own client, and its tokens are for another server than the API',
    from: 'https://platform.openai.com/api-keys',
  },
  configuration: ['.codex/AGENTS.md', '.codex/config.toml', '.codex/prompts', '.codex/skills'],
  endpoint: null,
  credential: {
    name: 'openai',
    env: {
      MODEL_PROVIDER: 'holdfast',
      CODEX_CONFIG: JSON.stringify({
        model_providers: {
          holdfast: {
            name: 'OpenAI',
            base_url: `http://127.0.0.1:${CREDENTIAL_PRESETS.openai.port}/v1`,
            env_key: 'OPENAI_API_KEY',
            wire_api: 'responses',
          },
        },
      }),
    },
  },
  env: {},
  // Its default mode has its own model answer permissions, and nobody would be asked. Each command of the asking mode fails first in
  // a sandbox of Codex, unless its model asks at once.
  asking: {
    ask: { INITIAL_AGENT_MODE: 'read-only' },
    allow: { INITIAL_AGENT_MODE: 'agent-full-access' },
  },
  hosts: {
    model: ['api.openai.com'],
    unasked: ['chatgpt.com', 'github.com', 'api.github.com'],
  },
  quirks: [
    'Another endpoint is a provider in ~/.codex/config.toml, with the name of the variable of its key in env_key; over ACP it can be in the variables CODEX_CONFIG (JSON) and MODEL_PROVIDER.',
    'Over ACP the mode is INITIAL_AGENT_MODE. The preset has read-only: it asks before it edits a file or a command runs outside of its own sandbox, and `permissions` answers. With `permissions: allow` it has agent-full-access, which asks for nothing and leaves its own sandbox off. In its own default its model answers.',
    'Its own sandbox fails in a container, because it needs namespaces of its own: a command runs after its model has asked for it. The container is the boundary.',
    'It has nothing to resume before its first conversation.',
    'It ignores NODE_EXTRA_CA_CERTS and reads SSL_CERT_FILE.',
  ],
};
