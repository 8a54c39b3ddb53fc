import { containsCredentials, containsIssuedKey, looksLikeKey } from '../../protocol/key-hint.ts';

export interface LeftOut {
  readonly path: string;
  readonly why: string;
}

/** A file without what looks like a key. `content` is null if all of it is left out. */
export interface FilteredFile {
  readonly content: Buffer | null;
  readonly leftOut: readonly LeftOut[];
}

const KEY = 'it looks like a key';
/** What clients call the list of their MCP servers. */
const SERVER_LISTS: ReadonlySet<string> = new Set(['mcpServers', 'mcp_servers', 'mcp', 'servers']);
/** Maps of variables or of headers, wherever they stand: `env`, `http_headers`, `extraHeaders`. Not those that name variables. */
const VALUES =
  /^(?!env_?(?:http_?)?headers$)(?:.*(?:headers|env|environment|env_?vars|environment_?variables))$/i;
const URLS: ReadonlySet<string> = new Set(['url', 'httpUrl', 'serverUrl']);
const SECRET_HEADER = /^(authorization|proxy-authorization|cookie)$/i;
/** Of variables and headers, where also short values are keys. */
const SECRET_VALUE = /(passw(or)?d|passphrase|pwd|secret|api[-_]?key|auth[-_]?token)$/i;
const SWITCH = /^(true|false|yes|no|on|off|none|null|[\d.]+|[./~].*)$/i;
/** `bearer_token_env_var = "GITHUB_TOKEN"` */
const NAMES_VARIABLE = /_env(_var|_key)?$|^env_/i;
/** A name for what is somewhere else: `${TOKEN}`, `$TOKEN`, `{env:TOKEN}`, `{file:…}`. */
const REFERENCE = /^(?:(?:Bearer|Basic|token)\s+)?(?:\$\{?[A-Za-z_][\w:.-]*\}?|\{(?:env|file):[^}]*\})$/i;
/** One word of letters and digits, long enough for a key. */
const LONG_WORD = /[A-Za-z0-9_+=~-]{20,}/g;
const DEEPEST = 64;
/** Files of settings in lines, where a name stands before each value. */
const LINES = /(^|\/)(\.env[^/]*|\.[a-z]+rc|[^/]+\.(ini|cfg|conf|properties|ya?ml|sh))$/i;
/** Also in a comment. */
const LINE =
  /^\s*(?:[#;]+[ \t]*|\/\/[ \t]*)?(?:export\s+|-\s+)?["']?([\w.-]+)["']?\s*[=:]\s*["']?(.*?)["']?\s*[;,]?$/gm;

/**
 * Leaves out what looks like a key: single entries of JSON and TOML, which are written again without their comments, and otherwise the
 * whole file. A hint that misses some keys, so the list that people see names what remains.
 */
export async function withoutKeys(path: string, content: Buffer): Promise<FilteredFile> {
  const filtered = await byFormat(path, content);
  if (filtered.content === null || !containsIssuedKey(filtered.content.toString('latin1'))) return filtered;
  return { content: null, leftOut: [{ path, why: 'it contains what looks like a key' }] };
}

async function byFormat(path: string, content: Buffer): Promise<FilteredFile> {
  const extension = /\.([a-z0-9]+)$/i.exec(path)?.[1]?.toLowerCase();
  switch (extension) {
    case 'json':
    case 'jsonc':
    case 'json5': {
      const { default: stripJsonComments } = await import('strip-json-comments');
      return filterValues(
        path,
        content,
        (text) => JSON.parse(stripJsonComments(text, { trailingCommas: true })) as unknown,
        (value) => `${JSON.stringify(value, null, 2)}\n`,
      );
    }
    case 'toml': {
      const { parse, stringify } = await import('smol-toml');
      return filterValues(
        path,
        content,
        // The kinds of numbers stay.
        (text) => parse(text, { integersAsBigInt: true }),
        (value) => stringify(value, { numbersAsFloat: true }),
      );
    }
    default:
      return filterLines(path, content);
  }
}

function filterLines(path: string, content: Buffer): FilteredFile {
  if (!LINES.test(path)) return { content, leftOut: [] };
  const text = content.toString('utf8');
  if (containsCredentials(text))
    return { content: null, leftOut: [{ path, why: 'it contains what looks like a password' }] };
  for (const [, name = '', value = ''] of text.matchAll(LINE)) {
    if (isKey(name, value))
      return { content: null, leftOut: [{ path, why: `its ${name} looks like a key` }] };
  }
  return { content, leftOut: [] };
}

function filterValues(
  path: string,
  content: Buffer,
  parse: (text: string) => unknown,
  print: (value: unknown) => string,
): FilteredFile {
  let value: unknown;
  try {
    value = parse(new TextDecoder('utf-8', { fatal: true }).decode(content));
  } catch {
    // What cannot be read cannot be searched.
    return {
      content: null,
      leftOut: [{ path, why: 'its format cannot be read, so it cannot be searched for keys' }],
    };
  }
  const filter = new ValueFilter(path);
  const kept = ownStateOf(path, filter.filter(value));
  // Always written again: a comment cannot be searched as a value can.
  return { content: Buffer.from(print(kept)), leftOut: filter.leftOut };
}

/** `.claude.json` is the agent's record of a person's projects and account; only its MCP servers are configuration. */
function ownStateOf(path: string, value: unknown): unknown {
  if (path !== '.claude.json' || !isMapping(value)) return value;
  const { mcpServers } = value;
  return mcpServers === undefined ? {} : { mcpServers };
}

class ValueFilter {
  readonly leftOut: LeftOut[] = [];
  readonly #file: string;

  constructor(file: string) {
    this.#file = file;
  }

  /** The value itself if nothing was left out of it. */
  filter(value: unknown): unknown {
    return this.#inside(value, [], '');
  }

  #inside(value: unknown, at: readonly string[], list: string): unknown {
    if (at.length > DEEPEST) return this.#leaveOut(at, 'it is nested too deeply');
    if (Array.isArray(value)) {
      const kept = value.map((one: unknown, index) =>
        typeof one === 'string' && (containsIssuedKey(one) || containsCredentials(one))
          ? this.#leaveOut([...at, String(index)], KEY)
          : this.#inside(one, [...at, String(index)], ''),
      );
      return kept.every((one, index) => one === value[index])
        ? value
        : kept.filter((one) => one !== undefined);
    }
    if (!isMapping(value)) return value;
    const kept: [string, unknown][] = Object.entries(value).map(([name, inner]) => {
      if (containsCredentials(name)) return [name, this.#leaveOut([...at, '…'], 'its name looks like a key')];
      const here = [...at, name];
      if (isValueMap(name, at)) return [name, this.#values(inner, here)];
      if (list === 'servers' && isMapping(inner)) return [name, this.#server(inner, here)];
      if (typeof inner === 'string' && isKey(name, inner)) return [name, this.#leaveOut(here, KEY)];
      return [name, this.#inside(inner, here, SERVER_LISTS.has(name) ? 'servers' : '')];
    });
    if (kept.every(([name, inner]) => inner === value[name])) return value;
    return Object.fromEntries(kept.filter(([, inner]) => inner !== undefined));
  }

  /** An entry for an MCP server. Without its arguments it would be another command, so it goes with them. */
  #server(server: Record<string, unknown>, at: readonly string[]): unknown {
    for (const name of ['command', 'args']) {
      const words = [server[name]].flat().filter((word) => typeof word === 'string');
      if (words.some((word, index) => isKeyArgument(word, words[index - 1])))
        return this.#leaveOut(at, `its ${name} has what looks like a key`);
    }
    const kept: [string, unknown][] = Object.entries(server).map(([name, inner]) => {
      const here = [...at, name];
      if (URLS.has(name) && typeof inner === 'string' && isUrlWithKey(inner))
        return [name, this.#leaveOut(here, 'it has what looks like a key')];
      if (isValueMap(name, at)) return [name, this.#values(inner, here)];
      if (typeof inner === 'string' && isKey(name, inner)) return [name, this.#leaveOut(here, KEY)];
      return [name, this.#inside(inner, here, '')];
    });
    if (kept.every(([name, inner]) => inner === server[name])) return server;
    return Object.fromEntries(kept.filter(([, inner]) => inner !== undefined));
  }

  /** Variables or headers: a map, or a list of `NAME=value`, `Name: value` and `{ name, value }`. */
  #values(values: unknown, at: readonly string[]): unknown {
    if (Array.isArray(values)) {
      const kept = values.map((one: unknown, index) => {
        const here = [...at, String(index)];
        if (typeof one === 'string' ? isKeyArgument(one, undefined) : isSecretPair(one))
          return this.#leaveOut(here, KEY);
        return this.#inside(one, here, '');
      });
      return kept.filter((one) => one !== undefined);
    }
    if (!isMapping(values)) return this.#inside(values, at, '');
    const kept: [string, unknown][] = Object.entries(values).map(([name, value]) => {
      const here = [...at, name];
      // Several values of one header.
      const texts = [value].flat().filter((one) => typeof one === 'string');
      if (texts.some((one) => isSecretValue(name, one))) return [name, this.#leaveOut(here, KEY)];
      return [name, this.#inside(value, here, '')];
    });
    return Object.fromEntries(kept.filter(([, value]) => value !== undefined));
  }

  /** What stands in the place of the value. */
  #leaveOut(at: readonly string[], why: string): unknown {
    this.leftOut.push({ path: `${this.#file}: ${at.join('.')}`, why });
    return undefined;
  }
}

function isKey(name: string, value: string): boolean {
  // `apiKey` is `api_key` for the hint.
  const spelled = name.replace(/([a-z])([A-Z])/g, '$1_$2').replaceAll(/[-.]/g, '_');
  if (containsIssuedKey(value) || containsCredentials(value)) return true;
  if (REFERENCE.test(value) || (NAMES_VARIABLE.test(spelled) && /^[A-Z][A-Z0-9_]*$/.test(value)))
    return false;
  return looksLikeKey(spelled, value);
}

function isSecretValue(name: string, value: string): boolean {
  if (value === '' || REFERENCE.test(value)) return false;
  if (SECRET_HEADER.test(name) || isKey(name, value) || hasRandomWord(value)) return true;
  if (SECRET_VALUE.test(name) && !SWITCH.test(value) && !/\s|placeholder|^</i.test(value)) return true;
  // Headers in a variable, one in each line.
  return value.split('\n').some((line) => {
    const header = /^([\w-]+):[ \t]+(\S.*)$/.exec(line.trim());
    return header !== null && isSecretValue(header[1] ?? '', header[2] ?? '');
  });
}

function isSecretPair(value: unknown): boolean {
  if (!isMapping(value)) return false;
  const { name, key, value: text } = value;
  const called = [name, key].find((one) => typeof one === 'string') ?? '';
  return typeof text === 'string' && isSecretValue(called, text);
}

/** Codex has variables in `shell_environment_policy.set`. */
function isValueMap(name: string, at: readonly string[]): boolean {
  return VALUES.test(name) || (name === 'set' && at.at(-1) === 'shell_environment_policy');
}

function isKeyArgument(word: string, before: string | undefined): boolean {
  if (containsIssuedKey(word) || containsCredentials(word) || isUrlWithKey(word)) return true;
  const assigned = /^-{0,2}([\w.-]+)=(.+)$/.exec(word);
  if (assigned !== null) return isSecretValue(assigned[1] ?? '', assigned[2] ?? '');
  const option = /^--?([\w-]+)$/.exec(before ?? '')?.[1];
  if (/^[\w-]+:\s*\S/.test(word)) {
    const [name = '', ...rest] = word.split(':');
    return isSecretValue(name.trim(), rest.join(':').trim());
  }
  return option !== undefined && isSecretValue(option, word);
}

function isUrlWithKey(text: string): boolean {
  const url = URL.parse(text);
  if (url === null || !/^[a-z][a-z0-9+.-]*:\/\//i.test(text)) return false;
  if (url.password !== '' || (url.username !== '' && !REFERENCE.test(decoded(url.username)))) return true;
  for (const [name, value] of url.searchParams) if (isSecretValue(name, value)) return true;
  return hasRandomWord(decoded(url.pathname)) || hasRandomWord(decoded(url.hash));
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** A word, a number, or a short mix of both: `claude`, `20250929`, `v2`. */
const WORD = /^([A-Za-z]*|\d*|[A-Za-z0-9]{1,5}|[a-z]+\d{1,3})$/;

/** Letters and digits mixed, without the shape of words: what a generator makes. */
function hasRandomWord(text: string): boolean {
  return (text.match(LONG_WORD) ?? []).some((word) => {
    const digits = word.match(/[0-9]/g)?.length ?? 0;
    return digits >= 3 && /[A-Za-z]/.test(word) && !word.split(/[-_=]+/).every((part) => WORD.test(part));
  });
}

function isMapping(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Date);
}
