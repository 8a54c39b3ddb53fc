import { TerminalModes } from './terminal-modes.ts';

const ESC = 0x1b;
const BEL = 0x07;
const CAN = 0x18;
const SUB = 0x1a;
/** First byte of U+0080 to U+009F (C1 controls) in UTF-8, which terminals interpret like escape sequences. */
const C1_LEAD = 0xc2;

/** Longer sequences are dropped. */
const MAX_SEQUENCE_BYTES = 512;
/** OSC commands for titles and colours. All others have effects beyond the terminal: links, clipboard, notifications, shell integration. */
const HARMLESS_COMMANDS: ReadonlySet<string> = new Set([
  '0',
  '1',
  '2',
  '4',
  '10',
  '11',
  '12',
  '104',
  '110',
  '111',
  '112',
]);

type State =
  | 'text'
  /** After C1_LEAD. */
  | 'c1'
  | 'escape'
  /** ESC [ … */
  | 'csi'
  /** ESC ] … */
  | 'osc'
  /** Device control and other strings, which are all dropped. */
  | 'string';

/**
 * Sanitizes the output of a program in a sandbox for the user's terminal. Text, colours and cursor movements pass
 * unchanged. Links (OSC 8), clipboard (OSC 52), shell integration (OSC 133, 633, 1337, 7), notifications (OSC 9, 777)
 * and device strings are dropped. Works on chunks of any size and buffers at most one short sequence.
 */
export class OutputSanitizer {
  /** The terminal modes that the program has changed. */
  readonly modes = new TerminalModes();
  #state: State = 'text';
  #sequence: number[] = [];
  #tooLong = false;
  #out: Buffer = Buffer.alloc(0);
  #length = 0;

  /**
   * `replayed`: output from before this attachment. Queries to the terminal are dropped from it, because the program no
   * longer waits for the answers and would read them as keys.
   */
  sanitize(bytes: Uint8Array, replayed = false): Buffer {
    if (this.#state === 'text' && !bytes.includes(ESC) && !bytes.includes(C1_LEAD)) return Buffer.from(bytes);
    this.#out = Buffer.allocUnsafe(bytes.length + MAX_SEQUENCE_BYTES + 8);
    this.#length = 0;
    for (let at = 0; at < bytes.length;) {
      const run = this.#run(bytes, at);
      if (run > at) {
        if (this.#state === 'text') this.#copy(bytes.subarray(at, run));
        else this.#appendAll(bytes.subarray(at, run));
        at = run;
        continue;
      }
      this.#take(bytes[at] ?? 0, replayed);
      at += 1;
    }
    return this.#out.subarray(0, this.#length);
  }

  /** The end of the plain bytes from `from` on: text, or the inside of a string. */
  #run(bytes: Uint8Array, from: number): number {
    let at = from;
    if (this.#state === 'text') {
      while (at < bytes.length && bytes[at] !== ESC && bytes[at] !== C1_LEAD) at += 1;
    } else if (this.#state === 'osc' || this.#state === 'string') {
      while (at < bytes.length && !mayEndString(bytes[at])) at += 1;
    }
    return at;
  }

  #take(byte: number, replayed: boolean): void {
    switch (this.#state) {
      case 'text':
        if (byte === ESC) this.#begin('escape');
        else if (byte === C1_LEAD) this.#state = 'c1';
        else this.#put(byte);
        return;
      case 'c1':
        this.#takeC1(byte, replayed);
        return;
      case 'escape':
        this.#takeEscape(byte);
        return;
      case 'csi':
        this.#takeCsi(byte, replayed);
        return;
      case 'osc':
      case 'string':
        this.#takeString(byte, replayed);
        return;
    }
  }

