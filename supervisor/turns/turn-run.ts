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
import { isTransient } from '../sandboxes/transient-errors.ts';
import { TurnTermination } from './turn-termination.ts';
import {
  answerTooLargeOutcome,
  runDirectoryDamagedOutcome,
  terminatedOutcome,
  failedOutcome,
  sandboxLostOutcome,
} from './turn-outcomes.ts';
import { OutputPull } from './output-pull.ts';
import type { TurnOutcome, TurnRecords } from './turn-records.ts';
import { RunnerPickup } from './runner-pickup.ts';

const POLL_MS = 1000;
/** A larger result of a handler is refused: it belongs in a file. */
const RESULT_BYTES = 32 * 1024 * 1024;
/** Exit codes after TERM or KILL, also when the engine ends the container. */
const ENDED_BY_SIGNAL: ReadonlySet<number | null> = new Set([143, 137, null]);
/** How long after its turn a container may end and count as the cause. */
const CONTAINER_END_MS = 1500;
const RETRY_MS = { first: 50, most: 2000 } as const;
const RECORD_TRIES = 3;

export interface TurnRunOptions {
  readonly turns: Turns;
  readonly records: TurnRecords;
  readonly output: TurnOutput;
  readonly lifecycle: Lifecycle;
  readonly activeWork: ActiveWork;
  readonly changes: ChangeNotifier;
  readonly profileOf: (turn: TurnRow) => Profile;
  /** The agent is paused for a snapshot: its runner cannot pick up a turn. */
  readonly isFrozen: (sessionId: string) => boolean;
  /**
   * Runs before the turn starts, with the sandbox ready. Ends soon after the signal aborts. Rejects when the turn must not start.
   */
  readonly beforeTurn: (session: SessionRow, turnId: string, signal: AbortSignal) => Promise<void>;
  readonly log: Log;
  readonly now: () => number;
}

/**
 * One turn from dispatch to its stored end. It can be detached at any point: the next supervisor creates a TurnRun from the row
 * and continues at the stored offsets.
 */
export class TurnRun {
  readonly turnId: string;
  readonly sessionId: string;
  readonly #options: TurnRunOptions;
  readonly #detached = new AbortController();
  /** Aborted when the turn is cancelled, or this supervisor detaches. */
  readonly #notWanted = new AbortController();
  readonly #pull: OutputPull;
  readonly #termination: TurnTermination;
  #client: SidecarClient | null = null;
  #agentExit: AgentExit | null = null;
  readonly #pickup = new RunnerPickup();
  /** Set while the turn waits for another sandbox, because the last one did not pick it up. */
  #pendingRestart: { readonly isAgentEnded: boolean } | null = null;
  #isWaitingForSpace = false;

