/** Whether a path is excluded. The path is relative to the watched folder and encoded as in protocol/paths.ts. */
export type Excludes = (path: string) => boolean;

/**
 * Globs as editors write them: `*` and `?` within a name, `**` over any number of names, `{a,b}`, `[a-z]`. A pattern
 * also excludes everything below what it matches, and `X/**` also excludes `X` itself.
 */
export function compileExcludes(globs: readonly string[]): Excludes | null {
  if (globs.length === 0) return null;
  const patterns = globs.map((glob) => new RegExp(`^${sourceOf(glob)}(?:/|$)`, 's'));
  return (path) => patterns.some((pattern) => pattern.test(path));
}

function sourceOf(glob: string): string {
  const trimmed = glob
    .replace(/^\.?\//, '')
    .replace(/(?:\/\*\*)+\/?$/, '')
    .replace(/\/$/, '');
  return trimmed === '' ? '.*' : translate(trimmed);
}

function translate(glob: string): string {
  let source = '';
  for (let at = 0; at < glob.length; at += 1) {
    const rest = glob.slice(at);
    const character = glob.charAt(at);
    if (rest.startsWith('**/')) {
      source += '(?:[^/]+/)*';
      at += 2;
    } else if (rest.startsWith('**')) {
      source += '.*';
      at += 1;
    } else if (character === '*') source += '[^/]*';
    else if (character === '?') source += '[^/]';
    else if (character === '[') {
      const set = /^\[([!^]?)([^/\]]+)\]/.exec(rest);
      if (set === null) source += '\\[';
      else {
        const members = (set[2] ?? '').replace(/[\\^[]/g, '\\$&');
        source += `(?!/)[${set[1] === '' ? '' : '^'}${members}]`;
        at += set[0].length - 1;
      }
    } else if (character === '{') {
      const end = closing(glob, at);
      if (end === -1) source += '\\{';
      else {
        source += `(?:${alternatives(glob.slice(at + 1, end))
          .map(translate)
          .join('|')})`;
        at = end;
      }
    } else source += character.replace(/[.+^$()|\\\]{}]/g, '\\$&');
  }
  return source;
}

function closing(glob: string, from: number): number {
  let depth = 0;
  for (let at = from; at < glob.length; at += 1) {
    if (glob.charAt(at) === '{') depth += 1;
    if (glob.charAt(at) === '}') depth -= 1;
    if (depth === 0) return at;
  }
  return -1;
}

function alternatives(inside: string): string[] {
  const parts = [''];
  let depth = 0;
  for (const character of inside) {
    if (character === '{') depth += 1;
    if (character === '}') depth -= 1;
    if (character === ',' && depth === 0) parts.push('');
    else parts.push((parts.pop() ?? '') + character);
  }
  return parts;
}
