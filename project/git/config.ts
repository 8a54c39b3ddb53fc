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

/**
 * Parses the syntax of git-config(1). Includes are ordinary entries: no file is followed. Errors: `profile_invalid`.
 */
export function parseGitConfig(source: string): ConfigEntry[] {
  const text = `${source.replace(/^\uFEFF/, '').replaceAll('\r\n', '\n')}\n`;
  const entries: ConfigEntry[] = [];
  let section: { readonly name: string; readonly subsection: string | null } | null = null;
  let at = 0;
  const match = (pattern: RegExp): RegExpExecArray | null => {
    pattern.lastIndex = at;
    const found = pattern.exec(text);
    if (found !== null) at += found[0].length;
    return found;
  };
  for (;;) {
    match(/\s*/y);
    if (at >= text.length) return entries;
    if (match(/[#;][^\n]*/y) !== null) continue;
    const header = match(/\[([A-Za-z0-9.-]+)(?:[ \t]+"((?:[^"\\\n\0]|\\[^\n\0])*)")?\]/y);
    if (header !== null) {
      const name = (header[1] ?? '').toLowerCase();
      const quoted = header[2]?.replaceAll(/\\(.)/g, '$1');
      // `[branch.main]` is an old form of `[branch "main"]`.
      const dot = name.indexOf('.');
      section =
        quoted !== undefined
          ? { name, subsection: quoted }
          : dot === -1
            ? { name, subsection: null }
            : { name: name.slice(0, dot), subsection: name.slice(dot + 1) };
      continue;
    }
    const key = match(/([A-Za-z][A-Za-z0-9-]*)[ \t]*/y)?.[1]?.toLowerCase();
    if (key === undefined || section === null) throw malformed(text, at);
    let value: string | null = null;
    if (match(/=/y) !== null) {
      const read = readValue(text, at);
      if (read === null) throw malformed(text, at);
      ({ value } = read);
      at = read.end;
    } else if (match(/\n/y) === null) throw malformed(text, at);
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
      // Spaces inside a value count; those at its ends do not.
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
  return gitHistoryError(`line ${line} of the repository's config has a syntax error`, 'correct it');
}
