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
