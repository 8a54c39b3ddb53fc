import { setTimeout as sleep } from 'node:timers/promises';
import { HoldfastError } from '../../protocol/errors.ts';
import type { BufferPool } from '../../protocol/wire/buffer-pool.ts';
import { FilesConnection } from './files-connection.ts';
import { RETRY_DELAY_MS, type SidecarAccess, MAX_ATTEMPTS, withRunningSidecar } from './sidecar-access.ts';

/** A `quick` call never waits behind the bytes of a `bulk` call. */
export type FilesChannel = 'quick' | 'bulk';

/** Open connections for calls about files: two per session, opened at the first call. */
export class FilesConnections {
  readonly #access: SidecarAccess;
  readonly #payloads: BufferPool;
  readonly #open = new Map<string, Promise<FilesConnection>>();
  #closed = false;

  constructor(access: SidecarAccess, payloads: BufferPool) {
    this.#access = access;
    this.#payloads = payloads;
  }

  /**
   * With `isRepeatable`, a call that was interrupted by the end of its sidecar is sent to the next one. Otherwise it fails with
   * `file_unavailable`, because it is unknown whether it was done.
   */
  async use<T>(
    sessionId: string,
    channel: FilesChannel,
    isRepeatable: boolean,
    call: (connection: FilesConnection) => Promise<T>,
  ): Promise<T> {
    const release = this.#access.acquireLease(sessionId);
    try {
      for (let tries = 1; ; tries += 1) {
        try {
          return await call(await this.#get(sessionId, channel));
        } catch (error) {
          if (!isConnectionLost(error)) throw error;
          if (!isRepeatable || tries === MAX_ATTEMPTS) throw answerLost(error);
          // The end of the old sidecar may not be known yet.
          await sleep((tries - 1) * RETRY_DELAY_MS);
        }
      }
    } finally {
      release();
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    const all = [...this.#open.values()];
    this.#open.clear();
    for (const result of await Promise.allSettled(all)) {
      if (result.status === 'fulfilled') result.value.close();
    }
  }

  #get(sessionId: string, channel: FilesChannel): Promise<FilesConnection> {
    if (this.#closed) throw new HoldfastError('shutting_down', 'The supervisor is shutting down');
    const key = `${sessionId} ${channel}`;
    const known = this.#open.get(key);
    if (known !== undefined) return known;
    const opening = this.#connect(sessionId);
    this.#open.set(key, opening);
    const forget = (): void => {
      if (this.#open.get(key) === opening) this.#open.delete(key);
    };
    opening.then((connection) => void connection.closed.then(forget), forget);
    return opening;
  }

  async #connect(sessionId: string): Promise<FilesConnection> {
    return await withRunningSidecar(this.#access, sessionId, () =>
      FilesConnection.open(() => this.#access.dial(sessionId), sessionId, this.#payloads),
    );
  }
}

function isConnectionLost(error: unknown): error is HoldfastError {
  return error instanceof HoldfastError && error.code === 'connection_closed';
}

/** A code of its own: to a client, `connection_closed` is about the supervisor. */
function answerLost(cause: HoldfastError): HoldfastError {
  return new HoldfastError('file_unavailable', 'The answer of the sidecar was lost', {
    why: 'it exited during the request, which may or may not have been done',
    next: 'check the file, then try again',
    cause,
  });
}