  #takeC1(byte: number, replayed: boolean): void {
    this.#state = 'text';
    if (byte >= 0x80 && byte <= 0x9f) {
      // A C1 control means ESC and the byte minus 0x40.
      this.#begin('escape');
      this.#takeEscape(byte - 0x40);
      return;
    }
    this.#put(C1_LEAD);
    this.#take(byte, replayed);
  }

  #takeEscape(byte: number): void {
    switch (String.fromCharCode(byte)) {
      case '[':
        this.#begin('csi');
        return;
      case ']':
        this.#begin('osc');
        return;
      case 'P':
      case 'X':
      case '^':
      case '_':
        this.#begin('string');
        return;
      case '\\':
        // String terminator without a string.
        this.#state = 'text';
        return;
      default:
    }
    if (byte === ESC) return;
    this.#sequence.push(byte);
    if (byte >= 0x20 && byte <= 0x2f && this.#sequence.length < 4) return;
    this.#state = 'text';
    const text = String.fromCharCode(...this.#sequence);
    // Drop S8C1T, which would make the terminal encode keys as 8-bit controls.
    if (text === ' G') return;
    this.modes.escapeSequence(text);
    this.#put(ESC, ...this.#sequence);
  }

  #takeCsi(byte: number, replayed: boolean): void {
    if (byte === ESC) {
      this.#begin('escape');
    } else if (byte === CAN || byte === SUB) {
      this.#state = 'text';
    } else if (byte < 0x20) {
      // Terminals execute C0 controls in the middle of a sequence.
      this.#put(byte);
    } else {
      this.#append(byte);
      if (byte < 0x40) return;
      this.#state = 'text';
      const text = String.fromCharCode(...this.#sequence);
      if (this.#tooLong || byte > 0x7e || (replayed && isQuery(text)) || isRefused(text)) return;
      this.modes.controlSequence(text);
      this.#put(ESC, 0x5b, ...this.#sequence);
    }
  }

  #takeString(byte: number, replayed: boolean): void {
    if (byte === CAN || byte === SUB) {
      this.#state = 'text';
    } else if (byte === ESC || (byte === BEL && this.#state === 'osc')) {
      this.#endString(replayed);
      if (byte === ESC) this.#begin('escape');
    } else if (byte === 0x9c && this.#sequence.at(-1) === C1_LEAD) {
      this.#sequence.pop();
      this.#endString(replayed);
    } else {
      this.#append(byte);
    }
  }

  #endString(replayed: boolean): void {
    const wasCommand = this.#state === 'osc';
    this.#state = 'text';
    if (!wasCommand || this.#tooLong) return;
    const text = Buffer.from(this.#sequence).toString('utf8');
    const [command = ''] = text.split(';', 1);
    if (!HARMLESS_COMMANDS.has(command) || /[\p{Cc}]/u.test(text)) return;
    if (replayed && text.includes('?')) return;
    this.modes.command(command, text.slice(command.length + 1));
    this.#put(ESC, 0x5d, ...Buffer.from(text), BEL);
  }

  #begin(state: State): void {
    this.#state = state;
    this.#sequence = [];
    this.#tooLong = false;
  }

  #append(byte: number): void {
    this.#appendAll([byte]);
  }

  /** Of a sequence that is too long only the last byte is stored, to recognise its end. */
  #appendAll(bytes: Uint8Array | readonly number[]): void {
    if (!this.#tooLong && this.#sequence.length + bytes.length <= MAX_SEQUENCE_BYTES) {
      this.#sequence.push(...bytes);
      return;
    }
    this.#tooLong = true;
    this.#sequence = [bytes.at(-1) ?? 0];
  }

  #copy(bytes: Uint8Array): void {
    this.#ensureCapacity(bytes.length);
    this.#out.set(bytes, this.#length);
    this.#length += bytes.length;
  }

  #ensureCapacity(bytes: number): void {
    if (this.#length + bytes <= this.#out.length) return;
    this.#out = Buffer.concat([this.#out, Buffer.allocUnsafe(this.#out.length + bytes)]);
  }

  #put(...bytes: readonly number[]): void {
    this.#ensureCapacity(bytes.length);
    for (const byte of bytes) {
      this.#out[this.#length] = byte;
      this.#length += 1;
    }
  }
}

function mayEndString(byte: number | undefined): boolean {
  return byte === ESC || byte === BEL || byte === CAN || byte === SUB || byte === 0x9c;
}

/** Title queries, whose answer would be typed into the program, and locking the keyboard, which would prevent detaching. */
function isRefused(sequence: string): boolean {
  return /^2[01]t$|^(?:\d+;)*2(?:;\d+)*h$/.test(sequence);
}

/** Queries for attributes, status, modes and versions. The terminal sends the answer as input. */
function isQuery(sequence: string): boolean {
  return /^[?>=]?[\d;]*[cn]$|\$p$|^>[\d;]*q$|^[\d;]*[tx]$/.test(sequence);
}