  constructor(turn: TurnRow, options: TurnRunOptions) {
    this.turnId = turn.id;
    this.sessionId = turn.sessionId;
    this.#options = options;
    const wake = (): void => options.changes.notify(this.#wakeKey);
    const { turnId, sessionId } = this;
    const { lifecycle, log, now, output, changes } = options;
    this.#termination = new TurnTermination(
      { turnId, sessionId, lifecycle, log, now, onRequested: wake },
      turn.cancelRequested ? 'cancelled' : null,
    );
    this.#pull = new OutputPull({
      turnId,
      output,
      changes,
      wakeKey: this.#wakeKey,
      shutdown: this.#detached.signal,
      stored: { stdout: turn.stdoutBytes, stderr: turn.stderrBytes },
    });
  }

  /** The disk is full: the turn, or its end, waits for space. Kept in memory only, because storing it would need space. */
  get isWaitingForSpace(): boolean {
    return this.#isWaitingForSpace;
  }

  /** Settles when the turn has ended, or after `detach`. Never rejects. */
  async run(): Promise<void> {
    const { log, activeWork } = this.#options;
    activeWork.add(this.sessionId, this.turnId, 'turn');
    try {
      const end = await this.#runToEnd();
      if (end === null) return;
      await failpoint('turn.before-end');
      if (!(await this.#record(end))) return;
      await failpoint('turn.after-end');
      await this.#forget();
    } catch (error) {
      if (this.#isDetached()) return;
      const failure = HoldfastError.from(error, 'The turn could not be run');
      log.error('turn failed', {
        turn: this.turnId,
        session: this.sessionId,
        code: failure.code,
        why: failure.sentence,
        cause: failure.cause,
      });
      // The turn may be running: forgetting it ends its process, which nobody follows.
      if (await this.#record(failedOutcome(failure))) await this.#forget();
    }
  }

  /**
   * Stores the outcome. On a full disk it waits for space: no outcome is lost. False when the supervisor detaches first: then the
   * run directory keeps everything for the next one.
   */
  async #record(end: TurnOutcome): Promise<boolean> {
    const { log, records, changes } = this.#options;
    let storable = end;
    for (let tries = 1; ; tries += 1) {
      if (this.#isDetached()) return false;
      try {
        records.recordEnd(this.turnId, storable);
        return true;
      } catch (error) {
        const failure = HoldfastError.from(error);
        this.#isWaitingForSpace = failure.code === 'no_space';
        // An outcome that cannot be stored at all would block the session for ever.
        if (failure.code === 'internal' && tries >= RECORD_TRIES) storable = failedOutcome(failure);
        log.error('the end of a turn could not be stored; retrying', {
          turn: this.turnId,
          why: failure.sentence,
        });
        await changes.wait(this.#wakeKey, RETRY_MS.most, this.#detached.signal);
      }
    }
  }

  /** The supervisor shuts down: the turn goes on in its sandbox. */
  detach(): void {
    this.#detached.abort();
    this.#notWanted.abort(new HoldfastError('shutting_down', 'The supervisor is shutting down'));
    this.#options.changes.notify(this.#wakeKey);
  }

  cancel(): void {
    this.#termination.request('cancelled');
    this.#notWanted.abort();
  }

  /** The agent container is gone: its output is read to the end, then the turn has ended. */
  onAgentGone(why: string, limits: readonly Limit[]): void {
    this.#agentExit = { why, limits };
    this.#options.changes.notify(this.#wakeKey);
  }

  #isDetached(): boolean {
    return this.#detached.signal.aborted;
  }

  get #wakeKey(): string {
    return `run:${this.turnId}`;
  }

  #turn(): TurnRow {
    const turn = this.#options.turns.get(this.turnId);
    if (turn === null) throw new HoldfastError('not_found', `There is no turn ${this.turnId}`);
    return turn;
  }

  /** Null when the supervisor detaches first. */
  async #runToEnd(): Promise<TurnOutcome | null> {
    let turn = this.#turn();
    if (turn.status === 'queued') {
      if (this.#termination.reason === 'cancelled') return terminatedOutcome('cancelled', null);
      await failpoint('turn.before-launch');
      const ready = await this.#options.lifecycle.dispatch(this.sessionId, this.turnId);
      // At once: the agent may exit while the snapshot is created.
      this.#setSandbox(ready);
      await this.#options.beforeTurn(ready.row, this.turnId, this.#notWanted.signal);
      await failpoint('turn.after-snapshot');
      if (this.#isDetached()) return null;
      turn = this.#options.records.recordStart(turn, ready);
    }
    const profile = this.#options.profileOf(turn);
    const driver = driverFor(profile.agent);
    this.#pull.limit = profile.limits?.output ?? PROFILE_DEFAULTS.limits.output;
    const deadline = (turn.startedAt ?? this.#options.now()) + turn.timeoutMs;

    let retryMs: number = RETRY_MS.first;
    for (;;) {
      if (this.#isDetached()) return null;
      try {
        if (this.#pendingRestart !== null) {
          this.#termination.checkDeadline(deadline);
          if (this.#termination.reason !== null) return terminatedOutcome(this.#termination.reason, null);
          await this.#restart(this.#pendingRestart.isAgentEnded);
        }
        const client = await this.#attach();
        const end = await this.#launchAndFollow(client, driver, profile, deadline);
        if (end !== 'again') return end;
        retryMs = RETRY_MS.first;
      } catch (error) {
        if (this.#isDetached()) return null;
        const failure = HoldfastError.from(error);
        if (!isTransient(failure)) throw error;
        this.#isWaitingForSpace = failure.code === 'no_space';
        if (failure.details?.['runDirectory'] === 'damaged') {
          this.#withdraw(failure.why ?? failure.message, false);
          continue;
        }
        // The sidecar, the engine or the connection is gone. The turn goes on in the agent's container: connect again.
        this.#options.log.warn('connecting to a turn again', {
          turn: this.turnId,
          code: failure.code,
          why: failure.sentence,
        });
        this.#client = null;
        await this.#options.changes.wait(this.#wakeKey, retryMs, this.#detached.signal);
        retryMs = Math.min(retryMs * 2, RETRY_MS.most);
      }
    }
  }

  /** A sandbox was made ready: the exit of an earlier one no longer counts. */
  #setSandbox(ready: ReadySandbox): void {
    this.#client = ready.client;
    this.#agentExit = null;
  }

  async #attach(): Promise<SidecarClient> {
    if (this.#client !== null) return this.#client;
    const { client, agentEnd } = await this.#options.lifecycle.attach(this.sessionId);
    // The agent may have exited before this supervisor started, or while the engine was unreachable.
    this.#agentExit ??= agentEnd;
    this.#client = client;
    return client;
  }

  async #launchAndFollow(
    client: SidecarClient,
    driver: AgentDriver,
    profile: Profile,
    deadline: number,
  ): Promise<TurnOutcome | 'again' | null> {
    const { activeWork, records } = this.#options;
    this.#termination.checkDeadline(deadline);
    let turn = this.#turn();
    const request = {
      turnId: turn.id,
      input: turn.input,
      freshTmp: activeWork.countOthers(this.sessionId, this.turnId) === 0,
    };
    const row = this.#options.lifecycle.row(this.sessionId);
    const { launch: plain, input } = driver.launch(request, row, profile);
    const env = { ...this.#options.lifecycle.environment(this.sessionId, profile), ...plain.env };
    const launch = { ...plain, env };
    let progress: TurnProgress;
    if (turn.launchedAt === null && this.#termination.reason !== null) {
      // Not launched, unless a supervisor was killed after it launched the turn and before it recorded that.
      progress = await this.#pull.progress(client, 0);
      if (progress.state === 'absent') return terminatedOutcome(this.#termination.reason, null);
    } else if (turn.launchedAt === null) {
      progress = await client.launchTurn(launch, input);
      await failpoint('turn.after-launch');
      turn = this.#options.records.recordLaunch(turn.id);
    } else {
      // A second launch starts nothing twice: the sidecar knows the turn by its id, and repeats only a request that was not picked up.
      progress = await this.#pull.progress(client, 0);
      if (progress.state === 'accepted' && this.#agentExit === null)
        progress = await client.launchTurn(launch, input);
    }

    let hasFinalProgress = false;
    for (;;) {
      if (this.#isDetached()) return null;
      const gone = this.#agentExit;
      if (gone !== null && !hasFinalProgress) {
        // The progress may be older than the exit: a request that was picked up since must not be repeated.
        hasFinalProgress = true;
        progress = await this.#pull.progress(client, 0);
      }
      if (progress.worker !== null && turn.workerId !== progress.worker.id) {
        turn = records.recordWorker(turn, progress.worker);
      }
      // Before anything that waits for space on a full disk.
      this.#termination.checkDeadline(deadline);
      await this.#store(client, progress);
      this.#isWaitingForSpace = progress.diskFull;
      // Only a part of the output may be stored: the next supervisor continues from there.
      if (this.#isDetached()) return null;
      if (progress.state === 'ended') return await this.#outcome(client, driver, progress);
      if (progress.state === 'absent') return this.#lostOrEnded(gone ?? (await this.#endDamagedAgent()));
      if (progress.damage !== null && this.#termination.reason === null)
        return runDirectoryDamagedOutcome(progress.damage);
      if (gone !== null) {
        // Its output is stored. A request that was never picked up is sent to a new sandbox.
        if (progress.state !== 'accepted' || this.#termination.reason !== null)
          return this.#lostOrEnded(gone);
        this.#withdraw(gone.why, true);
        return 'again';
      }
      const { isFrozen, lifecycle } = this.#options;
      const isPaused = lifecycle.row(this.sessionId).status === 'paused' || isFrozen(this.sessionId);
      if (this.#termination.reason === null && this.#pickup.isOverdue(progress.state, isPaused)) {
        this.#options.log.warn('the runner does not pick up the turn; its container is ended', {
          turn: this.turnId,
        });
        await this.#options.lifecycle.endAgent(this.sessionId);
        // The turn may have been picked up before the container ended: the next progress shows it.
        this.#agentExit ??= { why: 'its main process did not pick up the turn in time', limits: [] };
        continue;
      }
      if (this.#pull.isOverLimit) this.#termination.request('output_limit');
      this.#termination.checkDeadline(deadline);
      if (this.#termination.reason !== null) {
        const ended = await this.#termination.kill(client);
        if (ended !== null) this.#agentExit ??= { why: ended, limits: [] };
      }
      progress = await this.#pull.progress(client, POLL_MS);
    }
  }

  /** Without the run directory that we created, nothing in the container can report to us. */
  async #endDamagedAgent(): Promise<AgentExit> {
    await this.#options.lifecycle.endAgent(this.sessionId);
    return { why: 'something in it removed or replaced its run directory, so it was ended', limits: [] };
  }

  /** The runner did not pick up the turn: nothing of it has happened, and it can be sent to another sandbox. */
  #withdraw(why: string, isAgentEnded: boolean): void {
    this.#pickup.recordFailure(why);
    this.#options.records.recordWithdrawal(this.turnId);
    this.#pendingRestart = { isAgentEnded };
  }

  /** Sends the turn to a new sandbox. Call it again if it fails. */
  async #restart(isAgentEnded: boolean): Promise<void> {
    const { lifecycle, records } = this.#options;
    if (!isAgentEnded) await lifecycle.endAgent(this.sessionId);
    this.#pendingRestart = { isAgentEnded: true };
    // Before a new runner starts, which would pick up the request for the earlier one.
    await (await this.#attach()).forgetTurn(this.turnId);
    const ready = await lifecycle.dispatch(this.sessionId, this.turnId);
    this.#setSandbox(ready);
    records.recordRestart(this.#turn(), ready);
    this.#pendingRestart = null;
  }

  async #store(client: SidecarClient, progress: TurnProgress): Promise<void> {
    try {
      if (!(await this.#pull.pullOutput(client, progress))) this.#termination.request('output_limit');
    } catch (error) {
      const isFull = error instanceof HoldfastError && error.code === 'no_space';
      const { reason } = this.#termination;
      // The turn ends first. Then its output waits for space, unless it was cancelled and somebody waits for its end.
      if (!isFull || reason === null || (progress.state === 'ended' && reason !== 'cancelled')) throw error;
      this.#options.log.warn('output of a cancelled turn is lost: the disk is full', { turn: this.turnId });
    }
  }

  /** Null when the supervisor detaches before all output is stored. */
  async #outcome(
    client: SidecarClient,
    driver: AgentDriver,
    progress: TurnProgress,
  ): Promise<TurnOutcome | null> {
    // A fresh progress: the last one may lack output that was written before the end.
    await this.#store(client, await this.#pull.progress(client, 0));
    if (this.#isDetached()) return null;
    if (this.#termination.reason !== null)
      return terminatedOutcome(this.#termination.reason, progress.exitCode);
    if (ENDED_BY_SIGNAL.has(progress.exitCode) && progress.result === 0) {
      const gone = await this.#containerEnd();
      if (gone !== null) return this.#lostOrEnded(gone);
    }
    if (progress.result > RESULT_BYTES) return answerTooLargeOutcome(progress.result, RESULT_BYTES);
    const hasCause = progress.limits.length > 0 || progress.exitCode === 0 || driver.kind === 'handler';
    const limits =
      !hasCause && reportsFullDisk(this.#pull.readErrorTail()) ? ['disk' as const] : progress.limits;
    return driver.outcome(
      { ...progress, limits },
      progress.result > 0 ? await this.#pull.readResult(client, progress.result) : null,
    );
  }

  /** The exit of the agent's container, now or shortly after; null when it keeps running. */
  async #containerEnd(): Promise<AgentExit | null> {
    const until = performance.now() + CONTAINER_END_MS;
    while (this.#agentExit === null && performance.now() < until && !this.#isDetached()) {
      await this.#options.changes.wait(this.#wakeKey, 300, this.#detached.signal);
      this.#agentExit ??= (await this.#options.lifecycle.attach(this.sessionId)).agentEnd;
    }
    return this.#agentExit;
  }

  #lostOrEnded({ why, limits }: AgentExit): TurnOutcome {
    const { reason: ending } = this.#termination;
    return ending === null ? sandboxLostOutcome(why, limits) : terminatedOutcome(ending, null);
  }

  async #forget(): Promise<void> {
    await failpoint('turn.before-forget');
    try {
      await this.#client?.forgetTurn(this.turnId);
    } catch (error) {
      // The directory is removed with the sandbox; until then it only takes space.
      this.#options.log.debug('the directory of a turn was not removed', {
        turn: this.turnId,
        why: HoldfastError.from(error).sentence,
      });
    }
  }
}
