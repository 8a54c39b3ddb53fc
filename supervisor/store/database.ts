import { DatabaseSync } from 'node:sqlite';
import type { SQLInputValue, SQLOutputValue, StatementSync } from 'node:sqlite';
import { existsSync, statSync } from 'node:fs';
import { HoldfastError } from '../../protocol/errors.ts';
import { newestBackup } from './backups.ts';
import type { Home } from './home.ts';
import { migrate } from './migrate.ts';
import { isCorruption, storageError } from './storage-error.ts';

/** Databases up to this size are checked at every start (about 0.3 s); damage in a larger one shows when it is read. */
const CHECKED_BYTES = 256 * 2 ** 20;

type Values = readonly SQLInputValue[];

interface Prepared {
  readonly statement: StatementSync;
  readonly columns: readonly string[];
}
type Row = Record<string, SQLOutputValue>;

/** Callbacks for the end of the enclosing transaction. */
interface Frame {
  readonly commits: (() => void)[];
  readonly rollbacks: (() => void)[];
}

/**
 * The only connection to a home's database. Everything is synchronous: a transaction never awaits, so two of them
 * never interleave. A commit is durable.
 */
export class Database {
  readonly #connection: DatabaseSync;
  readonly #statements = new Map<string, Prepared>();
  readonly #frames: Frame[] = [];
  /** Callbacks to run after commits, in order. */
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

  /** Yields row after row, for results too large for memory. Nothing may be written meanwhile. */
  *iterate(sql: string, ...values: Values): Generator {
    try {
      // A separate statement: the cached one could be executed again before this iteration ends.
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
   * Makes all writes of `fn` durable together, or none. `fn` is synchronous. Inside another transaction it is a
   * savepoint, which can fail alone.
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
   * Runs `fn` after the current transaction is durable; at once outside a transaction. `fn` must not throw. Callbacks
   * of commits that `fn` makes run after those of earlier commits.
   */
  afterCommit(fn: () => void): void {
    const frame = this.#frames.at(-1);
    if (frame === undefined) this.#settle([fn]);
    else frame.commits.push(fn);
  }

  /** Runs `fn` if the current transaction is rolled back. It must not throw. */
  afterRollback(fn: () => void): void {
    this.#frames.at(-1)?.rollbacks.push(fn);
  }

  /** The number of supervisors that have used this database, this one included; constant for this connection. */
  epoch(): number {
    this.#epoch ??= this.transaction(() => {
      this.run("UPDATE counters SET value = value + 1 WHERE name = 'epoch'");
      const row = this.get("SELECT value FROM counters WHERE name = 'epoch'") as { value: number };
      return row.value;
    });
    return this.#epoch;
  }

  /** Size of the database file, without its write-ahead log. */
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
    // After a disk error SQLite may have ended the transaction by itself; later writes would then be committed alone.
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
        // The commit succeeded, so its caller must not see an error; yet this is a bug in the program.
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
      const broken = new HoldfastError('internal', 'A failed transaction could not be rolled back', {
        why: String(error),
        cause: failure,
      });
      if (depth > 0) this.#aborted = broken;
      return broken;
    }
  }
}

/** SQLite's binding returns rows as dictionaries, three times as slow to read as plain objects of one shape. */
function toRow(columns: readonly string[], cells: readonly SQLOutputValue[]): Row {
  const row: Row = {};
  columns.forEach((column, index) => {
    row[column] = cells[index] ?? null;
  });
  return row;
}

/**
 * Opens the database of a home whose lock is held, and migrates an older one (after a backup).
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
    // What is deleted, such as the prompts of a deleted session, does not stay readable in free pages.
    connection.exec('PRAGMA secure_delete = ON');
    return new Database(connection);
  } catch (error) {
    connection?.close();
    if (!isCorruption(error) && !(error instanceof Damaged)) throw storageError(error, what);
    const backup = newestBackup(home);
    throw new HoldfastError('home_damaged', what, {
      why: `it is damaged: ${error instanceof Error ? error.message : String(error)}`,
      next:
        backup === null
          ? 'restore the home from a backup of your own; the home has none'
          : `restore the newest backup: cp ${backup} ${home.database} (and remove ${home.database}-wal)`,
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
