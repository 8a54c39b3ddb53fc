const MOST_CHARACTERS = 120;
/** Under these names a handler's input has what a person asked for. */
const FIELDS = ['prompt', 'message', 'text', 'input', 'task', 'query'];
const WORD = /[\s\p{C}]+/gu;

/**
 * What a person asked a turn for, as one short line without control characters: of JSON the text in it, where that is plain. Empty for
 * an input that says nothing.
 */
export function summarizePrompt(input: Uint8Array): string {
  const text = new TextDecoder().decode(input);
  const line = (textIn(text) ?? text).replaceAll(WORD, ' ').trim();
  if (line.length <= MOST_CHARACTERS) return line;
  const cut = line.slice(0, MOST_CHARACTERS - 1);
  // Half of a character is none.
  return `${/[\uD800-\uDBFF]$/.test(cut) ? cut.slice(0, -1) : cut}…`;
}

function textIn(input: string): string | undefined {
  if (!/^\s*["{]/.test(input)) return undefined;
  try {
    const value: unknown = JSON.parse(input);
    if (typeof value === 'string') return value;
    if (typeof value !== 'object' || value === null) return undefined;
    if (Object.keys(value).length === 0) return '';
    const fields = new Map<string, unknown>(Object.entries(value));
    for (const field of FIELDS) {
      const text = fields.get(field);
      if (typeof text === 'string' && text.trim() !== '') return text;
    }
    return undefined;
  } catch {
    // Cut off, or never JSON.
    return undefined;
  }
}
