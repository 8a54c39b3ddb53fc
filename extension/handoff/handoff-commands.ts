import type { Memento } from 'vscode';
import type { HandoffResult } from '../../handoff/handoff.ts';
import type { CommandHandler } from '../commands/registry.ts';
import type { CommandId } from '../commands/table.ts';
import type { Connection } from '../connection/connection.ts';
import { pickSession } from '../sessions/pick-session.ts';
import type { SessionList } from '../sessions/session-list.ts';
import { handOff } from './hand-off.ts';
import { openCommit } from './results.ts';
import { undoInRepository } from './undo-handoff.ts';

/** The commands that give what was accepted to a repository of this machine, and take it back. */
export class HandoffCommands {
  readonly #connection: Connection;
  readonly #sessions: SessionList;
  readonly #state: Memento;

  constructor(connection: Connection, sessions: SessionList, state: Memento) {
    this.#connection = connection;
    this.#sessions = sessions;
    this.#state = state;
  }

  get handlers() {
    return {
      'holdfast.handOff': (target) => this.#handOff(target),
      'holdfast.undoHandoff': (repository, handoff) =>
        undoInRepository(
          { connection: this.#connection, state: this.#state },
          typeof repository === 'string' ? repository : undefined,
          typeof handoff === 'string' ? handoff : undefined,
        ),
      'holdfast.showCommit': (repository, commit) =>
        typeof repository === 'string' && typeof commit === 'string'
          ? openCommit(repository, commit)
          : undefined,
    } as const satisfies Partial<Record<CommandId, CommandHandler>>;
  }

  /** Returns what was made; undefined where the person stopped before. */
  async #handOff(target: unknown): Promise<HandoffResult | undefined> {
    const session = await pickSession(this.#sessions, target, { title: 'Hand Off', here: true });
    return session === undefined
      ? undefined
      : await handOff({ connection: this.#connection, state: this.#state }, session);
  }
}
