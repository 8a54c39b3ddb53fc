import { z } from 'zod';
import { DISPATCH_CASES, type DispatchCase, type DispatchResult } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { type Terminal, TERMINAL_LIMITS, type WindowSize } from '../../protocol/terminals.ts';
import type { TerminalProgress } from '../../sidecar/wire.ts';
import type { Log } from '../base/log.ts';
import { Emitter } from '../base/emitter.ts';
import { failpoint } from '../base/failpoints.ts';
import type { Operations } from '../store/operations.ts';
import type { TerminalRow, TerminalRows } from '../store/terminals.ts';
import type { SidecarClient } from '../workspace/sidecar-client.ts';
import type { Ids } from '../base/ids.ts';
import type { ReadySandbox } from '../sandboxes/dispatches.ts';
import type { Lifecycle } from '../sandboxes/lifecycle.ts';
import type { ActiveWork } from '../sandboxes/active-work.ts';
import { TerminalFollower, type TerminalFollowerOptions } from './terminal-follower.ts';
import { TerminalRecords, type TerminalRecordsOptions } from './terminal-records.ts';
import { sleepUntilAborted, TerminalSandboxes } from './terminal-sandboxes.ts';
import { terminalView } from './terminal-view.ts';

/** How long a terminal may take to start: a shell is slow on a busy machine. */
const START_MS = 30_000;
/** Short, because progress of a terminal that has started waits for its end. */
const START_POLL_MS = 500;
const READY_MS = 3000;
const READY_ATTEMPTS = 3;
/** How long a terminal may take to end after it was closed. */
const END_MS = 10_000;

const OPEN = 'terminal.open';
/** Dispatch cases that use an existing sandbox. */
const REUSED: ReadonlySet<string> = new Set<DispatchCase>(['reuse', 'unpause']);
/** The stored result of an `opId`. */
const OpenedSchema = z.object({ terminalId: z.string(), case: z.enum(DISPATCH_CASES) });

export interface TerminalRequest extends WindowSize {
  readonly command: readonly string[];
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
  readonly opId?: string | undefined;
}

export interface OpenedTerminal {
  readonly terminal: Terminal;
  readonly dispatched: DispatchResult;
}

export interface TerminalsOptions extends Omit<TerminalRecordsOptions, 'onEnded'> {
  readonly lifecycle: Lifecycle;
  readonly ids: Ids;
  readonly operations: Operations;
  readonly idleTimeoutOf: TerminalFollowerOptions['idleTimeoutOf'];
}

/**
 * The terminals of all sessions. A terminal belongs to its sandbox: it goes on without a client and without a supervisor, the
 * sidecar keeps its output, and the next supervisor follows it to its end. It counts as active work until it ends, or until it was
 * silent for long with nobody attached: a forgotten shell must not keep a sandbox for ever.
 */
export class Terminals {
  /** The id of a session whose terminal has ended. */
  readonly ended = new Emitter<string>();
  readonly #rows: TerminalRows;
  readonly #records: TerminalRecords;
  readonly #sandboxes: TerminalSandboxes;
  readonly #follower: TerminalFollower;
  readonly #lifecycle: Lifecycle;
  readonly #activeWork: ActiveWork;
  readonly #ids: Ids;
  readonly #operations: Operations;
  readonly #log: Log;
  readonly #now: () => number;
  readonly #shutdown = new AbortController();

