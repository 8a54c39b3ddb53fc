import type { Duplex } from 'node:stream';
import { HoldfastError } from '../../protocol/errors.ts';
import { SnapshotConnection } from './connection.ts';

/** How long one that nobody uses stays: turns follow each other. */
const UNUSED_MS = 15_000;

interface Standing {
  readonly connection: SnapshotConnection;
  readonly closing: NodeJS.Timeout;
}

/** Connections for scans that stay open for a while, at most one for each session: making one takes longer than a look at a small workspace. */
export class SnapshotConnectionPool {
  readonly #dial: (sessionId: string) => Promise<Duplex>;
  readonly #unused = new Map<string, Standing>();
  #closed = false;

  constructor(dial: (sessionId: string) => Promise<Duplex>) {
    this.#dial = dial;
  }

  /** Errors: those of `act`, and of `SnapshotConnection.open`. `act` is called again where its sidecar went while nobody looked. */
  async use<T>(sessionId: string, act: (connection: SnapshotConnection) => Promise<T>): Promise<T> {
    const standing = this.#take(sessionId);
    if (standing !== null) {
      const { heard } = standing;
      try {
        return await this.#with(sessionId, standing, act);
      } catch (error) {
        const wasGone = error instanceof HoldfastError && error.code === 'connection_closed';
        if (!wasGone || standing.heard > heard) throw error;
      }
    }
    const connection = await SnapshotConnection.open(() => this.#dial(sessionId), sessionId);
    return await this.#with(sessionId, connection, act);
  }

  close(): void {
    this.#closed = true;
    for (const sessionId of [...this.#unused.keys()]) this.#take(sessionId)?.close();
  }

  async #with<T>(
    sessionId: string,
    connection: SnapshotConnection,
    act: (connection: SnapshotConnection) => Promise<T>,
  ): Promise<T> {
    let result: T;
    try {
      result = await act(connection);
    } catch (error) {
      // What it is at now is not known.
      connection.close();
      throw error;
    }
    this.#keep(sessionId, connection);
    return result;
  }

  #take(sessionId: string): SnapshotConnection | null {
    const standing = this.#unused.get(sessionId);
    if (standing === undefined) return null;
    this.#unused.delete(sessionId);
    clearTimeout(standing.closing);
    return standing.connection.isClosed ? null : standing.connection;
  }

  #keep(sessionId: string, connection: SnapshotConnection): void {
    if (this.#closed || this.#unused.has(sessionId)) {
      connection.close();
      return;
    }
    const closing = setTimeout(() => this.#take(sessionId)?.close(), UNUSED_MS).unref();
    this.#unused.set(sessionId, { connection, closing });
  }
}
