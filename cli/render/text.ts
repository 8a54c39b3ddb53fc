/**
 * Untrusted text (names, paths, messages) is sanitized before it is printed on a terminal: control, bidi and other
 * invisible characters become escapes, so that no name can move the cursor, hide itself or reorder the line.
 */
const UNSAFE = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}]/gu;
const UNSAFE_IN_LINES = /[^\n\t\P{Cc}]|[\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}]/gu;
const SHORT_ESCAPES: Readonly<Record<string, string>> = {
  '\n': '\\n',
  '\r': '\\r',
  '\t': '\\t',
  '\u001b': '\\e',
};

function escapeCharacter(character: string): string {
  const code = character.codePointAt(0) ?? 0;
  return SHORT_ESCAPES[character] ?? `\\u{${code.toString(16)}}`;
}

/** For one line: escapes line breaks too. */
export function sanitizeLine(text: string): string {
  return text.replace(UNSAFE, escapeCharacter);
}

/** For several lines, such as a traceback: keeps line breaks and tabs. */
export function sanitizeLines(text: string): string {
  return text.replaceAll('\r\n', '\n').replace(UNSAFE_IN_LINES, escapeCharacter);
}

const ZERO_WIDTH = /^[\p{Mn}\p{Me}]$/u;
/** Ranges of wide code points: the wide and full-width blocks of Unicode's East Asian Width, and emoji. */
const WIDE: readonly (readonly [number, number])[] = [
  [0x1100, 0x115f],
  [0x2e80, 0x303e],
  [0x3041, 0xa4cf],
  [0xa960, 0xa97f],
  [0xac00, 0xd7a3],
  [0xf900, 0xfaff],
  [0xfe30, 0xfe6f],
  [0xff00, 0xff60],
  [0xffe0, 0xffe6],
  [0x1f300, 0x1f64f],
  [0x1f680, 0x1f6ff],
  [0x1f900, 0x1f9ff],
  [0x20000, 0x3fffd],
];

function characterWidth(character: string): number {
  const code = character.codePointAt(0) ?? 0;
  if (code < 0x300) return 1;
  if (ZERO_WIDTH.test(character)) return 0;
  return WIDE.some(([first, last]) => code >= first && code <= last) ? 2 : 1;
}

/** Number of terminal columns of a sanitized text. */
export function textWidth(text: string): number {
  let width = 0;
  for (const character of text) width += characterWidth(character);
  return width;
}

/** Shortens a text to `columns`, with an ellipsis at the end. */
export function truncate(text: string, columns: number): string {
  if (textWidth(text) <= columns) return text;
  if (columns < 1) return '';
  let kept = '';
  let width = 0;
  for (const character of text) {
    const next = characterWidth(character);
    if (width + next > columns - 1) break;
    kept += character;
    width += next;
  }
  return `${kept}…`;
}

export function padEnd(text: string, columns: number): string {
  return text + ' '.repeat(Math.max(0, columns - textWidth(text)));
}

/** `1 session`, `2 sessions`. */
export function pluralize(number: number, one: string, many = `${one}s`): string {
  return `${number.toLocaleString('en-US')} ${number === 1 ? one : many}`;
}

/** Quotes an argument for a POSIX shell where needed. */
export function quoteForShell(text: string): string {
  return /^[A-Za-z0-9_./:@%+=,-]+$/.test(text) ? text : `'${sanitizeLine(text).replaceAll("'", `'\\''`)}'`;
}
