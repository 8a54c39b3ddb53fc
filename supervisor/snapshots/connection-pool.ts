import type { Duplex } from 'node:stream';
import { HoldfastError } from '../../protocol/errors.ts';
import { SnapshotConnection } from './connection.ts';

/** How long an unused connection stays open: the next turn often follows soon. */
const IDLE_TIMEOUT_MS = 15_000;

interface IdleConnection {
  readonly connection: SnapshotConnection;
  readonly closeTimer: NodeJS.Timeout;
}

/**
 * Pools idle connections, at most one per session, because opening one takes longer than scanning a small workspace.
 */
export class SnapshotConnectionPool {
  readonly #dial: (sessionId: string) => Promise<Duplex>;
  readonly #idle = new Map<string, IdleConnection>();
  #closed = false;

  constructor(dial: (sessionId: string) => Promise<Duplex>) {
    this.#dial = dial;
  }

  /**
   * Runs `act` with a pooled or new connection. Calls `act` again with a new one if the sidecar of the pooled
   * connection had exited. Errors: those of `act` and of `SnapshotConnection.open`.
   */
  async use<T>(sessionId: string, act: (connection: SnapshotConnection) => Promise<T>): Promise<T> {
    const pooled = this.#takeIdle(sessionId);
    if (pooled !== null) {
      const { messagesReceived } = pooled;
      try {
        return await this.#runWith(sessionId, pooled, act);
      } catch (error) {
        const wasClosed = error instanceof HoldfastError && error.code === 'connection_closed';
        if (!wasClosed || pooled.messagesReceived > messagesReceived) throw error;
      }
    }
    const connection = await SnapshotConnection.open(() => this.#dial(sessionId), sessionId);
    return await this.#runWith(sessionId, connection, act);
  }

  close(): void {
    this.#closed = true;
    for (const sessionId of [...this.#idle.keys()]) this.#takeIdle(sessionId)?.close();
  }

  async #runWith<T>(
    sessionId: string,
    connection: SnapshotConnection,
    act: (connection: SnapshotConnection) => Promise<T>,
  ): Promise<T> {
    let result: T;
    try {
      result = await act(connection);
    } catch (error) {
      // The connection is in an unknown state.
      connection.close();
      throw error;
    }
    this.#addIdle(sessionId, connection);
    return result;
  }

  #takeIdle(sessionId: string): SnapshotConnection | null {
    const pooled = this.#idle.get(sessionId);
    if (pooled === undefined) return null;
    this.#idle.delete(sessionId);
    clearTimeout(pooled.closeTimer);
    return pooled.connection.isClosed ? null : pooled.connection;
  }

  #addIdle(sessionId: string, connection: SnapshotConnection): void {
    if (this.#closed || this.#idle.has(sessionId)) {
      connection.close();
      return;
    }
    const closeTimer = setTimeout(() => this.#takeIdle(sessionId)?.close(), IDLE_TIMEOUT_MS).unref();
    this.#idle.set(sessionId, { connection, closeTimer });
  }
}
