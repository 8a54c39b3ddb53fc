import { DatabaseSync } from 'node:sqlite';
import type { SQLInputValue, SQLOutputValue, StatementSync } from 'node:sqlite';
import { existsSync, statSync } from 'node:fs';
import { HoldfastError } from '../../protocol/errors.ts';
import { newestBackup } from './backups.ts';
import type { Home } from './home.ts';
import { migrate } from './migrate.ts';
import { isCorruption, storageError } from './storage-error.ts';

/** Up to this size a database is looked through at every start (about 0.3 s); damage in a larger one shows when it is met. */
const CHECKED_BYTES = 256 * 2 ** 20;

type Values = readonly SQLInputValue[];

interface Prepared {
  readonly statement: StatementSync;
  readonly columns: readonly string[];
}
type Row = Record<string, SQLOutputValue>;

/** What is to happen when the transaction around has ended one way or the other. */
interface Frame {
  readonly commits: (() => void)[];
  readonly rollbacks: (() => void)[];
}

/**
 * The one connection to a home's database. Everything is synchronous: a transaction never spans a wait, so no two of them
 * can interleave. What is committed is on the disk.
 */
export class Database {
  readonly #connection: DatabaseSync;
  readonly #statements = new Map<string, Prepared>();
  readonly #frames: Frame[] = [];
  /** What is left to do after commits, in their order. */
  readonly #settled: (() => void)[] = [];
  #settling = false;
  #aborted: HoldfastError | null = null;
  #epoch: number | null = null;

  constructor(connection: DatabaseSync) {
    this.#connection = connection;
  }

  /** The first row, or undefined. */
  get(sql: string, ...values: Values): unknown {
    return this.#run(sql, ({ statement, columns }) => {
      const cells: unknown = statement.get(...values);
      return cells === undefined ? undefined : toRow(columns, cells as SQLOutputValue[]);
    });
  }

  all(sql: string, ...values: Values): unknown[] {
    return this.#run(sql, ({ statement, columns }) => {
      const rows: unknown[] = statement.all(...values);
      return rows.map((cells) => toRow(columns, cells as SQLOutputValue[]));
    });
  }

  /** Returns how many rows were changed. */
  run(sql: string, ...values: Values): number {
    return Number(this.#run(sql, ({ statement }) => statement.run(...values).changes));
  }

  /** Row after row, for what must not be in memory at once. Nothing else may be written meanwhile. */
  *iterate(sql: string, ...values: Values): Generator {
    try {
      // A statement of its own: the cached one could be asked again before this walk has ended.
      const { statement, columns } = this.#prepare(sql);
      for (const cells of statement.iterate(...values) as Iterable<unknown>) {
        yield toRow(columns, cells as SQLOutputValue[]);
      }
    } catch (error) {
      throw storageError(error, 'The database could not be read');
    }
  }

  get inTransaction(): boolean {
    return this.#frames.length > 0;
  }

  /**
   * Everything `fn` writes becomes durable together, or nothing does. `fn` is synchronous. Inside another transaction it is a
   * part of that one which can fail alone.
   */
  transaction<T>(fn: () => T): T {
    const depth = this.#frames.length;
    const frame: Frame = { commits: [], rollbacks: [] };
    const [begin, commit, undo] =
      depth === 0
        ? ['BEGIN IMMEDIATE', 'COMMIT', ['ROLLBACK']]
        : [`SAVEPOINT s${depth}`, `RELEASE s${depth}`, [`ROLLBACK TO s${depth}`, `RELEASE s${depth}`]];
    this.#exec(begin);
    this.#frames.push(frame);
    let result: T;
    try {
      result = fn();
      if (result instanceof Promise) throw new HoldfastError('internal', 'A transaction must not wait');
      this.#exec(commit);
    } catch (error) {
      const failure = this.#undo(depth, undo, error);
      this.#frames.pop();
      for (const rollback of frame.rollbacks.reverse()) rollback();
      if (depth === 0) this.#aborted = null;
      throw failure;
    }
    this.#frames.pop();
    const outer = this.#frames.at(-1);
    if (outer === undefined) {
      this.#settle(frame.commits);
    } else {
      outer.commits.push(...frame.commits);
      outer.rollbacks.push(...frame.rollbacks);
    }
    return result;
  }

  /**
   * Runs `fn` once what is being written is durable; at once outside a transaction. It must not throw. What `fn` commits itself
   * is followed up after everything that was committed before it.
   */
  afterCommit(fn: () => void): void {
    const frame = this.#frames.at(-1);
    if (frame === undefined) this.#settle([fn]);
    else frame.commits.push(fn);
  }

  /** Runs `fn` when what is being written is undone. It must not throw. */
  afterRollback(fn: () => void): void {
    this.#frames.at(-1)?.rollbacks.push(fn);
  }

  /** Counts the supervisors that have worked on this database; the same number for the life of this connection. */
  epoch(): number {
    this.#epoch ??= this.transaction(() => {
      this.run("UPDATE counters SET value = value + 1 WHERE name = 'epoch'");
      const row = this.get("SELECT value FROM counters WHERE name = 'epoch'") as { value: number };
      return row.value;
    });
    return this.#epoch;
  }

  /** Bytes of the database as the file has them, without what the log beside it still holds. */
  sizeBytes(): number {
    const pages = this.get('PRAGMA page_count') as { page_count: number };
    const page = this.get('PRAGMA page_size') as { page_size: number };
    return pages.page_count * page.page_size;
  }

  close(): void {
    this.#statements.clear();
    if (this.#connection.isOpen) this.#connection.close();
  }

  #run<T>(sql: string, use: (prepared: Prepared) => T): T {
    // After a disk error SQLite may have ended the transaction by itself; what follows would then be kept alone.
    if (this.#aborted !== null) throw this.#aborted;
    try {
      let prepared = this.#statements.get(sql);
      if (prepared === undefined) {
        prepared = this.#prepare(sql);
        this.#statements.set(sql, prepared);
      }
      return use(prepared);
    } catch (error) {
      const failure = storageError(error, 'The database refused an operation');
      if (this.#frames.length > 0 && !this.#connection.isTransaction) this.#aborted = failure;
      throw failure;
    }
  }

  #settle(commits: readonly (() => void)[]): void {
    this.#settled.push(...commits);
    if (this.#settling) return;
    this.#settling = true;
    for (let fn = this.#settled.shift(); fn !== undefined; fn = this.#settled.shift()) {
      try {
        fn();
      } catch (error) {
        // The commit stands, so its caller must not take this for a failure of it; yet it is a fault of the program.
        queueMicrotask(() => {
          throw error;
        });
      }
    }
    this.#settling = false;
  }

  #exec(sql: string): void {
    this.#run(sql, ({ statement }) => statement.run());
  }

  #prepare(sql: string): Prepared {
    const statement = this.#connection.prepare(sql);
    statement.setReturnArrays(true);
    return { statement, columns: statement.columns().map((column) => column.name) };
  }

  #undo(depth: number, statements: readonly string[], cause: unknown): HoldfastError | Error {
    const failure = cause instanceof Error ? cause : HoldfastError.from(cause);
    if (!this.#connection.isTransaction) {
      if (depth > 0) this.#aborted ??= HoldfastError.from(failure);
      return failure;
    }
    try {
      for (const sql of statements) this.#connection.exec(sql);
      return failure;
    } catch (error) {
      const broken = new HoldfastError('internal', 'A failed transaction could not be undone', {
        why: String(error),
        cause: failure,
      });
      if (depth > 0) this.#aborted = broken;
      return broken;
    }
  }
}

