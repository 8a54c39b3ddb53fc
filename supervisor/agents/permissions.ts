import type { AnsweredBy, PermissionOption } from '../../protocol/agent-events.ts';
import { placeOfClient } from '../../protocol/client-names.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Permission } from '../../protocol/permissions.ts';
import { ChangeNotifier } from '../base/change-notifier.ts';
import { Emitter } from '../base/emitter.ts';
import type { EventLog } from '../history/event-log.ts';
import type { Database } from '../store/database.ts';
import type { Operations } from '../store/operations.ts';
import type { PermissionRow, PermissionRows } from '../store/permissions.ts';
import type { Sessions } from '../store/sessions.ts';
import { chooseOption } from './permission-policy.ts';

const PAGE = { default: 100, bytes: 512 * 1024 } as const;

export interface PermissionsOptions {
  readonly database: Database;
  readonly rows: PermissionRows;
  readonly events: EventLog;
  readonly operations: Operations;
  readonly sessions: Sessions;
  /** The turn still runs: its agent can hear the answer. */
  readonly isRunning: (turnId: string) => boolean;
  readonly now: () => number;
}

export interface PermissionAnswer {
  readonly row: PermissionRow;
  readonly option: PermissionOption;
}

export interface PermissionPage {
  readonly permissions: Permission[];
  /** Where the next page begins; null at the end. */
  readonly next: string | null;
}

/** What agents ask people. A permission waits as long as its turn runs, whoever is connected, and is answered once. */
export class Permissions {
  /** Notified with the id of a permission that was answered, or whose turn has ended. */
  readonly changes = new ChangeNotifier();
  /** A person answers: emitted in the transaction that stores it. */
  readonly answering = new Emitter<PermissionAnswer>();
  /** Emitted when the answer is stored. */
  readonly answered = new Emitter<PermissionAnswer>();
  readonly #options: PermissionsOptions;

  constructor(options: PermissionsOptions) {
    this.#options = options;
  }

  /** Oldest first. `after`: the cursor of the page before. A page fits a message. */
  list(filter: {
    readonly sessionId: string | null;
    readonly isWaiting: boolean;
    readonly limit: number | undefined;
    readonly after: string | undefined;
  }): PermissionPage {
    const limit = filter.limit ?? PAGE.default;
    const after = filter.after === undefined ? 0 : Number.parseInt(filter.after, 10);
    if (!Number.isSafeInteger(after))
      throw new HoldfastError('invalid_params', 'This is not a cursor of a page');
    const rows = this.#options.rows.list({ ...filter, after, limit: limit + 1 });
    const permissions: Permission[] = [];
    let bytes = 0;
    let cursor = after;
    for (const row of rows.slice(0, limit)) {
      const permission = this.#view(row);
      bytes += Buffer.byteLength(JSON.stringify(permission));
      if (permissions.length > 0 && bytes > PAGE.bytes) break;
      permissions.push(permission);
      cursor = row.ordinal;
    }
    return { permissions, next: permissions.length < rows.length ? String(cursor) : null };
  }

  /**
   * Stores the answer and its event. `answer`: the id of an option, or a kind. Errors: `not_found`, `conflict` for one that was
   * answered, `invalid_params` for an answer that the agent does not offer.
   */
  answer(id: string, answer: string, client: string, opId: string | undefined): Permission {
    const { database, rows, operations, events, now, isRunning } = this.#options;
    const { result, replayed } = operations.runOnce(opId, 'permission.answer', () => {
      const row = rows.getOrThrow(id);
      if (row.answeredAt !== null) throw alreadyAnswered(row);
      if (!isRunning(row.turnId)) {
        throw new HoldfastError('conflict', `${id} cannot be answered any more`, {
          why: 'its turn has ended',
        });
      }
      const option = chooseOption(row.options, answer);
      if (option === null) throw notOffered(row, answer);
      const by: AnsweredBy = { kind: 'client', name: client.slice(0, 200) };
      database.transaction(() => {
        rows.markAnswered(id, { answeredAt: now(), answer: option, answeredBy: by });
        this.answering.emit({ row, option });
        const data = { permissionId: id, turnId: row.turnId, option, by };
        events.append(row.sessionId, [{ type: 'permission.answered', data }]);
      });
      return { id };
    });
    const row = rows.getOrThrow(result.id);
    if (!replayed && row.answer !== null) this.answered.emit({ row, option: row.answer });
    this.changes.notify(row.id);
    return this.#view(row);
  }

  /** The answer that a person gave; null while it waits, and where the turn ended first. */
  answerTo(id: string): PermissionOption | null {
    return this.#options.rows.getOrThrow(id).answer;
  }

  /** Closes what waits for turns that have ended, which a supervisor that was killed left. */
  recover(): void {
    for (const row of this.#options.rows.listWaiting())
      if (!this.#options.isRunning(row.turnId)) this.#close(row);
  }

  /** The turn ends: nobody can answer what still waits for it. Called in the transaction of its end. */
  closeOf(turnId: string): void {
    for (const row of this.#options.rows.listWaitingOf(turnId)) this.#close(row);
  }

  #close({ id, sessionId, turnId }: PermissionRow): void {
    const { database, rows, events, now } = this.#options;
    const by: AnsweredBy = { kind: 'turn', name: null };
    database.transaction(() => {
      if (!rows.markAnswered(id, { answeredAt: now(), answer: null, answeredBy: by })) return;
      const data = { permissionId: id, turnId, option: null, by };
      events.append(sessionId, [{ type: 'permission.answered', data }]);
    });
    this.changes.notify(id);
  }

  #view(row: PermissionRow): Permission {
    const session = this.#options.sessions.get(row.sessionId);
    const { id, sessionId, turnId, kind, title, locations, options, askedAt, answeredAt, answer } = row;
    return {
      id,
      sessionId,
      sessionName: session?.name ?? '',
      profile: session?.profile ?? '',
      turnId,
      kind,
      title,
      locations,
      options,
      askedAt,
      answeredAt,
      answer,
      by: row.answeredBy,
    };
  }
}

function alreadyAnswered({ id, answer, answeredBy }: PermissionRow): HoldfastError {
  const what = answer === null ? 'its turn ended before it was answered' : `the answer was ${answer.name}`;
  return new HoldfastError('conflict', `${id} was answered before`, {
    why: `${what}${answeredBy === null ? '' : answerer(answeredBy)}`,
    details: { answer: answer?.kind ?? null, option: answer?.id ?? null },
  });
}

function answerer({ kind, name }: AnsweredBy): string {
  if (name === null) return '';
  return kind === 'client' ? `, given ${placeOfClient(name)}` : `, by ${name}`;
}

function notOffered({ id, options }: PermissionRow, answer: string): HoldfastError {
  return new HoldfastError('invalid_params', `${id} does not take the answer ${answer}`, {
    why: 'the agent does not offer it',
    next: `choose one of ${options.map((option) => `${option.id} (${option.kind})`).join(', ')}`.slice(
      0,
      2000,
    ),
  });
}
