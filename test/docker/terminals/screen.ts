import type { TerminalLaunch } from '../../../sidecar/wire.ts';
import type { SidecarClient } from '../../../supervisor/workspace/sidecar-client.ts';
import { randomId } from '../../fixtures/sidecar/turns.ts';
import { endOfMatch } from './end-of-match.ts';

export function terminalLaunch(part: Partial<TerminalLaunch> = {}): TerminalLaunch {
  return {
    terminalId: randomId('term'),
    argv: [],
    env: {},
    cwd: '/workspace',
    columns: 80,
    rows: 24,
    ...part,
  };
}

/** A terminal as its user sees it: types, and reads on from the last offset. */
export class Screen {
  readonly client: () => SidecarClient;
  readonly terminalId: string;
  /** All output so far. */
  text = '';
  offset = 0;
  /** The end of the last match in `text`. */
  #seen = 0;

  constructor(client: () => SidecarClient, terminalId: string) {
    this.client = client;
    this.terminalId = terminalId;
  }

  static async open(client: () => SidecarClient, part: Partial<TerminalLaunch> = {}): Promise<Screen> {
    const launch = terminalLaunch(part);
    await client().openTerminal(launch);
    return new Screen(client, launch.terminalId);
  }

  async type(text: string | Buffer): Promise<void> {
    await this.client().writeTerminal(this.terminalId, Buffer.from(text));
  }

  /**
   * Reads until new output matches, after what was waited for before; returns the output up to the end of the match. How much output after
   * the match has been read is chance: to compare two screens, wait in both for what ends them.
   */
  async waitFor(wanted: string | RegExp, withinMs = 30_000): Promise<string> {
    const deadline = performance.now() + withinMs;
    for (;;) {
      const since = this.text.slice(this.#seen);
      const end = endOfMatch(since, wanted);
      if (end !== null) {
        this.#seen += end;
        return since.slice(0, end);
      }
      if (performance.now() > deadline) {
        throw new Error(`${String(wanted)} was not shown, but ${JSON.stringify(since.slice(-2000))}`);
      }
      await this.#more(Math.min(1000, deadline - performance.now()));
    }
  }

  /** Reads until the output ends with the prompt of a waiting shell. */
  async waitForPrompt(): Promise<string> {
    return await this.waitFor(/\$ $/);
  }

  /** Reads to the end of the terminal; returns its exit code. */
  async waitForEnd(withinMs = 30_000): Promise<number | null> {
    const deadline = performance.now() + withinMs;
    for (;;) {
      const { ended, exitCode, bytes } = await this.#more(1000);
      if (ended && bytes === 0) return exitCode;
      if (performance.now() > deadline)
        throw new Error(`it did not end: ${JSON.stringify(this.text.slice(-2000))}`);
    }
  }

  async #more(waitMs: number): Promise<{ ended: boolean; exitCode: number | null; bytes: number }> {
    const { result, bytes } = await this.client().readTerminal({
      terminalId: this.terminalId,
      offset: this.offset,
      limit: 2 ** 18,
      waitMs: Math.max(0, Math.round(waitMs)),
    });
    this.offset = result.offset + bytes.length;
    this.text += bytes.toString('utf8');
    return { ended: result.state === 'ended', exitCode: result.exitCode, bytes: bytes.length };
  }
}
