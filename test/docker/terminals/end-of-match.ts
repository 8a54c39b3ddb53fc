/** The end of the first match in the text; null if there is none yet. */
export function endOfMatch(text: string, wanted: string | RegExp): number | null {
  const found = typeof wanted === 'string' ? wanted : wanted.exec(text)?.[0];
  const at = found === undefined ? -1 : text.indexOf(found);
  return found === undefined || at === -1 ? null : at + found.length;
}
