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
  readonly activeWork: ActiveWork;
  readonly log: Log;
  readonly now: () => number;
  /** Called with the session's id when one of its terminals has ended. */
  readonly onEnded: (sessionId: string) => void;
}

/** Rows and events of terminals. A session is active while one of its terminals counts as active work. */
export class TerminalRecords {
  readonly #options: TerminalRecordsOptions;

  constructor(options: TerminalRecordsOptions) {
    this.#options = options;
  }

  /** Call it before the terminal starts. */
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

  /** An end that cannot be stored is logged: the terminal has ended all the same. */
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

  /** Somebody attached to the terminal, or it wrote output: it counts as active work again. */
  activate({ id, sessionId }: TerminalRow): void {
    const { activeWork, records, now } = this.#options;
    if (activeWork.has(sessionId, id)) return;
    activeWork.add(sessionId, id, 'terminal');
    if (records.peek(sessionId)?.status === 'idle')
      records.change(sessionId, { status: 'active', lastActiveAt: now() }, 'a terminal is in use again');
  }

  /** The terminal was silent for long: its session may become idle. */
  deactivateSilent(row: TerminalRow): void {
    if (!this.#options.activeWork.has(row.sessionId, row.id)) return;
    this.deactivate(row, 'its terminal has been silent for long');
  }

  /** It counts as active work no longer. The time is stored first, because the idle timer reads it when the last work ends. */
  deactivate({ id, sessionId }: Pick<TerminalRow, 'id' | 'sessionId'>, why: string): void {
    const { activeWork, records, now } = this.#options;
    if (records.peek(sessionId)?.status === 'active') records.change(sessionId, { lastActiveAt: now() }, why);
    activeWork.remove(sessionId, id);
    if (records.peek(sessionId)?.status === 'active' && activeWork.count(sessionId) === 0)
      records.change(sessionId, { status: 'idle' }, why);
  }
}
