/** The part of telnet (RFC 854) that busybox's telnetd uses: one escaped byte and the mapping of line ends. */

const IAC = 0xff;
const CR = 0x0d;
const LF = 0x0a;
const NUL = 0x00;
/** guest/terminal.sh prints this byte before any output. */
const START_MARKER = 0x1e;

/**
 * Escapes input so that telnetd passes on exactly these bytes. It reads IAC as a command, and drops the second byte of
 * CR LF and CR NUL.
 */
export function escapeInput(bytes: Uint8Array): Buffer {
  if (!bytes.includes(IAC) && !bytes.includes(CR)) return Buffer.from(bytes);
  const escaped = Buffer.allocUnsafe(2 * bytes.length);
  let length = 0;
  for (let at = 0; at < bytes.length; at += 1) {
    const byte = bytes[at] ?? 0;
    const next = bytes[at + 1];
    escaped[length] = byte;
    length += 1;
    if (byte === IAC || (byte === CR && (next === LF || next === NUL))) {
      escaped[length] = byte === IAC ? IAC : NUL;
      length += 1;
    }
  }
  return escaped.subarray(0, length);
}

/** Decodes telnetd's output to what the program wrote, however it is split into chunks. */
export class OutputDecoder {
  #begun: boolean;
  #inCommand = false;

  /** `begun`: an earlier decoder has seen the start marker. */
  constructor(begun: boolean) {
    this.#begun = begun;
  }

  /** The start marker was seen. */
  get hasBegun(): boolean {
    return this.#begun;
  }

  decode(chunk: Buffer): Buffer {
    const bytes = this.#afterStartMarker(chunk);
    if (!this.#inCommand && !bytes.includes(IAC)) return bytes;
    const decoded = Buffer.allocUnsafe(bytes.length);
    let length = 0;
    for (const byte of bytes) {
      if (!this.#inCommand && byte === IAC) {
        this.#inCommand = true;
        continue;
      }
      // After the start marker telnetd sends no commands, so two IAC bytes mean one.
      this.#inCommand = false;
      decoded[length] = byte;
      length += 1;
    }
    return decoded.subarray(0, length);
  }

  #afterStartMarker(chunk: Buffer): Buffer {
    if (this.#begun) return chunk;
    const at = chunk.indexOf(START_MARKER);
    if (at === -1) return chunk.subarray(chunk.length);
    this.#begun = true;
    return chunk.subarray(at + 1);
  }
}
