import { HoldfastError } from '../../protocol/errors.ts';

export interface SetupSecret {
  readonly name: string;
  readonly value: Buffer;
}

/** The most parts that are searched for by themselves in one setup. Each costs up to 2 MiB of memory. */
const MOST_PARTS = 64;
/** A shorter part is a word like others. */
const SHORTEST_PART = 16;
/** What stands where a password does may be shorter. */
const SHORTEST_PASSWORD = 8;

/** What registries have in place of a name or password beside a token. It is in programs and their documents. */
const PLACEHOLDERS: ReadonlySet<string> = new Set([
  ...[
    '__token__',
    'x-oauth-basic',
    'x-access-token',
    'oauth2accesstoken',
    'private-token',
    'gitlab-ci-token',
  ],
  ...['_json_key', '_json_key_base64'],
]);
const CREDENTIAL_NAME = /passw(?:or)?d|token|secret|auth|key\s*$/i;
/** An address that shows nothing: no user, no query. */
const PLAIN_URL = /^[a-z][a-z0-9+.-]*:\/\/[^@?]*$/i;

/**
 * Each secret with what is searched for: the value, and what is worth as much as the value: users and passwords of URLs, what follows
 * `=` in the lines of a file such as .npmrc or pip.conf, passwords in a .netrc and in JSON. Errors: `setup_failed` for too many of these.
 */
export function partsOfSecrets(
  secrets: readonly SetupSecret[],
): { readonly name: string; readonly parts: readonly Buffer[] }[] {
  let left = MOST_PARTS;
  return secrets.map(({ name, value }) => {
    const parts = keysIn(value.toString('utf8'));
    left -= parts.length;
    if (left < 0) {
      throw new HoldfastError('setup_failed', `The setup cannot search its image for the secret ${name}`, {
        why: `the secrets of a setup may have ${MOST_PARTS} passwords and keys in them, and these have more`,
        next: 'give the setup only the lines that it needs',
      });
    }
    return { name, parts: [value, ...parts.map((part) => Buffer.from(part))] };
  });
}

function keysIn(text: string): string[] {
  const found = [...urlKeys(text), ...assigned(text), ...named(text)];
  const parts = found.filter((part) => part !== text && !PLACEHOLDERS.has(part));
  return [...new Set(parts)];
}

/** `scheme://user:password@`, anywhere. A user without a password is a token. */
function urlKeys(text: string): string[] {
  return [...text.matchAll(/:\/\/([^/\s?#]+)@/g)].flatMap(([, userinfo = '']) => {
    const [user = '', ...rest] = userinfo.split(':');
    const password = rest.join(':');
    return [
      ...longEnough(user, password === '' ? SHORTEST_PASSWORD : SHORTEST_PART),
      ...longEnough(password, SHORTEST_PASSWORD),
    ];
  });
}

/** `name=value` in a line, with or without quotes. */
function assigned(text: string): string[] {
  return text.split(/[\r\n]+/).flatMap((line) => {
    const [, name = '', value = ''] = /^([^=]{1,200})=\s*(\S.*)$/.exec(line) ?? [];
    const plain = unquoted(value.trim());
    if ((plain === value.trim() && /\s/.test(plain)) || PLAIN_URL.test(plain)) return [];
    return longEnough(plain, CREDENTIAL_NAME.test(name) ? SHORTEST_PASSWORD : SHORTEST_PART);
  });
}

/** `password VALUE` of a .netrc, and `"auth": "VALUE"` of JSON. */
function named(text: string): string[] {
  const code = text.replace(/^[ \t]*[#;].*$/gm, '');
  return [
    ...code.matchAll(/\bpassword\s+(\S+)/g),
    ...code.matchAll(/(?:passw(?:or)?d|token|secret|auth|key)"\s*:\s*"([^"]+)"/gi),
  ].flatMap(([, value = '']) => longEnough(unquoted(value), SHORTEST_PASSWORD));
}

/** As it is and percent-decoded; nothing if it is too short. */
function longEnough(part: string, shortest: number): string[] {
  return [part, unescaped(part)].filter(({ length }) => length >= shortest);
}

function unquoted(value: string): string {
  return /^(["'])(.*)\1$/.exec(value)?.[2] ?? value;
}

function unescaped(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
