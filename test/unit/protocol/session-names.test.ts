import { describe, expect, test } from 'vitest';
import { SessionNameSchema } from '../../../protocol/entities.ts';

describe('the name of a session', () => {
  test.each([
    ['--force', /option/],
    ['-x', /option/],
    ['-', /option/],
    ['.', /directories/],
    ['..', /directories/],
    ['ses-aaaaaaaaaaaaaaaa', /id/],
    ['snp-aaaaaaaaaaaaaaaa', /id/],
    ['turn-aaaaaaaaaaaaaaaa', /id/],
    ['term-aaaaaaaaaaaaaaaa', /id/],
    ['exec-aaaaaaaaaaaaaaaa', /id/],
    ['SES-AAAAAAAAAAAAAAAA', /id/],
    ['a/b', /slash/],
    ['a\u2028b', /control/],
    ['a\0b', /control/],
    [' a', /spaces/],
    ['', /./],
  ])('may not be %j', (name, message) => {
    const issues = SessionNameSchema.safeParse(name).error?.issues ?? [];
    expect(issues.map((issue) => issue.message).join()).toMatch(message);
  });

  test.each(['default', 'fix-42', 'term-paper', 'a.b', '...', 'zwei Wörter', '日本', 'a-'])(
    'may be %j',
    (name) => {
      expect(SessionNameSchema.parse(name)).toBe(name);
    },
  );

  test('is normalized to one Unicode form', () => {
    expect(SessionNameSchema.parse('a\u0301')).toBe('\u00e1');
  });
});
