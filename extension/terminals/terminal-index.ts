import type { Memento, Terminal as Window } from 'vscode';
import { z } from 'zod';

const KEY = 'holdfast.terminals';
const MOST = 50;

/** Made where it is used: the window does not wait for it. */
const knownSchema = () =>
  z.array(
    z.object({ pid: z.number().int(), name: z.string(), terminalId: z.string(), sessionId: z.string() }),
  );
type Known = z.infer<ReturnType<typeof knownSchema>>[number];

/** What one of VS Code's terminals shows. */
export type ShownTerminal = Pick<Known, 'terminalId' | 'sessionId'>;

/**
 * Which of VS Code's terminals are ours. After a reload of the window VS Code does not say any more how a terminal was made, so the process that it runs
 * is written down; the name is looked at too, because numbers of processes come again.
 */
export class TerminalIndex {
  readonly #state: Memento;
  readonly #now = new WeakMap<Window, ShownTerminal>();

  constructor(state: Memento) {
    this.#state = state;
  }

  async remember(terminal: Window, shown: ShownTerminal): Promise<void> {
    this.#now.set(terminal, shown);
    const pid = await terminal.processId;
    if (pid === undefined) return;
    const others = this.#stored().filter((one) => one.pid !== pid);
    await this.#state.update(KEY, [...others, { ...shown, pid, name: terminal.name }].slice(-MOST));
  }

  async find(terminal: Window): Promise<ShownTerminal | undefined> {
    const now = this.#now.get(terminal);
    if (now !== undefined) return now;
    const pid = await terminal.processId;
    const stored = this.#stored().find((one) => one.pid === pid && one.name === terminal.name);
    if (stored !== undefined) this.#now.set(terminal, stored);
    return stored;
  }

  async forget(terminalId: string): Promise<void> {
    await this.#state.update(
      KEY,
      this.#stored().filter((one) => one.terminalId !== terminalId),
    );
  }

  #stored(): Known[] {
    return knownSchema().safeParse(this.#state.get(KEY)).data ?? [];
  }
}
