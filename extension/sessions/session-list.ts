import { Disposable, EventEmitter } from 'vscode';
import type { Event } from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Session } from '../../protocol/entities.ts';
import type { Connection } from '../connection/connection.ts';
import { DisposableStore } from '../base/disposable-store.ts';

const POLL_MS = 1_500;
const PAGE = 1000;
const MOST_PAGES = 10;

/** All sessions of the home, looked at again and again while anybody wants to know. */
export class SessionList implements Disposable {
  readonly #connection: Connection;
  readonly #owned = new DisposableStore();
  readonly #changed = this.#owned.add(new EventEmitter<readonly Session[]>());
  #sessions: readonly Session[] | undefined;
  #text = '';
  #followers = 0;
  #timer: NodeJS.Timeout | undefined;
  #looking: Promise<void> | undefined;

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

  /** As they were seen last; undefined before the first look. */
  get current(): readonly Session[] | undefined {
    return this.#sessions;
  }

  dispose(): void {
    this.#owned.dispose();
  }

  /** Keeps looking until the returned end. */
  follow(): Disposable {
    this.#followers += 1;
    void this.refresh();
    let isFollowing = true;
    return new Disposable(() => {
      if (isFollowing) this.#followers -= 1;
      isFollowing = false;
    });
  }

  /** Looks now. Errors: why they cannot be listed. */
  async list(): Promise<readonly Session[]> {
    const sessions: Session[] = [];
    let cursor: string | null = null;
    for (let pages = 0; pages < MOST_PAGES; pages += 1) {
      const page: { sessions: Session[]; nextCursor: string | null } = await this.#connection.call(
        'session/list',
        { limit: PAGE, ...(cursor === null ? {} : { cursor }) },
        { repeatable: true },
      );
      sessions.push(...page.sessions);
      cursor = page.nextCursor;
      if (cursor === null) break;
    }
    this.#set(sessions);
    return sessions;
  }

  /** Looks now, as far as anybody answers: what is shown stays as it is where nobody does. */
  refresh(): Promise<void> {
    this.#looking ??= this.#look().finally(() => {
      this.#looking = undefined;
    });
    return this.#looking;
  }

  async #look(): Promise<void> {
    clearTimeout(this.#timer);
    this.#connection.ensureConnecting();
    try {
      if (this.#connection.peer !== undefined) await this.list();
    } catch (error) {
      // The state of the connection says what is wrong; a broken one is being mended.
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
