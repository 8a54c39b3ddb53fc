const ESC = 0x1b;
const BEL = 0x07;
const DEL = 0x7f;
/** No terminal sends a longer control sequence for a key. */
const MOST_SEQUENCE_BYTES = 256;
const PASTE_END = Buffer.from('\x1b[201~');

/** The phase of a key event. Terminals report repeats and releases only if a program has enabled that. */
export type KeyPhase = 'press' | 'repeat' | 'release';

export interface KeyChord {
  /** Code point of the unshifted key; lower case for letters. */
  readonly code: number;
  readonly ctrl: boolean;
}

/** A part of the input. The concatenated bytes of all tokens are the input. */
export type InputToken =
  /** One key; `chord` is null for keys without a character, such as the arrows, and for those with Alt. */
  | {
      readonly type: 'key';
      readonly bytes: Buffer;
      readonly chord: KeyChord | null;
      readonly phase: KeyPhase;
    }
  /** Typed characters that are not control characters. */
  | { readonly type: 'text'; readonly bytes: Buffer }
  /** A part of a bracketed paste, with its markers. */
  | { readonly type: 'paste'; readonly bytes: Buffer }
  /** What the terminal sends without a key: answers, focus, mouse, a modifier key alone. */
  | { readonly type: 'report'; readonly bytes: Buffer };

type State = 'ground' | 'paste' | 'string';
/** A token, or why there is none yet: `ambiguous` bytes may also be complete keys, `unfinished` ones may not. */
type Scanned = { readonly token: InputToken } | 'ambiguous' | 'unfinished';

/**
 * Splits the input of a terminal into keys, typed text, pasted text and reports, in every encoding that a program can
 * enable: control characters, xterm's modifyOtherKeys (`CSI 27;5;93~`), the kitty keyboard protocol (`CSI 93;5u`) and
 * win32-input-mode (`CSI … _`). Works on chunks of any size.
 */
export class TerminalInput {
  #state: State = 'ground';
  /** The beginning of an incomplete sequence. */
  #buffered: Buffer = Buffer.alloc(0);
  #isAmbiguous = false;
  /** How many bytes of PASTE_END match the end of the paste so far. */
  #pasteEndMatched = 0;

  /** The buffered bytes may be complete keys, such as Escape: call `flush` if no more input follows soon. */
  get isAmbiguous(): boolean {
    return this.#isAmbiguous;
  }

  parse(bytes: Uint8Array): InputToken[] {
    const input = this.#buffered.length === 0 ? Buffer.from(bytes) : Buffer.concat([this.#buffered, bytes]);
    this.#buffered = Buffer.alloc(0);
    this.#isAmbiguous = false;
    const tokens: InputToken[] = [];
    let at = 0;
    while (at < input.length) {
      const rest = input.subarray(at);
      const scanned = this.#scan(rest);
      if (typeof scanned === 'string') {
        this.#buffered = Buffer.from(rest);
        this.#isAmbiguous = scanned === 'ambiguous';
        break;
      }
      // An empty token means that a string ended before its first byte and only the state has changed.
      if (scanned.token.bytes.length > 0) tokens.push(scanned.token);
      at += scanned.token.bytes.length;
    }
    return tokens;
  }

  /** Treats the buffered bytes as complete keys. */
  flush(): InputToken[] {
    const held = this.#buffered;
    this.#buffered = Buffer.alloc(0);
    this.#isAmbiguous = false;
    return held.length === 0 ? [] : [otherKey(held)];
  }

  #scan(input: Buffer): Scanned {
    switch (this.#state) {
      case 'paste':
        return { token: this.#scanPaste(input) };
      case 'string':
        return { token: this.#scanString(input) };
      case 'ground':
        return this.#scanGround(input);
    }
  }

  #scanGround(input: Buffer): Scanned {
    const first = input[0] ?? 0;
    if (first === ESC) return this.#scanEscape(input);
    if (isControl(first)) return { token: controlKey(input.subarray(0, 1)) };
    let end = 0;
    while (end < input.length && !isControl(input[end] ?? 0)) end += 1;
    if (end === input.length) end -= incompleteCharacterBytes(input);
    return end === 0 ? 'ambiguous' : { token: { type: 'text', bytes: input.subarray(0, end) } };
  }

