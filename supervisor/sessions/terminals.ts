import type { Dispatched } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { type Terminal, TERMINAL_LIMITS, type WindowSize } from '../../protocol/terminals.ts';
import type { TerminalProgress } from '../../sidecar/wire.ts';
import type { Log } from '../daemon/logs.ts';
import { failpoint } from '../failpoints.ts';
import type { Database } from '../store/database.ts';
import type { SessionRow } from '../store/sessions.ts';
import type { TerminalRow, TerminalRows } from '../store/terminals.ts';
import type { SidecarClient } from '../workspace/sidecar-client.ts';
import type { Ids } from './ids.ts';
import type { Lifecycle, Ready } from './lifecycle.ts';
import type { LiveThings } from './live.ts';
import type { SessionRecords } from './records.ts';
import { isPassing } from './turn-ends.ts';
import { iso } from './view.ts';

const SHOWN_ARGUMENT = 200;
const SHOWN_ARGUMENTS = 20;
/** How long a terminal may take to begin. */
const START_MS = 10_000;
const MOMENT_MS = 500;
const READY_MS = 3000;
const READY_TRIES = 3;
const WAIT_MS = 60_000;
/** How long one that is closed, or whose container is gone, may take to be over. */
const END_MS = 5000;
const RETRY_MS = { first: 50, most: 2000 } as const;
/** A reader waits so long for a sidecar that has gone away. */
const READ_TRIES = 20;

export interface TerminalRequest extends WindowSize {
  readonly command: readonly string[];
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
}

interface Followed {
  readonly ended: Promise<void>;
  /** Asks again how it is: something about it has changed here. */
  look: AbortController;
  /** Why its container is gone. */
  gone: string | null;
}

export interface TerminalsOptions {
  readonly database: Database;
  readonly rows: TerminalRows;
  readonly lifecycle: Lifecycle;
  readonly records: SessionRecords;
  readonly live: LiveThings;
  readonly ids: Ids;
  readonly log: Log;
  readonly now: () => number;
  /** How long a terminal may be silent and unwatched until it holds its session no longer, ms. */
  readonly patienceOf: (sessionId: string) => number;
  /** A session's terminal has ended. */
  readonly ended: (sessionId: string) => void;
}

/**
 * The terminals of all sessions. Each belongs to its sandbox: it goes on without a client and without a supervisor, the sidecar
 * keeps its output, and the next supervisor follows it to its end. It is live until it ends – or until nobody has looked at it and it has said
 * nothing for long: a forgotten shell must not keep a sandbox for ever.
 */
export class Terminals {
  readonly #options: TerminalsOptions;
  readonly #followed = new Map<string, Followed>();
  readonly #clients = new Map<string, Promise<SidecarClient>>();
  readonly #leaving = new AbortController();

  constructor(options: TerminalsOptions) {
    this.#options = options;
  }

  /** Goes on with those of an earlier supervisor. */
  recover(): void {
    this.#forgetGone();
    for (const row of this.#options.rows.open(null)) {
      this.#options.live.add(row.sessionId, row.id, 'terminal');
      this.#follow(row);
    }
  }

