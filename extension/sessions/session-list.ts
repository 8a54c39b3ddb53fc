import { EventEmitter } from 'vscode';
import type { Disposable, Event } from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Session } from '../../protocol/entities.ts';
import type { Connection } from '../connection/connection.ts';
import type { Host } from '../connection/host.ts';
import { DisposableStore } from '../base/disposable-store.ts';

/**
 * All sessions of the hosts, from their feeds. None while no supervisor answers on the only host; of several hosts the
 * last known ones, because the view shows the state of each.
 */
export class SessionList implements Disposable {
  readonly #connection: Connection;
  readonly #host: Host;
  readonly #owned = new DisposableStore();
  readonly #changed = this.#owned.add(new EventEmitter<readonly Session[]>());
  #sessions: readonly Session[] | undefined;

  constructor(connection: Connection, host: Host) {
    this.#connection = connection;
    this.#host = host;
    this.#owned.add(host.onDidChangeSessions((sessions) => this.#set(sessions)));
    this.#owned.add(
      connection.onDidChange(({ kind }) => {
        const isAlone = this.#connection.known.length === 1;
        if (kind === 'noSupervisor' && isAlone && this.#sessions?.length !== 0) this.#set([]);
      }),
    );
  }

  get onDidChange(): Event<readonly Session[]> {
    return this.#changed.event;
  }

  /** As last reported; undefined before the first report. */
  get current(): readonly Session[] | undefined {
    return this.#sessions;
  }

  dispose(): void {
    this.#owned.dispose();
  }

  /** The sessions as of now. Errors: why there is no connection. */
  async list(): Promise<readonly Session[]> {
    await this.#host.sync();
    const sessions = this.#host.sessions ?? [];
    if (sessions !== this.#sessions) this.#set(sessions);
    return sessions;
  }

  /** For a session that no host reports. Errors: where it has moved to, if that is why. */
  async requireNotMoved(session: string): Promise<void> {
    try {
      await this.#connection.call('session/show', { session });
    } catch (error) {
      if (error instanceof HoldfastError && error.details?.['movedTo'] !== undefined) throw error;
    }
  }

  /** As `list`; keeps the last result where the supervisor does not answer. */
  async refresh(): Promise<void> {
    this.#connection.ensureConnecting();
    if (this.#connection.peer === undefined) return;
    try {
      await this.list();
    } catch (error) {
      // The state of the connection shows what is wrong, and a broken connection is being re-established.
      if (HoldfastError.from(error).code === 'internal') throw error;
    }
  }

  #set(sessions: readonly Session[]): void {
    this.#sessions = sessions;
    this.#changed.fire(sessions);
  }
}
