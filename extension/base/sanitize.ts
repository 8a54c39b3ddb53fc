// Controls, line separators, and what reorders text or hides in it.
const HIDDEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/**
 * Text that an agent may have written, to be shown on one line: hidden characters become visible, and what VS Code would take for
 * a link (`[text](command:…)`) stays text.
 */
export function sanitize(text: string, most = 200): string {
  const short = text.length > most ? `${text.slice(0, most)}…` : text;
  return (
    short
      .replace(/[\t\n\r]+/g, ' ')
      .replace(HIDDEN, (character) => `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`)
      .replaceAll('](', '] (')
      // `$(icon)` is drawn in labels of pickers and the status bar.
      .replaceAll('$(', '$ (')
  );
}
