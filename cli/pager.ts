import { spawn } from 'node:child_process';
import type { Writable } from 'node:stream';
import type { CliIo } from './io.ts';
import { BrokenPipeError, Output } from './output.ts';

/** The help of the option of every command that uses the pager. */
export const NO_PAGER = 'print on the terminal without the pager';

/** When a pager has taken more than this it was started: no pipe holds as much. */
const KEPT_CHARACTERS = 2 ** 20;
/** Exit codes of a shell that could not run a program. */
const NOT_RUN = [126, 127];

/** A program that shows text page by page. */
export interface PagerProcess {
  readonly input: Writable;
  /** Resolves with true when the person has left it, and with false if it could not be started. Never rejects. */
  readonly ended: Promise<boolean>;
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
  const ended = new Promise<boolean>((resolve) => {
    child
      .once('close', (code) => resolve(code === null || !NOT_RUN.includes(code)))
      .once('error', () => resolve(false));
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

/**
 * The output of one command in a pager, from its first line on, or on the terminal where the pager cannot be started. What is said beside
 * it waits until the person has left.
 */
export class Pager {
  readonly #open: (line: string) => PagerProcess;
  readonly #line: string;
  readonly #print: (text: string) => Promise<void>;
  readonly #notes: string[] = [];
  /** What the pager got, until it is known that it was started; then null. */
  #kept: string[] | null = [];
  #keptCharacters = 0;
  #process: PagerProcess | null = null;
  #output: Output | null = null;
  #isMissing = false;

  /** `line`: as `pagerOf` gives it. `print`: to the terminal itself. */
  constructor(open: (line: string) => PagerProcess, line: string, print: (text: string) => Promise<void>) {
    this.#open = open;
    this.#line = line;
    this.#print = print;
  }

  get isOpen(): boolean {
    return this.#process !== null;
  }

  /** Rejects with BrokenPipeError when the person has left. */
  async write(text: string): Promise<void> {
    if (this.#isMissing) {
      await this.#print(text);
      return;
    }
    this.#process ??= this.#open(this.#line);
    this.#output ??= new Output(this.#process.input);
    this.#kept?.push(text);
    this.#keptCharacters += text.length;
    try {
      await this.#output.write(forPager(text));
      if (this.#keptCharacters > KEPT_CHARACTERS) this.#kept = null;
    } catch (error) {
      if (!(error instanceof BrokenPipeError) || (await this.#process.ended)) throw error;
      await this.#printKept();
    }
  }

  /** For standard error, after the pager. */
  note(text: string): void {
    this.#notes.push(text);
  }

  /** Resolves with what was noted when the person has left. */
  async end(): Promise<readonly string[]> {
    if (this.#process !== null) {
      this.#process.input.end();
      if (await this.#process.ended) this.#close();
      else await this.#printKept();
    }
    return this.#notes.splice(0);
  }

  async #printKept(): Promise<void> {
    const kept = this.#kept ?? [];
    this.#kept = null;
    this.#isMissing = true;
    this.#close();
    for (const text of kept) await this.#print(text);
  }

  #close(): void {
    this.#process = null;
    this.#output?.close();
  }
}
