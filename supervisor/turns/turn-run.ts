import { HoldfastError } from '../../protocol/errors.ts';
import { PROFILE_DEFAULTS, type Profile } from '../../protocol/profile.ts';
import { TURN_KINDS } from '../../protocol/turn-kinds.ts';
import type { Limit, TurnProgress } from '../../sidecar/wire.ts';
import type { ProgramDriver } from '../agents/driver.ts';
import { driverFor } from '../agents/drivers.ts';
import { reportsFullDisk } from '../agents/limits.ts';
import type { PromptFiles } from '../agents/prompt-files.ts';
import type { ChangeNotifier } from '../base/change-notifier.ts';
import { failpoint } from '../base/failpoints.ts';
import type { Log } from '../base/log.ts';
import type { SessionRecords } from '../history/session-records.ts';
import type { TurnOutput } from '../history/turn-output.ts';
import type { ActiveWork } from '../sandboxes/active-work.ts';
import type { ReadySandbox } from '../sandboxes/dispatches.ts';
import type { Lifecycle } from '../sandboxes/lifecycle.ts';
import type { SessionRow } from '../store/sessions.ts';
import type { TurnRow, Turns } from '../store/turns.ts';
import type { SidecarClient } from '../workspace/sidecar-client.ts';
import { AgentTurn, type AgentTurns, NOT_BEGUN } from './agent-turn.ts';
import { OutputPull } from './output-pull.ts';
import { step } from './turn-machine.ts';
import type { TurnRecords } from './turn-records.ts';
import { type Observation, type Signal, type TurnState, type Work, initialState } from './turn-state.ts';

export interface TurnRunOptions {
  readonly turns: Turns;
  readonly records: TurnRecords;
  readonly sessions: SessionRecords;
  readonly output: TurnOutput;
  readonly lifecycle: Pick<Lifecycle, 'attach' | 'dispatch' | 'endAgent' | 'environment' | 'row' | 'thaw'>;
  /** How long the session was paused since its newest turn started, ms. */
  readonly pausedTime: (sessionId: string) => number;
  /** Ends every process that the turn may have left in its sandbox. */
  readonly sweep: (sessionId: string, turnId: string) => Promise<void>;
  readonly activeWork: ActiveWork;
  readonly changes: ChangeNotifier;
  readonly agentConversations: AgentTurns;
  readonly promptFiles: Pick<PromptFiles, 'place'>;
  readonly profileOf: (turn: TurnRow) => Profile;
  /** The agent is paused for a snapshot: its runner cannot pick up a turn. */
  readonly isFrozen: (sessionId: string) => boolean;
  /**
   * Runs before the turn starts, with the sandbox ready. Ends soon after the signal aborts. Rejects when the turn must
   * not start.
   */
  readonly beforeTurn: (session: SessionRow, turnId: string, signal: AbortSignal) => Promise<void>;
  readonly log: Log;
  readonly now: () => number;
}

const DONE: Observation = { saw: 'done' };

/**
 * One turn from dispatch to its stored end: performs what `turn-machine.ts` decides. It can be detached at any
 * point: the next supervisor creates a TurnRun from the row and continues at the stored offsets.
 */
export class TurnRun {
  readonly turnId: string;
  readonly sessionId: string;
  readonly #options: TurnRunOptions;
  readonly #detached = new AbortController();
  /** The turn is cancelled or detached: ends what it waits for. Also a snapshot that goes on during the turn. */
  readonly #ended = new AbortController();
  readonly #pull: OutputPull;
  #state: TurnState;
  /** The session was paused when the last effect was complete. */
  #isPaused = false;
  #workerId: string | null;
  #profile: Profile | null = null;
  /** For a turn that is a prompt to an agent which stays. */
  readonly #agentTurn: AgentTurn | null;
  #ready: ReadySandbox | null = null;
  #client: SidecarClient | null = null;

