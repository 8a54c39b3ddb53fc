import { setTimeout as sleep } from 'node:timers/promises';
import { HoldfastError } from '../../protocol/errors.ts';
import type { BufferPool } from '../../protocol/wire/buffer-pool.ts';
import { FilesConnection } from './files-connection.ts';
import { RETRY_DELAY_MS, type SidecarAccess, MAX_ATTEMPTS, withRunningSidecar } from './sidecar-access.ts';

/** `quick` calls never wait behind the bytes of `bulk` ones. */
export type FilesChannel = 'quick' | 'bulk';

/** Standing connections for files: two for each session whose files are looked at, made at the first call. */
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
   * With `again`, a call that was cut off by the end of its sidecar is asked again of the next one; else it fails with
   * `file_unavailable`, as nobody knows whether it was done.
   */
  async use<T>(
    sessionId: string,
    lane: FilesChannel,
    again: boolean,
    call: (connection: FilesConnection) => Promise<T>,
  ): Promise<T> {
    const release = this.#access.acquireLease(sessionId);
    try {
      for (let tries = 1; ; tries += 1) {
        try {
          return await call(await this.#get(sessionId, lane));
        } catch (error) {
          if (!isCutOff(error)) throw error;
          if (!again || tries === MAX_ATTEMPTS) throw lost(error);
          // What was cut off may not be known as such yet.
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

  #get(sessionId: string, lane: FilesChannel): Promise<FilesConnection> {
    if (this.#closed) throw new HoldfastError('shutting_down', 'The supervisor is leaving');
    const key = `${sessionId} ${lane}`;
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

function isCutOff(error: unknown): error is HoldfastError {
  return error instanceof HoldfastError && error.code === 'connection_closed';
}

/** Under a code of its own: for a client, `connection_closed` is about the supervisor. */
function lost(cause: HoldfastError): HoldfastError {
  return new HoldfastError('file_unavailable', 'The answer of the sidecar was lost', {
    why: 'it ended in the middle of the request, which may or may not have been done',
    next: 'look, then try again',
    cause,
  });
}
