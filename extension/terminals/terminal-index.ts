import type { Terminal as EditorTerminal, Memento } from 'vscode';
import { z } from 'zod';

const STATE_KEY = 'holdfast.terminals';
const MAX_TERMINALS = 50;

/** A function, because zod is in the second bundle, which must not load at activation. */
const storedSchema = () =>
  z.array(
    z.object({ pid: z.number().int(), name: z.string(), terminalId: z.string(), sessionId: z.string() }),
  );
type Stored = z.infer<ReturnType<typeof storedSchema>>[number];

/** The terminal of a session that a terminal of VS Code shows. */
export type ShownTerminal = Pick<Stored, 'terminalId' | 'sessionId'>;

/**
 * Maps VS Code's terminals to terminals of sessions. After a window reload VS Code no longer reports how a terminal was
 * created, so the index stores its process id, and its name, because process ids are reused.
 */
export class TerminalIndex {
  readonly #state: Memento;
  readonly #shown = new WeakMap<EditorTerminal, ShownTerminal>();

  constructor(state: Memento) {
    this.#state = state;
  }

  async remember(terminal: EditorTerminal, shown: ShownTerminal): Promise<void> {
    this.#shown.set(terminal, shown);
    const pid = await terminal.processId;
    if (pid === undefined) return;
    const others = this.#stored().filter((one) => one.pid !== pid);
    await this.#state.update(
      STATE_KEY,
      [...others, { ...shown, pid, name: terminal.name }].slice(-MAX_TERMINALS),
    );
  }

  async find(terminal: EditorTerminal): Promise<ShownTerminal | undefined> {
    const shown = this.#shown.get(terminal);
    if (shown !== undefined) return shown;
    const pid = await terminal.processId;
    const stored = this.#stored().find((one) => one.pid === pid && one.name === terminal.name);
    if (stored !== undefined) this.#shown.set(terminal, stored);
    return stored;
  }

  async forget(terminalId: string): Promise<void> {
    await this.#state.update(
      STATE_KEY,
      this.#stored().filter((one) => one.terminalId !== terminalId),
    );
  }

  #stored(): Stored[] {
    return storedSchema().safeParse(this.#state.get(STATE_KEY)).data ?? [];
  }
}
