const MOST_CHARACTERS = 120;
/** Fields of a handler's input that hold the prompt, in order of preference. */
const FIELDS = ['prompt', 'message', 'text', 'input', 'task', 'query'];
const WORD = /[\s\p{C}]+/gu;

/**
 * The prompt of a turn as one short line without control characters. Of a JSON input it is the text or the first known field.
 * Empty for an input without text.
 */
export function summarizePrompt(input: Uint8Array): string {
  const text = new TextDecoder().decode(input);
  const line = (textIn(text) ?? text).replaceAll(WORD, ' ').trim();
  if (line.length <= MOST_CHARACTERS) return line;
  const cut = line.slice(0, MOST_CHARACTERS - 1);
  // A cut surrogate pair is removed.
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
    // Truncated, or not JSON.
    return undefined;
  }
}
