import type { CommandHandler } from '../commands/registry.ts';
import type { CommandId } from '../commands/table.ts';
import { pickSession } from '../sessions/pick-session.ts';
import type { SessionList } from '../sessions/session-list.ts';
import type { UnreadTurns } from '../sessions/unread-turns.ts';
import type { HistoryDocuments } from './history-documents.ts';

/** Commands that show what happened in a session. */
export class HistoryCommands {
  readonly #sessions: SessionList;
  readonly #unread: UnreadTurns;
  readonly #documents: HistoryDocuments;

  constructor(sessions: SessionList, unread: UnreadTurns, documents: HistoryDocuments) {
    this.#sessions = sessions;
    this.#unread = unread;
    this.#documents = documents;
  }

  get handlers() {
    return {
      'holdfast.openSession': (target) => this.#openTranscript(target),
      'holdfast.showHistory': (target) => this.#showHistory(target),
    } as const satisfies Partial<Record<CommandId, CommandHandler>>;
  }

  /** Runs when a person clicks an entry of the Sessions view or presses Enter on it. */
  async #openTranscript(target: unknown): Promise<void> {
    const session = await pickSession(this.#sessions, target, { title: 'Open Session' });
    if (session === undefined) return;
    this.#unread.markRead(session);
    // Like a click in the Explorer, this leaves the keyboard focus in the view.
    await this.#documents.show(session, 'transcript', { preview: true, preserveFocus: true });
  }

  async #showHistory(target: unknown): Promise<void> {
    const session = await pickSession(this.#sessions, target, { title: 'Show History', here: true });
    if (session === undefined) return;
    this.#unread.markRead(session);
    await this.#documents.show(session, 'history');
  }
}
