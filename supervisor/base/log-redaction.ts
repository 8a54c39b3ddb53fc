import { HoldfastError } from '../../protocol/errors.ts';

/** Fields of a log line beside its message. Never inputs, outputs, environments or requests. */
export type LogFields = Readonly<Record<string, unknown>>;

const LONGEST_TEXT = 2000;
/** Enough to see the whole of a secret that begins where the shown text ends. */
const INSPECTED = LONGEST_TEXT + 1000;
const MOST_ENTRIES = 50;
const DEEPEST = 4;
const SECRET_KEY =
  /token|authori[sz]ation|password|passphrase|secret|credential|cookie|api[-_]?key|private[-_]?key|^key$/i;
/** Content of people and agents: no log needs it. */
const PRIVATE_KEY =
  /^(params|env|environment|input|prompt|output|stdin|stdout|stderr|argv|command|result|traceback)$/i;
const BEARER = /\b(bearer|basic)\s{1,8}[\w.~+/=-]{8,}/gi;
const USER_INFO = /(\b[a-z][a-z0-9+.-]{0,20}:\/\/)[^\s/@:]{0,500}:[^\s/@]{1,500}@/gi;

export function redactText(text: string): string {
  // Only the part that is shown is searched: the message of an error may be megabytes long.
  const shown = text.slice(0, INSPECTED).replace(BEARER, '$1 [redacted]').replace(USER_INFO, '$1[redacted]@');
  return text.length > INSPECTED || shown.length > LONGEST_TEXT
    ? `${shown.slice(0, LONGEST_TEXT)}… (${text.length} characters)`
    : shown;
}

/** A value as plain JSON without secrets, bounded in depth, width and length. */
export function redact(value: unknown, depth = 0): unknown {
  if (value === null || typeof value === 'boolean' || typeof value === 'number') return value;
  if (typeof value === 'string') return redactText(value);
  if (typeof value === 'bigint') return value.toString();
  if (typeof value !== 'object') return value === undefined ? undefined : `[${typeof value}]`;
  if (value instanceof Error) return redactError(value, depth);
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? '[invalid date]' : value.toISOString();
  if (ArrayBuffer.isView(value)) return `[${value.byteLength} bytes]`;
  if (depth >= DEEPEST) return '[deeper]';
  if (Array.isArray(value)) {
    const shown = value.slice(0, MOST_ENTRIES).map((one) => redact(one, depth + 1));
    return value.length > MOST_ENTRIES ? [...shown, `[${value.length - MOST_ENTRIES} more]`] : shown;
  }
  const shown: Record<string, unknown> = {};
  const entries = Object.entries(value);
  for (const [key, one] of entries.slice(0, MOST_ENTRIES)) {
    if (PRIVATE_KEY.test(key)) shown[key] = '[withheld]';
    else if (SECRET_KEY.test(key)) shown[key] = '[redacted]';
    else shown[key] = redact(one, depth + 1);
  }
  if (entries.length > MOST_ENTRIES) shown['…'] = `${entries.length - MOST_ENTRIES} more`;
  return shown;
}

function redactError(error: Error, depth: number): Record<string, unknown> {
  const { code, why } = error instanceof HoldfastError ? error : { code: codeOf(error), why: undefined };
  return {
    name: error.name,
    message: redactText(error.message),
    ...(code === undefined ? {} : { code }),
    ...(why === undefined ? {} : { why: redactText(why) }),
    ...(error.stack === undefined || isExpected(error) ? {} : { stack: redactText(error.stack) }),
    ...(error.cause === undefined || depth >= DEEPEST ? {} : { cause: redact(error.cause, depth + 1) }),
  };
}

/** An error of ours explains itself; its stack matters only for a fault of the program. */
function isExpected(error: Error): boolean {
  return error instanceof HoldfastError && error.code !== 'internal';
}

function codeOf(error: Error): string | undefined {
  return 'code' in error && typeof error.code === 'string' ? error.code : undefined;
}
