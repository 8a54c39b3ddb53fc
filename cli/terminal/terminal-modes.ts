const ALTERNATE_SCREENS: readonly number[] = [47, 1047, 1049];
const MOUSE_MODES: readonly number[] = [9, 1000, 1001, 1002, 1003];
const FOCUS_REPORTS = 1004;
const CURSOR = 25;
const AUTOWRAP = 7;
/**
 * Modes that are off by default: application cursor keys, reverse video, origin, keypad, margins, mouse and its
 * encodings, focus, bracketed paste, synchronized output, reports of colour scheme and size, win32-input-mode.
 */
const OFF_BY_DEFAULT: ReadonlySet<number> = new Set([
  ...[1, 5, 6, 66, 69, 1005, 1006, 1015, 1016, 2004, 2026, 2031, 2048, 9001],
  ...[...MOUSE_MODES, FOCUS_REPORTS, ...ALTERNATE_SCREENS],
]);
const ON_BY_DEFAULT: ReadonlySet<number> = new Set([AUTOWRAP, CURSOR]);
/** More than the maximum depth of the stack of keyboard modes in any terminal. */
const MAX_PUSHED = 64;

/** The keyboard modes of the kitty protocol. Each screen has its own stack. */
interface KeyboardModes {
  pushed: number;
  isSet: boolean;
}

/** Tracks the terminal modes that a program has changed, and how to restore them after detaching. */
export class TerminalModes {
  readonly #changed = new Set<number>();
  #onMainScreen: KeyboardModes = { pushed: 0, isSet: false };
  #onAlternateScreen: KeyboardModes = { pushed: 0, isSet: false };
  #hasOtherKeys = false;
  #hasCursorStyle = false;
  #hasInsert = false;
  #hasKeypad = false;
  #hasScrollRegion = false;
  #hasCharacterSet = false;
  #hasColours = false;
  #hasAttributes = false;
  #title: string | null = null;

