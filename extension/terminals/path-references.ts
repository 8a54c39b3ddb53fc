/** A place in a file that a line of output speaks of. */
export interface PathReference {
  /** Where in the line it stands. */
  readonly start: number;
  readonly length: number;
  /** As it is written: absolute or relative, `/` between names. */
  readonly path: string;
  /** From 1; null where none is said. */
  readonly line: number | null;
  readonly column: number | null;
}

/** Longer lines are no text that a person clicks in. */
const MOST_CHARACTERS = 4000;
const MOST_REFERENCES = 20;
const WORD = /(?<quote>["'`])(?<quoted>[^"'`]{1,500})\k<quote>|(?<plain>[^\s"'`<>|()[\]{},;=│]{1,500})/gu;
/** `:12`, `:12:3` and what ends a sentence. */
const PLACE = /^(?<path>.+?)(?::(?<line>\d{1,7})(?:[:.-](?<column>\d{1,7}))?)?[:.,!?]*$/u;
/** What may follow a path: `(12,3)` of compilers, `, line 12` of Python. */
const FOLLOWING = /^(?:\((?<line>\d{1,7})(?:,\s?(?<column>\d{1,7}))?\)|,? line (?<lineWord>\d{1,7}))/;
const FILE_SCHEME = 'file://';

/** The paths in one line of output, as compilers, test runners and shells write them. Whether such files exist is not asked. */
export function pathReferences(line: string): PathReference[] {
  const references: PathReference[] = [];
  for (const match of line.slice(0, MOST_CHARACTERS).matchAll(WORD)) {
    const reference = referenceIn(line, match);
    if (reference !== null) references.push(reference);
    if (references.length === MOST_REFERENCES) break;
  }
  return references;
}

function referenceIn(line: string, match: RegExpExecArray): PathReference | null {
  const { quoted, plain } = match.groups ?? {};
  const word = quoted ?? plain ?? '';
  const place = PLACE.exec(word)?.groups;
  if (place === undefined) return null;
  // What pytest and others name within a file comes after `::`.
  const path = localPath((place['path'] ?? '').replace(/::.*$/u, ''));
  if (path === null) return null;
  const following = FOLLOWING.exec(line.slice(match.index + match[0].length))?.groups;
  const lineText = place['line'] ?? following?.['line'] ?? following?.['lineWord'];
  const columnText = place['line'] === undefined ? following?.['column'] : place['column'];
  if (!looksLikePath(path, lineText !== undefined, quoted !== undefined)) return null;
  const start = match.index + (quoted === undefined ? 0 : 1);
  const written = /^.*?(?=[:.,!?]*$)/u.exec(word)?.[0] ?? word;
  return {
    start,
    length: written.length,
    path,
    line: lineText === undefined ? null : Number(lineText),
    column: columnText === undefined ? null : Number(columnText),
  };
}

// Where compilers, test runners and grep name a place: at the beginning of the line, or in brackets.
const SPACED = [
  /^\s*(?<path>[^\s:"'`()][^:"'`()]{0,500}):(?<line>\d{1,7})(?::(?<column>\d{1,7}))?/gu,
  /\((?<path>[^():"'`]{1,500}):(?<line>\d{1,7})(?::(?<column>\d{1,7}))?\)/gu,
] as const;

/** Places in files whose paths have spaces and no quotes around them. Words may stand there as well: they are places only where such a file exists. */
export function spacedReferences(line: string): PathReference[] {
  return SPACED.flatMap((pattern) =>
    [...line.slice(0, MOST_CHARACTERS).matchAll(pattern)].flatMap((match) => {
      const { path = '', line: at, column } = match.groups ?? {};
      if (!path.includes(' ') || !looksLikePath(path, true, true)) return [];
      const start = match.index + match[0].indexOf(path);
      const written = `${path}:${at ?? ''}${column === undefined ? '' : `:${column}`}`;
      return [
        {
          start,
          length: written.length,
          path,
          line: Number(at),
          column: column === undefined ? null : Number(column),
        },
      ];
    }),
  ).slice(0, MOST_REFERENCES);
}

/** Null for addresses that are no files. */
function localPath(text: string): string | null {
  if (!/^[a-z][a-z0-9+.-]*:/i.test(text)) return text;
  if (!text.startsWith(`${FILE_SCHEME}/`)) return null;
  try {
    return decodeURIComponent(text.slice(FILE_SCHEME.length));
  } catch {
    return null; // not an address after all
  }
}

function looksLikePath(path: string, hasLine: boolean, isQuoted: boolean): boolean {
  if (!/\p{L}/u.test(path) || /[\p{Cc}\\]/u.test(path) || path.includes('//') || path.startsWith('~'))
    return false;
  if (isQuoted && / {2}|^ | $/.test(path)) return false;
  if (path.startsWith('/')) return path.length > 1;
  if (path.includes('/')) return !isQuoted || /^\S/.test(path);
  return hasLine ? /\.\p{L}|^\p{Lu}\p{L}+file$/u.test(path) : /^[^\s]*\.\p{L}[\p{L}\d]{0,9}$/u.test(path);
}

const WORKSPACE = '/workspace';

/**
 * Where in the workspace it may lead, the likeliest first: a relative path is taken from /workspace, with and without what git writes before
 * it. Empty where it leads out of it.
 */
export function workspaceCandidates(path: string): string[] {
  const from = path.startsWith('/') ? [path] : [`${WORKSPACE}/${path}`];
  const diff = /^[abciow]\/(.+)$/.exec(path)?.[1];
  if (diff !== undefined) from.push(`${WORKSPACE}/${diff}`);
  return from.flatMap((one) => {
    const whole = normal(one);
    return whole === WORKSPACE || whole.startsWith(`${WORKSPACE}/`) ? [whole] : [];
  });
}

/** Without `.`, `..` and a slash at the end. */
function normal(path: string): string {
  const names: string[] = [];
  for (const name of path.split('/')) {
    if (name === '..') names.pop();
    else if (name !== '' && name !== '.') names.push(name);
  }
  return `/${names.join('/')}`;
}
