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
