/** Beginnings of keys that their issuers made recognisable. */
const ISSUED =
  /^(sk-|sk_live_|rk_live_|gh[pousr]_|github_pat_|glpat-|xox[abprs]-|AKIA[0-9A-Z]{12}|ASIA[0-9A-Z]{12}|AIza|hf_|npm_|pypi-|dop_v1_|-----BEGIN [A-Z ]*PRIVATE KEY)/;
const NAMED =
  /(^|_)(api_?key|key|token|secret|passw(or)?d|passphrase|private_?key|access_?key|credentials?)(_|$)/i;
/** Shorter values are settings: a number, a switch, a name. */
const SHORTEST = 12;
/** What stands in for a key: a path, an address, a number, words. */
const NO_KEY = /^([\d.,_-]*|[./~].*|[a-z]+:\/\/.*|.*\s.*|.*(placeholder|changeme|your[-_]).*|<.*>)$/i;

/**
 * Whether a variable looks as if its value were a key. A hint for people: it misses some, and takes some other long
 * values for keys.
 */
export function looksLikeKey(name: string, value: string): boolean {
  if (ISSUED.test(value) && !NO_KEY.test(value)) return true;
  if (value.startsWith('-----BEGIN')) return ISSUED.test(value);
  return NAMED.test(name) && value.length >= SHORTEST && !NO_KEY.test(value);
}

/** Keys that can be told from other text wherever they stand. */
const ISSUED_ANYWHERE =
  /(?<![A-Za-z0-9])(?:sk-[A-Za-z0-9_-]{16,}|[sr]k_live_[A-Za-z0-9]{12,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abprs]-[\w-]{10,}|A[KS]IA[0-9A-Z]{16}|AIza[\w-]{30,}|hf_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{30,}|pypi-[\w-]{30,}|dop_v1_[0-9a-f]{32,})|-----BEGIN [A-Z ]*PRIVATE KEY/;

/** Whether a text contains a key that its issuer made recognisable. */
export function containsIssuedKey(text: string): boolean {
  return ISSUED_ANYWHERE.test(text);
}

/** User and password of an address. A user alone is no key for ssh, nor is `git` anywhere. */
const USER_INFO = /:\/\/([^\s/?#@]{1,4000})@/g;
/** A password with characters that belong escaped; a port and a path with `@` are not one. */
const RAW_PASSWORD = /:\/\/[^\s/:@?#[]{1,100}:(?!\d{1,5}[/?#])[^\s@]{1,200}@/;
const AUTHORIZATION =
  /\bauthorization["']?\s{0,9}[:=]\s{0,9}["']?(?:(bearer|basic|token|digest|negotiate)\s{1,9})?["']?([^\s"',]{1,200})/gi;
const SCHEME = /\b(?:bearer|basic)\s{1,9}["']?([^\s"',]{8,200})/gi;
/** It stands for a value: `$NAME`, `{env:NAME}`, `%TOKEN%`, `<token>`, `…`. */
const PLACEHOLDER = /^[$%{<*.…[(]/;

/** Whether a text has an address with a password, or an authorization with its value. A name in their place is none. */
export function containsCredentials(text: string): boolean {
  for (const found of text.matchAll(USER_INFO)) {
    const [user = '', ...password] = (found[1] ?? '').split(':');
    const before = text.slice(Math.max(0, found.index - 10), found.index);
    const secret = password.length > 0 ? password.join(':') : /ssh$|sftp$/i.test(before) ? '' : user;
    if (secret !== '' && secret !== 'git' && !PLACEHOLDER.test(secret)) return true;
  }
  const raw = RAW_PASSWORD.exec(text)?.[0];
  if (raw !== undefined && !PLACEHOLDER.test(raw.replace(/^:\/\/[^:]*:/, ''))) return true;
  for (const [, scheme, value = ''] of text.matchAll(AUTHORIZATION))
    if (!PLACEHOLDER.test(value) && (scheme !== undefined || isGenerated(value))) return true;
  for (const [, value = ''] of text.matchAll(SCHEME))
    if (!PLACEHOLDER.test(value) && isGenerated(value)) return true;
  return false;
}

/** `authentication` is a word, `hunter2secret` is none. */
function isGenerated(value: string): boolean {
  return value.length >= 8 && /\d|=$|[a-z][A-Z]/.test(value);
}
