import { closeSync, fstatSync, openSync, readSync, writeSync } from 'node:fs';
import { SETUP_LOG_BYTES } from '../../protocol/setup.ts';
import { toSingleLine } from '../base/single-line.ts';

const NOTICE = '\n[more output was not kept]\n';
const LINE_CHARACTERS = 200;
const SHOWN_LINES = 3;
/** A longer line is shown by its end. */
const LINE_BYTES = 4096;

/** The output of one setup, as a file with a limit; what does not fit on the disk is left out. What it prints is never interpreted. */
export class SetupLog {
  readonly #descriptor: number;
  readonly #onKept: (bytes: Buffer) => void;
  #left = SETUP_LOG_BYTES;
  #rest = '';
  #last: readonly string[] = [];

  private constructor(descriptor: number, onKept: (bytes: Buffer) => void) {
    this.#descriptor = descriptor;
    this.#onKept = onKept;
  }

  /** `onKept` is called with what the log keeps, and so with no more than fits. */
  static create(path: string, onKept: (bytes: Buffer) => void = () => undefined): SetupLog {
    return new SetupLog(openSync(path, 'w', 0o600), onKept);
  }

  /** The last line with text, without control characters. */
  get lastLine(): string {
    return this.#last.at(-1) ?? '';
  }

  /** The last few, for an error. */
  get lastLines(): string {
    return this.#last.join(' / ');
  }

  append(chunk: Buffer): void {
    // Of what is not kept only the end is shown, so that a flood costs little.
    const seen = this.#left === 0 ? chunk.subarray(-LINE_BYTES) : chunk;
    const text = (this.#rest + seen.toString('utf8')).split(/[\r\n]+/);
    this.#rest = (text.pop() ?? '').slice(-LINE_BYTES);
    const lines = text
      .slice(-SHOWN_LINES * 4)
      .map((line) => toSingleLine(line.slice(0, LINE_BYTES), LINE_CHARACTERS));
    this.#last = [...this.#last, ...lines.filter((line) => line !== '')].slice(-SHOWN_LINES);
    if (this.#left === 0) return;
    const kept = chunk.subarray(0, this.#left);
    this.#onKept(kept);
    try {
      const written = writeSync(this.#descriptor, kept);
      this.#left = written < kept.length ? 0 : this.#left - written;
      if (this.#left > 0) return;
      this.#onKept(Buffer.from(NOTICE));
      writeSync(this.#descriptor, NOTICE);
    } catch {
      // A full disk: the setup itself will tell, and nobody who prints waits for an answer.
      this.#left = 0;
    }
  }

  close(): void {
    closeSync(this.#descriptor);
  }
}

/** At most what a log may have; empty if there is none. `truncated`: the setup printed more. */
export function readSetupLog(path: string): { text: Buffer; truncated: boolean } {
  let descriptor: number;
  try {
    descriptor = openSync(path, 'r');
  } catch {
    return { text: Buffer.alloc(0), truncated: false };
  }
  try {
    const text = Buffer.alloc(Math.min(fstatSync(descriptor).size, SETUP_LOG_BYTES + NOTICE.length));
    const length = readSync(descriptor, text);
    return { text: text.subarray(0, length), truncated: length > SETUP_LOG_BYTES };
  } finally {
    closeSync(descriptor);
  }
}
