/** What JSON lets stand but a terminal may obey or misrender: DEL, C1 controls, bidi and other invisible characters. */
const UNSAFE = /[\u007f-\u009f\p{Cf}\p{Zl}\p{Zp}]/gu;

function escapeUnits(characters: string): string {
  return Array.from({ length: characters.length }, (_, at) => {
    const unit = characters.charCodeAt(at).toString(16).padStart(4, '0');
    return `\\u${unit}`;
  }).join('');
}

/** A JSON text with what a terminal could misread as escapes: it means the same. */
export function escapeJsonText(json: string): string {
  return json.replace(UNSAFE, escapeUnits);
}

/** JSON.stringify whose result is also safe to show on a terminal. */
export function toSafeJson(value: unknown): string {
  return escapeJsonText(JSON.stringify(value));
}

/** A JSON value on one line, with a space after each colon and comma: `{"count": 1, "of": [1, 2]}`. */
export function formatJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(formatJson).join(', ')}]`;
  if (typeof value === 'object' && value !== null) {
    const members = Object.entries(value).map(([key, member]) => `${toSafeJson(key)}: ${formatJson(member)}`);
    return `{${members.join(', ')}}`;
  }
  return toSafeJson(value);
}

/**
 * Where and why a text is not JSON: 1-based line and column of the first character that does not fit.
 * Undefined when it is JSON. V8 names a position only for some mistakes, so the place is found by our own walk.
 */
export function findJsonError(
  text: string,
): { readonly line: number; readonly column: number; readonly why: string } | undefined {
  try {
    JSON.parse(text);
    return undefined;
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    const offset = firstBadOffset(text);
    const before = text.slice(0, offset).split('\n');
    const why =
      text.trim() === ''
        ? 'it is empty'
        : offset >= text.length
          ? 'it ends too early'
          : `${JSON.stringify(Array.from(text.slice(offset))[0])} does not belong there`;
    return {
      line: before.length,
      column: (before.at(-1)?.length ?? 0) + 1,
      why: message === '' ? 'it cannot be read' : why,
    };
  }
}

// JSON lets DEL and the C1 controls stand in a string, but not the C0 ones.
const TOKEN =
  /[\t\n\r ]+|[{}[\]:,]|"(?:[^"\\\p{Cc}]|[\u007f-\u009f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null/uy;

type Expect = 'value' | 'value-or-end' | 'key' | 'key-or-end' | 'colon' | 'comma-or-end' | 'nothing';

function firstBadOffset(text: string): number {
  const open: ('{' | '[')[] = [];
  let expect: Expect = 'value';
  const afterValue = (): Expect => (open.length === 0 ? 'nothing' : 'comma-or-end');
  TOKEN.lastIndex = 0;
  for (let offset = 0; offset < text.length; offset = TOKEN.lastIndex) {
    TOKEN.lastIndex = offset;
    const token = TOKEN.exec(text)?.[0];
    if (token === undefined) return offset;
    if (/^[\t\n\r ]/.test(token)) continue;
    const wantsValue = expect === 'value' || expect === 'value-or-end';
    if (token === '{' || token === '[') {
      if (!wantsValue) return offset;
      open.push(token);
      expect = token === '{' ? 'key-or-end' : 'value-or-end';
    } else if (token === '}' || token === ']') {
      const empty = token === '}' ? expect === 'key-or-end' : expect === 'value-or-end';
      if (open.at(-1) !== (token === '}' ? '{' : '[') || !(empty || expect === 'comma-or-end')) return offset;
      open.pop();
      expect = afterValue();
    } else if (token === ':') {
      if (expect !== 'colon') return offset;
      expect = 'value';
    } else if (token === ',') {
      if (expect !== 'comma-or-end') return offset;
      expect = open.at(-1) === '{' ? 'key' : 'value';
    } else if (expect === 'key' || expect === 'key-or-end') {
      if (!token.startsWith('"')) return offset;
      expect = 'colon';
    } else {
      if (!wantsValue) return offset;
      expect = afterValue();
    }
  }
  return text.length;
}
