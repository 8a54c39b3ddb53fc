import { setTimeout as sleep } from 'node:timers/promises';
import { HoldfastError } from '../../protocol/errors.ts';
import type { SessionRow } from '../store/sessions.ts';
import type { TerminalRow } from '../store/terminals.ts';
import type { SidecarClient } from '../workspace/sidecar-client.ts';
import type { Lifecycle } from '../sandboxes/lifecycle.ts';
import type { SessionRecords } from '../history/session-records.ts';
import { isTransient } from '../sandboxes/transient-errors.ts';

const RETRY_MS = { first: 50, most: 2000 } as const;
/** Attempts of a call whose sidecar is gone. */
const MAX_ATTEMPTS = 20;

export interface TerminalSandboxesOptions {
  readonly lifecycle: Pick<Lifecycle, 'attach'>;
  readonly records: SessionRecords;
  /** Aborted when the supervisor shuts down: nothing is retried. */
  readonly shutdown: AbortSignal;
}

/** The sandboxes of terminals. A terminal exists in the sandbox that it was opened in, and ends with it. */
export class TerminalSandboxes {
  readonly #options: TerminalSandboxesOptions;
  readonly #clients = new Map<string, Promise<SidecarClient>>();

  constructor(options: TerminalSandboxesOptions) {
    this.#options = options;
  }

  /** True while the sandbox of the terminal exists, and its output with it. */
  isAvailable(row: TerminalRow): boolean {
    const session = this.#options.records.peek(row.sessionId);
    return session?.generation === row.generation && isUp(session);
  }

  /** Calls the sidecar; again when the sidecar ends during the call. Errors: `not_found` when the terminal's sandbox is gone. */
  async call<T>(
    row: TerminalRow,
    request: (client: SidecarClient) => Promise<T>,
    signal: AbortSignal = this.#options.shutdown,
  ): Promise<T> {
    for (let attempt = 1; ; attempt += 1) {
      this.#requireAvailable(row);
      try {
        return await request(await this.client(row.sessionId));
      } catch (error) {
        const failure = HoldfastError.from(error);
        if (!isTransient(failure) || attempt === MAX_ATTEMPTS || signal.aborted) throw failure;
      }
      const waitMs = Math.min(RETRY_MS.first * 2 ** attempt, RETRY_MS.most);
      await sleepUntilAborted(waitMs, AbortSignal.any([signal, this.#options.shutdown]));
    }
  }

  /** The connection to the session's sidecar, shared by its terminals. Starts no agent. */
  client(sessionId: string): Promise<SidecarClient> {
    const known = this.#clients.get(sessionId);
    if (known !== undefined) return known;
    const attaching = this.#options.lifecycle.attach(sessionId).then(({ client }) => client);
    this.#clients.set(sessionId, attaching);
    const forget = (): void => {
      if (this.#clients.get(sessionId) === attaching) this.#clients.delete(sessionId);
    };
    attaching.then((client) => void client.closed.then(forget), forget);
    return attaching;
  }

  #requireAvailable(row: TerminalRow): void {
    if (this.isAvailable(row)) return;
    throw new HoldfastError('not_found', `The terminal ${row.id} has ended`, {
      why: 'its sandbox was removed, and its output with it',
      next: 'open another one with `holdfast terminal open SESSION`',
    });
  }
}

/** Resolves after `ms`, or when the signal aborts. */
export async function sleepUntilAborted(ms: number, signal: AbortSignal): Promise<void> {
  await sleep(ms, undefined, { signal }).catch((error: unknown) => {
    if (!signal.aborted) throw error;
  });
}

function isUp({ status }: SessionRow): boolean {
  return status === 'active' || status === 'idle' || status === 'paused';
}
