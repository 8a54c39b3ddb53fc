import { spawn } from 'node:child_process';
import type { Writable } from 'node:stream';
import type { CliIo } from './io.ts';
import { Output } from './output.ts';

/** The help of the option of every command that uses the pager. */
export const NO_PAGER = 'print on the terminal without the pager';

/** A program that shows text page by page. */
export interface PagerProcess {
  readonly input: Writable;
  /** Resolves when the person has left it, or when it could not be started. Never rejects. */
  readonly ended: Promise<void>;
}

/** The pager of the person as a line for the shell; null for none. */
export function pagerOf(env: CliIo['env']): string | null {
  const line = env['HOLDFAST_PAGER'] ?? env['PAGER'] ?? 'less -FRX';
  return line.trim() === '' || line.trim() === 'cat' || env['TERM'] === 'dumb' ? null : line;
}

/** Starts a pager on the terminal of this process. */
export function spawnPager(line: string, env: CliIo['env']): PagerProcess {
  // A `less` that is named without options shows colours, and leaves by itself where all fits on the screen.
  const child = spawn('/bin/sh', ['-c', line], {
    stdio: ['pipe', 'inherit', 'inherit'],
    env: { LESS: 'FRX', ...env },
  });
  const ended = new Promise<void>((resolve) => {
    child.once('close', () => resolve()).once('error', () => resolve());
  });
  return { input: child.stdin, ended };
}

/** Text for a pager, which obeys more than a terminal: of escape sequences only colours are left. */
export function forPager(text: string): string {
  return text.replace(/\p{Cc}(?:\[[0-9;]{0,16}m)?/gu, (found) => {
    const character = found.charAt(0);
    if (character === '\n' || character === '\t') return found;
    if (character !== '\u001b') return `\\u{${character.charCodeAt(0).toString(16)}}${found.slice(1)}`;
    return found.length > 1 ? found : '\\e';
  });
}

/** The output of one command in a pager, from its first line on. What is said beside it waits until the person has left. */
export class Pager {
  readonly #open: (line: string) => PagerProcess;
  readonly #line: string;
  readonly #notes: string[] = [];
  #process: PagerProcess | null = null;
  #output: Output | null = null;

  /** `line`: as `pagerOf` gives it. */
  constructor(open: (line: string) => PagerProcess, line: string) {
    this.#open = open;
    this.#line = line;
  }

  get isOpen(): boolean {
    return this.#process !== null;
  }

  /** Rejects with BrokenPipeError when the person has left. */
  async write(text: string): Promise<void> {
    this.#process ??= this.#open(this.#line);
    this.#output ??= new Output(this.#process.input);
    await this.#output.write(forPager(text));
  }

  /** For standard error, after the pager. */
  note(text: string): void {
    this.#notes.push(text);
  }

  /** Resolves with what was noted when the person has left. */
  async end(): Promise<readonly string[]> {
    const { input, ended } = this.#process ?? {};
    input?.end();
    await ended;
    this.#process = null;
    this.#output?.close();
    return this.#notes.splice(0);
  }
}
