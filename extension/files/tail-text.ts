import { sanitize } from '../base/sanitize.ts';

/** How far to look for the first line end. Where there is none, the text starts in the middle of a line. */
const MAX_PARTIAL_LINE_BYTES = 64 * 1024;

/**
 * The end of a file as text: a heading, then whole lines. Undefined where it is not text. `bytes`: the last bytes of
 * the file; `size`: the size of the whole file.
 */
export function tailText(
  bytes: Buffer,
  { path, size }: { readonly path: string; readonly size: number },
): string | undefined {
  if (bytes.includes(0)) return undefined;
  const isCut = bytes.length < size;
  const lineEnd = isCut ? bytes.subarray(0, MAX_PARTIAL_LINE_BYTES).indexOf(0x0a) : -1;
  const start = lineEnd >= 0 ? lineEnd + 1 : isCut ? characterStart(bytes) : 0;
  const shown = bytes.subarray(start);
  const heading =
    `[Holdfast: the last ${megabytes(shown.length)} of ${sanitize(path)}, which has ${megabytes(size)}. ` +
    'The file is too large to edit here.]';
  return `${heading}\n${shown.toString('utf8')}`;
}

/** The index of the first whole UTF-8 character. */
function characterStart(bytes: Buffer): number {
  let at = 0;
  while (at < 4 && at < bytes.length && ((bytes[at] ?? 0) & 0xc0) === 0x80) at += 1;
  return at;
}

function megabytes(size: number): string {
  return `${(size / 2 ** 20).toFixed(1)} MB`;
}
