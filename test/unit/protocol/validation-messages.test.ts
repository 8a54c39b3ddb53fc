import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { HostPatternSchema } from '../../../protocol/egress.ts';
import { SessionNameSchema } from '../../../protocol/entities.ts';
import { HoldfastError } from '../../../protocol/errors.ts';
import { SessionRefSchema } from '../../../protocol/ids.ts';
import { METHODS } from '../../../protocol/methods.ts';
import { validationMessage } from '../../../extension/base/validation-message.ts';
import { formatIssues } from '../../../protocol/wire/shapes.ts';
import { checkProfile } from '../../../supervisor/profiles/read.ts';

/** As zod says it by itself. */
const RAW =
  /Too (small|big)|Invalid (input|option|string|key|element|value)|Unrecognized|received|[<>]=|must match pattern|\bNaN\b|Nullable/;

function words(schema: z.ZodType, value: unknown): string {
  const { error } = schema.safeParse(value);
  return error === undefined ? 'it fits' : formatIssues(error);
}

describe('validation messages are plain English', () => {
  test.each([
    [z.string().min(1), '', 'must not be empty'],
    [z.string().min(3), 'a', 'must have at least 3 characters'],
    [z.string().max(3), 'abcd', 'may have at most 3 characters'],
    [z.array(z.string()).min(1), [], 'must not be empty'],
    [z.array(z.string()).max(1), ['a', 'b'], 'may have at most 1 entry'],
    [z.number().min(2), 1, 'must be at least 2'],
    [z.number().positive(), 0, 'must be more than 0'],
    [z.number().max(2), 3, 'must be at most 2'],
    [z.number().int(), 1.5, 'must be a whole number'],
    [z.number(), 'a', 'must be a number'],
    [z.string(), undefined, 'is missing'],
    [z.enum(['a', 'b', 'c']), 'd', 'must be "a", "b" or "c"'],
    [z.literal('a'), 'b', 'must be "a"'],
    [z.strictObject({}), { x: 1 }, 'may not have "x"'],
    [z.union([z.string(), z.number()]), true, 'has none of the forms that are allowed'],
    [z.string().regex(/^x/), 'y', 'has a form that is not allowed'],
    [z.string().startsWith('/'), 'y', 'must begin with "/"'],
    [z.string().min(1, 'say something'), '', 'say something'],
    [z.object({ limit: z.number() }), { limit: 'a' }, 'limit: must be a number'],
  ] as const)('%#', (schema, value, said) => {
    expect(words(schema, value)).toBe(said);
  });

  test.each([
    ['a host', HostPatternSchema],
    ['a name of a session', SessionNameSchema],
    ['a session', SessionRefSchema],
  ])('for %s', (_, schema) => {
    for (const value of ['', 'a b', 'x'.repeat(5000), '\0', undefined, 1, null, []]) {
      expect(words(schema, value), JSON.stringify(value)).not.toMatch(RAW);
    }
  });

  test('invalid parameters of any method', () => {
    const wrong: unknown[] = [
      undefined,
      null,
      '',
      'x'.repeat(100_000),
      -1,
      1e300,
      0.5,
      true,
      [],
      {},
      { x: 1 },
    ];
    for (const [name, { params }] of Object.entries(METHODS)) {
      expect(words(params, undefined), name).not.toMatch(RAW);
      const keys = Object.keys(
        z
          .object({ properties: z.record(z.string(), z.json()).optional() })
          .parse(z.toJSONSchema(params, { io: 'input', unrepresentable: 'any' })).properties ?? {},
      );
      for (const value of wrong) {
        const values = Object.fromEntries(keys.map((key) => [key, value]));
        expect(words(params, values), `${name} ${JSON.stringify({ value }).slice(0, 50)}`).not.toMatch(RAW);
      }
    }
  });

  test.each([
    'name: ""\nagent: { protocol: handler, entry: "" }\n',
    'name: counter\nagent: { protocol: handler, entry: agent.py }\npersistence: often\n',
    'name: counter\nagent: { protocol: command, command: [] }\nlimits: { cpus: -1, memory: 5, pids: 0.5 }\n',
    'name: counter\nagent: { protocol: handler, entry: agent.py }\negress: [{ host: "" }, 3]\nworkspace: { limit: x, seed: 1 }\n',
    'name: counter\nagent: 3\nturn: { timeout: -1 }\nenv: { A: 1, "": b }\n',
    '[]',
  ])('in a profile: %#', (text) => {
    let said = '';
    try {
      checkProfile(text);
    } catch (error) {
      said = HoldfastError.from(error).sentence;
    }
    expect(said).not.toBe('');
    expect(said).not.toMatch(RAW);
  });

  test('beside a box that somebody types into', () => {
    expect(validationMessage(HostPatternSchema, ' ', 'a host name')).toBe('Enter a host name.');
    expect(validationMessage(HostPatternSchema, 'a b', 'a host name')).toMatch(/^A host such as .*\.$/);
    expect(validationMessage(HostPatternSchema, 'api.example.com', 'a host name')).toBeUndefined();
    expect(validationMessage(SessionNameSchema, 'a/b', 'a name')).toBe('No slash and no control characters.');
    expect(validationMessage(SessionNameSchema, 'x'.repeat(200), 'a name')).toBe(
      'May have at most 128 characters.',
    );
  });
});
