import { QUARANTINED_RISKS, type Risk, risksOf } from '../protocol/risk.ts';
import { toBytes, type RawPath } from '../project/raw-path.ts';
import type { Change } from './changes.ts';

/**
 * Why a change needs a yes of its own: it could run on the person's machine, or it leads out of the tree. Empty for none.
 * `link`: the text of a link. `committed`: git's mode of the file as the person has it; the executable bit counts if it has none.
 */
export function quarantineReasons(
  path: RawPath,
  { before, after }: Change,
  link: Buffer | null,
  committed: string | null,
): Risk[] {
  const side = after ?? before;
  const isExecutable = after?.executable === true && committed !== '100755';
  const risks = risksOf({
    names: path.split('/').map(toBytes),
    type: side?.type === 'symlink' ? 'symlink' : 'file',
    oldMode: committed === null ? null : committed === '100755' ? 0o755 : 0o644,
    newMode: after === null ? null : isExecutable ? 0o755 : 0o644,
    newBytes: after?.size ?? null,
    // A link that goes away leads nowhere.
    link: after === null ? Buffer.alloc(1, '.') : link,
  });
  return risks.filter((risk) => QUARANTINED_RISKS.has(risk));
}

/**
 * Paths that a person lets through or chooses: a path, a folder with everything below it, or a pattern with `*` (within a name) and
 * `**` (across names). An empty pattern matches nothing. Matching takes time linear in path and pattern for each star.
 */
export function matchesPattern(pattern: string, path: RawPath): boolean {
  const wanted = Buffer.from(pattern, 'utf8')
    .toString('latin1')
    .replace(/^\.?\/+/, '')
    .replace(/\/+$/, '');
  if (wanted === '') return pattern === '.' || pattern === './';
  if (path === wanted || path.startsWith(`${wanted}/`)) return true;
  return wanted.includes('*') && matchNames(wanted.split('/'), path.split('/'));
}

/** `**` matches any number of names. The last `**` is tried again, as for `*` in a name: no earlier one needs to be. */
function matchNames(pattern: readonly string[], names: readonly string[]): boolean {
  let at = 0;
  let name = 0;
  let starAt = -1;
  let starName = 0;
  while (name < names.length) {
    const part = pattern[at];
    if (part === '**') {
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
  while (pattern[at] === '**') at += 1;
  return at === pattern.length;
}

function matchName(pattern: string, name: string): boolean {
  let at = 0;
  let character = 0;
  let starAt = -1;
  let starCharacter = 0;
  while (character < name.length) {
    if (pattern[at] === '*') {
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
  while (pattern[at] === '*') at += 1;
  return at === pattern.length;
}
