import { UsageError } from '../failure.ts';
import { sanitizeLine } from '../render/text.ts';
import { TerminalInput } from './terminal-input.ts';
import type { InputToken, KeyChord, KeyPhase } from './terminal-input.ts';

/** Ctrl+], as telnet has it: no shell or editor needs it often, and no coding agent uses it. */
export const DEFAULT_DETACH_KEYS = 'ctrl-],d';
/** Names the keys for all terminals of a person. */
export const DETACH_KEYS_VARIABLE = 'HOLDFAST_DETACH_KEYS';
/** Passes every key on. */
export const NO_DETACH_KEYS = 'none';

/** The keys that leave a terminal: the first one is a prefix that no program gets, the second one says what to do. */
export interface DetachKeys {
  readonly prefix: KeyChord;
  readonly leave: KeyChord;
}

/** `ctrl-],d`, `ctrl-a` (then `d`), `ctrl-p,ctrl-q`; null for `none`. Errors: UsageError. */
export function parseDetachKeys(text: string): DetachKeys | null {
  if (text === NO_DETACH_KEYS) return null;
  const [, prefix, leave = 'd'] = /^(ctrl-[^,])(?:,(.+))?$/is.exec(text) ?? [];
  if (prefix === undefined) throw invalid(text, 'the first one is Ctrl with another key');
  const keys = { prefix: chord(text, prefix), leave: chord(text, leave) };
  if (/^[hijm[]$/.test(String.fromCodePoint(keys.prefix.code))) {
    throw invalid(
      text,
      `a terminal sends the same for ${nameOfChord(keys.prefix)} as for Backspace, Tab, Enter or Escape`,
    );
  }
  if (isSame(keys.prefix, keys.leave)) throw invalid(text, 'twice the first key is that key for the program');
  return keys;
}

/** As a person reads it: `Ctrl+] d`. */
export function formatDetachKeys({ prefix, leave }: DetachKeys): string {
  return `${nameOfChord(prefix)} ${nameOfChord(leave)}`;
}

function nameOfChord({ code, ctrl }: KeyChord): string {
  const character = String.fromCodePoint(code);
  return ctrl ? `Ctrl+${character.toUpperCase()}` : character;
}

function chord(text: string, name: string): KeyChord {
  const [, control, character] = /^(ctrl-)?([!-~])$/i.exec(name) ?? [];
  if (character === undefined) throw invalid(text, `${sanitizeLine(name)} is no key`);
  const ctrl = control !== undefined;
  if (ctrl && !/^[a-z@[\\\]^_]$/i.test(character))
    throw invalid(text, `terminals have no key ${sanitizeLine(name)}`);
  return { code: character.toLowerCase().charCodeAt(0), ctrl };
}

function invalid(text: string, why: string): UsageError {
  return new UsageError(
    `${sanitizeLine(text)} are no keys to leave a terminal with: ${why}; write ${DEFAULT_DETACH_KEYS}, ctrl-a,d or ${NO_DETACH_KEYS}`,
    'invalid_params',
  );
}

function isSame(a: KeyChord, b: KeyChord): boolean {
  return a.code === b.code && a.ctrl === b.ctrl;
}

export interface FilteredInput {
  /** What goes to the program. */
  readonly forwarded: Buffer;
  /** The person leaves; what came after the keys for it is dropped. */
  readonly detaches: boolean;
  /** ^C is among what was typed. */
  readonly interrupts: boolean;
  /** Something was typed or pasted, so it is not all the terminal's own. */
  readonly isUserInput: boolean;
}

/**
 * Finds the keys that leave a terminal in what it sends. The prefix never reaches the program; twice the prefix is the prefix for the program; the
 * prefix and any other key are dropped together, so that a slip answers no question. What the terminal sends by itself goes
 * through and changes nothing; pasted text goes through as it is.
 */
export class DetachKeyFilter {
  readonly #keys: DetachKeys | null;
  readonly #input = new TerminalInput();
  #hasPrefix = false;
  /** Keys whose press was kept from the program: so are their releases. */
  readonly #swallowed = new Set<number>();

  /** `null`: passes everything on at once, and only tells what is typed. */
  constructor(keys: DetachKeys | null) {
    this.#keys = keys;
  }

  /** Call `flush` when this is true and nothing comes for a moment: what is held back may be Escape. */
  get isAmbiguous(): boolean {
    return this.#input.isAmbiguous;
  }

  filter(bytes: Uint8Array): FilteredInput {
    const typed = this.#filter(this.#input.parse(bytes));
    return this.#keys === null ? { ...typed, forwarded: Buffer.from(bytes) } : typed;
  }

  flush(): FilteredInput {
    const typed = this.#filter(this.#input.flush());
    return this.#keys === null ? { ...typed, forwarded: Buffer.alloc(0) } : typed;
  }

  #filter(tokens: readonly InputToken[]): FilteredInput {
    const passed: Buffer[] = [];
    let leaves = false;
    let interrupts = false;
    let isTyped = false;
    for (const token of tokens) {
      if (token.type !== 'report' && !(token.type === 'key' && token.phase === 'release')) isTyped = true;
      if (token.type === 'key' && token.chord !== null && isInterrupt(token.chord, token.phase))
        interrupts = true;
      const bytes = this.#pass(token);
      if (bytes === 'leave') {
        leaves = true;
        break;
      }
      passed.push(bytes);
    }
    return { forwarded: Buffer.concat(passed), detaches: leaves, interrupts, isUserInput: isTyped };
  }

  #pass(token: InputToken): Buffer | 'leave' {
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

  #passText(bytes: Buffer): Buffer | 'leave' {
    if (!this.#hasPrefix) return bytes;
    this.#hasPrefix = false;
    const first = bytes[0] ?? 0;
    if (this.#isLeave({ code: isCapital(first) ? first + 0x20 : first, ctrl: false })) return 'leave';
    // All of the first character goes.
    let end = 1;
    while (first >= 0xc0 && ((bytes[end] ?? 0) & 0xc0) === 0x80) end += 1;
    return bytes.subarray(end);
  }

  #passKey(bytes: Buffer, chord: KeyChord | null, phase: KeyPhase): Buffer | 'leave' {
    const nothing = bytes.subarray(0, 0);
    if (phase === 'release') return chord !== null && this.#swallowed.delete(chord.code) ? nothing : bytes;
    const isPrefix = chord !== null && this.#keys !== null && isSame(chord, this.#keys.prefix);
    // The prefix is still held down.
    if (phase === 'repeat' && isPrefix) return this.#swallowed.has(chord.code) ? nothing : bytes;
    if (this.#hasPrefix) {
      this.#hasPrefix = false;
      if (isPrefix) {
        this.#swallowed.delete(chord.code);
        return bytes;
      }
      if (chord !== null && this.#isLeave(chord)) return 'leave';
    } else if (isPrefix) {
      this.#hasPrefix = true;
    } else {
      if (chord !== null) this.#swallowed.delete(chord.code);
      return bytes;
    }
    if (chord !== null) this.#swallowed.add(chord.code);
    return nothing;
  }

  /** A letter leaves with Ctrl too: it is easily still held down. */
  #isLeave({ code, ctrl }: KeyChord): boolean {
    if (this.#keys === null) return false;
    const { leave } = this.#keys;
    return code === leave.code && (ctrl === leave.ctrl || (ctrl && code >= 0x61 && code <= 0x7a));
  }
}

function isCapital(code: number): boolean {
  return code >= 0x41 && code <= 0x5a;
}

function isInterrupt({ code, ctrl }: KeyChord, phase: KeyPhase): boolean {
  return ctrl && code === 0x63 && phase !== 'release';
}