  /** The program uses the full screen or special input modes, so that other text would disturb its display. */
  get isFullScreen(): boolean {
    return (
      this.#isOnAlternateScreen ||
      this.#changed.has(CURSOR) ||
      this.#changed.has(FOCUS_REPORTS) ||
      MOUSE_MODES.some((mode) => this.#changed.has(mode)) ||
      this.#onMainScreen.pushed > 0
    );
  }

  /** The last window title that the program set; null if none. */
  get title(): string | null {
    return this.#title;
  }

  get #isOnAlternateScreen(): boolean {
    return ALTERNATE_SCREENS.some((mode) => this.#changed.has(mode));
  }

  /** Records a control sequence, given without `ESC [`. */
  controlSequence(sequence: string): void {
    const [, modes, action] = /^\?([\d;]+)([hl])$/.exec(sequence) ?? [];
    if (modes !== undefined) {
      for (const mode of modes.split(';')) this.#setMode(Number(mode), action === 'h');
      return;
    }
    if (this.#setKeyboard(sequence)) return;
    if (/^[\d;:]*m$/.test(sequence)) this.#hasAttributes = !/^0?m$/.test(sequence);
    else if (sequence.endsWith(' q')) this.#hasCursorStyle = !/^0? q$/.test(sequence);
    else if (/^(?:\d+;)*4(?:;\d+)*[hl]$/.test(sequence)) this.#hasInsert = sequence.endsWith('h');
    else if (/^[\d;]*r$/.test(sequence)) this.#hasScrollRegion = sequence !== 'r';
    else if (sequence === '!p') this.#softReset();
  }

  /** Records another escape sequence, given without ESC. */
  escapeSequence(sequence: string): void {
    if (sequence === 'c') this.#reset();
    else if (sequence === '=' || sequence === '>') this.#hasKeypad = sequence === '=';
    else if (/^[()]/.test(sequence)) this.#hasCharacterSet = true;
  }

  /** Records an OSC command by its number and value. */
  command(number: string, value: string): void {
    if (number === '0' || number === '2') this.#title = value;
    else if (/^(?:4|10|11|12)$/.test(number) && !value.endsWith('?')) this.#hasColours = true;
  }

  /** The sequence that restores all changed modes; empty if none. Afterwards the modes count as restored. */
  restoreSequence(): string {
    const changed = this.#changed;
    const out: string[] = [];
    const off = (mode: number): void => {
      if (changed.has(mode)) out.push(`\x1b[?${mode}l`);
    };
    off(2026);
    if (this.#isOnAlternateScreen) {
      out.push(keyboardRestored(this.#onAlternateScreen));
      for (const mode of ALTERNATE_SCREENS) off(mode);
    }
    out.push(keyboardRestored(this.#onMainScreen));
    if (this.#hasOtherKeys) out.push('\x1b[>4m');
    for (const mode of OFF_BY_DEFAULT) if (mode !== 2026 && !ALTERNATE_SCREENS.includes(mode)) off(mode);
    for (const mode of ON_BY_DEFAULT) if (changed.has(mode)) out.push(`\x1b[?${mode}h`);
    if (this.#hasInsert) out.push('\x1b[4l');
    if (this.#hasKeypad) out.push('\x1b>');
    // Save the cursor, because resetting the scroll region moves it.
    if (this.#hasScrollRegion) out.push('\x1b7\x1b[r\x1b8');
    if (this.#hasCursorStyle) out.push('\x1b[0 q');
    if (this.#hasCharacterSet) out.push('\x1b(B\x1b)B\x0f');
    if (this.#hasColours) out.push('\x1b]104\x07\x1b]110\x07\x1b]111\x07\x1b]112\x07');
    if (this.#hasAttributes) out.push('\x1b[0m');
    this.#reset();
    return out.join('');
  }

  #setMode(mode: number, isOn: boolean): void {
    const isKnown = OFF_BY_DEFAULT.has(mode) || ON_BY_DEFAULT.has(mode);
    if (!isKnown) return;
    if (isOn === ON_BY_DEFAULT.has(mode)) {
      this.#changed.delete(mode);
      // Any of its modes leaves the alternate screen.
      if (ALTERNATE_SCREENS.includes(mode))
        for (const other of ALTERNATE_SCREENS) this.#changed.delete(other);
    } else {
      this.#changed.add(mode);
    }
  }

  /** Returns whether the sequence changes keyboard modes. */
  #setKeyboard(sequence: string): boolean {
    const [, how, first = '', final] = /^([<=>])(\d*)(?:;\d*)*([umn])$/.exec(sequence) ?? [];
    if (how === undefined) return false;
    const keyboard = this.#isOnAlternateScreen ? this.#onAlternateScreen : this.#onMainScreen;
    if (final === 'u') {
      if (how === '>') keyboard.pushed = Math.min(MAX_PUSHED, keyboard.pushed + 1);
      else if (how === '<') keyboard.pushed = Math.max(0, keyboard.pushed - Math.max(1, Number(first)));
      else keyboard.isSet = Number(first) !== 0;
    } else if (how === '>' && (first === '4' || first === '')) {
      this.#hasOtherKeys = final === 'm' && /^>4;[1-9]/.test(sequence);
    }
    return true;
  }

  #softReset(): void {
    for (const mode of [1, 6, 66, 69, AUTOWRAP, CURSOR]) this.#changed.delete(mode);
    this.#hasInsert = false;
    this.#hasKeypad = false;
    this.#hasScrollRegion = false;
    this.#hasCharacterSet = false;
    this.#hasAttributes = false;
  }

  #reset(): void {
    this.#changed.clear();
    this.#onMainScreen = { pushed: 0, isSet: false };
    this.#onAlternateScreen = { pushed: 0, isSet: false };
    this.#hasOtherKeys = false;
    this.#hasCursorStyle = false;
    this.#hasColours = false;
    this.#softReset();
  }
}

function keyboardRestored({ pushed, isSet }: KeyboardModes): string {
  return `${pushed > 0 ? `\x1b[<${pushed}u` : ''}${isSet ? '\x1b[=0u' : ''}`;
}
