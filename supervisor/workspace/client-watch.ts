import { setTimeout as sleep } from 'node:timers/promises';
import { HoldfastError } from '../../protocol/errors.ts';
import type { FileChange, WatchMode } from '../../protocol/watch.ts';
import type { FilesConnection } from './files-connection.ts';
import type { FilesConnections } from './files-connections.ts';

/** How long the sidecar waits for a change in one call. */
const WAIT_MS = 20_000;
const ANSWER_MS = 10_000;
const FIRST_PAUSE_MS = 200;
const LONGEST_PAUSE_MS = 5000;

export interface WatchBatch {
  readonly changes: FileChange[];
  readonly overflow: boolean;
  readonly mode: WatchMode;
  readonly ended: boolean;
}

export interface WatchRequest {
  readonly path: string;
  readonly recursive?: boolean | undefined;
  readonly excludes?: string[] | undefined;
}

/**
 * One watch of one client. When the sidecar is lost, the watch continues on the next one, and an `overflow` reports the gap. The
 * client sets the pace: the next batch is fetched when it has taken the one before.
 */
export class ClientWatch {
  readonly #connections: FilesConnections;
  readonly #sessionId: string;
  readonly #request: WatchRequest;
  readonly #send: (batch: WatchBatch) => Promise<void>;
  readonly #ending = new AbortController();
  readonly #opened = Promise.withResolvers<WatchMode>();
  /** Settles when the watch has ended. Never rejects. */
  readonly ended: Promise<void>;
  #mode: WatchMode | null = null;
  #delivering = Promise.resolve();

  constructor(
    connections: FilesConnections,
    sessionId: string,
    request: WatchRequest,
    send: (batch: WatchBatch) => Promise<void>,
  ) {
    this.#connections = connections;
    this.#sessionId = sessionId;
    this.#request = request;
    this.#send = send;
    this.ended = this.#run();
  }

  /** Every change after this resolves is reported. Rejects when there is nothing to watch; then the watch has ended. */
  get opened(): Promise<WatchMode> {
    return this.#opened.promise;
  }

  /** Delays batches until this promise settles: the client has to know the watch first. */
  deliverAfter(answered: Promise<void>): void {
    this.#delivering = answered;
  }

  stop(): void {
    this.#ending.abort();
  }

  #isEnding(): boolean {
    return this.#ending.signal.aborted;
  }

  async #run(): Promise<void> {
    let pause = FIRST_PAUSE_MS;
    while (!this.#isEnding()) {
      try {
        await this.#connections.use(this.#sessionId, 'quick', false, async (connection) => {
          await this.#follow(connection, () => (pause = FIRST_PAUSE_MS));
        });
      } catch (error) {
        if (this.#isEnding()) return;
        if (this.#mode === null) {
          this.#opened.reject(error);
          return;
        }
        if (isFinal(error)) {
          await this.#deliver({ changes: [], overflow: true, mode: this.#mode, ended: true });
          return;
        }
        await sleep(pause, undefined, { signal: this.#ending.signal }).catch(() => undefined); // the loop ends then
        pause = Math.min(pause * 2, LONGEST_PAUSE_MS);
      }
    }
  }

  async #follow(connection: FilesConnection, good: () => void): Promise<void> {
    const { signal } = this.#ending;
    const { result: opened } = await connection.call('files/watch-open', this.#request, { signal });
    const { watch } = opened;
    try {
      if (this.#mode === null) {
        this.#mode = opened.mode;
        this.#opened.resolve(opened.mode);
      } else {
        await this.#deliver({ changes: [], overflow: true, mode: opened.mode, ended: false });
      }
      good();
      while (!signal.aborted) {
        const { result } = await connection.call(
          'files/watch-next',
          { watch, waitMs: WAIT_MS },
          { signal, timeoutMs: WAIT_MS + ANSWER_MS },
        );
        if (result.changes.length === 0 && !result.overflow && result.mode === this.#mode) continue;
        this.#mode = result.mode;
        await this.#deliver({ ...result, ended: false });
      }
    } finally {
      await connection.call('files/watch-close', { watch }, { timeoutMs: ANSWER_MS }).catch(() => undefined); // it ended with its connection
    }
  }

  async #deliver(batch: WatchBatch): Promise<void> {
    await this.#delivering;
    try {
      await this.#send(batch);
    } catch (error) {
      // The client has disconnected.
      this.stop();
      throw error;
    }
  }
}

/** Errors that a retry would not change. */
function isFinal(error: unknown): boolean {
  if (!(error instanceof HoldfastError)) return false;
  switch (error.code) {
    case 'not_found':
    case 'shutting_down':
    case 'invalid_params':
    case 'file_not_found':
    case 'file_not_a_directory':
    case 'permission_denied':
      return true;
    default:
      return false;
  }
}
