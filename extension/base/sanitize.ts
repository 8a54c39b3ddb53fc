// Control characters, line separators, and characters that reorder text or are invisible.
const HIDDEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/**
 * Prepares text that an agent may have written for one line of the UI: hidden characters become visible, and VS Code
 * makes no link (`[text](command:…)`) or icon of it.
 */
export function sanitize(text: string, maxCharacters = 200): string {
  const short = text.length > maxCharacters ? `${text.slice(0, maxCharacters)}…` : text;
  return (
    short
      .replace(/[\t\n\r]+/g, ' ')
      .replace(HIDDEN, (character) => `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`)
      .replaceAll('](', '] (')
      // The labels of pickers and the status bar render `$(icon)`.
      .replaceAll('$(', '$ (')
  );
}
