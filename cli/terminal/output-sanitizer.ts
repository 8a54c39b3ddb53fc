import { TerminalModes } from './terminal-modes.ts';

const ESC = 0x1b;
const BEL = 0x07;
const CAN = 0x18;
const SUB = 0x1a;
/** First byte of U+0080 to U+009F in UTF-8: control characters of one character, which terminals obey too. */
const C1_LEAD = 0xc2;

/** A sequence that is longer than this is no sequence that a terminal needs. */
const MOST_BYTES = 512;
/** Titles and colours. What is not here reaches beyond the terminal: links, clipboard, notifications, and what VS Code believes of a shell. */
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
  /** Device control and other strings, all of which are left out. */
  | 'string';

/**
 * What a program in a sandbox writes, on its way to a person's terminal: text, colours and cursor go through as they are; links
 * (OSC 8), clipboard (OSC 52), shell integration (OSC 133, 633, 1337, 7), notifications (OSC 9, 777) and device strings are left out. Works on
 * whatever pieces come, and holds at most one short sequence back.
 */
export class OutputSanitizer {
  /** What of it a terminal that is left has to be rid of. */
  readonly modes = new TerminalModes();
  #state: State = 'text';
  #sequence: number[] = [];
  #tooLong = false;
  #out: Buffer = Buffer.alloc(0);
  #length = 0;

  /**
   * `replayed`: it was shown before. Questions to the terminal are left out then, because nobody waits for the answers any more and they
   * would be typed into the program.
   */
  sanitize(bytes: Uint8Array, replayed = false): Buffer {
    if (this.#state === 'text' && !bytes.includes(ESC) && !bytes.includes(C1_LEAD)) return Buffer.from(bytes);
    this.#out = Buffer.allocUnsafe(bytes.length + MOST_BYTES + 8);
    this.#length = 0;
    for (let at = 0; at < bytes.length;) {
      const run = this.#run(bytes, at);
      if (run > at) {
        if (this.#state === 'text') this.#copy(bytes.subarray(at, run));
        else this.#keepAll(bytes.subarray(at, run));
        at = run;
        continue;
      }
      this.#take(bytes[at] ?? 0, replayed);
      at += 1;
    }
    return this.#out.subarray(0, this.#length);
  }

  /** Where the bytes end that are plain in the state of now: text, or the inside of a string. */
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
      // The same as ESC and the character 0x40 below.
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
        // The end of a string that is over already.
        this.#state = 'text';
        return;
      default:
    }
    if (byte === ESC) return;
    this.#sequence.push(byte);
    if (byte >= 0x20 && byte <= 0x2f && this.#sequence.length < 4) return;
    this.#state = 'text';
    const text = String.fromCharCode(...this.#sequence);
    // With one-character controls from the terminal keys would look another way.
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
      // Obeyed in the middle of a sequence.
      this.#put(byte);
    } else {
      this.#keep(byte);
      if (byte < 0x40) return;
      this.#state = 'text';
      const text = String.fromCharCode(...this.#sequence);
      if (this.#tooLong || byte > 0x7e || (replayed && isQuestion(text)) || isRefused(text)) return;
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
      this.#keep(byte);
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

  #keep(byte: number): void {
    this.#keepAll([byte]);
  }

  /** Of what is too long the last byte is kept, by which its end is recognised. */
  #keepAll(bytes: Uint8Array | readonly number[]): void {
    if (!this.#tooLong && this.#sequence.length + bytes.length <= MOST_BYTES) {
      this.#sequence.push(...bytes);
      return;
    }
    this.#tooLong = true;
    this.#sequence = [bytes.at(-1) ?? 0];
  }

  #copy(bytes: Uint8Array): void {
    this.#demand(bytes.length);
    this.#out.set(bytes, this.#length);
    this.#length += bytes.length;
  }

  #demand(bytes: number): void {
    if (this.#length + bytes <= this.#out.length) return;
    this.#out = Buffer.concat([this.#out, Buffer.allocUnsafe(this.#out.length + bytes)]);
  }

  #put(...bytes: readonly number[]): void {
    this.#demand(bytes.length);
    for (const byte of bytes) {
      this.#out[this.#length] = byte;
      this.#length += 1;
    }
  }
}

function mayEndString(byte: number | undefined): boolean {
  return byte === ESC || byte === BEL || byte === CAN || byte === SUB || byte === 0x9c;
}

/** Asking for the title, which would be typed; locking the keyboard, which could not be left any more. */
function isRefused(sequence: string): boolean {
  return /^2[01]t$|^(?:\d+;)*2(?:;\d+)*h$/.test(sequence);
}

/** Attributes, status, modes, versions: a terminal answers these as if somebody typed. */
function isQuestion(sequence: string): boolean {
  return /^[?>=]?[\d;]*[cn]$|\$p$|^>[\d;]*q$|^[\d;]*[tx]$/.test(sequence);
}