  async open(
    sessionId: string,
    request: TerminalRequest,
  ): Promise<{ readonly terminal: Terminal; readonly dispatched: Dispatched }> {
    const { rows, live, ids, database, records, now } = this.#options;
    const id = ids.next('term');
    this.#demandRoom(sessionId);
    this.#forgetGone();
    live.add(sessionId, id, 'terminal');
    try {
      const ready = await this.#ready(sessionId, id);
      this.#demandRoom(sessionId);
      const { command, cwd, env, columns, rows: lines } = request;
      const row: TerminalRow = {
        id,
        sessionId,
        generation: ready.row.generation,
        command: [...command],
        cwd,
        createdAt: now(),
        endedAt: null,
        exitCode: null,
        why: null,
      };
      // Before it begins: a supervisor that is killed here leaves none that nobody knows.
      database.transaction(() => {
        rows.insert(row);
        records.change(sessionId, { status: 'active', lastActiveAt: now() }, 'a terminal is open', [
          {
            type: 'terminal.opened',
            data: {
              terminalId: id,
              command: command.slice(0, SHOWN_ARGUMENTS).map((one) => one.slice(0, SHOWN_ARGUMENT)),
              ...ready.dispatched,
            },
          },
        ]);
      });
      await failpoint('terminal.after-intent');
      await this.#begin(row, ready.client, { env, columns, rows: lines });
      return { terminal: this.#view(rows.existing(id)), dispatched: ready.dispatched };
    } catch (error) {
      this.#release(sessionId, id, 'no terminal was opened');
      throw error;
    }
  }

  /** Of one session, or of all. */
  list(sessionId: string | null): Terminal[] {
    return this.#options.rows
      .list(sessionId)
      .filter((row) => row.endedAt === null || this.#sandboxThere(row))
      .map((row) => this.#view(row));
  }

  /** Which bytes of its output there are. Wakes its session, so that it goes on. */
  async attach(
    id: string,
  ): Promise<{ readonly terminal: Terminal; readonly start: number; readonly total: number }> {
    const { rows, lifecycle } = this.#options;
    const row = rows.existing(id);
    if (row.endedAt === null) {
      this.#hold(row);
      await lifecycle.thaw(row.sessionId);
    }
    const { start, total } = await this.#ask(row, (client) => client.terminalProgress(id, 0));
    return { terminal: this.#view(rows.existing(id)), start, total };
  }

  async read(
    id: string,
    from: { readonly offset: number; readonly limit: number; readonly waitMs: number },
    signal: AbortSignal,
  ): Promise<{ readonly progress: TerminalProgress & { readonly offset: number }; readonly bytes: Buffer }> {
    const row = this.#options.rows.existing(id);
    const { result, bytes } = await this.#ask(
      row,
      (client) => client.readTerminal({ terminalId: id, ...from }, { signal }),
      signal,
    );
    return { progress: result, bytes };
  }

  /** Not repeated where the sidecar goes away meanwhile: keys must not be pressed twice. */
  async write(id: string, bytes: Buffer, signal: AbortSignal): Promise<void> {
    const row = this.#running(id);
    const client = await this.#client(row.sessionId);
    try {
      await client.writeTerminal(id, bytes, { signal });
    } catch (error) {
      const failure = HoldfastError.from(error);
      if (failure.code !== 'connection_closed') throw failure;
      throw new HoldfastError('interrupted', 'It is not known whether the terminal got the last keys', {
        why: failure.sentence,
        cause: failure,
      });
    }
  }

  async resize(id: string, size: WindowSize): Promise<void> {
    await this.#ask(this.#running(id), (client) => client.resizeTerminal({ terminalId: id, ...size }));
  }

  /** Ends it and waits for that; forgets the output of one that has ended. */
  async close(id: string): Promise<Terminal> {
    const { rows } = this.#options;
    const row = rows.existing(id);
    if (row.endedAt === null) await this.#end(row);
    else await this.#forget(row);
    return this.#view(rows.get(id) ?? row);
  }

  async endAll(sessionId: string): Promise<void> {
    await Promise.all(this.#options.rows.open(sessionId).map((row) => this.#end(row)));
  }

  /** The agent's container is gone, and its terminals with it. */
  agentGone(sessionId: string, why: string): void {
    for (const { id } of this.#options.rows.open(sessionId)) {
      const followed = this.#followed.get(id);
      if (followed === undefined) continue;
      followed.gone = why;
      followed.look.abort();
    }
  }

  /** Lets go of all of them: they go on in their sandboxes. */
  async leave(): Promise<void> {
    this.#leaving.abort();
    for (const { look } of this.#followed.values()) look.abort();
    await Promise.all([...this.#followed.values()].map(({ ended }) => ended));
  }

  #demandRoom(sessionId: string): void {
    if (this.#options.rows.open(sessionId).length < TERMINAL_LIMITS.open) return;
    throw new HoldfastError('overloaded', 'No more terminals can be opened in this session', {
      why: `${String(TERMINAL_LIMITS.open)} are open`,
      next: 'close one with `holdfast terminal close TERMINAL`',
    });
  }

  /** A sandbox whose agent's side listens: what was known of it may be a moment behind. */
  async #ready(sessionId: string, id: string): Promise<Ready> {
    for (let tries = 1; ; tries += 1) {
      const last = tries === READY_TRIES;
      try {
        const ready = await this.#options.lifecycle.dispatch(sessionId, id);
        if (last || (await ready.client.agentReady(READY_MS))) return ready;
        this.#options.lifecycle.doubt(sessionId);
      } catch (error) {
        const failure = HoldfastError.from(error);
        if (last || !['connection_closed', 'sandbox_lost'].includes(failure.code)) throw failure;
      }
    }
  }

  async #begin(
    row: TerminalRow,
    client: SidecarClient,
    request: WindowSize & Pick<TerminalRequest, 'env'>,
  ): Promise<void> {
    const { id, command, cwd } = row;
    const { columns, rows, env } = request;
    try {
      await client.openTerminal({ terminalId: id, argv: command, cwd, env: { ...env }, columns, rows });
      await failpoint('terminal.after-launch');
      const { state } = await client.terminalProgress(id, START_MS);
      if (state === 'starting' || state === 'absent') {
        await client.forgetTerminal(id);
        throw new HoldfastError('sandbox_failed', 'The terminal did not begin', {
          why: "the main process of the agent's container does not take the request",
          next: 'stop the session and try again',
        });
      }
      this.#follow(row);
    } catch (error) {
      this.#record(row, null, HoldfastError.from(error).message);
      this.#options.rows.remove(id);
      throw error;
    }
  }

  #running(id: string): TerminalRow {
    const row = this.#options.rows.existing(id);
    if (row.endedAt === null) return row;
    throw new HoldfastError('invalid_state', `The terminal ${id} has ended`, {
      next: 'open another one with `holdfast terminal open SESSION`',
    });
  }

  /** One answer about a terminal; again where the sidecar goes away meanwhile. */
  async #ask<T>(
    row: TerminalRow,
    question: (client: SidecarClient) => Promise<T>,
    signal: AbortSignal = this.#leaving.signal,
  ): Promise<T> {
    for (let tries = 1; ; tries += 1) {
      this.#demandSandbox(row);
      try {
        return await question(await this.#client(row.sessionId));
      } catch (error) {
        const failure = HoldfastError.from(error);
        if (!isPassing(failure) || tries === READ_TRIES || signal.aborted) throw failure;
      }
      await pause(Math.min(RETRY_MS.first * 2 ** tries, RETRY_MS.most), [signal, this.#leaving.signal]);
    }
  }

  /** Its output is where its sandbox is. */
  #demandSandbox(row: TerminalRow): void {
    if (this.#sandboxThere(row)) return;
    throw new HoldfastError('not_found', `The terminal ${row.id} is over`, {
      why: 'its sandbox has been removed, and its output with it',
      next: 'open another one with `holdfast terminal open SESSION`',
    });
  }

  #sandboxThere(row: TerminalRow): boolean {
    const session = this.#options.records.peek(row.sessionId);
    return session?.generation === row.generation && isUp(session);
  }

  #client(sessionId: string): Promise<SidecarClient> {
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

  #follow(row: TerminalRow): void {
    const followed: Followed = {
      ended: Promise.resolve().then(() => this.#toItsEnd(row)),
      look: new AbortController(),
      gone: null,
    };
    this.#followed.set(row.id, followed);
    void followed.ended.finally(() => this.#followed.delete(row.id));
  }

  #isLeaving(): boolean {
    return this.#leaving.signal.aborted;
  }

  /** Never rejects. */
  async #toItsEnd(row: TerminalRow): Promise<void> {
    const { log } = this.#options;
    let retryMs: number = RETRY_MS.first;
    while (!this.#isLeaving()) {
      try {
        const end = await this.#lookForEnd(row);
        if (end === null) continue;
        await failpoint('terminal.before-end');
        this.#record(row, end.exitCode, end.why);
        this.#forgetOldest(row.sessionId);
        return;
      } catch (error) {
        if (this.#isLeaving()) return;
        log.warn('a terminal is followed again', {
          terminal: row.id,
          why: HoldfastError.from(error).sentence,
        });
        await pause(retryMs, [this.#leaving.signal]);
        retryMs = Math.min(retryMs * 2, RETRY_MS.most);
      }
    }
  }

  async #lookForEnd(row: TerminalRow): Promise<Pick<TerminalRow, 'exitCode' | 'why'> | null> {
    const followed = this.#followed.get(row.id);
    const gone = followed?.gone ?? null;
    if (!this.#sandboxThere(row)) return { exitCode: null, why: gone ?? 'its sandbox was removed' };
    const look = new AbortController();
    if (followed !== undefined) followed.look = look;
    const client = await this.#client(row.sessionId);
    const patienceMs = this.#options.patienceOf(row.sessionId);
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
        if (progress.exitCode === null) this.#options.lifecycle.doubt(row.sessionId);
        return { exitCode: progress.exitCode, why: progress.exitCode === null ? (gone ?? GONE) : null };
      case 'absent':
        return { exitCode: null, why: gone ?? 'its run directory is gone' };
      case 'starting':
      case 'running':
        if (gone !== null) return { exitCode: null, why: gone };
        if (progress.silentMs < patienceMs) this.#hold(row);
        else this.#letGo(row);
        return null;
    }
  }

  #record(row: TerminalRow, exitCode: number | null, why: string | null): void {
    const { database, rows, records, log, now, ended } = this.#options;
    try {
      database.transaction(() => {
        if (!rows.end(row.id, { endedAt: now(), exitCode, why })) return;
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
    this.#release(row.sessionId, row.id, 'the terminal ended');
    ended(row.sessionId);
  }

  /** Live no longer. The time comes first: the idle clock looks at it when the last live thing goes. */
  #release(sessionId: string, id: string, why: string): void {
    const { live, records, now } = this.#options;
    if (records.peek(sessionId)?.status === 'active') records.change(sessionId, { lastActiveAt: now() }, why);
    live.remove(sessionId, id);
    if (records.peek(sessionId)?.status === 'active' && live.count(sessionId) === 0)
      records.change(sessionId, { status: 'idle' }, why);
  }

  /** Live again: somebody joined it, or it said something. */
  #hold({ id, sessionId }: TerminalRow): void {
    const { live, records, now } = this.#options;
    if (live.has(sessionId, id)) return;
    live.add(sessionId, id, 'terminal');
    if (records.peek(sessionId)?.status === 'idle')
      records.change(sessionId, { status: 'active', lastActiveAt: now() }, 'a terminal is in use again');
  }

  /** Its session may be put away with it. */
  #letGo({ id, sessionId }: TerminalRow): void {
    if (!this.#options.live.has(sessionId, id)) return;
    this.#release(sessionId, id, 'its terminal has been silent for long');
  }

  /** Errors: `timeout`. */
  async #end(row: TerminalRow): Promise<void> {
    const { lifecycle, rows } = this.#options;
    if (this.#sandboxThere(row)) {
      // A frozen process hears no signal.
      await lifecycle.thaw(row.sessionId);
      await this.#ask(row, (client) => client.closeTerminal(row.id));
    }
    const followed = this.#followed.get(row.id);
    const late = new AbortController();
    await Promise.race([followed?.ended, pause(2 * END_MS, [late.signal])]);
    late.abort();
    if (rows.get(row.id)?.endedAt !== null) return;
    throw new HoldfastError('timeout', `The terminal ${row.id} did not end in time`, {
      next: 'stop the session with --force',
    });
  }

  /** Their output takes room beside the sandbox. */
  #forgetOldest(sessionId: string): void {
    const ended = this.#options.rows.list(sessionId).filter(({ endedAt }) => endedAt !== null);
    for (const row of ended.slice(TERMINAL_LIMITS.ended)) void this.#forget(row);
  }

  /** Ended ones whose sandbox is gone: there is nothing left to look at. */
  #forgetGone(): void {
    const { rows } = this.#options;
    for (const row of rows.list(null))
      if (row.endedAt !== null && !this.#sandboxThere(row)) rows.remove(row.id);
  }

  async #forget(row: TerminalRow): Promise<void> {
    try {
      if (this.#sandboxThere(row)) await this.#ask(row, (client) => client.forgetTerminal(row.id));
    } catch (error) {
      this.#options.log.debug('the output of a terminal stays', {
        terminal: row.id,
        why: HoldfastError.from(error).sentence,
      });
    }
    this.#options.rows.remove(row.id);
  }

  #view(row: TerminalRow): Terminal {
    return {
      terminalId: row.id,
      sessionId: row.sessionId,
      status: row.endedAt === null ? 'running' : 'ended',
      command: row.command,
      cwd: row.cwd,
      createdAt: iso(row.createdAt),
      endedAt: row.endedAt === null ? null : iso(row.endedAt),
      exitCode: row.exitCode,
      why: row.why,
    };
  }
}

const GONE = 'its container ended';

function isUp({ status }: SessionRow): boolean {
  return status === 'active' || status === 'idle' || status === 'paused';
}

/** Resolves after `ms`, or when one of the signals aborts. */
function pause(ms: number, signals: readonly AbortSignal[]): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      for (const signal of signals) signal.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    for (const signal of signals) {
      if (signal.aborted) done();
      else signal.addEventListener('abort', done, { once: true });
    }
  });
}
