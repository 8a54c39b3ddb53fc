import { z } from 'zod';
import { DISPATCH_CASES, type DispatchCase, type DispatchResult } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { type Terminal, TERMINAL_LIMITS, type WindowSize } from '../../protocol/terminals.ts';
import type { TerminalProgress } from '../../sidecar/wire.ts';
import type { Log } from '../base/log.ts';
import { failpoint } from '../base/failpoints.ts';
import type { Operations } from '../store/operations.ts';
import type { TerminalRow, TerminalRows } from '../store/terminals.ts';
import type { SidecarClient } from '../workspace/sidecar-client.ts';
import type { Ids } from '../base/ids.ts';
import type { Lifecycle, ReadySandbox } from '../sandboxes/lifecycle.ts';
import type { ActiveWork } from '../sandboxes/active-work.ts';
import { TerminalFollower, type TerminalFollowerOptions } from './terminal-follower.ts';
import { TerminalRecords, type TerminalRecordsOptions } from './terminal-records.ts';
import { sleepUntilAborted, TerminalSandboxes } from './terminal-sandboxes.ts';
import { terminalView } from '../sessions/entity-views.ts';

/** How long a terminal may take to begin: on a busy machine a shell takes its time. */
const START_MS = 30_000;
/** A look that comes when it has begun waits for its end, so looks are short. */
const LOOK_MS = 500;
const READY_MS = 3000;
const READY_TRIES = 3;
/** How long one that is closed may take to be over. */
const END_MS = 10_000;

const OPEN = 'terminal.open';
/** Ways to a sandbox that was there already. */
const REUSED: ReadonlySet<string> = new Set<DispatchCase>(['reuse', 'unpause']);
/** What an `opId` is answered with. */
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

export interface TerminalsOptions extends TerminalRecordsOptions {
  readonly lifecycle: Lifecycle;
  readonly ids: Ids;
  readonly operations: Operations;
  readonly idleTimeoutOf: TerminalFollowerOptions['idleTimeoutOf'];
}

/**
 * The terminals of all sessions. Each belongs to its sandbox: it goes on without a client and without a supervisor, the sidecar
 * keeps its output, and the next supervisor follows it to its end. It is live until it ends – or until nobody has looked at it and it has said
 * nothing for long: a forgotten shell must not keep a sandbox for ever.
 */
export class Terminals {
  readonly #rows: TerminalRows;
  readonly #records: TerminalRecords;
  readonly #sandboxes: TerminalSandboxes;
  readonly #follower: TerminalFollower;
  readonly #lifecycle: Lifecycle;
  readonly #live: ActiveWork;
  readonly #ids: Ids;
  readonly #operations: Operations;
  readonly #log: Log;
  readonly #now: () => number;
  readonly #leaving = new AbortController();

