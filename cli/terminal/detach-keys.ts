import { UsageError } from '../failure.ts';
import { sanitizeLine } from '../render/text.ts';
import { TerminalInput } from './terminal-input.ts';
import type { InputToken, KeyChord, KeyPhase } from './terminal-input.ts';

/** Ctrl+], as in telnet: shells and editors rarely need it, and no coding agent uses it. */
export const DEFAULT_DETACH_KEYS = 'ctrl-],d';
/** The environment variable with the default detach keys. */
export const DETACH_KEYS_VARIABLE = 'HOLDFAST_DETACH_KEYS';
/** The value that disables detach keys. */
export const NO_DETACH_KEYS = 'none';

/** The keys that detach from a terminal: a prefix, which is never sent to the program, and a second key. */
export interface DetachKeys {
  readonly prefix: KeyChord;
  readonly detach: KeyChord;
}

/** `ctrl-],d`, `ctrl-a` (then `d`), `ctrl-p,ctrl-q`; null for `none`. Errors: UsageError. */
export function parseDetachKeys(text: string): DetachKeys | null {
  if (text === NO_DETACH_KEYS) return null;
  const [, prefix, detach = 'd'] = /^(ctrl-[^,])(?:,(.+))?$/is.exec(text) ?? [];
  if (prefix === undefined) throw invalid(text, 'the first key must be Ctrl and another key');
  const keys = { prefix: parseChord(text, prefix), detach: parseChord(text, detach) };
  if (/^[hijm[]$/.test(String.fromCodePoint(keys.prefix.code))) {
    throw invalid(
      text,
      `terminals send the same byte for ${formatChord(keys.prefix)} as for Backspace, Tab, Enter or Escape`,
    );
  }
  if (isSame(keys.prefix, keys.detach))
    throw invalid(
      text,
      'the two keys must differ, because typing the first key twice sends it to the program',
    );
  return keys;
}

/** For people: `Ctrl+] d`. */
export function formatDetachKeys({ prefix, detach }: DetachKeys): string {
  return `${formatChord(prefix)} ${formatChord(detach)}`;
}

function formatChord({ code, ctrl }: KeyChord): string {
  const character = String.fromCodePoint(code);
  return ctrl ? `Ctrl+${character.toUpperCase()}` : character;
}

function parseChord(text: string, name: string): KeyChord {
  const [, control, character] = /^(ctrl-)?([!-~])$/i.exec(name) ?? [];
  if (character === undefined) throw invalid(text, `${sanitizeLine(name)} is not a key`);
  const ctrl = control !== undefined;
  if (ctrl && !/^[a-z@[\\\]^_]$/i.test(character))
    throw invalid(text, `terminals cannot send ${sanitizeLine(name)}`);
  return { code: character.toLowerCase().charCodeAt(0), ctrl };
}

function invalid(text: string, why: string): UsageError {
  return new UsageError(
    `${sanitizeLine(text)} are not valid detach keys: ${why}; use for example ${DEFAULT_DETACH_KEYS}, ctrl-a,d or ${NO_DETACH_KEYS}`,
    'invalid_params',
  );
}

function isSame(a: KeyChord, b: KeyChord): boolean {
  return a.code === b.code && a.ctrl === b.ctrl;
}

export interface FilteredInput {
  /** What is sent to the program. */
  readonly forwarded: Buffer;
  /** The user typed the detach keys. Input after them is dropped. */
  readonly detaches: boolean;
  /** The input contains ^C. */
  readonly interrupts: boolean;
  /** The user typed or pasted something, so the input is not only reports of the terminal itself. */
  readonly isUserInput: boolean;
}

/**
 * Finds the detach keys in the input of a terminal. The prefix is not sent to the program, except that typing it twice
 * sends it once. The prefix and any other key are dropped together, so that a typing mistake does not answer a prompt
 * of the program. Reports of the terminal itself and pasted text pass unchanged.
 */
export class DetachKeyFilter {
  readonly #keys: DetachKeys | null;
  readonly #input = new TerminalInput();
  #hasPrefix = false;
  /** Keys whose press was dropped. Their release is dropped too. */
  readonly #droppedKeys = new Set<number>();

  /** `null`: forwards everything at once and only classifies the input. */
  constructor(keys: DetachKeys | null) {
    this.#keys = keys;
  }

  /** When true and no more input follows soon, call `flush`: the buffered bytes may be the Escape key. */
  get isAmbiguous(): boolean {
    return this.#input.isAmbiguous;
  }

  filter(bytes: Uint8Array): FilteredInput {
    const filtered = this.#filter(this.#input.parse(bytes));
    return this.#keys === null ? { ...filtered, forwarded: Buffer.from(bytes) } : filtered;
  }

  flush(): FilteredInput {
    const filtered = this.#filter(this.#input.flush());
    return this.#keys === null ? { ...filtered, forwarded: Buffer.alloc(0) } : filtered;
  }

  #filter(tokens: readonly InputToken[]): FilteredInput {
    const forwarded: Buffer[] = [];
    let detaches = false;
    let interrupts = false;
    let isUserInput = false;
    for (const token of tokens) {
      if (token.type !== 'report' && !(token.type === 'key' && token.phase === 'release')) isUserInput = true;
      if (token.type === 'key' && token.chord !== null && isInterrupt(token.chord, token.phase))
        interrupts = true;
      const bytes = this.#pass(token);
      if (bytes === 'detach') {
        detaches = true;
        break;
      }
      forwarded.push(bytes);
    }
    return { forwarded: Buffer.concat(forwarded), detaches, interrupts, isUserInput };
  }

  #pass(token: InputToken): Buffer | 'detach' {
    switch (token.type) {
      case 'report':
        return token.bytes;
      case 'paste':
        this.#hasPrefix = false;
        return token.bytes;
      case 'text':
        return this.#passText(token.bytes);
      case 'key':
        return this.#passKey(token.bytes, token.chord, token.phase);
    }
  }

  #passText(bytes: Buffer): Buffer | 'detach' {
    if (!this.#hasPrefix) return bytes;
    this.#hasPrefix = false;
    const first = bytes[0] ?? 0;
    if (this.#isDetachKey({ code: isCapital(first) ? first + 0x20 : first, ctrl: false })) return 'detach';
    // Drop the whole first character.
    let end = 1;
    while (first >= 0xc0 && ((bytes[end] ?? 0) & 0xc0) === 0x80) end += 1;
    return bytes.subarray(end);
  }

  #passKey(bytes: Buffer, chord: KeyChord | null, phase: KeyPhase): Buffer | 'detach' {
    const nothing = bytes.subarray(0, 0);
    if (phase === 'release') return chord !== null && this.#droppedKeys.delete(chord.code) ? nothing : bytes;
    const isPrefix = chord !== null && this.#keys !== null && isSame(chord, this.#keys.prefix);
    // The user is still holding the prefix down.
    if (phase === 'repeat' && isPrefix) return this.#droppedKeys.has(chord.code) ? nothing : bytes;
    if (this.#hasPrefix) {
      this.#hasPrefix = false;
      if (isPrefix) {
        this.#droppedKeys.delete(chord.code);
        return bytes;
      }
      if (chord !== null && this.#isDetachKey(chord)) return 'detach';
    } else if (isPrefix) {
      this.#hasPrefix = true;
    } else {
      if (chord !== null) this.#droppedKeys.delete(chord.code);
      return bytes;
    }
    if (chord !== null) this.#droppedKeys.add(chord.code);
    return nothing;
  }

  /** A letter also detaches with Ctrl, which may still be held down. */
  #isDetachKey({ code, ctrl }: KeyChord): boolean {
    if (this.#keys === null) return false;
    const { detach } = this.#keys;
    return code === detach.code && (ctrl === detach.ctrl || (ctrl && code >= 0x61 && code <= 0x7a));
  }
}

function isCapital(code: number): boolean {
  return code >= 0x41 && code <= 0x5a;
}

function isInterrupt({ code, ctrl }: KeyChord, phase: KeyPhase): boolean {
  return ctrl && code === 0x63 && phase !== 'release';
}