  #scanEscape(input: Buffer): Scanned {
    const second = input[1];
    if (second === undefined) return 'ambiguous';
    // The Escape key, followed by another key.
    if (isControl(second) || second >= 0x80) return { token: otherKey(input.subarray(0, 1)) };
    const third = input[2];
    switch (String.fromCharCode(second)) {
      case '[':
        return this.#scanControlSequence(input);
      case 'O':
        if (third === undefined) return 'ambiguous';
        return { token: otherKey(input.subarray(0, third >= 0x40 && third < DEL ? 3 : 2)) };
      case ']':
      case 'P':
      case '_':
        // Answers of the terminal begin with certain characters. Otherwise this is Alt and a key.
        if (third === undefined) return 'ambiguous';
        if (/[0-9>!+|$G]/.test(String.fromCharCode(third))) {
          this.#state = 'string';
          return { token: { type: 'report', bytes: input.subarray(0, 2) } };
        }
        return { token: otherKey(input.subarray(0, 2)) };
      default:
        return { token: otherKey(input.subarray(0, 2)) };
    }
  }

  #scanControlSequence(input: Buffer): Scanned {
    for (let at = 2; at < input.length; at += 1) {
      const byte = input[at] ?? 0;
      if (byte < 0x20 || byte >= DEL || at >= MOST_SEQUENCE_BYTES)
        return { token: otherKey(input.subarray(0, at)) };
      if (byte < 0x40) continue;
      const parameters = input.toString('latin1', 2, at);
      const final = String.fromCharCode(byte);
      // F1 to F5 of the Linux console and X10 mouse events continue after their final byte.
      if (parameters === '' && final === '[') return sequenceWith(input, at + 1, 1, otherKey);
      if (parameters === '' && final === 'M') return sequenceWith(input, at + 1, 3, report);
      const bytes = input.subarray(0, at + 1);
      if (final === '~' && parameters === '200') {
        this.#state = 'paste';
        this.#pasteEndMatched = 0;
        return { token: { type: 'paste', bytes } };
      }
      return { token: controlSequence(bytes, parameters, final) };
    }
    return input.length === 2 ? 'ambiguous' : 'unfinished';
  }

  /** Passes a paste through without buffering and finds its end byte by byte. */
  #scanPaste(input: Buffer): InputToken {
    for (let at = 0; at < input.length; at += 1) {
      const byte = input[at];
      if (byte === PASTE_END[this.#pasteEndMatched]) this.#pasteEndMatched += 1;
      else this.#pasteEndMatched = byte === ESC ? 1 : 0;
      if (this.#pasteEndMatched === PASTE_END.length) {
        this.#state = 'ground';
        return { type: 'paste', bytes: input.subarray(0, at + 1) };
      }
    }
    return { type: 'paste', bytes: input };
  }

  /** The inside of an answer. It contains no control characters, so a key after a truncated answer is recognised. */
  #scanString(input: Buffer): InputToken {
    for (let at = 0; at < input.length; at += 1) {
      const byte = input[at] ?? 0;
      if (!isControl(byte)) continue;
      this.#state = 'ground';
      // The end is BEL, or ESC \, which is parsed as a separate sequence.
      return report(input.subarray(0, byte === BEL ? at + 1 : at));
    }
    return report(input);
  }
}

function isControl(byte: number): boolean {
  return byte < 0x20 || byte === DEL;
}

function otherKey(bytes: Buffer): InputToken {
  // ESC \: the end of an answer.
  if (bytes.length === 2 && bytes[1] === 0x5c) return report(bytes);
  return { type: 'key', bytes, chord: null, phase: 'press' };
}

function report(bytes: Buffer): InputToken {
  return { type: 'report', bytes };
}

/** A control character: Ctrl with a letter or one of `@ [ \ ] ^ _`. */
function controlKey(bytes: Buffer): InputToken {
  const byte = bytes[0] ?? 0;
  return { type: 'key', bytes, chord: byte === DEL ? null : chordOf(byte + 0x40, true), phase: 'press' };
}

function chordOf(code: number, ctrl: boolean): KeyChord {
  const isCapital = code >= 0x41 && code <= 0x5a;
  return { code: isCapital ? code + 0x20 : code, ctrl };
}

/** A sequence with `more` bytes after `from`, none of which may be a control character. */
function sequenceWith(
  input: Buffer,
  from: number,
  more: number,
  token: (bytes: Buffer) => InputToken,
): Scanned {
  for (let at = from; at < from + more; at += 1) {
    const byte = input[at];
    if (byte === undefined) return 'ambiguous';
    if (isControl(byte)) return { token: otherKey(input.subarray(0, at)) };
  }
  return { token: token(input.subarray(0, from + more)) };
}

