import { EventEmitter } from 'vscode';
import type { Disposable } from 'vscode';
import type { Session } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import type { Connection } from './connection.ts';
import type { HostConnection } from './host-connection.ts';
import { HostFeed } from './host-feed.ts';
import type { Occurrence } from './host-feed.ts';

export type { Occurrence } from './host-feed.ts';

/** How long a command waits for the news of hosts that it may not be about. */
const OTHERS_MS = 1_000;
/** How long it waits for those of the host that it is about. */
const OWN_MS = 30_000;

/** What happens on the hosts of this window, from their feeds. */
export class Host implements Disposable {
  readonly #connection: Connection;
  readonly #owned = new DisposableStore();
  readonly #changed = this.#owned.add(new EventEmitter<readonly Session[]>());
  readonly #occurred = this.#owned.add(new EventEmitter<Occurrence>());
  readonly #profiles = this.#owned.add(new EventEmitter<HostConnection>());
  readonly #feeds = new Map<HostConnection, HostFeed>();

  constructor(connection: Connection) {
    this.#connection = connection;
    this.#follow(connection.local);
    this.#owned.add(
      connection.onDidChangeHosts(() => {
        for (const host of connection.hosts) this.#follow(host);
        for (const [host, feed] of this.#feeds) {
          if (connection.hosts.includes(host)) continue;
          feed.dispose();
          this.#feeds.delete(host);
        }
        this.#changed.fire(this.sessions ?? []);
      }),
    );
    this.#owned.onDispose(() => {
      for (const feed of this.#feeds.values()) feed.dispose();
    });
  }

  /** Fires with all sessions when any has changed. */
  readonly onDidChangeSessions = this.#changed.event;
  /** Fires for what happens while the window is connected: turns, permissions, denied connections. */
  readonly onDidOccur = this.#occurred.event;

  /** Fires with the host when profiles were deployed or removed there, and with its first report. */
  readonly onDidChangeProfiles = this.#profiles.event;

  /** As last reported, of this machine first; undefined before the first report. */
  get sessions(): readonly Session[] | undefined {
    const reported = [...this.#feeds].filter(([, feed]) => feed.sessions !== undefined);
    if (reported.length === 0) return undefined;
    return reported.flatMap(([host, feed]) => [...this.#connection.claim(host, feed.sessions ?? [])]);
  }

  /**
   * Resolves when everything that has happened up to now on the window's host is known here, and on the others that
   * answer soon. Errors: why there is no connection to the window's host.
   */
  async sync(): Promise<void> {
    const peer = await this.#connection.ready();
    const own = [...this.#feeds].find(([host]) => host.peer === peer)?.[1];
    const others = [...this.#feeds].filter(([host, feed]) => feed !== own && host.peer !== undefined);
    const late = Promise.withResolvers<undefined>();
    const tooLate = Promise.withResolvers<never>();
    const timers = [
      setTimeout(() => late.resolve(undefined), OTHERS_MS),
      setTimeout(() => tooLate.reject(new HoldfastError('timeout', 'The host does not answer')), OWN_MS),
    ];
    try {
      await Promise.all([
        own === undefined ? undefined : Promise.race([own.sync(), tooLate.promise]),
        ...others.map(([, feed]) => Promise.race([feed.sync().catch(() => undefined), late.promise])),
      ]);
    } finally {
      for (const timer of timers) clearTimeout(timer);
    }
  }

  dispose(): void {
    this.#owned.dispose();
  }

  #follow(host: HostConnection): void {
    if (this.#feeds.has(host)) return;
    const feed = new HostFeed(host);
    this.#feeds.set(host, feed);
    feed.onDidChangeSessions(() => this.#changed.fire(this.sessions ?? []));
    feed.onDidChangeProfiles(() => this.#profiles.fire(host));
    feed.onDidOccur((occurrence) => {
      // A host may name a session of another one.
      if (this.#connection.owns(host, occurrence.sessionId)) this.#occurred.fire(occurrence);
    });
  }
}