/** Rows that SQLite's binding makes are dictionaries, three times as slow to read as plain objects of one shape. */
function toRow(columns: readonly string[], cells: readonly SQLOutputValue[]): Row {
  const row: Row = {};
  columns.forEach((column, index) => {
    row[column] = cells[index] ?? null;
  });
  return row;
}

/**
 * Opens the database of a home whose lock is held, bringing an older one up to date (after a backup).
 * Errors: `home_newer` (untouched), `home_damaged` (names the newest backup), `no_space`.
 */
export function openDatabase(home: Home): Database {
  const what = `The database ${home.database} could not be opened`;
  let connection: DatabaseSync | null = null;
  try {
    const existed = existsSync(home.database);
    connection = new DatabaseSync(home.database, { timeout: 5000, enableForeignKeyConstraints: true });
    if (existed && statSync(home.database).size <= CHECKED_BYTES) check(connection);
    migrate(connection, home);
    connection.exec('PRAGMA journal_mode = WAL');
    connection.exec('PRAGMA synchronous = FULL');
    connection.exec('PRAGMA journal_size_limit = 67108864');
    connection.exec('PRAGMA temp_store = MEMORY');
    return new Database(connection);
  } catch (error) {
    connection?.close();
    if (!isCorruption(error) && !(error instanceof Damaged)) throw storageError(error, what);
    const backup = newestBackup(home);
    throw new HoldfastError('home_damaged', what, {
      why: `it is damaged: ${error instanceof Error ? error.message : String(error)}`,
      next:
        backup === null
          ? 'put back a copy of the home from your own backups; there is none in the home'
          : `put back the newest backup: cp ${backup} ${home.database} (and remove ${home.database}-wal)`,
      details: { database: home.database, backup },
      cause: error,
    });
  }
}

class Damaged extends Error {}

function check(connection: DatabaseSync): void {
  const row = connection.prepare('PRAGMA quick_check(1)').get();
  const found = Object.values(row ?? {})[0];
  if (found !== 'ok') throw new Damaged(String(found));
}
