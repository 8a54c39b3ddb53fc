import type { DispatchResult } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Log } from '../base/log.ts';
import type { Database } from '../store/database.ts';
import type { TerminalRow, TerminalRows } from '../store/terminals.ts';
import type { ActiveWork } from '../sandboxes/active-work.ts';
import type { SessionRecords } from '../history/session-records.ts';

const SHOWN_ARGUMENT = 200;
const SHOWN_ARGUMENTS = 20;

export interface TerminalRecordsOptions {
  readonly database: Database;
  readonly rows: TerminalRows;
  readonly records: SessionRecords;
  readonly live: ActiveWork;
  readonly log: Log;
  readonly now: () => number;
  /** A session's terminal has ended. */
  readonly onEnded: (sessionId: string) => void;
}

/** What terminals do to records: row, history and session agree, and a session is active while one of its terminals is live. */
export class TerminalRecords {
  readonly #options: TerminalRecordsOptions;

  constructor(options: TerminalRecordsOptions) {
    this.#options = options;
  }

  /** It is about to begin. */
  recordOpened(row: TerminalRow, dispatched: DispatchResult): void {
    const { database, rows, records, now } = this.#options;
    const command = row.command
      .slice(0, SHOWN_ARGUMENTS)
      .map((argument) => argument.slice(0, SHOWN_ARGUMENT));
    database.transaction(() => {
      rows.insert(row);
      records.change(row.sessionId, { status: 'active', lastActiveAt: now() }, 'a terminal is open', [
        { type: 'terminal.opened', data: { terminalId: row.id, command, ...dispatched } },
      ]);
    });
  }

  /** Where that cannot be stored, it is logged: the terminal is over all the same. */
  recordEnded(row: TerminalRow, exitCode: number | null, why: string | null): void {
    const { database, rows, records, log, now, onEnded } = this.#options;
    try {
      database.transaction(() => {
        if (!rows.markEnded(row.id, { endedAt: now(), exitCode, why })) return;
        records.change(row.sessionId, {}, 'a terminal has ended', [
          { type: 'terminal.ended', data: { terminalId: row.id, exitCode, why } },
        ]);
      });
    } catch (error) {
      log.warn('the end of a terminal is not on record', {
        terminal: row.id,
        why: HoldfastError.from(error).sentence,
      });
    }
    this.deactivate(row, 'the terminal ended');
    onEnded(row.sessionId);
  }

  /** Live again: somebody joined it, or it said something. */
  activate({ id, sessionId }: TerminalRow): void {
    const { live, records, now } = this.#options;
    if (live.has(sessionId, id)) return;
    live.add(sessionId, id, 'terminal');
    if (records.peek(sessionId)?.status === 'idle')
      records.change(sessionId, { status: 'active', lastActiveAt: now() }, 'a terminal is in use again');
  }

  /** Its session may be put away with it. */
  deactivateSilent(row: TerminalRow): void {
    if (!this.#options.live.has(row.sessionId, row.id)) return;
    this.deactivate(row, 'its terminal has been silent for long');
  }

  /** Live no longer. The time comes first: the idle clock looks at it when the last live thing goes. */
  deactivate({ id, sessionId }: Pick<TerminalRow, 'id' | 'sessionId'>, why: string): void {
    const { live, records, now } = this.#options;
    if (records.peek(sessionId)?.status === 'active') records.change(sessionId, { lastActiveAt: now() }, why);
    live.remove(sessionId, id);
    if (records.peek(sessionId)?.status === 'active' && live.count(sessionId) === 0)
      records.change(sessionId, { status: 'idle' }, why);
  }
}
