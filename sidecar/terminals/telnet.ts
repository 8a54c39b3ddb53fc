/** The little of telnet that lies between us and busybox's telnetd (RFC 854): it escapes one byte and maps line ends. */

const IAC = 0xff;
const CR = 0x0d;
const LF = 0x0a;
const NUL = 0x00;
/** guest/terminal.sh prints it before anything else. */
const BEGIN = 0x1e;

/** What telnetd passes on as these very bytes: it takes IAC for a command, and the second of CR LF and CR NUL away. */
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

/** Gives back what the terminal's program wrote, whatever pieces it comes in. */
export class OutputDecoder {
  #begun: boolean;
  #inCommand = false;

  /** `begun`: the beginning was seen by an earlier decoder. */
  constructor(begun: boolean) {
    this.#begun = begun;
  }

  /** The program's output has begun. */
  get hasBegun(): boolean {
    return this.#begun;
  }

  decode(chunk: Buffer): Buffer {
    const bytes = this.#afterBeginning(chunk);
    if (!this.#inCommand && !bytes.includes(IAC)) return bytes;
    const decoded = Buffer.allocUnsafe(bytes.length);
    let length = 0;
    for (const byte of bytes) {
      if (!this.#inCommand && byte === IAC) {
        this.#inCommand = true;
        continue;
      }
      // Once the output has begun telnetd sends no commands: two of them are one byte.
      this.#inCommand = false;
      decoded[length] = byte;
      length += 1;
    }
    return decoded.subarray(0, length);
  }

  #afterBeginning(chunk: Buffer): Buffer {
    if (this.#begun) return chunk;
    const at = chunk.indexOf(BEGIN);
    if (at === -1) return chunk.subarray(chunk.length);
    this.#begun = true;
    return chunk.subarray(at + 1);
  }
}