/** Number of bytes at the end that are the beginning of an incomplete UTF-8 character. */
function incompleteCharacterBytes(input: Buffer): number {
  for (let back = 1; back <= Math.min(3, input.length); back += 1) {
    const byte = input[input.length - back] ?? 0;
    if (byte < 0x80) return 0;
    if (byte < 0xc0) continue;
    const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
    return back < length ? back : 0;
  }
  return 0;
}

const SHIFT = 1;
const CTRL = 4;
const CAPS_LOCK = 64;
const NUM_LOCK = 128;
const PHASES: readonly KeyPhase[] = ['press', 'press', 'repeat', 'release'];

function controlSequence(bytes: Buffer, parameters: string, final: string): InputToken {
  if (!/^[\d;:]*$/.test(parameters)) return report(bytes);
  const fields = parameters.split(';').map((field) => field.split(':').map(Number));
  const [first = [], second = [], third = [], fourth = []] = fields;
  switch (final) {
    case 'u':
      return characterKey(bytes, first, second);
    case '~':
      if (first[0] === 27 && third[0] !== undefined) return characterKey(bytes, third, second);
      if (first[0] === 201) return report(bytes);
      return { type: 'key', bytes, chord: null, phase: phaseOf(second) };
    case '_':
      return win32Key(bytes, third[0] ?? 0, fourth[0] === 0);
    // Arrows, Home, End, F1 to F4, keypad keys, Shift+Tab.
    case 'A':
    case 'B':
    case 'C':
    case 'D':
    case 'E':
    case 'F':
    case 'G':
    case 'H':
    case 'P':
    case 'Q':
    case 'S':
    case 'Z':
      return { type: 'key', bytes, chord: null, phase: phaseOf(second) };
    default:
      return report(bytes);
  }
}

function phaseOf([, event]: readonly number[]): KeyPhase {
  return PHASES[event ?? 1] ?? 'press';
}

/**
 * `key`: code point of the key, with Shift, and at the same position on a US keyboard. `modifiers`: their bits plus
 * one, and the phase.
 */
function characterKey(bytes: Buffer, key: readonly number[], modifiers: readonly number[]): InputToken {
  const [code = 0, shifted = 0, base = 0] = key;
  if (isModifierKey(code)) return report(bytes);
  const bits = Math.max(0, (modifiers[0] ?? 1) - 1) & ~(CAPS_LOCK | NUM_LOCK);
  const phase = phaseOf(modifiers);
  const hasShift = (bits & SHIFT) !== 0;
  const ctrl = (bits & CTRL) !== 0;
  if ((bits & ~(SHIFT | CTRL)) !== 0) return { type: 'key', bytes, chord: null, phase };
  // On a keyboard without Latin letters, the position of the key counts, as it does for control characters.
  if (code >= 0x80 && base > 0) return { type: 'key', bytes, chord: chordOf(base, ctrl), phase };
  const meant =
    hasShift && shifted > 0 && !isLetter(code) ? shifted : hasShift && ctrl ? withShift(code) : code;
  return { type: 'key', bytes, chord: chordOf(meant, ctrl), phase };
}

/** Terminals send these with Ctrl and Shift as control characters of the shifted key. */
function withShift(code: number): number {
  switch (String.fromCharCode(code)) {
    case '2':
      return 0x40;
    case '6':
      return 0x5e;
    case '-':
      return 0x5f;
    default:
      return code;
  }
}

function isLetter(code: number): boolean {
  return (code >= 0x61 && code <= 0x7a) || (code >= 0x41 && code <= 0x5a);
}

/** Shift, Ctrl, Alt and lock keys, which are reported on their own. */
function isModifierKey(code: number): boolean {
  return (code >= 57_358 && code <= 57_360) || (code >= 57_441 && code <= 57_454);
}

/** `character`: the code of the character, of the control character with Ctrl, or 0 for keys without one. */
function win32Key(bytes: Buffer, character: number, isUp: boolean): InputToken {
  if (character === 0) return report(bytes);
  const chord = character < 0x20 ? chordOf(character + 0x40, true) : chordOf(character, false);
  return { type: 'key', bytes, chord, phase: isUp ? 'release' : 'press' };
}
