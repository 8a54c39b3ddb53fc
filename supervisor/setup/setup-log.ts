import {
  closeSync,
  fstatSync,
  openSync,
  readFileSync,
  readSync,
  rmSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { SETUP_LOG_BYTES } from '../../protocol/setup.ts';
import { toSingleLine } from '../base/single-line.ts';
import type { SecretRedaction } from './secret-search.ts';

const NOTICE = '\n[more output was not kept]\n';
const LINE_CHARACTERS = 200;
const SHOWN_LINES = 3;
/** A longer line is shown by its end. */
const LINE_BYTES = 4096;

/** Where output came from. A secret may be cut between two chunks of one stream, and the other stream come in between. */
type LogStream = 'stdout' | 'stderr';

export interface SetupLogOptions {
  /** Called with what the log keeps, and so with no more than fits. */
  readonly onKept?: (bytes: Buffer) => void;
  /** Takes secrets out of what is kept and shown. */
  readonly redaction?: SecretRedaction | null;
}

/** The output of one setup, as a file with a limit; what does not fit on the disk is left out. What it prints is never interpreted. */
export class SetupLog {
  readonly #descriptor: number;
  readonly #path: string;
  readonly #onKept: (bytes: Buffer) => void;
  readonly #redaction: SecretRedaction | null;
  readonly #streams: ReadonlyMap<LogStream, ReturnType<SecretRedaction['begin']>>;
  #left = SETUP_LOG_BYTES;
  #rest = '';
  #last: readonly string[] = [];

  private constructor(path: string, { onKept, redaction = null }: SetupLogOptions) {
    this.#path = path;
    this.#descriptor = openSync(path, 'w', 0o600);
    this.#onKept = onKept ?? (() => undefined);
    this.#redaction = redaction;
    this.#streams = new Map(
      redaction === null ? [] : (['stdout', 'stderr'] as const).map((stream) => [stream, redaction.begin()]),
    );
  }

  static create(path: string, options: SetupLogOptions = {}): SetupLog {
    return new SetupLog(path, options);
  }

  /** The last line with text, without control characters. */
  get lastLine(): string {
    return this.#last.at(-1) ?? '';
  }

  /** The last few, for an error. */
  get lastLines(): string {
    return this.#last.join(' / ');
  }

  /** A line of ours. What waits for more of its stream goes on waiting: it may be the first half of a secret. */
  append(line: Buffer): void {
    this.#store(this.#redaction?.redact(line) ?? line);
  }

  /** Output of a step. With a redaction its end may wait for more, or for `flush`. */
  appendOutput(chunk: Buffer, stream: LogStream): void {
    this.#store(this.#streams.get(stream)?.push(chunk) ?? chunk);
  }

  /** Call at the end of a step: nothing more of it comes. */
  flush(): void {
    for (const stream of this.#streams.values()) this.#store(stream.end());
  }

  #store(chunk: Buffer): void {
    if (chunk.length === 0) return;
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
    this.flush();
    closeSync(this.#descriptor);
    this.#redactWhole();
  }

  /** Two streams together may have printed what neither did alone. */
  #redactWhole(): void {
    if (this.#redaction === null) return;
    try {
      const text = readFileSync(this.#path);
      const redacted = this.#redaction.redact(text);
      if (redacted !== text) writeFileSync(this.#path, redacted);
    } catch {
      // Rather no log than a secret in it.
      rmSync(this.#path, { force: true });
    }
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
