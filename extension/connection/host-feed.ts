import { EventEmitter } from 'vscode';
import type { Disposable } from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Session } from '../../protocol/entities.ts';
import { HostState } from '../../protocol/client/host-state.ts';
import type { SupervisorPeer } from '../../protocol/client/connect.ts';
import type { HostChange } from '../../protocol/host.ts';
import type { NotificationParams } from '../../protocol/methods.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import type { HostConnection } from './host-connection.ts';
import { LOCAL } from './host-name.ts';
import { MAX_HOST_SESSIONS } from './session-owners.ts';

export type Occurrence = Extract<HostChange, { kind: 'turn' | 'permission' | 'denial' }>;

/**
 * What happens on one host, from its feed: nothing is polled. It subscribes with each connection and continues where it
 * was.
 */
export class HostFeed implements Disposable {
  readonly #connection: HostConnection;
  readonly #owned = new DisposableStore();
  readonly #changed = this.#owned.add(new EventEmitter<readonly Session[]>());
  readonly #occurred = this.#owned.add(new EventEmitter<Occurrence>());
  readonly #profiles = this.#owned.add(new EventEmitter<undefined>());
  /** Created with the first connection, because its class is in the second bundle. */
  #state: HostState | undefined;
  readonly #waiting = new Set<{ readonly seq: number; readonly resolve: () => void }>();

  constructor(connection: HostConnection) {
    this.#connection = connection;
    this.#owned.add(
      connection.onDidConnect((peer) => {
        this.#state ??= new HostState(connection.name === LOCAL ? {} : { maxSessions: MAX_HOST_SESSIONS });
        peer.onNotification('host/changed', (part) => this.#receive(peer, part));
        void this.sync().catch(() => undefined);
      }),
    );
  }

  /** Fires with all sessions of the host when any has changed. */
  readonly onDidChangeSessions = this.#changed.event;
  /** Fires for what happens while the window is connected: turns, permissions, denied connections. */
  readonly onDidOccur = this.#occurred.event;

  /** Fires when profiles were deployed or removed, and with the first report. */
  readonly onDidChangeProfiles = this.#profiles.event;

  /** As last reported; undefined before the first report. */
  get sessions(): readonly Session[] | undefined {
    return this.#state?.sessions;
  }

  /** Resolves when everything that has happened up to now is known here. Errors: why there is no connection. */
  async sync(): Promise<void> {
    const peer = await this.#connection.ready();
    const position = this.#state?.position;
    const { epoch, seq } = await peer.call(
      'host/subscribe',
      position === undefined ? {} : { after: position },
    );
    const now = this.#state?.position;
    if (now?.epoch === epoch && now.seq >= seq) return;
    const { promise, resolve } = Promise.withResolvers<undefined>();
    const waiting = { seq, resolve: () => resolve(undefined) };
    this.#waiting.add(waiting);
    const lost = peer.closed.then((error) => {
      throw error ?? new HoldfastError('connection_closed', 'The connection was closed');
    });
    try {
      await Promise.race([promise, lost]);
    } finally {
      this.#waiting.delete(waiting);
    }
  }

  dispose(): void {
    this.#owned.dispose();
  }

  #receive(peer: SupervisorPeer, part: NotificationParams<'host/changed'>): void {
    // A message of an earlier connection, whose place in the order is not known.
    const state = this.#state;
    if (this.#connection.peer !== peer || state === undefined) return;
    const isChanged = state.apply(part);
    for (const change of part.changes) {
      if (change.kind === 'engine') this.#connection.reportEngine(peer, change.engine);
      if (change.kind === 'turn' || change.kind === 'permission' || change.kind === 'denial') {
        this.#occurred.fire(change);
      }
    }
    if (isChanged) this.#changed.fire(state.sessions ?? []);
    if (part.isSnapshot || part.changes.some(({ kind }) => kind === 'profile'))
      this.#profiles.fire(undefined);
    if (!part.isComplete) return;
    for (const waiting of this.#waiting) if (part.seq >= waiting.seq) waiting.resolve();
  }
}
