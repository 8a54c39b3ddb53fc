const NEWLINE = 0x0a;
const CARRIAGE_RETURN = 0x0d;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
/** `[` and `{` differ from `]` and `}` by two; bit 0x20 tells brackets from braces. */
const OPEN = 0x5b;
const CLOSE = 0x5d;

export const LINE_LIMITS = {
  /** Bytes of one message, without its newline. */
  bytes: 2 * 2 ** 20,
  /** Nesting of objects and arrays. */
  depth: 64,
  /** Values of a message, all levels together: each costs many times its bytes once it is parsed. */
  values: 100_000,
} as const;

/** A line of an agent's output. `end`: the offset behind its newline, counted like the offsets of `push`. */
export type ScannedLine =
  | { readonly line: Buffer; readonly end: number }
  /** It was not collected, or is not parsed. `bytes` without the newline. */
  | {
      readonly skipped: 'too_long' | 'too_deep' | 'too_many_values';
      readonly bytes: number;
      readonly end: number;
    };

/**
 * Splits the output of an agent into lines. Memory stays bounded whatever the agent writes: a line beyond the limit is
 * counted and not collected, and one that would cost too much to parse is found before it is parsed.
 */
export class LineScanner {
  #parts: Buffer[] = [];
  #length = 0;
  #offset: number;
  #lineStart: number;
  #isSkipping: boolean;

  /** `isSkipping`: the offset is inside a line that is too long, of which `skipped` bytes came before. */
  constructor(offset: number, isSkipping = false) {
    this.#offset = offset;
    this.#lineStart = offset;
    this.#isSkipping = isSkipping;
  }

  /** Where to continue after a restart: the start of the incomplete line, or the end of what was skipped of it. */
  get resumeAt(): { readonly offset: number; readonly isSkipping: boolean } {
    return this.#isSkipping
      ? { offset: this.#offset, isSkipping: true }
      : { offset: this.#lineStart, isSkipping: false };
  }

  /** The offset of the next byte to push. */
  get offset(): number {
    return this.#offset;
  }

  /** Yields the lines that the bytes complete. Empty lines are left out. Take all of them before the next push. */
  *push(bytes: Buffer): Generator<ScannedLine> {
    let from = 0;
    while (from < bytes.length) {
      const at = bytes.indexOf(NEWLINE, from);
      const to = at === -1 ? bytes.length : at;
      this.#collect(bytes.subarray(from, to));
      this.#offset += to - from;
      if (at === -1) return;
      this.#offset += 1;
      from = at + 1;
      const line = this.#finish();
      if (line !== null) yield line;
    }
  }

  #collect(part: Buffer): void {
    this.#length += part.length;
    if (this.#isSkipping) return;
    if (this.#length > LINE_LIMITS.bytes) {
      this.#parts = [];
      this.#isSkipping = true;
    } else if (part.length > 0) this.#parts.push(part);
  }

  #finish(): ScannedLine | null {
    const bytes = this.#length;
    const [first] = this.#parts;
    const whole = this.#parts.length === 1 && first !== undefined ? first : Buffer.concat(this.#parts);
    const wasSkipped = this.#isSkipping;
    const end = this.#offset;
    this.#parts = [];
    this.#length = 0;
    this.#isSkipping = false;
    this.#lineStart = end;
    if (wasSkipped) return { skipped: 'too_long', bytes, end };
    const line = whole.at(-1) === CARRIAGE_RETURN ? whole.subarray(0, -1) : whole;
    if (line.length === 0) return null;
    const problem = excessOf(line);
    return problem === null ? { line, end } : { skipped: problem, bytes, end };
  }
}

/** Why a text would cost too much to parse; null if it would not. One pass over the bytes, without a stack. */
export function excessOf(text: Uint8Array): 'too_deep' | 'too_many_values' | null {
  let depth = 0;
  let values = 0;
  let isQuoted = false;
  for (let at = 0; at < text.length; at++) {
    const byte = text[at] ?? 0;
    if (isQuoted) {
      if (byte === BACKSLASH) at++;
      else if (byte === QUOTE) isQuoted = false;
    } else if (byte === QUOTE) {
      isQuoted = true;
    } else if (byte === COMMA) {
      if (++values > LINE_LIMITS.values) return 'too_many_values';
    } else if (byte >= OPEN) {
      const kind = byte & ~0x20;
      if (kind === OPEN) {
        if (++depth > LINE_LIMITS.depth) return 'too_deep';
        if (++values > LINE_LIMITS.values) return 'too_many_values';
      } else if (kind === CLOSE) depth--;
    }
  }
  return null;
}
