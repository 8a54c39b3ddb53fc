/** A reference to a file, or to a position in it, in a line of output. */
export interface PathReference {
  /** The range in the line. */
  readonly start: number;
  readonly length: number;
  /** As written: absolute or relative, with `/` as separator. */
  readonly path: string;
  /** From 1; null where there is none. */
  readonly line: number | null;
  readonly column: number | null;
}

/** Only the start of a longer line is searched. */
const MAX_CHARACTERS = 4000;
const MAX_REFERENCES = 20;
const WORD = /(?<quote>["'`])(?<quoted>[^"'`]{1,500})\k<quote>|(?<plain>[^\s"'`<>|()[\]{},;=│]{1,500})/gu;
/** A path with `:12` or `:12:3`, and punctuation at the end of a sentence. */
const PLACE = /^(?<path>.+?)(?::(?<line>\d{1,7})(?:[:.-](?<column>\d{1,7}))?)?[:.,!?]*$/u;
/** A position after the path: `(12,3)` of compilers, `, line 12` of Python. */
const FOLLOWING = /^(?:\((?<line>\d{1,7})(?:,\s?(?<column>\d{1,7}))?\)|,? line (?<lineWord>\d{1,7}))/;
const FILE_SCHEME = 'file://';

/** The paths in one line of output, as compilers, test runners and shells write them. The files need not exist. */
export function pathReferences(line: string): PathReference[] {
  const references: PathReference[] = [];
  for (const match of line.slice(0, MAX_CHARACTERS).matchAll(WORD)) {
    const reference = referenceIn(line, match);
    if (reference !== null) references.push(reference);
    if (references.length === MAX_REFERENCES) break;
  }
  return references;
}

function referenceIn(line: string, match: RegExpExecArray): PathReference | null {
  const { quoted, plain } = match.groups ?? {};
  const word = quoted ?? plain ?? '';
  const place = PLACE.exec(word)?.groups;
  if (place === undefined) return null;
  // pytest and others append `::` and the name of a test.
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

// Where compilers, test runners and grep write a location: at the start of a line, or in parentheses.
const SPACED = [
  /^\s*(?<path>[^\s:"'`()][^:"'`()]{0,500}):(?<line>\d{1,7})(?::(?<column>\d{1,7}))?/gu,
  /\((?<path>[^():"'`]{1,500}):(?<line>\d{1,7})(?::(?<column>\d{1,7}))?\)/gu,
] as const;

/**
 * References whose paths contain spaces without quotes. They may also be other text, so the caller must check that such
 * a file exists.
 */
export function spacedReferences(line: string): PathReference[] {
  return SPACED.flatMap((pattern) =>
    [...line.slice(0, MAX_CHARACTERS).matchAll(pattern)].flatMap((match) => {
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
  ).slice(0, MAX_REFERENCES);
}

/** Converts a `file:` URI to a path; null for other URIs. */
function localPath(text: string): string | null {
  if (!/^[a-z][a-z0-9+.-]*:/i.test(text)) return text;
  if (!text.startsWith(`${FILE_SCHEME}/`)) return null;
  try {
    return decodeURIComponent(text.slice(FILE_SCHEME.length));
  } catch {
    return null; // not a valid URI
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
 * The workspace paths that a path may mean, the likeliest first. A relative path starts at /workspace, with and without
 * the prefixes `a/` and `b/` of git diff. Empty where the path is outside /workspace.
 */
export function workspaceCandidates(path: string): string[] {
  const from = path.startsWith('/') ? [path] : [`${WORKSPACE}/${path}`];
  const diff = /^[abciow]\/(.+)$/.exec(path)?.[1];
  if (diff !== undefined) from.push(`${WORKSPACE}/${diff}`);
  return from.flatMap((one) => {
    const normal = normalize(one);
    return normal === WORKSPACE || normal.startsWith(`${WORKSPACE}/`) ? [normal] : [];
  });
}

/** Resolves `.` and `..`, and drops a trailing slash. */
function normalize(path: string): string {
  const names: string[] = [];
  for (const name of path.split('/')) {
    if (name === '..') names.pop();
    else if (name !== '' && name !== '.') names.push(name);
  }
  return `/${names.join('/')}`;
}
