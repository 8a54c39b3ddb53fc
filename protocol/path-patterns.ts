/** A star that is no character of a name: paths have one character for each byte. */
const STAR = '\u0100';
const ACROSS = STAR + STAR;

/** The pattern that matches a path and what is below it, and nothing else. */
export function literalPattern(path: string): string {
  return path.replaceAll(/[*\\]/g, '\\$&');
}

/**
 * Paths that a person chooses or lets through: a path, a folder with everything below it, or a pattern with `*` (within a name) and
 * `**` (across names); `\*` and `\\` stand for the characters themselves. An empty pattern matches nothing. `path`: its bytes, one
 * character each. Matching takes time linear in path and pattern for each star.
 */
export function matchesPattern(pattern: string, path: string): boolean {
  const wanted = Buffer.from(pattern, 'utf8')
    .toString('latin1')
    .replaceAll(/\\([*\\])|\*/g, (_, literal: string | undefined) => literal ?? STAR)
    .replace(/^\.?\/+/, '')
    .replace(/\/+$/, '');
  if (wanted === '') return pattern === '.' || pattern === './';
  if (path === wanted || path.startsWith(`${wanted}/`)) return true;
  return wanted.includes(STAR) && matchNames(wanted.split('/'), path.split('/'));
}

/** `**` matches any number of names. The last `**` is tried again, as for `*` in a name: no earlier one needs to be. */
function matchNames(pattern: readonly string[], names: readonly string[]): boolean {
  let at = 0;
  let name = 0;
  let starAt = -1;
  let starName = 0;
  while (name < names.length) {
    const part = pattern[at];
    if (part === ACROSS) {
      starAt = at;
      starName = name;
      at += 1;
    } else if (part !== undefined && matchName(part, names[name] ?? '')) {
      at += 1;
      name += 1;
    } else if (at === pattern.length && pattern.length > 0) {
      // The pattern names a folder: what is below it matches.
      return true;
    } else if (starAt !== -1) {
      at = starAt + 1;
      starName += 1;
      name = starName;
    } else return false;
  }
  while (pattern[at] === ACROSS) at += 1;
  return at === pattern.length;
}

function matchName(pattern: string, name: string): boolean {
  let at = 0;
  let character = 0;
  let starAt = -1;
  let starCharacter = 0;
  while (character < name.length) {
    if (pattern[at] === STAR) {
      starAt = at;
      starCharacter = character;
      at += 1;
    } else if (pattern[at] === name[character]) {
      at += 1;
      character += 1;
    } else if (starAt !== -1) {
      at = starAt + 1;
      starCharacter += 1;
      character = starCharacter;
    } else return false;
  }
  while (pattern[at] === STAR) at += 1;
  return at === pattern.length;
}
