import { setTimeout as sleep } from 'node:timers/promises';
import { HoldfastError } from '../../protocol/errors.ts';
import type { SessionRow } from '../store/sessions.ts';
import type { TerminalRow } from '../store/terminals.ts';
import type { SidecarClient } from '../workspace/sidecar-client.ts';
import type { Lifecycle } from '../sandboxes/lifecycle.ts';
import type { SessionRecords } from '../history/session-records.ts';
import { isTransient } from '../turns/turn-outcomes.ts';

const RETRY_MS = { first: 50, most: 2000 } as const;
/** Whoever asks waits so long for a sidecar that has gone away. */
const TRIES = 20;

export interface TerminalSandboxesOptions {
  readonly lifecycle: Pick<Lifecycle, 'attach'>;
  readonly records: SessionRecords;
  /** The supervisor is going: nothing is asked again. */
  readonly leaving: AbortSignal;
}

/** Where terminals are: each in the sandbox that it was opened in, and nowhere once that is gone. */
export class TerminalSandboxes {
  readonly #options: TerminalSandboxesOptions;
  readonly #clients = new Map<string, Promise<SidecarClient>>();

  constructor(options: TerminalSandboxesOptions) {
    this.#options = options;
  }

  /** Its output is there for as long. */
  isAvailable(row: TerminalRow): boolean {
    const session = this.#options.records.peek(row.sessionId);
    return session?.generation === row.generation && isUp(session);
  }

  /** One answer about a terminal; again where the sidecar goes away meanwhile. Errors: `not_found` where its sandbox is gone. */
  async call<T>(
    row: TerminalRow,
    question: (client: SidecarClient) => Promise<T>,
    signal: AbortSignal = this.#options.leaving,
  ): Promise<T> {
    for (let tries = 1; ; tries += 1) {
      this.#demand(row);
      try {
        return await question(await this.client(row.sessionId));
      } catch (error) {
        const failure = HoldfastError.from(error);
        if (!isTransient(failure) || tries === TRIES || signal.aborted) throw failure;
      }
      const waitMs = Math.min(RETRY_MS.first * 2 ** tries, RETRY_MS.most);
      await sleepUntilAborted(waitMs, AbortSignal.any([signal, this.#options.leaving]));
    }
  }

  /** The connection to the session's sidecar, the same one for all of its terminals. Starts no agent. */
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

  #demand(row: TerminalRow): void {
    if (this.isAvailable(row)) return;
    throw new HoldfastError('not_found', `The terminal ${row.id} is over`, {
      why: 'its sandbox has been removed, and its output with it',
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
