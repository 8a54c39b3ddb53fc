import { z } from 'zod';

/** What a schema expects, in words for people. */
const KINDS: Readonly<Record<string, string>> = {
  string: 'text',
  number: 'a number',
  int: 'a whole number',
  boolean: 'true or false',
  object: 'a mapping',
  record: 'a mapping',
  array: 'a list',
  null: 'null',
  date: 'a date',
};

const FORMATS: Readonly<Record<string, string>> = {
  datetime: 'must be a date and time such as 2026-01-31T12:00:00Z',
  date: 'must be a date such as 2026-01-31',
  url: 'must be a URL',
  uuid: 'must be a UUID',
  base64: 'must be base64',
  ipv4: 'must be an IPv4 address',
  ipv6: 'must be an IPv6 address',
  regex: 'has a form that is not allowed',
};

/**
 * The message for a validation error of zod, unless its schema has its own message. It completes a sentence that begins
 * with the name of the value.
 */
export function validationMessage(issue: z.core.$ZodRawIssue): string {
  switch (issue.code) {
    case 'invalid_type': {
      if (issue.input === undefined) return 'is missing';
      return `must be ${KINDS[issue.expected] ?? issue.expected}`;
    }
    case 'too_small':
      return atLeast(issue.origin, issue.minimum, issue.inclusive !== false);
    case 'too_big':
      return atMost(issue.origin, issue.maximum, issue.inclusive !== false);
    case 'not_multiple_of':
      return `must be a multiple of ${String(issue.divisor)}`;
    case 'invalid_format':
      return formatMessage(issue);
    case 'invalid_value':
      return `must be ${alternatives(issue.values.map((value) => (typeof value === 'string' ? `"${value}"` : String(value))))}`;
    case 'unrecognized_keys':
      return `may not have ${alternatives(issue.keys.map((key) => JSON.stringify(key)))}`;
    case 'invalid_key':
      return 'has a key that is not allowed';
    case 'invalid_element':
      return 'has an entry that is not allowed';
    case 'invalid_union':
      return 'has none of the forms that are allowed';
    default:
      return 'is not valid';
  }
}

function atLeast(origin: string, minimum: number | bigint, isInclusive: boolean): string {
  const least = String(minimum);
  const counted = unit(origin, minimum);
  if (counted === undefined) return isInclusive ? `must be at least ${least}` : `must be more than ${least}`;
  return least === '1' ? 'must not be empty' : `must have at least ${least} ${counted}`;
}

function atMost(origin: string, maximum: number | bigint, isInclusive: boolean): string {
  const most = String(maximum);
  const counted = unit(origin, maximum);
  if (counted === undefined) return isInclusive ? `must be at most ${most}` : `must be less than ${most}`;
  return most === '0' ? 'must be empty' : `may have at most ${most} ${counted}`;
}

/** The unit of a size limit; undefined for a number, whose value itself is limited. */
function unit(origin: string, count: number | bigint): string | undefined {
  const isOne = String(count) === '1';
  switch (origin) {
    case 'string':
      return isOne ? 'character' : 'characters';
    case 'array':
    case 'set':
    case 'map':
    case 'object':
      return isOne ? 'entry' : 'entries';
    default:
      return undefined;
  }
}

function formatMessage(issue: z.core.$ZodRawIssue): string {
  const { format, prefix, suffix, includes } = issue;
  if (typeof prefix === 'string') return `must begin with "${prefix}"`;
  if (typeof suffix === 'string') return `must end with "${suffix}"`;
  if (typeof includes === 'string') return `must contain "${includes}"`;
  return (typeof format === 'string' ? FORMATS[format] : undefined) ?? 'has a form that is not allowed';
}

function alternatives(values: readonly string[]): string {
  const last = values.at(-1) ?? '';
  return values.length < 2 ? last : `${values.slice(0, -1).join(', ')} or ${last}`;
}

// zod uses these messages for every schema in this program.
z.config({ localeError: validationMessage });
