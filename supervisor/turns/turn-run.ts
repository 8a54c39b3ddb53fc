import { PROFILE_DEFAULTS, type Profile } from '../../protocol/profile.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Limit, TurnProgress } from '../../sidecar/wire.ts';
import { driverFor } from '../agents/drivers.ts';
import { reportsFullDisk } from '../agents/limits.ts';
import type { AgentDriver } from '../agents/driver.ts';
import type { Log } from '../base/log.ts';
import { failpoint } from '../base/failpoints.ts';
import type { TurnOutput } from '../history/turn-output.ts';
import type { SessionRow } from '../store/sessions.ts';
import type { TurnRow, Turns } from '../store/turns.ts';
import type { SidecarClient } from '../workspace/sidecar-client.ts';
import type { ChangeNotifier } from '../base/change-notifier.ts';
import type { AgentExit, Lifecycle, ReadySandbox } from '../sandboxes/lifecycle.ts';
import type { ActiveWork } from '../sandboxes/active-work.ts';
import { TurnTermination } from './turn-termination.ts';
import {
  answerTooLargeOutcome,
  runDirectoryDamagedOutcome,
  terminatedOutcome,
  failedOutcome,
  isTransient,
  sandboxLostOutcome,
} from './turn-outcomes.ts';
import { OutputPull } from './output-pull.ts';
import type { TurnOutcome, TurnRecords } from './turn-records.ts';
import { RunnerPickup } from './runner-pickup.ts';

const POLL_MS = 1000;
/** A handler's answer larger than this is refused: it belongs into a file. */
const RESULT_BYTES = 32 * 1024 * 1024;
/** TERM and KILL end a turn like this; so does an engine that ends the container around it. */
const ENDED_BY_SIGNAL: ReadonlySet<number | null> = new Set([143, 137, null]);
/** How long a container that is being ended may take to be gone after its turn. */
const CONTAINER_END_MS = 1500;
const RETRY_MS = { first: 50, most: 2000 } as const;
const RECORD_TRIES = 3;

export interface TurnRunOptions {
  readonly turns: Turns;
  readonly records: TurnRecords;
  readonly output: TurnOutput;
  readonly lifecycle: Lifecycle;
  readonly live: ActiveWork;
  readonly changes: ChangeNotifier;
  readonly profileOf: (turn: TurnRow) => Profile;
  /** The agent is paused for a snapshot: nobody in it can take a turn. */
  readonly isFrozen: (sessionId: string) => boolean;
  /**
   * What is to happen to the workspace before the turn begins. Ends soon once nobody waits for the turn any more. Rejects where the turn must
   * not begin.
   */
  readonly beforeTurn: (session: SessionRow, turnId: string, signal: AbortSignal) => Promise<void>;
  readonly log: Log;
  readonly now: () => number;
}

/**
 * One turn from dispatch to its stored end. It can be left at any line: the next supervisor makes a new TurnRun from the row and
 * goes on at the offsets that are durable.
 */
export class TurnRun {
  readonly turnId: string;
  readonly sessionId: string;
  readonly #options: TurnRunOptions;
  readonly #stopping = new AbortController();
  /** Cancelled, or left by this supervisor. */
  readonly #unwanted = new AbortController();
  readonly #pull: OutputPull;
  readonly #ending: TurnTermination;
  #client: SidecarClient | null = null;
  #agentGone: AgentExit | null = null;
  readonly #taking = new RunnerPickup();
  /** The sandbox that did not take the turn, until the turn is handed to the next one. */
  #refusal: { readonly isAgentEnded: boolean } | null = null;
  #isWaitingForSpace = false;

