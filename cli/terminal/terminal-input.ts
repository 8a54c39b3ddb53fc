const ESC = 0x1b;
const BEL = 0x07;
const DEL = 0x7f;
/** A control sequence that is longer than this is none that a terminal sends for a key. */
const MOST_SEQUENCE_BYTES = 256;
const PASTE_END = Buffer.from('\x1b[201~');

/** How a key moved. Only terminals that a program has asked for it tell repeats and releases from presses. */
export type KeyPhase = 'press' | 'repeat' | 'release';

export interface KeyChord {
  /** Code point of the unshifted key; of letters always the small one. */
  readonly code: number;
  readonly ctrl: boolean;
}

/** A part of what a terminal sends. The bytes of all tokens, one after the other, are the bytes that were taken. */
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
  /** What the terminal sends by itself: answers, focus, mouse, a modifier key alone. */
  | { readonly type: 'report'; readonly bytes: Buffer };

type State = 'ground' | 'paste' | 'string';
/** The end of a token, or why there is none yet: `ambiguous` bytes may also be whole keys, `unfinished` ones may not. */
type Scanned = { readonly token: InputToken } | 'ambiguous' | 'unfinished';

/**
 * Splits what a terminal sends into keys, typed text, pasted text and reports, in every encoding of keys that a program can switch on: control
 * characters, xterm's modifyOtherKeys (`CSI 27;5;93~`), the kitty keyboard protocol (`CSI 93;5u`) and win32-input-mode (`CSI … _`).
 * It works on whatever pieces come.
 */
export class TerminalInput {
  #state: State = 'ground';
  /** The beginning of a sequence whose end has not come. */
  #held: Buffer = Buffer.alloc(0);
  #isAmbiguous = false;
  /** How many bytes of PASTE_END the last bytes of a paste are. */
  #pasteEndMatched = 0;

  /** The held bytes may be whole keys, such as Escape: call `flush` when nothing comes for a moment. */
  get isAmbiguous(): boolean {
    return this.#isAmbiguous;
  }

  parse(bytes: Uint8Array): InputToken[] {
    const input = this.#held.length === 0 ? Buffer.from(bytes) : Buffer.concat([this.#held, bytes]);
    this.#held = Buffer.alloc(0);
    this.#isAmbiguous = false;
    const tokens: InputToken[] = [];
    let at = 0;
    while (at < input.length) {
      const rest = input.subarray(at);
      const scanned = this.#scan(rest);
      if (typeof scanned === 'string') {
        this.#held = Buffer.from(rest);
        this.#isAmbiguous = scanned === 'ambiguous';
        break;
      }
      // A string may end before its first byte: then only the state has changed.
      if (scanned.token.bytes.length > 0) tokens.push(scanned.token);
      at += scanned.token.bytes.length;
    }
    return tokens;
  }

  /** Takes the held bytes for keys. */
  flush(): InputToken[] {
    const held = this.#held;
    this.#held = Buffer.alloc(0);
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
    if (end === input.length) end -= cutCharacterBytes(input);
    return end === 0 ? 'ambiguous' : { token: { type: 'text', bytes: input.subarray(0, end) } };
  }

  #scanEscape(input: Buffer): Scanned {
    const second = input[1];
    if (second === undefined) return 'ambiguous';
    // Escape, and another key after it.
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
        // An answer of the terminal begins with certain characters; without them it is Alt and a key.
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
      // F1 to F5 of the Linux console, and mouse events of the oldest form, go on after their last byte.
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

  /** Nothing is held back: a paste goes through as it is, and its end is found byte by byte. */
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

  /** The inside of an answer. Control characters do not occur in one, so keys after one that was cut off are recognised. */
  #scanString(input: Buffer): InputToken {
    for (let at = 0; at < input.length; at += 1) {
      const byte = input[at] ?? 0;
      if (!isControl(byte)) continue;
      this.#state = 'ground';
      // The end is BEL, or ESC \, which is read as a sequence of its own.
      return report(input.subarray(0, byte === BEL ? at + 1 : at));
    }
    return report(input);
  }
}

function isControl(byte: number): boolean {
  return byte < 0x20 || byte === DEL;
}

function otherKey(bytes: Buffer): InputToken {
  // The end of an answer.
  if (bytes.length === 2 && bytes[1] === 0x5c) return report(bytes);
  return { type: 'key', bytes, chord: null, phase: 'press' };
}

function report(bytes: Buffer): InputToken {
  return { type: 'report', bytes };
}

/** Control characters: those of the letters and of `@ [ \ ] ^ _`. */
function controlKey(bytes: Buffer): InputToken {
  const byte = bytes[0] ?? 0;
  return { type: 'key', bytes, chord: byte === DEL ? null : chordOf(byte + 0x40, true), phase: 'press' };
}

function chordOf(code: number, ctrl: boolean): KeyChord {
  const isCapital = code >= 0x41 && code <= 0x5a;
  return { code: isCapital ? code + 0x20 : code, ctrl };
}

/** A sequence that goes on for `more` bytes after `from`, none of which is a control character. */
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

/** How many bytes at the end are the beginning of a character of UTF-8. */
function cutCharacterBytes(input: Buffer): number {
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
    // Arrows, Home, End, F1 to F4, keys of the number pad, Shift and Tab.
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

/** `key`: code point, that with Shift, that of the key's place on a US keyboard. `modifiers`: one more than their bits, and the phase. */
function characterKey(bytes: Buffer, key: readonly number[], modifiers: readonly number[]): InputToken {
  const [code = 0, shifted = 0, base = 0] = key;
  if (isModifierKey(code)) return report(bytes);
  const bits = Math.max(0, (modifiers[0] ?? 1) - 1) & ~(CAPS_LOCK | NUM_LOCK);
  const phase = phaseOf(modifiers);
  const hasShift = (bits & SHIFT) !== 0;
  const ctrl = (bits & CTRL) !== 0;
  if ((bits & ~(SHIFT | CTRL)) !== 0) return { type: 'key', bytes, chord: null, phase };
  // On a keyboard without Latin letters the place of a key says which one is meant, as it does for control characters.
  if (code >= 0x80 && base > 0) return { type: 'key', bytes, chord: chordOf(base, ctrl), phase };
  const meant =
    hasShift && shifted > 0 && !isLetter(code) ? shifted : hasShift && ctrl ? withShift(code) : code;
  return { type: 'key', bytes, chord: chordOf(meant, ctrl), phase };
}

/** What terminals send as a control character although the key has another one without Shift. */
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

/** Shift, Ctrl, Alt, locks and the like: they come before, between and after the keys that they modify. */
function isModifierKey(code: number): boolean {
  return (code >= 57_358 && code <= 57_360) || (code >= 57_441 && code <= 57_454);
}

/** `character`: its code, a control character's with Ctrl, 0 for keys without one. */
function win32Key(bytes: Buffer, character: number, isUp: boolean): InputToken {
  if (character === 0) return report(bytes);
  const chord = character < 0x20 ? chordOf(character + 0x40, true) : chordOf(character, false);
  return { type: 'key', bytes, chord, phase: isUp ? 'release' : 'press' };
}