  constructor(turn: TurnRow, options: TurnRunOptions) {
    this.turnId = turn.id;
    this.sessionId = turn.sessionId;
    this.#options = options;
    const pausedMs = turn.startedAt === null ? 0 : options.pausedTime(turn.sessionId);
    this.#state = initialState(turn, options.now(), pausedMs);
    this.#workerId = turn.workerId;
    this.#agentTurn =
      TURN_KINDS[turn.kind].runs === 'conversation'
        ? new AgentTurn(turn, {
            conversations: options.agentConversations,
            changes: options.changes,
            wakeKey: this.#wakeKey,
            shutdown: this.#detached.signal,
          })
        : null;
    this.#pull = new OutputPull({
      turnId: turn.id,
      output: options.output,
      changes: options.changes,
      wakeKey: this.#wakeKey,
      shutdown: this.#detached.signal,
      stored: { stdout: turn.stdoutBytes, stderr: turn.stderrBytes },
    });
  }

  /** The disk is full: the turn, or its end, waits. Kept in memory only, because storing it would need space. */
  get isWaitingForSpace(): boolean {
    return this.#state.isWaitingForSpace;
  }

  /** Its sandbox is being made ready. */
  get isDispatching(): boolean {
    return ['dispatching', 'redispatching'].includes(this.#state.phase.name);
  }

  /** Settles when the turn has ended, or after `detach`. Never rejects. */
  async run(): Promise<void> {
    this.#options.activeWork.add(this.sessionId, this.turnId, 'turn');
    let work = this.#observe({ saw: 'begin' });
    while (work !== null) work = this.#observe(await this.#perform(work));
  }

  /** The supervisor shuts down: the turn goes on in its sandbox. */
  detach(): void {
    this.#observe({ saw: 'detach-requested' });
  }

  cancel(): void {
    this.#observe({ saw: 'cancel-requested' });
  }

  /** The agent container is gone: its output is read to the end, then the turn has ended. */
  onAgentGone(why: string, limits: readonly Limit[]): void {
    this.#observe({ saw: 'agent-exit', exit: { why, limits } });
  }

  get #wakeKey(): string {
    return `run:${this.turnId}`;
  }

  #observe(observation: Observation): Work | null {
    const { now, isFrozen } = this.#options;
    const { state, work, signals } = step(this.#state, observation, {
      now: now(),
      monotonic: performance.now(),
      isPaused: this.#isPaused,
      isFrozen: isFrozen(this.sessionId),
    });
    const wasWaiting = this.isWaitingForSpace;
    this.#state = state;
    if (this.isWaitingForSpace !== wasWaiting)
      this.#options.records.notifyWaiters(this.sessionId, this.turnId);
    for (const signal of signals) this.#send(signal);
    return work;
  }

  #send(signal: Signal): void {
    switch (signal.do) {
      case 'wake':
        this.#options.changes.notify(this.#wakeKey);
        return;
      case 'abort-wait':
        this.#ended.abort();
        return;
      case 'detach':
        this.#detached.abort();
        this.#ended.abort(new HoldfastError('shutting_down', 'The supervisor is shutting down'));
        this.#options.changes.notify(this.#wakeKey);
        return;
      case 'log': {
        const { level, message, cause } = signal;
        const reason =
          typeof cause === 'string'
            ? { why: cause }
            : { code: cause.code, why: cause.sentence, cause: cause.cause };
        this.#options.log[level](message, { turn: this.turnId, session: this.sessionId, ...reason });
      }
    }
  }

  async #perform(work: Work): Promise<Observation> {
    try {
      const observation = await this.#do(work);
      this.#isPaused = this.#options.sessions.peek(this.sessionId)?.status === 'paused';
      return observation;
    } catch (error) {
      return { saw: 'failed', failure: HoldfastError.from(error, 'The turn could not be run') };
    }
  }

  async #do(work: Work): Promise<Observation> {
    const { turnId, sessionId } = this;
    const { lifecycle, records, changes } = this.#options;
    switch (work.do) {
      case 'dispatch':
        await failpoint('turn.before-launch');
        this.#ready = await lifecycle.dispatch(sessionId, turnId, this.#ended.signal);
        this.#client = this.#ready.client;
        return DONE;
      case 'snapshot':
        await this.#options.beforeTurn(this.#sandbox().row, turnId, this.#ended.signal);
        await failpoint('turn.after-snapshot');
        return DONE;
      case 'record-start': {
        const { startedAt, timeoutMs } = records.recordStart(this.#turn(), this.#sandbox());
        return { saw: 'started', deadline: (startedAt ?? this.#options.now()) + timeoutMs };
      }
      case 'attach': {
        const { client, agentEnd } = await lifecycle.attach(sessionId);
        this.#client = client;
        return { saw: 'attached', agentExit: agentEnd };
      }
      case 'launch': {
        const report = await this.#launch();
        await failpoint('turn.after-launch');
        records.recordLaunch(turnId, this.#options.now());
        return { saw: 'report', report };
      }
      case 'resend':
        return { saw: 'report', report: await this.#launch() };
      case 'find':
        return { saw: 'report', report: await this.#find() };
      case 'report':
        return { saw: 'report', report: await this.#progress(work.waitMs) };
      case 'store':
        return this.#store(work.report);
      case 'drain':
        return this.#store(await this.#progress(0));
      case 'kill':
        // So that a signal can reach its processes.
        await lifecycle.thaw(sessionId);
        if (this.#agentTurn === null) await this.#sidecar().killTurn(turnId, work.graceMs);
        else await this.#agentTurn.cancel();
        return DONE;
      case 'sweep':
        await this.#options.sweep(sessionId, turnId);
        return DONE;
      case 'end-agent':
        await lifecycle.endAgent(sessionId);
        return DONE;
      case 'read-outcome':
        return this.#readOutcome(work.final);
      case 'record-withdrawal':
        records.recordWithdrawal(turnId);
        return DONE;
      case 'record-restart':
        records.recordRestart(this.#turn(), this.#sandbox());
        return DONE;
      case 'record-end':
        await failpoint('turn.before-end');
        await this.#agentTurn?.stop();
        if (this.#agentTurn !== null) await failpoint('agent.before-end');
        records.recordEnd(turnId, work.outcome, (store) => {
          if (this.#agentTurn === null) store();
          else this.#agentTurn.end(store);
        });
        await failpoint('turn.after-end');
        return DONE;
      case 'remove':
        await failpoint('turn.before-forget');
        if (this.#agentTurn === null) await this.#client?.forgetTurn(turnId);
        return DONE;
      case 'wait':
        await changes.wait(this.#wakeKey, work.ms, this.#detached.signal);
        return DONE;
    }
  }

  async #launch(): Promise<TurnProgress> {
    const { activeWork, lifecycle } = this.#options;
    const { id: turnId, input: prompt, attachments } = this.#turn();
    const profile = this.#profileOfTurn();
    if (this.#agentTurn !== null) return this.#beginAgentTurn(this.#agentTurn);
    const freshTmp = activeWork.countOthers(this.sessionId, turnId) === 0;
    const row = lifecycle.row(this.sessionId);
    const driver = this.#programDriver();
    await this.#options.promptFiles.place(this.sessionId, turnId, attachments);
    const request = { turnId, input: prompt, attachments, freshTmp };
    const { launch, input } = driver.launch(request, row, profile);
    const env = { ...lifecycle.environment(this.sessionId, profile), ...launch.env };
    return this.#sidecar().launchTurn({ ...launch, env }, input);
  }

  /** Also after a supervisor that was killed: the conversation goes on where that one was. */
  #beginAgentTurn(agentTurn: AgentTurn): Promise<TurnProgress> {
    const { lifecycle } = this.#options;
    const profile = this.#profileOfTurn();
    const driver = driverFor(profile.agent);
    if (driver.runs !== 'conversation') {
      throw new HoldfastError('agent_failed', 'The agent no longer takes this prompt', {
        why: `a deploy made it an agent of the kind ${driver.kind}`,
        next: 'prompt it again',
      });
    }
    const env = lifecycle.environment(this.sessionId, profile);
    const agent = { profile, command: driver.command };
    // A terminated turn is joined to be ended: a prompt that was not sent stays unsent.
    const isCancelled = this.#state.termination !== null;
    return agentTurn.begin(lifecycle.row(this.sessionId), agent, env, isCancelled);
  }

  async #progress(waitMs: number): Promise<TurnProgress> {
    if (this.#agentTurn === null) return this.#pull.progress(this.#sidecar(), waitMs);
    await this.#beginAgentTurn(this.#agentTurn);
    return this.#agentTurn.progress(waitMs);
  }

  /** Records a launch that is found: the supervisor that sent the turn was killed before it could. */
  async #find(): Promise<TurnProgress> {
    if (this.#agentTurn !== null && !this.#agentTurn.hasBegun) return NOT_BEGUN;
    const report = await this.#progress(0);
    const { startedAt, launchedAt } = this.#turn();
    if (report.state !== 'absent' && launchedAt === null) {
      this.#options.records.recordLaunch(this.turnId, startedAt ?? this.#options.now());
    }
    return report;
  }

  #programDriver(): ProgramDriver {
    const driver = driverFor(this.#profileOfTurn().agent);
    if (driver.runs !== 'conversation') return driver;
    throw new HoldfastError('agent_failed', 'The agent no longer takes this input', {
      why: `a deploy made it an agent of the kind ${driver.kind}`,
      next: 'prompt it again',
    });
  }

  async #store(report: TurnProgress): Promise<Observation> {
    if (this.#agentTurn !== null) return { saw: 'stored', ...this.#agentTurn.stored() };
    const { worker } = report;
    if (worker !== null && worker.id !== this.#workerId) {
      this.#options.records.recordWorker(this.#turn(), worker);
      this.#workerId = worker.id;
    }
    this.#pull.limit = this.#profileOfTurn().limits?.output ?? PROFILE_DEFAULTS.limits.output;
    const isComplete = await this.#pull.pullOutput(this.#sidecar(), report);
    return { saw: 'stored', isComplete, isOverLimit: this.#pull.isOverLimit };
  }

  /** What the agent made of the turn: its exit code, or the answer of its handler. */
  async #readOutcome(final: TurnProgress): Promise<Observation> {
    if (this.#agentTurn !== null) return { saw: 'outcome', outcome: this.#agentTurn.outcome() };
    const driver = this.#programDriver();
    const hasCause = final.limits.length > 0 || final.exitCode === 0 || driver.runs === 'worker';
    const limits =
      !hasCause && reportsFullDisk(this.#pull.readErrorTail()) ? ['disk' as const] : final.limits;
    const result = final.result > 0 ? await this.#pull.readResult(this.#sidecar(), final.result) : null;
    return { saw: 'outcome', outcome: driver.outcome({ ...final, limits }, result) };
  }

  /** As deployed when the turn began to be followed: a deploy during the turn does not change it. */
  #profileOfTurn(): Profile {
    this.#profile ??= this.#options.profileOf(this.#turn());
    return this.#profile;
  }

  #turn(): TurnRow {
    return this.#options.turns.getOrThrow(this.turnId);
  }

  #sandbox(): ReadySandbox {
    if (this.#ready === null) throw new HoldfastError('internal', 'The turn has no sandbox yet');
    return this.#ready;
  }

  #sidecar(): SidecarClient {
    if (this.#client === null) throw new HoldfastError('internal', 'The turn has no sidecar yet');
    return this.#client;
  }
}
