import { gitHistoryError } from './error.ts';

/** One line of a git config; a null value is a key without `=`, which means true. */
export interface ConfigEntry {
  /** Lower-case. */
  readonly section: string;
  readonly subsection: string | null;
  /** Lower-case. */
  readonly key: string;
  readonly value: string | null;
}

/** Reads the syntax that git-config(1) describes. Includes are entries as any other: nothing is followed. Errors: `profile_invalid`. */
export function parseGitConfig(source: string): ConfigEntry[] {
  const text = `${source.replace(/^\uFEFF/, '').replaceAll('\r\n', '\n')}\n`;
  const entries: ConfigEntry[] = [];
  let section: { readonly name: string; readonly subsection: string | null } | null = null;
  let at = 0;
  const take = (pattern: RegExp): RegExpExecArray | null => {
    pattern.lastIndex = at;
    const match = pattern.exec(text);
    if (match !== null) at += match[0].length;
    return match;
  };
  for (;;) {
    take(/\s*/y);
    if (at >= text.length) return entries;
    if (take(/[#;][^\n]*/y) !== null) continue;
    const header = take(/\[([A-Za-z0-9.-]+)(?:[ \t]+"((?:[^"\\\n\0]|\\[^\n\0])*)")?\]/y);
    if (header !== null) {
      const name = (header[1] ?? '').toLowerCase();
      const quoted = header[2]?.replaceAll(/\\(.)/g, '$1');
      // `[branch.main]` is an old way to write `[branch "main"]`.
      const dot = name.indexOf('.');
      section =
        quoted !== undefined
          ? { name, subsection: quoted }
          : dot === -1
            ? { name, subsection: null }
            : { name: name.slice(0, dot), subsection: name.slice(dot + 1) };
      continue;
    }
    const key = take(/([A-Za-z][A-Za-z0-9-]*)[ \t]*/y)?.[1]?.toLowerCase();
    if (key === undefined || section === null) throw malformed(text, at);
    let value: string | null = null;
    if (take(/=/y) !== null) {
      const read = readValue(text, at);
      if (read === null) throw malformed(text, at);
      ({ value } = read);
      at = read.end;
    } else if (take(/\n/y) === null) throw malformed(text, at);
    entries.push({ section: section.name, subsection: section.subsection, key, value });
  }
}

const ESCAPES: Readonly<Record<string, string>> = {
  t: '\t',
  b: '\b',
  n: '\n',
  '\\': '\\',
  '"': '"',
  '\n': '',
};

function readValue(text: string, start: number): { readonly value: string; readonly end: number } | null {
  const parts: string[] = [];
  let isQuoted = false;
  let spaces = 0;
  for (let at = start; at < text.length; at += 1) {
    const character = text.charAt(at);
    if (character === '\n') return isQuoted ? null : { value: parts.join(''), end: at + 1 };
    if (!isQuoted && /\s/.test(character)) {
      // Spaces inside of the value count, and those at its ends do not.
      if (parts.length > 0) spaces += 1;
      continue;
    }
    if (!isQuoted && (character === '#' || character === ';'))
      return { value: parts.join(''), end: text.indexOf('\n', at) + 1 };
    if (spaces > 0) parts.push(' '.repeat(spaces));
    spaces = 0;
    if (character === '\\') {
      at += 1;
      const escaped = ESCAPES[text.charAt(at)];
      if (escaped === undefined) return null;
      parts.push(escaped);
    } else if (character === '"') isQuoted = !isQuoted;
    else parts.push(character);
  }
  return null;
}

function malformed(text: string, at: number): Error {
  const line = text.slice(0, at).split('\n').length;
  return gitHistoryError(`line ${line} of the repository's config is not what git can read`, 'correct it');
}
