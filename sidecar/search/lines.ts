import { StringDecoder } from 'node:string_decoder';

const NEWLINE = 0x0a;

/** Splits a stream into lines. Lines longer than the limit are skipped. */
export class LineSplitter {
  readonly #mostBytes: number;
  readonly #separator: number;
  #parts: Buffer[] = [];
  #size = 0;
  #skipping = false;
  /** Number of lines that were too long. */
  skipped = 0;

  constructor(mostBytes: number, separator = NEWLINE) {
    this.#mostBytes = mostBytes;
    this.#separator = separator;
  }

  *push(chunk: Buffer): Generator<Buffer> {
    let from = 0;
    for (let at = chunk.indexOf(this.#separator); at !== -1; at = chunk.indexOf(this.#separator, from)) {
      this.#collect(chunk.subarray(from, at));
      from = at + 1;
      if (!this.#skipping) yield this.#size === 0 ? EMPTY : Buffer.concat(this.#parts);
      this.#parts = [];
      this.#size = 0;
      this.#skipping = false;
    }
    this.#collect(chunk.subarray(from));
  }

  #collect(piece: Buffer): void {
    if (this.#skipping || piece.length === 0) return;
    this.#size += piece.length;
    if (this.#size <= this.#mostBytes) {
      this.#parts.push(piece);
      return;
    }
    this.#skipping = true;
    this.skipped += 1;
    this.#parts = [];
  }
}
const EMPTY = Buffer.alloc(0);

/** Converts ascending byte offsets of a line to columns in UTF-16 units. */
export function columnsOf(line: Buffer, offsets: readonly number[]): number[] {
  const decoder = new StringDecoder('utf8');
  let column = 0;
  let from = 0;
  return offsets.map((offset) => {
    if (offset < from) return column;
    column += decoder.write(line.subarray(from, offset)).length;
    from = offset;
    return column;
  });
}

/** The part of a line to show around `around`. It never splits a surrogate pair. */
export function cutPreview(line: string, around: number, most: number): { preview: string; start: number } {
  if (line.length <= most) return { preview: line, start: 0 };
  let start = Math.max(0, Math.min(around - Math.floor(most / 4), line.length - most));
  if (isLowSurrogate(line, start)) start -= 1;
  let end = Math.min(line.length, start + most);
  if (isLowSurrogate(line, end)) end -= 1;
  return { preview: line.slice(start, end), start };
}

function isLowSurrogate(text: string, at: number): boolean {
  const unit = text.charCodeAt(at);
  return unit >= 0xdc00 && unit <= 0xdfff;
}
