import { describe, expect, test } from 'vitest';
import { looksLikeKey } from '../../../protocol/key-hint.ts';
import { findProfileWarnings } from '../../../protocol/profile-validation.ts';
import { ProfileSchema } from '../../../protocol/profile.ts';

describe('a variable that looks like a key', () => {
  test.each([
    ['ANYTHING', 'sk-ant-api03-0123456789'],
    ['ANYTHING', 'ghp_0123456789abcdef'],
    ['ANYTHING', '-----BEGIN RSA PRIVATE KEY-----\nAAAA'],
    ['OPENAI_API_KEY', 'abcdef0123456789'],
    ['DB_PASSWORD', 'correct-horse-battery'],
  ])('%s=%s', (name, value) => {
    expect(looksLikeKey(name, value)).toBe(true);
  });

  test.each([
    ['MAX_TOKENS', '4096'],
    ['TOKEN_LIMIT', '123456789012345'],
    ['API_KEY_FILE', '/run/secrets/api-key'],
    ['OPENAI_API_KEY', 'sk-holdfast-placeholder'],
    ['TOKENIZER', 'a-long-model-name-of-some-kind'],
    ['KEY', 'short'],
    ['SECRET_PROMPT', 'a sentence with several words'],
  ])('%s=%s does not', (name, value) => {
    expect(looksLikeKey(name, value)).toBe(false);
  });

  test('is warned of at deploy, without its value', () => {
    const profile = ProfileSchema.parse({
      name: 'p',
      agent: { protocol: 'command', command: ['a'] },
      env: { OPENAI_API_KEY: 'abcdef0123456789' },
    });
    const [warning, ...more] = findProfileWarnings(profile, null);
    expect(more).toEqual([]);
    expect(warning).toContain('env.OPENAI_API_KEY');
    expect(warning).toContain('holdfast secret set OPENAI_API_KEY');
    expect(warning).not.toContain('abcdef');
  });
});
