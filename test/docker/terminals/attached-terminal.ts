import type { ChildProcessWithoutNullStreams } from 'node:child_process';
import { z } from 'zod';
import type { TestHome } from '../../setup/test-home.ts';
import { endOfMatch } from './end-of-match.ts';

const OpenedSchema = z.object({ terminal: z.object({ terminalId: z.string(), sessionId: z.string() }) });

/** Opens a terminal without attaching to it; returns its id and the id of its session. */
export async function openTerminal(
  home: TestHome,
  session: string,
  ...more: string[]
): Promise<{ id: string; sessionId: string }> {
  const opened = OpenedSchema.parse(
    JSON.parse(await home.runOk(['terminal', 'open', '--json', session, ...more])),
  );
  return { id: opened.terminal.terminalId, sessionId: opened.terminal.sessionId };
}

/** A running `holdfast terminal attach` with pipes as keyboard and screen. */
export class AttachedTerminal {
  readonly #child: ChildProcessWithoutNullStreams;
  readonly exited: Promise<number | null>;
  /** All standard output so far, and below it all standard error. */
  output = '';
  stderr = '';
  #wake: (() => void) | undefined;
  #seen = 0;

  constructor(home: TestHome, id: string, ...more: string[]) {
    this.#child = home.spawn(['terminal', 'attach', id, ...more]);
    this.#child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
      this.output += chunk;
      this.#wake?.();
    });
    this.#child.stderr.setEncoding('utf8').on('data', (chunk: string) => (this.stderr += chunk));
    this.#child.stdin.on('error', () => undefined);
    this.exited = new Promise((resolve) => this.#child.once('close', resolve));
  }

  type(text: string): void {
    this.#child.stdin.write(text);
  }

  /** Waits for new output that matches, after what was waited for before; returns the new output up to the end of the match. */
  async waitFor(wanted: string | RegExp, withinMs = 30_000): Promise<string> {
    const deadline = performance.now() + withinMs;
    for (;;) {
      const fresh = this.output.slice(this.#seen);
      const end = endOfMatch(fresh, wanted);
      if (end !== null) {
        this.#seen += end;
        return fresh.slice(0, end);
      }
      const left = deadline - performance.now();
      if (left <= 0)
        throw new Error(
          `${String(wanted)} was not shown, but ${JSON.stringify(fresh.slice(-2000))} ${this.stderr}`,
        );
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, left);
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
  }

  /** Kills this client with SIGKILL. */
  async kill(): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.exited;
  }
}
