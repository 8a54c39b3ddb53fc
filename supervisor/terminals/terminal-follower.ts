import { HoldfastError } from '../../protocol/errors.ts';
import type { Log } from '../base/log.ts';
import { failpoint } from '../base/failpoints.ts';
import type { TerminalRow, TerminalRows } from '../store/terminals.ts';
import type { Lifecycle } from '../sandboxes/lifecycle.ts';
import type { TerminalRecords } from './terminal-records.ts';
import { sleepUntilAborted, type TerminalSandboxes } from './terminal-sandboxes.ts';

const MOMENT_MS = 500;
const WAIT_MS = 60_000;
/** How long one whose container is gone may take to be over. */
const END_MS = 5000;
const RETRY_MS = { first: 50, most: 2000 } as const;
const GONE = 'its container ended';

interface Followed {
  readonly ended: Promise<void>;
  /** Asks again how it is: something about it has changed here. */
  look: AbortController;
  /** Why its container is gone. */
  gone: string | null;
  /** Why it is being ended. */
  ending: string | null;
}

export interface TerminalFollowerOptions {
  readonly rows: TerminalRows;
  readonly sandboxes: TerminalSandboxes;
  readonly records: TerminalRecords;
  readonly lifecycle: Pick<Lifecycle, 'markSuspect'>;
  readonly log: Log;
  /** How long a terminal may be silent and unwatched until it holds its session no longer, ms. */
  readonly idleTimeoutOf: (sessionId: string) => number;
  /** The end of one is on record. */
  readonly ended: (sessionId: string) => void;
  /** The supervisor is going: terminals go on in their sandboxes. */
  readonly leaving: AbortSignal;
}

/** Follows every open terminal to its end, and says meanwhile whether it holds its session. */
export class TerminalFollower {
  readonly #options: TerminalFollowerOptions;
  readonly #followed = new Map<string, Followed>();

  constructor(options: TerminalFollowerOptions) {
    this.#options = options;
    options.leaving.addEventListener('abort', () => {
      for (const { look } of this.#followed.values()) look.abort();
    });
  }

  follow(row: TerminalRow): void {
    const followed: Followed = {
      ended: Promise.resolve().then(() => this.#toItsEnd(row)),
      look: new AbortController(),
      gone: null,
      ending: null,
    };
    this.#followed.set(row.id, followed);
    void followed.ended.finally(() => this.#followed.delete(row.id));
  }

  /** Settles when its end is on record; at once for one that nobody follows. Never rejects. */
  async waitForEnd(id: string): Promise<void> {
    await this.#followed.get(id)?.ended;
  }

  /** It is about to be ended, and not by its program. */
  markEnding(id: string, why: string): void {
    const followed = this.#followed.get(id);
    if (followed !== undefined) followed.ending = why;
  }

  /** Why it is being ended; null while nobody wants that. */
  endingReason(id: string): string | null {
    return this.#followed.get(id)?.ending ?? null;
  }

  /** The agent's container is gone, and its terminals with it. */
  onAgentGone(sessionId: string, why: string): void {
    for (const { id } of this.#options.rows.listOpen(sessionId)) {
      const followed = this.#followed.get(id);
      if (followed === undefined) continue;
      followed.gone = why;
      followed.look.abort();
    }
  }

  /** Settles, once the supervisor is leaving, when nothing is followed any more. */
  async settled(): Promise<void> {
    await Promise.all([...this.#followed.values()].map(({ ended }) => ended));
  }

  #isLeaving(): boolean {
    return this.#options.leaving.aborted;
  }

  /** Never rejects. */
  async #toItsEnd(row: TerminalRow): Promise<void> {
    const { records, ended, log, leaving } = this.#options;
    let retryMs: number = RETRY_MS.first;
    while (!this.#isLeaving()) {
      try {
        const end = await this.#lookForEnd(row);
        if (end === null) continue;
        await failpoint('terminal.before-end');
        records.recordEnded(row, end.exitCode, end.why);
        ended(row.sessionId);
        return;
      } catch (error) {
        if (this.#isLeaving()) return;
        log.warn('a terminal is followed again', {
          terminal: row.id,
          why: HoldfastError.from(error).sentence,
        });
        await sleepUntilAborted(retryMs, leaving);
        retryMs = Math.min(retryMs * 2, RETRY_MS.most);
      }
    }
  }

  async #lookForEnd(row: TerminalRow): Promise<Pick<TerminalRow, 'exitCode' | 'why'> | null> {
    const { sandboxes, records, lifecycle } = this.#options;
    const followed = this.#followed.get(row.id);
    const gone = followed?.gone ?? null;
    if (!sandboxes.isAvailable(row)) return { exitCode: null, why: gone ?? 'its sandbox was removed' };
    const look = new AbortController();
    if (followed !== undefined) followed.look = look;
    const client = await sandboxes.client(row.sessionId);
    const patienceMs = this.#options.idleTimeoutOf(row.sessionId);
    const waitMs = gone === null ? Math.min(WAIT_MS, Math.max(MOMENT_MS, patienceMs / 2)) : END_MS;
    const progress = await client
      .terminalProgress(row.id, Math.round(waitMs), { signal: look.signal })
      .catch((error: unknown) => {
        if (look.signal.aborted) return null;
        throw error;
      });
    if (progress === null) return null;
    switch (progress.state) {
      case 'ended':
        if (progress.exitCode === null) lifecycle.markSuspect(row.sessionId);
        return {
          exitCode: progress.exitCode,
          why: followed?.ending ?? (progress.exitCode === null ? (gone ?? GONE) : null),
        };
      case 'absent':
        return { exitCode: null, why: gone ?? 'its run directory is gone' };
      case 'starting':
      case 'running':
        if (gone !== null) return { exitCode: null, why: gone };
        if (progress.idleMs < patienceMs) records.activate(row);
        else records.deactivateSilent(row);
        return null;
    }
  }
}