  constructor(options: TerminalsOptions) {
    const { rows, lifecycle, live, ids, log, now } = options;
    const leaving = this.#leaving.signal;
    this.#rows = rows;
    this.#lifecycle = lifecycle;
    this.#live = live;
    this.#ids = ids;
    this.#operations = options.operations;
    this.#log = log;
    this.#now = now;
    this.#records = new TerminalRecords(options);
    this.#sandboxes = new TerminalSandboxes({ lifecycle, records: options.records, leaving });
    this.#follower = new TerminalFollower({
      rows,
      sandboxes: this.#sandboxes,
      records: this.#records,
      lifecycle,
      log,
      idleTimeoutOf: options.idleTimeoutOf,
      ended: (sessionId) => this.#forgetOldest(sessionId),
      leaving,
    });
  }

  /** Goes on with those of an earlier supervisor. */
  recover(): void {
    this.#forgetGone();
    for (const row of this.#rows.listOpen(null)) {
      this.#live.add(row.sessionId, row.id, 'terminal');
      this.#follower.follow(row);
    }
  }

  /** Asked again with one `opId`: the first one, as it is now. Errors: `not_found` where that is forgotten. */
  async open(sessionId: string, request: TerminalRequest): Promise<OpenedTerminal> {
    const earlier = this.#operations.findResult(request.opId, OPEN);
    if (earlier !== null) return this.#opened(OpenedSchema.parse(earlier.result));
    const id = this.#ids.next('term');
    this.#demandRoom(sessionId);
    this.#forgetGone();
    this.#live.add(sessionId, id, 'terminal');
    try {
      const ready = await this.#ready(sessionId, id);
      this.#demandRoom(sessionId);
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
      // Before it begins: a supervisor that is killed here leaves none that nobody knows.
      const { result, replayed } = this.#operations.runOnce(request.opId, OPEN, () => {
        this.#records.recordOpened(row, ready.dispatched);
        return { terminalId: id, case: ready.dispatched.case };
      });
      if (replayed) {
        // Both were asked at once.
        this.#records.deactivate({ id, sessionId }, 'the terminal is open already');
        return this.#opened(result);
      }
      await failpoint('terminal.after-intent');
      await this.#begin(row, ready.client, request);
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

  /** Of one session, or of all. */
  list(sessionId: string | null): Terminal[] {
    return this.#rows
      .list(sessionId)
      .filter((row) => row.endedAt === null || this.#sandboxes.isAvailable(row))
      .map(terminalView);
  }

  /** Which bytes of its output there are. Wakes its session, so that it goes on. */
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
    /** Who ended it, where its program did not end by itself. */
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

  /** Not repeated where the sidecar goes away meanwhile: keys must not be pressed twice. */
  async write(id: string, bytes: Buffer, signal: AbortSignal): Promise<void> {
    const row = this.#running(id);
    const client = await this.#sandboxes.client(row.sessionId);
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
    await this.#sandboxes.call(this.#running(id), (client) =>
      client.resizeTerminal({ terminalId: id, ...size }),
    );
  }

  /** Ends it and waits for that; forgets the output of one that has ended. */
  async close(id: string): Promise<Terminal> {
    const row = this.#rows.getOrThrow(id);
    if (row.endedAt === null) await this.#end(row, 'it was closed');
    else await this.#forget(row);
    return terminalView(this.#rows.get(id) ?? row);
  }

  /** `why`: for those who look at them. */
  async endAll(sessionId: string, why: string): Promise<void> {
    await Promise.all(this.#rows.listOpen(sessionId).map((row) => this.#end(row, why)));
  }

  /** The agent's container is gone, and its terminals with it. */
  onAgentGone(sessionId: string, why: string): void {
    this.#follower.onAgentGone(sessionId, why);
  }

  /** Lets go of all of them: they go on in their sandboxes. */
  async detach(): Promise<void> {
    this.#leaving.abort();
    await this.#follower.settled();
  }

  #demandRoom(sessionId: string): void {
    if (this.#rows.listOpen(sessionId).length < TERMINAL_LIMITS.open) return;
    throw new HoldfastError('overloaded', 'No more terminals can be opened in this session', {
      why: `${String(TERMINAL_LIMITS.open)} are open`,
      next: 'close one with `holdfast terminal close TERMINAL`',
    });
  }

  /** A sandbox whose agent's side listens: what was known of it may be a moment behind. */
  async #ready(sessionId: string, id: string): Promise<ReadySandbox> {
    for (let tries = 1; ; tries += 1) {
      const last = tries === READY_TRIES;
      try {
        const ready = await this.#lifecycle.dispatch(sessionId, id);
        if (last || (await ready.client.agentReady(READY_MS))) return ready;
        this.#lifecycle.markSuspect(sessionId);
      } catch (error) {
        const failure = HoldfastError.from(error);
        if (last || !['connection_closed', 'sandbox_lost'].includes(failure.code)) throw failure;
      }
    }
  }

  /** Its state once it is not about to begin any more, or the time for that is over. */
  async #begun(id: string, client: SidecarClient): Promise<string> {
    const deadline = performance.now() + START_MS;
    for (;;) {
      const { state } = await client.terminalProgress(id, LOOK_MS);
      if (state !== 'starting' || performance.now() > deadline) return state;
    }
  }

  async #begin(row: TerminalRow, client: SidecarClient, request: TerminalRequest): Promise<void> {
    const { id, command, cwd } = row;
    const { columns, rows, env } = request;
    try {
      await client.openTerminal({ terminalId: id, argv: command, cwd, env: { ...env }, columns, rows });
      await failpoint('terminal.after-launch');
      const state = await this.#begun(id, client);
      if (state === 'starting' || state === 'absent') {
        await client.forgetTerminal(id);
        throw new HoldfastError('sandbox_failed', 'The terminal did not begin', {
          why: "the main process of the agent's container does not take the request",
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
      // A frozen process hears no signal.
      await this.#lifecycle.thaw(row.sessionId);
      await this.#sandboxes.call(row, (client) => client.closeTerminal(row.id));
    }
    const late = new AbortController();
    await Promise.race([this.#follower.waitForEnd(row.id), sleepUntilAborted(END_MS, late.signal)]);
    late.abort();
    if (this.#rows.get(row.id)?.endedAt !== null) return;
    throw new HoldfastError('timeout', `The terminal ${row.id} did not end in time`, {
      next: 'stop the session with --force',
    });
  }

  /** Their output takes room beside the sandbox. */
  #forgetOldest(sessionId: string): void {
    const ended = this.#rows.list(sessionId).filter(({ endedAt }) => endedAt !== null);
    for (const row of ended.slice(TERMINAL_LIMITS.ended)) void this.#forget(row);
  }

  /** Ended ones whose sandbox is gone: there is nothing left to look at. */
  #forgetGone(): void {
    for (const row of this.#rows.list(null))
      if (row.endedAt !== null && !this.#sandboxes.isAvailable(row)) this.#rows.remove(row.id);
  }

  async #forget(row: TerminalRow): Promise<void> {
    try {
      if (this.#sandboxes.isAvailable(row))
        await this.#sandboxes.call(row, (client) => client.forgetTerminal(row.id));
    } catch (error) {
      this.#log.debug('the output of a terminal stays', {
        terminal: row.id,
        why: HoldfastError.from(error).sentence,
      });
    }
    this.#rows.remove(row.id);
  }
}