  constructor(options: TerminalsOptions) {
    const { rows, lifecycle, activeWork, ids, log, now } = options;
    const shutdown = this.#shutdown.signal;
    this.#rows = rows;
    this.#lifecycle = lifecycle;
    this.#activeWork = activeWork;
    this.#ids = ids;
    this.#operations = options.operations;
    this.#log = log;
    this.#now = now;
    this.#records = new TerminalRecords({
      ...options,
      onEnded: (sessionId) => this.ended.emit(sessionId),
    });
    this.#sandboxes = new TerminalSandboxes({ lifecycle, records: options.records, shutdown });
    this.#follower = new TerminalFollower({
      rows,
      sandboxes: this.#sandboxes,
      records: this.#records,
      lifecycle,
      log,
      idleTimeoutOf: options.idleTimeoutOf,
      onEnded: (sessionId) => this.#forgetOldest(sessionId),
      shutdown,
    });
  }

  /** Resumes following the terminals of an earlier supervisor. */
  recover(): void {
    this.#forgetUnavailable();
    for (const row of this.#rows.listOpen(null)) {
      this.#activeWork.add(row.sessionId, row.id, 'terminal');
      this.#follower.follow(row);
    }
  }

  /** A repeated `opId` returns the first terminal in its current state. Errors: `not_found` when that was forgotten. */
  async open(sessionId: string, request: TerminalRequest): Promise<OpenedTerminal> {
    const earlier = this.#operations.findResult(request.opId, OPEN);
    if (earlier !== null) return this.#opened(OpenedSchema.parse(earlier.result));
    const id = this.#ids.next('term');
    this.#requireCapacity(sessionId);
    this.#forgetUnavailable();
    this.#activeWork.add(sessionId, id, 'terminal');
    try {
      const ready = await this.#readySandbox(sessionId, id);
      this.#requireCapacity(sessionId);
      const row: TerminalRow = {
        id,
        sessionId,
        generation: ready.row.generation,
        command: [...request.command],
        cwd: request.cwd,
        createdAt: this.#now(),
        endedAt: null,
        exitCode: null,
        why: null,
      };
      // Recorded before it starts: a crash here leaves no unknown terminal.
      const { result, replayed } = this.#operations.runOnce(request.opId, OPEN, () => {
        this.#records.recordOpened(row, ready.dispatched);
        return { terminalId: id, case: ready.dispatched.case };
      });
      if (replayed) {
        // Two requests with this `opId` ran at the same time.
        this.#records.deactivate({ id, sessionId }, 'the terminal is open already');
        return this.#opened(result);
      }
      await failpoint('terminal.after-intent');
      await this.#start(row, ready.client, request);
      return this.#opened(result);
    } catch (error) {
      this.#records.deactivate({ id, sessionId }, 'no terminal was opened');
      throw error;
    }
  }

  #opened({ terminalId, case: how }: z.output<typeof OpenedSchema>): OpenedTerminal {
    const terminal = terminalView(this.#rows.getOrThrow(terminalId));
    return { terminal, dispatched: { reused: REUSED.has(how), case: how } };
  }

  /** `null`: of every session. */
  list(sessionId: string | null): Terminal[] {
    return this.#rows
      .list(sessionId)
      .filter((row) => row.endedAt === null || this.#sandboxes.isAvailable(row))
      .map(terminalView);
  }

  /** Returns which bytes of the output are available. Unpauses the session. */
  async attach(
    id: string,
  ): Promise<{ readonly terminal: Terminal; readonly start: number; readonly total: number }> {
    const row = this.#rows.getOrThrow(id);
    if (row.endedAt === null) {
      this.#records.activate(row);
      await this.#lifecycle.thaw(row.sessionId);
    }
    const { start, total } = await this.#sandboxes.call(row, (client) => client.terminalProgress(id, 0));
    return { terminal: terminalView(this.#rows.getOrThrow(id)), start, total };
  }

  async read(
    id: string,
    from: { readonly offset: number; readonly limit: number; readonly waitMs: number },
    signal: AbortSignal,
  ): Promise<{
    readonly progress: TerminalProgress & { readonly offset: number };
    /** Why the terminal was ended, if its program did not exit by itself. */
    readonly why: string | null;
    readonly bytes: Buffer;
  }> {
    const { result, bytes } = await this.#sandboxes.call(
      this.#rows.getOrThrow(id),
      (client) => client.readTerminal({ terminalId: id, ...from }, { signal }),
      signal,
    );
    return {
      progress: result,
      why: this.#follower.endingReason(id) ?? this.#rows.get(id)?.why ?? null,
      bytes,
    };
  }

  /** Not retried when the sidecar ends during the call: keys must not be sent twice. */
  async write(id: string, bytes: Buffer, signal: AbortSignal): Promise<void> {
    const row = this.#running(id);
    const client = await this.#sandboxes.client(row.sessionId);
    try {
      await client.writeTerminal(id, bytes, { signal });
    } catch (error) {
      const failure = HoldfastError.from(error);
      if (failure.code !== 'connection_closed') throw failure;
      throw new HoldfastError('interrupted', 'It is unknown whether the terminal received the last keys', {
        why: failure.sentence,
        cause: failure,
      });
    }
  }

  async resize(id: string, size: WindowSize): Promise<void> {
    await this.#sandboxes.call(this.#running(id), (client) =>
      client.resizeTerminal({ terminalId: id, ...size }),
    );
  }

  /** Ends a terminal and waits for that. Removes the output of one that has ended. */
  async close(id: string): Promise<Terminal> {
    const row = this.#rows.getOrThrow(id);
    if (row.endedAt === null) await this.#end(row, 'it was closed');
    else await this.#forget(row);
    return terminalView(this.#rows.get(id) ?? row);
  }

  /** `why` is shown to attached clients. */
  async endAll(sessionId: string, why: string): Promise<void> {
    await Promise.all(this.#rows.listOpen(sessionId).map((row) => this.#end(row, why)));
  }

  /** The agent's container is gone, and its terminals with it. */
  onAgentGone(sessionId: string, why: string): void {
    this.#follower.onAgentGone(sessionId, why);
  }

  /** Stops following the terminals. They go on in their sandboxes. */
  async detach(): Promise<void> {
    this.#shutdown.abort();
    await this.#follower.settled();
  }

  #requireCapacity(sessionId: string): void {
    if (this.#rows.listOpen(sessionId).length < TERMINAL_LIMITS.open) return;
    throw new HoldfastError('overloaded', 'No more terminals can be opened in this session', {
      why: `${String(TERMINAL_LIMITS.open)} are open`,
      next: 'close one with `holdfast terminal close TERMINAL`',
    });
  }

  /** A sandbox whose runner takes requests. The cached observation of the sandbox may be stale. */
  async #readySandbox(sessionId: string, id: string): Promise<ReadySandbox> {
    for (let attempt = 1; ; attempt += 1) {
      const isLast = attempt === READY_ATTEMPTS;
      try {
        const ready = await this.#lifecycle.dispatch(sessionId, id);
        if (isLast || (await ready.client.agentReady(READY_MS))) return ready;
        this.#lifecycle.markSuspect(sessionId);
      } catch (error) {
        const failure = HoldfastError.from(error);
        if (isLast || !['connection_closed', 'sandbox_lost'].includes(failure.code)) throw failure;
      }
    }
  }

  /** The terminal's state when it is no longer starting, or after the timeout. */
  async #waitForStart(id: string, client: SidecarClient): Promise<string> {
    const deadline = performance.now() + START_MS;
    for (;;) {
      const { state } = await client.terminalProgress(id, START_POLL_MS);
      if (state !== 'starting' || performance.now() > deadline) return state;
    }
  }

  async #start(row: TerminalRow, client: SidecarClient, request: TerminalRequest): Promise<void> {
    const { id, command, cwd } = row;
    const { columns, rows, env } = request;
    try {
      await client.openTerminal({ terminalId: id, argv: command, cwd, env: { ...env }, columns, rows });
      await failpoint('terminal.after-launch');
      const state = await this.#waitForStart(id, client);
      if (state === 'starting' || state === 'absent') {
        await client.forgetTerminal(id);
        throw new HoldfastError('sandbox_failed', 'The terminal did not start', {
          why: "the main process of the agent's container does not pick up the request",
          next: 'stop the session and try again',
        });
      }
      this.#follower.follow(row);
    } catch (error) {
      this.#records.recordEnded(row, null, HoldfastError.from(error).message);
      this.#rows.remove(id);
      if (request.opId !== undefined) this.#operations.forgetByOpId(request.opId, OPEN);
      throw error;
    }
  }

  #running(id: string): TerminalRow {
    const row = this.#rows.getOrThrow(id);
    if (row.endedAt === null) return row;
    throw new HoldfastError('invalid_state', `The terminal ${id} has ended`, {
      next: 'open another one with `holdfast terminal open SESSION`',
    });
  }

  /** Errors: `timeout`. */
  async #end(row: TerminalRow, why: string): Promise<void> {
    this.#follower.markEnding(row.id, why);
    if (this.#sandboxes.isAvailable(row)) {
      // A paused process receives no signal.
      await this.#lifecycle.thaw(row.sessionId);
      await this.#sandboxes.call(row, (client) => client.closeTerminal(row.id));
    }
    const timeout = new AbortController();
    await Promise.race([this.#follower.waitForEnd(row.id), sleepUntilAborted(END_MS, timeout.signal)]);
    timeout.abort();
    if (this.#rows.get(row.id)?.endedAt !== null) return;
    throw new HoldfastError('timeout', `The terminal ${row.id} did not end in time`, {
      next: 'stop the session with --force',
    });
  }

  /** The output of ended terminals takes disk space. */
  #forgetOldest(sessionId: string): void {
    const ended = this.#rows.list(sessionId).filter(({ endedAt }) => endedAt !== null);
    for (const row of ended.slice(TERMINAL_LIMITS.ended)) void this.#forget(row);
  }

  /** Ended terminals whose sandbox is gone have no output. */
  #forgetUnavailable(): void {
    for (const row of this.#rows.list(null))
      if (row.endedAt !== null && !this.#sandboxes.isAvailable(row)) this.#rows.remove(row.id);
  }

  async #forget(row: TerminalRow): Promise<void> {
    try {
      if (this.#sandboxes.isAvailable(row))
        await this.#sandboxes.call(row, (client) => client.forgetTerminal(row.id));
    } catch (error) {
      this.#log.debug('the output of a terminal was not removed', {
        terminal: row.id,
        why: HoldfastError.from(error).sentence,
      });
    }
    this.#rows.remove(row.id);
  }
}
