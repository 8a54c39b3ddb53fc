/**
 * Services whose credential a profile can name by one word: `credentials: [anthropic]`. Data only. A port never
 * changes, because a sandbox that runs has it in its environment.
 */
export interface CredentialPreset {
  /** The host that gets the credential, and the only one. */
  readonly host: string;
  /** The secret that is used where the profile names no other. */
  readonly secret: string;
  /** How the credential is sent. */
  readonly as: CredentialUse;
  /** Where the sandbox reaches it, on its loopback. */
  readonly port: number;
  /** Variables that get the base URL, with what follows the port. */
  readonly urls: Readonly<Record<string, string>>;
  /** Variables that get the placeholder: programs want some key before they send anything. */
  readonly keys: readonly string[];
  /** Must contain `PLACEHOLDER_MARK`. */
  readonly placeholder: string;
  /** Git asks for `https://HOST/` through it. */
  readonly git?: boolean;
}

export type CredentialUse =
  | { readonly kind: 'bearer' }
  | { readonly kind: 'header'; readonly header: string }
  /** `user` null: the secret is `user:password`; else it is the password. */
  | { readonly kind: 'basic'; readonly user: string | null }
  | { readonly kind: 'query'; readonly parameter: string };

/** Part of every placeholder: whoever sends it somewhere has taken it for a key. */
export const PLACEHOLDER_MARK = 'holdfast-placeholder';

export const CREDENTIAL_PRESETS = {
  anthropic: {
    host: 'api.anthropic.com',
    secret: 'ANTHROPIC_API_KEY',
    as: { kind: 'header', header: 'x-api-key' },
    port: 3130,
    urls: { ANTHROPIC_BASE_URL: '' },
    keys: ['ANTHROPIC_API_KEY'],
    placeholder: 'sk-ant-holdfast-placeholder',
  },
  openai: {
    host: 'api.openai.com',
    secret: 'OPENAI_API_KEY',
    as: { kind: 'bearer' },
    port: 3131,
    urls: { OPENAI_BASE_URL: '/v1', OPENAI_API_BASE: '/v1' },
    keys: ['OPENAI_API_KEY'],
    placeholder: 'sk-holdfast-placeholder',
  },
  gemini: {
    host: 'generativelanguage.googleapis.com',
    secret: 'GEMINI_API_KEY',
    as: { kind: 'header', header: 'x-goog-api-key' },
    port: 3132,
    urls: { GOOGLE_GEMINI_BASE_URL: '' },
    keys: ['GEMINI_API_KEY'],
    placeholder: 'holdfast-placeholder-gemini',
  },
  openrouter: {
    host: 'openrouter.ai',
    secret: 'OPENROUTER_API_KEY',
    as: { kind: 'bearer' },
    port: 3133,
    urls: { OPENROUTER_BASE_URL: '/api/v1' },
    keys: ['OPENROUTER_API_KEY'],
    placeholder: 'sk-or-holdfast-placeholder',
  },
  github: {
    host: 'api.github.com',
    secret: 'GITHUB_TOKEN',
    as: { kind: 'bearer' },
    port: 3134,
    urls: { GITHUB_API_URL: '' },
    keys: ['GITHUB_TOKEN'],
    placeholder: 'holdfast-placeholder-github',
  },
  'github-git': {
    host: 'github.com',
    secret: 'GITHUB_TOKEN',
    as: { kind: 'basic', user: 'x-access-token' },
    port: 3135,
    urls: {},
    keys: [],
    placeholder: 'holdfast-placeholder-github-git',
    git: true,
  },
} as const satisfies Record<string, CredentialPreset>;

export type CredentialPresetName = keyof typeof CREDENTIAL_PRESETS;
export const CREDENTIAL_PRESET_NAMES = Object.keys(CREDENTIAL_PRESETS) as CredentialPresetName[];
