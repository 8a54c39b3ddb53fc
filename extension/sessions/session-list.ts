import { Disposable, EventEmitter } from 'vscode';
import type { Event } from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Session } from '../../protocol/entities.ts';
import type { Connection } from '../connection/connection.ts';
import { DisposableStore } from '../base/disposable-store.ts';

const POLL_MS = 1_500;
const PAGE = 1000;
const MAX_PAGES = 10;

/** All sessions of the home, polled while anything follows them. */
export class SessionList implements Disposable {
  readonly #connection: Connection;
  readonly #owned = new DisposableStore();
  readonly #changed = this.#owned.add(new EventEmitter<readonly Session[]>());
  #sessions: readonly Session[] | undefined;
  #text = '';
  #followers = 0;
  #timer: NodeJS.Timeout | undefined;
  #refreshing: Promise<void> | undefined;

  constructor(connection: Connection) {
    this.#connection = connection;
    this.#owned.add(
      connection.onDidChange(({ kind }) => {
        if (kind === 'noSupervisor') this.#set([]);
        else if (this.#followers > 0) void this.refresh();
      }),
    );
    this.#owned.onDispose(() => clearTimeout(this.#timer));
  }

  get onDidChange(): Event<readonly Session[]> {
    return this.#changed.event;
  }

  /** The result of the last poll; undefined before the first. */
  get current(): readonly Session[] | undefined {
    return this.#sessions;
  }

  dispose(): void {
    this.#owned.dispose();
  }

  /** Polls until the result is disposed. */
  follow(): Disposable {
    this.#followers += 1;
    void this.refresh();
    let isFollowing = true;
    return new Disposable(() => {
      if (isFollowing) this.#followers -= 1;
      isFollowing = false;
    });
  }

  /** Lists the sessions now. Errors: those of `session/list`. */
  async list(): Promise<readonly Session[]> {
    const sessions: Session[] = [];
    let cursor: string | null = null;
    for (let pages = 0; pages < MAX_PAGES; pages += 1) {
      const page: { sessions: Session[]; nextCursor: string | null } = await this.#connection.call(
        'session/list',
        { limit: PAGE, ...(cursor === null ? {} : { cursor }) },
      );
      sessions.push(...page.sessions);
      cursor = page.nextCursor;
      if (cursor === null) break;
    }
    this.#set(sessions);
    return sessions;
  }

  /** Lists the sessions now; keeps the last result where the supervisor does not answer. */
  refresh(): Promise<void> {
    this.#refreshing ??= this.#poll().finally(() => {
      this.#refreshing = undefined;
    });
    return this.#refreshing;
  }

  async #poll(): Promise<void> {
    clearTimeout(this.#timer);
    this.#connection.ensureConnecting();
    try {
      if (this.#connection.peer !== undefined) await this.list();
    } catch (error) {
      // The state of the connection shows what is wrong, and a broken connection is being re-established.
      if (HoldfastError.from(error).code === 'internal') throw error;
    } finally {
      if (this.#followers > 0) this.#timer = setTimeout(() => void this.refresh(), POLL_MS);
    }
  }

  #set(sessions: readonly Session[]): void {
    const text = JSON.stringify(sessions);
    if (text === this.#text) return;
    this.#text = text;
    this.#sessions = sessions;
    this.#changed.fire(sessions);
  }
}
