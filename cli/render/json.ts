/** Characters that JSON allows unescaped but that affect a terminal: DEL, C1 controls, bidi and other invisible ones. */
const UNSAFE = /[\u007f-\u009f\p{Cf}\p{Zl}\p{Zp}]/gu;

function escapeUnits(characters: string): string {
  return Array.from({ length: characters.length }, (_, at) => {
    const unit = characters.charCodeAt(at).toString(16).padStart(4, '0');
    return `\\u${unit}`;
  }).join('');
}

/** Escapes those characters in a JSON text. The value stays the same. */
export function escapeJsonText(json: string): string {
  return json.replace(UNSAFE, escapeUnits);
}

/** JSON.stringify whose result is safe to print on a terminal. */
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
 * Finds the first error in a JSON text: why, and its 1-based line and column. Undefined if the text is valid JSON.
 * V8 reports a position only for some errors, so this function finds the position itself.
 */
export function findJsonError(
  text: string,
): { readonly line: number; readonly column: number; readonly why: string } | undefined {
  try {
    JSON.parse(text);
    return undefined;
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    const offset = findErrorOffset(text);
    const before = text.slice(0, offset).split('\n');
    const why =
      text.trim() === ''
        ? 'the input is empty'
        : offset >= text.length
          ? 'the input ends too early'
          : `${JSON.stringify(Array.from(text.slice(offset))[0])} is unexpected`;
    return {
      line: before.length,
      column: (before.at(-1)?.length ?? 0) + 1,
      why: message === '' ? 'the input cannot be read' : why,
    };
  }
}

// JSON strings may contain DEL and C1 controls, but not C0 controls.
const TOKEN =
  /[\t\n\r ]+|[{}[\]:,]|"(?:[^"\\\p{Cc}]|[\u007f-\u009f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null/uy;

type Expect = 'value' | 'value-or-end' | 'key' | 'key-or-end' | 'colon' | 'comma-or-end' | 'nothing';

function findErrorOffset(text: string): number {
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
