import { closeSync, constants, fstatSync, openSync, renameSync, rmSync, writeSync } from 'node:fs';
import { type LogFields, redact, redactText } from './log-redaction.ts';

export type LogLevel = 'debug' | 'info' | 'warn' | 'error';

/** The log of one module. */
export interface Log {
  debug(message: string, fields?: LogFields): void;
  info(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
  error(message: string, fields?: LogFields): void;
  /** The log of another module, in the same file. */
  child(name: string): Log;
}

export interface LogFileOptions {
  /** The file that is being written; older ones are `path.1` (newest) to `path.<files - 1>`. */
  readonly path: string;
  readonly maxBytes?: number;
  /** Files in all, the current one included. */
  readonly files?: number;
  readonly level?: LogLevel;
  readonly now?: () => Date;
}

const WEIGHT: Record<LogLevel, number> = { debug: 0, info: 1, warn: 2, error: 3 };
const LONGEST_LINE = 16_384;
const MODE = 0o600;

/**
 * JSON lines `{time, level, module, message, …}` in files that rotate. Written synchronously, so that the last line before a
 * crash is in the file. When the log cannot be written (disk full, home removed), lines are lost and counted; no caller fails.
 */
export class LogFile {
  readonly path: string;
  readonly #maxBytes: number;
  readonly #files: number;
  readonly #weight: number;
  readonly #now: () => Date;
  #fd: number | null = null;
  #bytes = 0;
  #lost = 0;
  #closed = false;

  constructor(options: LogFileOptions) {
    this.path = options.path;
    this.#maxBytes = options.maxBytes ?? 5 * 2 ** 20;
    this.#files = Math.max(1, options.files ?? 5);
    this.#weight = WEIGHT[options.level ?? 'info'];
    this.#now = options.now ?? (() => new Date());
  }

  child(name: string): Log {
    const at = (level: LogLevel) => (message: string, fields?: LogFields) =>
      this.write(level, name, message, fields);
    return {
      debug: at('debug'),
      info: at('info'),
      warn: at('warn'),
      error: at('error'),
      child: (other) => this.child(other),
    };
  }

  write(level: LogLevel, module: string, message: string, fields: LogFields = {}): void {
    if (this.#closed || WEIGHT[level] < this.#weight) return;
    const time = this.#now().toISOString();
    if (this.#lost > 0) {
      const lost = this.#lost;
      if (this.#append(line({ time, level: 'warn', module: 'daemon', message: 'log lines were lost', lost })))
        this.#lost = 0;
    }
    if (!this.#append(lineOf(time, level, module, message, fields))) this.#lost += 1;
  }

  close(): void {
    this.#closed = true;
    this.#release();
  }

  #append(text: string): boolean {
    try {
      const bytes = Buffer.from(text, 'utf8');
      if (this.#fd !== null && this.#bytes > 0 && this.#bytes + bytes.length > this.#maxBytes) this.#rotate();
      const fd = this.#fd ?? this.#open();
      const written = writeSync(fd, bytes);
      this.#bytes += written;
      return written === bytes.length;
    } catch {
      // This cannot be logged; the next line that is written says how many are missing.
      this.#release();
      return false;
    }
  }

  #open(): number {
    const { O_APPEND, O_CREAT, O_NOFOLLOW, O_WRONLY } = constants;
    const fd = openSync(this.path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW, MODE);
    this.#fd = fd;
    this.#bytes = fstatSync(fd).size;
    return fd;
  }

  #rotate(): void {
    this.#release();
    if (this.#files === 1) rmSync(this.path, { force: true });
    for (let older = this.#files - 1; older >= 1; older -= 1) {
      const from = older === 1 ? this.path : `${this.path}.${older - 1}`;
      try {
        renameSync(from, `${this.path}.${older}`);
      } catch (error) {
        if (!isMissing(error)) throw error;
      }
    }
  }

  #release(): void {
    const fd = this.#fd;
    this.#fd = null;
    this.#bytes = 0;
    if (fd === null) return;
    try {
      closeSync(fd);
    } catch {
      // A close that fails (ENOSPC, EIO) has still released the descriptor.
    }
  }
}

function lineOf(time: string, level: LogLevel, module: string, message: string, fields: LogFields): string {
  const shown = redactText(message);
  const full = line({ time, level, module, message: shown, ...asRecord(redact(fields)) });
  if (Buffer.byteLength(full) <= LONGEST_LINE) return full;
  return line({ time, level, module, message: shown, shortened: full.slice(0, LONGEST_LINE / 4) });
}

function line(record: Record<string, unknown>): string {
  return `${JSON.stringify(record)}\n`;
}

function asRecord(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? { ...value } : {};
}

function isMissing(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'ENOENT';
}
