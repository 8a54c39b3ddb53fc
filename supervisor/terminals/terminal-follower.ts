import { HoldfastError } from '../../protocol/errors.ts';
import type { Log } from '../base/log.ts';
import { failpoint } from '../base/failpoints.ts';
import type { TerminalRow, TerminalRows } from '../store/terminals.ts';
import type { Lifecycle } from '../sandboxes/lifecycle.ts';
import type { TerminalRecords } from './terminal-records.ts';
import { sleepUntilAborted, type TerminalSandboxes } from './terminal-sandboxes.ts';

const SHORTEST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 60_000;
/** How long a terminal may take to end after its container. */
const END_MS = 5000;
const RETRY_MS = { first: 50, most: 2000 } as const;
const GONE = 'its container ended';

interface Followed {
  readonly ended: Promise<void>;
  /** Aborts the wait for progress: something about the terminal changed here. */
  progressWait: AbortController;
  /** Why the container is gone. */
  gone: string | null;
  /** Why the terminal is being closed. */
  ending: string | null;
}

export interface TerminalFollowerOptions {
  readonly rows: TerminalRows;
  readonly sandboxes: TerminalSandboxes;
  readonly records: TerminalRecords;
  readonly lifecycle: Pick<Lifecycle, 'markSuspect'>;
  readonly log: Log;
  /** How long a terminal may be silent, with nobody attached, before its session may become idle, ms. */
  readonly idleTimeoutOf: (sessionId: string) => number;
  /** Called with the session's id when the end of a terminal is recorded. */
  readonly onEnded: (sessionId: string) => void;
  /** Aborted when the supervisor shuts down: terminals go on in their sandboxes. */
  readonly shutdown: AbortSignal;
}

/** Follows every open terminal to its end, and keeps its session active while it is in use. */
export class TerminalFollower {
  readonly #options: TerminalFollowerOptions;
  readonly #followed = new Map<string, Followed>();

  constructor(options: TerminalFollowerOptions) {
    this.#options = options;
    options.shutdown.addEventListener('abort', () => {
      for (const { progressWait } of this.#followed.values()) progressWait.abort();
    });
  }

  follow(row: TerminalRow): void {
    const followed: Followed = {
      ended: Promise.resolve().then(() => this.#followToEnd(row)),
      progressWait: new AbortController(),
      gone: null,
      ending: null,
    };
    this.#followed.set(row.id, followed);
    void followed.ended.finally(() => this.#followed.delete(row.id));
  }

  /** Settles when the end is recorded; at once for a terminal that is not followed. Never rejects. */
  async waitForEnd(id: string): Promise<void> {
    await this.#followed.get(id)?.ended;
  }

  /** The terminal is about to be closed from outside. */
  markEnding(id: string, why: string): void {
    const followed = this.#followed.get(id);
    if (followed !== undefined) followed.ending = why;
  }

  /** Why the terminal is being closed; null if it is not. */
  endingReason(id: string): string | null {
    return this.#followed.get(id)?.ending ?? null;
  }

  /** The agent's container is gone, and its terminals with it. */
  onAgentGone(sessionId: string, why: string): void {
    for (const { id } of this.#options.rows.listOpen(sessionId)) {
      const followed = this.#followed.get(id);
      if (followed === undefined) continue;
      followed.gone = why;
      followed.progressWait.abort();
    }
  }

  /** After the shutdown: settles when nothing is followed. */
  async settled(): Promise<void> {
    await Promise.all([...this.#followed.values()].map(({ ended }) => ended));
  }

  #isShuttingDown(): boolean {
    return this.#options.shutdown.aborted;
  }

  /** Never rejects. */
  async #followToEnd(row: TerminalRow): Promise<void> {
    const { records, onEnded, log, shutdown } = this.#options;
    let retryMs: number = RETRY_MS.first;
    while (!this.#isShuttingDown()) {
      try {
        const end = await this.#waitForEnd(row);
        if (end === null) continue;
        await failpoint('terminal.before-end');
        records.recordEnded(row, end.exitCode, end.why);
        onEnded(row.sessionId);
        return;
      } catch (error) {
        if (this.#isShuttingDown()) return;
        log.warn('connecting to a terminal again', {
          terminal: row.id,
          why: HoldfastError.from(error).sentence,
        });
        await sleepUntilAborted(retryMs, shutdown);
        retryMs = Math.min(retryMs * 2, RETRY_MS.most);
      }
    }
  }

  async #waitForEnd(row: TerminalRow): Promise<Pick<TerminalRow, 'exitCode' | 'why'> | null> {
    const { sandboxes, records, lifecycle } = this.#options;
    const followed = this.#followed.get(row.id);
    const gone = followed?.gone ?? null;
    if (!sandboxes.isAvailable(row)) return { exitCode: null, why: gone ?? 'its sandbox was removed' };
    const progressWait = new AbortController();
    if (followed !== undefined) followed.progressWait = progressWait;
    const client = await sandboxes.client(row.sessionId);
    const idleTimeoutMs = this.#options.idleTimeoutOf(row.sessionId);
    const waitMs =
      gone === null ? Math.min(LONGEST_WAIT_MS, Math.max(SHORTEST_WAIT_MS, idleTimeoutMs / 2)) : END_MS;
    const progress = await client
      .terminalProgress(row.id, Math.round(waitMs), { signal: progressWait.signal })
      .catch((error: unknown) => {
        if (progressWait.signal.aborted) return null;
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
        if (progress.idleMs < idleTimeoutMs) records.activate(row);
        else records.deactivateSilent(row);
        return null;
    }
  }
}
