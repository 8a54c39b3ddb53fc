const LINE_FEED = 0x0a;
const FEED = Buffer.of(LINE_FEED);

/**
 * A text whose lines can be taken and found again. The agent wrote it, so it may have a line for each of its bytes: no object is made
 * for a line.
 */
export class AnchorText {
  /** The text between line feeds, so that a whole line is one with a line feed on both sides. */
  readonly #framed: Buffer;
  /** Length of the text in bytes. */
  readonly #length: number;
  /** Where the line feeds are in `#framed`: line n is behind the nth. */
  readonly #feeds: Uint32Array;

  constructor(text: Buffer) {
    const isEnded = text.length === 0 || text.at(-1) === LINE_FEED;
    this.#framed = Buffer.concat([FEED, text, ...(isEnded ? [] : [FEED])]);
    this.#length = text.length;
    this.#feeds = feedsOf(this.#framed);
  }

  get lines(): number {
    return this.#feeds.length - 1;
  }

  /** The bytes of lines that exist, with their line feeds; the last one may lack it. `end` is exclusive. */
  slice(start: number, end: number): Buffer {
    const [from = 0, to = 0] = [this.#feeds[start], this.#feeds[end]];
    return this.#framed.subarray(from + 1, Math.min(to, this.#length) + 1);
  }

  /**
   * The line at which `quote` stands now; null if nowhere. Of several places it is the one nearest to `start`, where it was. Whole
   * lines only; a line feed at the end of the file does not matter.
   */
  find(quote: Buffer, start: number): number | null {
    if (quote.length === 0) return null;
    const isEnded = quote.at(-1) === LINE_FEED;
    const wanted = Buffer.concat([FEED, quote, ...(isEnded ? [] : [FEED])]);
    const from = this.#feeds[Math.min(start, this.lines)] ?? 0;
    const after = this.#framed.indexOf(wanted, from);
    const before = from === 0 ? -1 : this.#framed.lastIndexOf(wanted, from - 1);
    const found = [before, after].filter((at) => at !== -1).map((at) => this.#lineAt(at));
    const [first, second] = found;
    if (first === undefined) return null;
    return second !== undefined && second - start < start - first ? second : first;
  }

  /** The line behind a line feed. */
  #lineAt(feed: number): number {
    let [low, high] = [0, this.lines];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#feeds[middle] ?? 0) < feed) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

function feedsOf(text: Buffer): Uint32Array {
  let count = 0;
  for (const byte of text) if (byte === LINE_FEED) count += 1;
  const feeds = new Uint32Array(count);
  let nth = 0;
  for (let at = 0; nth < count; at += 1) {
    if (text[at] !== LINE_FEED) continue;
    feeds[nth] = at;
    nth += 1;
  }
  return feeds;
}
