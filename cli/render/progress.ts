import { truncate, textWidth, sanitizeLine } from './text.ts';
import { formatSize } from './quantity.ts';
import type { Style } from './style.ts';

/** A progress notification of the protocol. `of` is null if the total is unknown. */
export interface ProgressReport {
  readonly stage: string;
  readonly done: number | null;
  readonly of: number | null;
  readonly unit: string | null;
}

const SPINNER = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
/** The progress line appears after this time, so that fast requests show nothing. */
const SHOW_AFTER_MS = 400;
const FRAME_MS = 120;
const BAR_COLUMNS = 24;
const CLEAR_LINE = '\r\u001b[K';

export interface ProgressTerminal {
  readonly columns: number;
  write(text: string): void;
}

/** A line on the terminal that shows the progress of a long request. Does nothing without a terminal. */
export class ProgressLine {
  readonly #terminal: ProgressTerminal | null;
  readonly #style: Style;
  #report: ProgressReport | null = null;
  #timer: NodeJS.Timeout | undefined;
  #frame = 0;
  #shown = false;
  #isSuspended = false;

  constructor(terminal: ProgressTerminal | null, style: Style) {
    this.#terminal = terminal;
    this.#style = style;
  }

  /** Shows `stage` from now until `end`, unless that is soon. */
  begin(stage: string): void {
    if (this.#terminal === null) return;
    this.#report = { stage, done: null, of: null, unit: null };
    if (this.#timer !== undefined) return;
    this.#timer = setTimeout(() => {
      this.#draw();
      this.#timer = setInterval(() => this.#draw(), FRAME_MS);
      this.#timer.unref();
    }, SHOW_AFTER_MS);
    this.#timer.unref();
  }

  update(report: ProgressReport): void {
    if (this.#timer !== undefined) this.#report = report;
  }

  /** Clears the line so that other output can be printed in its place. The next frame draws it again. */
  hide(): void {
    if (!this.#shown) return;
    this.#shown = false;
    this.#terminal?.write(CLEAR_LINE);
  }

  /** Clears the line, and draws none until the returned function is called: a person is asked something in its place. */
  suspend(): () => void {
    this.hide();
    this.#isSuspended = true;
    return () => (this.#isSuspended = false);
  }

  end(): void {
    // In Node clearTimeout also clears an interval.
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#report = null;
    this.hide();
  }

  #draw(): void {
    if (this.#terminal === null || this.#report === null || this.#isSuspended) return;
    this.#frame = (this.#frame + 1) % SPINNER.length;
    const spinner = SPINNER[this.#frame] ?? '';
    this.#shown = true;
    const text = progressText(this.#report, this.#terminal.columns - 3);
    this.#terminal.write(`${CLEAR_LINE}${this.#style.cyan(spinner)} ${text}`);
  }
}

/** `Pulling image [######----] 12 MiB of 40 MiB`, truncated to `columns`. */
export function progressText(report: ProgressReport, columns: number): string {
  const { done, of, unit } = report;
  const amount = (value: number) => (unit === 'bytes' ? formatSize(value) : value.toLocaleString('en-US'));
  const suffix = unit === null || unit === 'bytes' ? '' : ` ${unit}`;
  let rest = '';
  if (done !== null && of !== null && of > 0) {
    const filled = Math.round(Math.min(1, Math.max(0, done / of)) * BAR_COLUMNS);
    rest = ` [${'#'.repeat(filled)}${'-'.repeat(BAR_COLUMNS - filled)}] ${amount(done)} of ${amount(of)}${suffix}`;
  } else if (done !== null) {
    rest = ` ${amount(done)}${suffix}`;
  }
  const stage = truncate(sanitizeLine(report.stage), Math.max(10, columns - textWidth(rest)));
  return truncate(`${stage}${rest}`, columns);
}
