import { sanitize } from '../base/sanitize.ts';

/** A line may be longer than all that is shown; then it begins in its middle. */
const LONGEST_CUT = 64 * 1024;

/**
 * The end of a file as text, from the beginning of a line on, below a line that says what it is. Undefined where it is not text.
 * `size` is that of the whole file, `bytes` its last ones.
 */
export function tailText(
  bytes: Buffer,
  { path, size }: { readonly path: string; readonly size: number },
): string | undefined {
  if (bytes.includes(0)) return undefined;
  const isCut = bytes.length < size;
  const lineEnd = isCut ? bytes.subarray(0, LONGEST_CUT).indexOf(0x0a) : -1;
  const start = lineEnd >= 0 ? lineEnd + 1 : isCut ? characterStart(bytes) : 0;
  const shown = bytes.subarray(start);
  const heading = `[Holdfast: the last ${megabytes(shown.length)} of ${sanitize(path)}, which has ${megabytes(size)}. It is too large to be opened here and cannot be changed.]`;
  return `${heading}\n${shown.toString('utf8')}`;
}

/** Where the first whole character of UTF-8 begins. */
function characterStart(bytes: Buffer): number {
  let at = 0;
  while (at < 4 && at < bytes.length && ((bytes[at] ?? 0) & 0xc0) === 0x80) at += 1;
  return at;
}

function megabytes(size: number): string {
  return `${(size / 2 ** 20).toFixed(1)} MB`;
}
