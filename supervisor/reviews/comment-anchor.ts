/** Lines with their line feeds; the last one may lack it. */
export function linesOf(text: Buffer): Buffer[] {
  const lines: Buffer[] = [];
  for (let from = 0; from < text.length;) {
    const feed = text.indexOf(0x0a, from);
    const end = feed === -1 ? text.length : feed + 1;
    lines.push(text.subarray(from, end));
    from = end;
  }
  return lines;
}

/**
 * The line at which `quote` stands in the text now; null if nowhere. Of several places it is the one nearest to `start`, where it was.
 * Whole lines only; a line feed at the end of the file does not matter. Linear.
 */
export function findQuote(text: Buffer, quote: Buffer, start: number): number | null {
  const wanted = linesOf(quote).map(withoutFeed);
  const [first] = wanted;
  if (first === undefined) return null;
  const lines = linesOf(text).map(withoutFeed);
  let found: number | null = null;
  for (let at = 0; at + wanted.length <= lines.length; at += 1) {
    if (lines[at]?.equals(first) !== true) continue;
    if (found !== null && Math.abs(at - start) >= Math.abs(found - start)) continue;
    if (wanted.every((line, index) => lines[at + index]?.equals(line))) found = at;
  }
  return found;
}

function withoutFeed(line: Buffer): Buffer {
  return line.at(-1) === 0x0a ? line.subarray(0, -1) : line;
}