  constructor(turn: TurnRow, options: TurnRunOptions) {
    this.turnId = turn.id;
    this.sessionId = turn.sessionId;
    this.#options = options;
    const wake = (): void => options.changes.notify(this.#wakeKey);
    const { turnId, sessionId } = this;
    const { lifecycle, log, now, output, changes } = options;
    this.#ending = new TurnTermination(
      { turnId, sessionId, lifecycle, log, now, onRequested: wake },
      turn.cancelRequested ? 'cancelled' : null,
    );
    this.#pull = new OutputPull({
      turnId,
      output,
      changes,
      wakeKey: this.#wakeKey,
      shutdown: this.#stopping.signal,
      stored: { stdout: turn.stdoutBytes, stderr: turn.stderrBytes },
    });
  }

  /** The disk is full: the turn, or its end, waits for room. Known in memory only, because telling it durably would need room too. */
  get isWaitingForSpace(): boolean {
    return this.#isWaitingForSpace;
  }

  /** Settles when the turn has ended, or when `leave` was called. Never rejects. */
  async run(): Promise<void> {
    const { log, live } = this.#options;
    live.add(this.sessionId, this.turnId, 'turn');
    try {
      const end = await this.#drive();
      if (end === null) return;
      await failpoint('turn.before-end');
      if (!(await this.#record(end))) return;
      await failpoint('turn.after-end');
      await this.#forget();
    } catch (error) {
      if (this.#isLeaving()) return;
      const failure = HoldfastError.from(error, 'The turn could not be run');
      log.error('turn failed', {
        turn: this.turnId,
        session: this.sessionId,
        code: failure.code,
        why: failure.sentence,
        cause: failure.cause,
      });
      // It may be running all the same: forgetting ends what nobody follows any more.
      if (await this.#record(failedOutcome(failure))) await this.#forget();
    }
  }

  /**
   * Stores the end, waiting for room where the disk is full: a turn's result is never given up for want of space. False when
   * the supervisor leaves first: then all of it must stay in the run directory for the next one.
   */
  async #record(end: TurnOutcome): Promise<boolean> {
    const { log, records, changes } = this.#options;
    let storable = end;
    for (let tries = 1; ; tries += 1) {
      if (this.#isLeaving()) return false;
      try {
        records.recordEnd(this.turnId, storable);
        return true;
      } catch (error) {
        const failure = HoldfastError.from(error);
        this.#isWaitingForSpace = failure.code === 'no_space';
        // What is refused for itself, not for want of space, is refused for ever: the session must not wait for that.
        if (failure.code === 'internal' && tries >= RECORD_TRIES) storable = failedOutcome(failure);
        log.error('the end of a turn could not be stored, trying again', {
          turn: this.turnId,
          why: failure.sentence,
        });
        await changes.wait(this.#wakeKey, RETRY_MS.most, this.#stopping.signal);
      }
    }
  }

  /** The supervisor is going: the turn itself goes on in its sandbox. */
  detach(): void {
    this.#stopping.abort();
    this.#unwanted.abort(new HoldfastError('shutting_down', 'The supervisor is leaving'));
    this.#options.changes.notify(this.#wakeKey);
  }

  cancel(): void {
    this.#ending.request('cancelled');
    this.#unwanted.abort();
  }

  /** The agent container is gone: what it wrote is read to its end, then the turn is over. */
  onAgentGone(why: string, limits: readonly Limit[]): void {
    this.#agentGone = { why, limits };
    this.#options.changes.notify(this.#wakeKey);
  }

  #isLeaving(): boolean {
    return this.#stopping.signal.aborted;
  }

  get #wakeKey(): string {
    return `run:${this.turnId}`;
  }

  #turn(): TurnRow {
    const turn = this.#options.turns.get(this.turnId);
    if (turn === null) throw new HoldfastError('not_found', `There is no turn ${this.turnId}`);
    return turn;
  }

  /** Null when the supervisor leaves before the end. */
  async #drive(): Promise<TurnOutcome | null> {
    let turn = this.#turn();
    if (turn.status === 'queued') {
      if (this.#ending.reason === 'cancelled') return terminatedOutcome('cancelled', null);
      await failpoint('turn.before-launch');
      const ready = await this.#options.lifecycle.dispatch(this.sessionId, this.turnId);
      // At once: its end may come while the snapshot is taken.
      this.#attached(ready);
      await this.#options.beforeTurn(ready.row, this.turnId, this.#unwanted.signal);
      await failpoint('turn.after-snapshot');
      if (this.#isLeaving()) return null;
      turn = this.#options.records.recordStart(turn, ready);
    }
    const profile = this.#options.profileOf(turn);
    const driver = driverFor(profile.agent);
    this.#pull.limit = profile.limits?.output ?? PROFILE_DEFAULTS.limits.output;
    const deadline = (turn.startedAt ?? this.#options.now()) + turn.timeoutMs;

    let retryMs: number = RETRY_MS.first;
    for (;;) {
      if (this.#isLeaving()) return null;
      try {
        if (this.#refusal !== null) {
          this.#ending.checkDeadline(deadline);
          if (this.#ending.reason !== null) return terminatedOutcome(this.#ending.reason, null);
          await this.#restart(this.#refusal.isAgentEnded);
        }
        const client = await this.#attach();
        const end = await this.#follow(client, driver, profile, deadline);
        if (end !== 'again') return end;
        retryMs = RETRY_MS.first;
      } catch (error) {
        if (this.#isLeaving()) return null;
        const failure = HoldfastError.from(error);
        if (!isTransient(failure)) throw error;
        this.#isWaitingForSpace = failure.code === 'no_space';
        if (failure.details?.['runDirectory'] === 'damaged') {
          this.#withdraw(failure.why ?? failure.message, false);
          continue;
        }
        // The sidecar, the engine or the connection went away: the turn goes on in the agent's container, so look again.
        this.#options.log.warn('turn is followed again', {
          turn: this.turnId,
          code: failure.code,
          why: failure.sentence,
        });
        this.#client = null;
        await this.#options.changes.wait(this.#wakeKey, retryMs, this.#stopping.signal);
        retryMs = Math.min(retryMs * 2, RETRY_MS.most);
      }
    }
  }

  /** A sandbox was just made ready: what was heard of an earlier one no longer counts. */
  #attached(ready: ReadySandbox): void {
    this.#client = ready.client;
    this.#agentGone = null;
  }

  async #attach(): Promise<SidecarClient> {
    if (this.#client !== null) return this.#client;
    const { client, agentEnd } = await this.#options.lifecycle.attach(this.sessionId);
    // Its end may have come while nobody listened: before this supervisor started, or while the engine was away.
    this.#agentGone ??= agentEnd;
    this.#client = client;
    return client;
  }

  async #follow(
    client: SidecarClient,
    driver: AgentDriver,
    profile: Profile,
    deadline: number,
  ): Promise<TurnOutcome | 'again' | null> {
    const { live, records } = this.#options;
    this.#ending.checkDeadline(deadline);
    let turn = this.#turn();
    const request = {
      turnId: turn.id,
      input: turn.input,
      freshTmp: live.countOthers(this.sessionId, this.turnId) === 0,
    };
    const row = this.#options.lifecycle.row(this.sessionId);
    const { launch: plain, input } = driver.launch(request, row, profile);
    const env = { ...this.#options.lifecycle.environment(this.sessionId, profile), ...plain.env };
    const launch = { ...plain, env };
    let progress: TurnProgress;
    if (turn.launchedAt === null && this.#ending.reason !== null) {
      // Not begun, unless a killed supervisor had asked for it and not yet said so.
      progress = await this.#pull.progress(client, 0);
      if (progress.state === 'absent') return terminatedOutcome(this.#ending.reason, null);
    } else if (turn.launchedAt === null) {
      progress = await client.launchTurn(launch, input);
      await failpoint('turn.after-launch');
      turn = this.#options.records.recordLaunch(turn.id);
    } else {
      // Asking again starts nothing twice: the sidecar knows the turn by its id, and repeats a request that was never taken.
      progress = await this.#pull.progress(client, 0);
      if (progress.state === 'accepted' && this.#agentGone === null)
        progress = await client.launchTurn(launch, input);
    }

    let toldOfEnd = false;
    for (;;) {
      if (this.#isLeaving()) return null;
      const gone = this.#agentGone;
      if (gone !== null && !toldOfEnd) {
        // The report may be from before the end, and a request that was taken since must not be repeated.
        toldOfEnd = true;
        progress = await this.#pull.progress(client, 0);
      }
      if (progress.worker !== null && turn.workerId !== progress.worker.id) {
        turn = records.recordWorker(turn, progress.worker);
      }
      // Before anything that waits for room on a full disk.
      this.#ending.checkDeadline(deadline);
      await this.#store(client, progress);
      this.#isWaitingForSpace = progress.diskFull;
      // Its output may be stored in part only: the next supervisor goes on from there.
      if (this.#isLeaving()) return null;
      if (progress.state === 'ended') return await this.#outcome(client, driver, progress);
      if (progress.state === 'absent') return this.#lostOrEnded(gone ?? (await this.#endDamagedAgent()));
      if (progress.damage !== null && this.#ending.reason === null)
        return runDirectoryDamagedOutcome(progress.damage);
      if (gone !== null) {
        // What it had written is stored. A request that was never taken starts anew in a fresh sandbox.
        if (progress.state !== 'accepted' || this.#ending.reason !== null) return this.#lostOrEnded(gone);
        this.#withdraw(gone.why, true);
        return 'again';
      }
      const { isFrozen, lifecycle } = this.#options;
      const isPaused = lifecycle.row(this.sessionId).status === 'paused' || isFrozen(this.sessionId);
      if (this.#ending.reason === null && this.#taking.isOverdue(progress.state, isPaused)) {
        this.#options.log.warn('nobody takes the turn; its container is ended', { turn: this.turnId });
        await this.#options.lifecycle.endAgent(this.sessionId);
        // It may have been taken before the container ended: looked at again, and begun anew only where it was not.
        this.#agentGone ??= { why: 'its main process did not take the turn in time', limits: [] };
        continue;
      }
      if (this.#pull.isOverLimit) this.#ending.request('output_limit');
      this.#ending.checkDeadline(deadline);
      if (this.#ending.reason !== null) {
        const ended = await this.#ending.kill(client);
        if (ended !== null) this.#agentGone ??= { why: ended, limits: [] };
      }
      progress = await this.#pull.progress(client, POLL_MS);
    }
  }

  /** Nothing that runs where the run directory is not the one that we know can tell us anything. */
  async #endDamagedAgent(): Promise<AgentExit> {
    await this.#options.lifecycle.endAgent(this.sessionId);
    return { why: 'something in it removed or replaced its run directory, so it was ended', limits: [] };
  }

  /** The agent's container died, or is to be ended, before it took the request: nothing of the turn has happened yet. */
  #withdraw(why: string, isAgentEnded: boolean): void {
    this.#taking.recordFailure(why);
    this.#options.records.withdrawn(this.turnId);
    this.#refusal = { isAgentEnded };
  }

  /** Hands the turn to a fresh sandbox. To be called again where it fails. */
  async #restart(isAgentEnded: boolean): Promise<void> {
    const { lifecycle, records } = this.#options;
    if (!isAgentEnded) await lifecycle.endAgent(this.sessionId);
    this.#refusal = { isAgentEnded: true };
    // Before there is a runner again, which would take what was made for the earlier one.
    await (await this.#attach()).forgetTurn(this.turnId);
    const ready = await lifecycle.dispatch(this.sessionId, this.turnId);
    this.#attached(ready);
    records.recordRestart(this.#turn(), ready);
    this.#refusal = null;
  }

  async #store(client: SidecarClient, progress: TurnProgress): Promise<void> {
    try {
      if (!(await this.#pull.pullOutput(client, progress))) this.#ending.request('output_limit');
    } catch (error) {
      const isFull = error instanceof HoldfastError && error.code === 'no_space';
      const { reason } = this.#ending;
      // It is to end first. Then its output waits for room, unless somebody who cancelled it waits for the end.
      if (!isFull || reason === null || (progress.state === 'ended' && reason !== 'cancelled')) throw error;
      this.#options.log.warn('output of a cancelled turn is lost: the disk is full', { turn: this.turnId });
    }
  }

  /** Null when the supervisor leaves before all of the output is stored. */
  async #outcome(
    client: SidecarClient,
    driver: AgentDriver,
    progress: TurnProgress,
  ): Promise<TurnOutcome | null> {
    // Everything there is now: what the last report did not count yet was written before the end.
    await this.#store(client, await this.#pull.progress(client, 0));
    if (this.#isLeaving()) return null;
    if (this.#ending.reason !== null) return terminatedOutcome(this.#ending.reason, progress.exitCode);
    if (ENDED_BY_SIGNAL.has(progress.exitCode) && progress.result === 0) {
      const gone = await this.#containerEnd();
      if (gone !== null) return this.#lostOrEnded(gone);
    }
    if (progress.result > RESULT_BYTES) return answerTooLargeOutcome(progress.result, RESULT_BYTES);
    const isNamed = progress.limits.length > 0 || progress.exitCode === 0 || driver.kind === 'handler';
    const limits =
      !isNamed && reportsFullDisk(this.#pull.readErrorTail()) ? ['disk' as const] : progress.limits;
    return driver.outcome(
      { ...progress, limits },
      progress.result > 0 ? await this.#pull.readResult(client, progress.result) : null,
    );
  }

  /** Why the agent's container has ended or does so now; null when it goes on without the turn. */
  async #containerEnd(): Promise<AgentExit | null> {
    const until = performance.now() + CONTAINER_END_MS;
    while (this.#agentGone === null && performance.now() < until && !this.#isLeaving()) {
      await this.#options.changes.wait(this.#wakeKey, 300, this.#stopping.signal);
      this.#agentGone ??= (await this.#options.lifecycle.attach(this.sessionId)).agentEnd;
    }
    return this.#agentGone;
  }

  #lostOrEnded({ why, limits }: AgentExit): TurnOutcome {
    const { reason: ending } = this.#ending;
    return ending === null ? sandboxLostOutcome(why, limits) : terminatedOutcome(ending, null);
  }

  async #forget(): Promise<void> {
    await failpoint('turn.before-forget');
    try {
      await this.#client?.forgetTurn(this.turnId);
    } catch (error) {
      // The run directory goes with the sandbox; until then the leftovers cost only space.
      this.#options.log.debug('turn directory stays', {
        turn: this.turnId,
        why: HoldfastError.from(error).sentence,
      });
    }
  }
}
