import type { ContentBlock } from '@agentclientprotocol/sdk';
import type { PermissionOption } from '../../../protocol/agent-events.ts';
import { HoldfastError } from '../../../protocol/errors.ts';
import type { ChangeNotifier } from '../../base/change-notifier.ts';
import { failpoint } from '../../base/failpoints.ts';
import type { Ids } from '../../base/ids.ts';
import type { Log } from '../../base/log.ts';
import { isTransient } from '../../sandboxes/transient-errors.ts';
import type { ProcessChannel, ProcessStatus } from '../../workspace/process-channel.ts';
import { type AgentLaunch, AgentProcess } from './agent-process.ts';
import { ConversationSteps } from './conversation-steps.ts';
import type { ConversationStore } from './conversation-store.ts';
import type { LiveText } from './effects.ts';
import { AcpMachine } from './machine.ts';
import { isIdle, isLoading } from './opening.ts';
import { UNREAD, UNSTOPPABLE, agentEndedOutcome, failedOutcome } from './outcomes.ts';
import { type PromptCapabilities, promptOf } from './prompt.ts';
import { AcpStateSchema, type AgentTurnOutcome, NO_CONVERSATION, type Wanted } from './state.ts';

const POLL_MS = 20_000;
const RETRY_MS = { first: 50, most: 2000 } as const;
/** New processes for one turn, whose prompt none of the earlier ones received. */
const RESTARTS = 2;
/** From the protocol's cancel to the end of the process. */
const CANCEL_GRACE_MS = 3000;
const KILL_GRACE_MS = 500;

type MakePrompt = (can: PromptCapabilities) => Promise<readonly ContentBlock[]>;

export interface BegunTurn {
  readonly id: string;
  /** Called when it can be sent. Errors end the turn, or are tried again. */
  readonly prompt: MakePrompt;
  /** Bytes of standard error that are stored with it. */
  readonly errorBytes: number;
  /** It is over before it begins or goes on: a prompt that was not sent is never sent. */
  readonly isCancelled: boolean;
}

export interface AgentConversationOptions {
  readonly channel: (sessionId: string) => ProcessChannel;
  readonly store: ConversationStore;
  readonly ids: Pick<Ids, 'next'>;
  readonly changes: ChangeNotifier;
  /** Text that is not stored yet. */
  readonly onLive: (sessionId: string, live: LiveText) => void;
  /** What an agent without memory gets of the conversation before this turn; null if there was none. */
  readonly handover: (sessionId: string, turnId: string) => Promise<string | null>;
  /** The agent must begin a new conversation, even if it could load its last one. */
  readonly mustStartOver: (sessionId: string) => Promise<boolean>;
  /** What people want of the agent's settings, as it is stored. */
  readonly wantedOf: (sessionId: string) => Wanted;
  /** The answer that a person gave to a permission; null while it waits. */
  readonly answerTo: (permissionId: string) => PermissionOption | null;
  /** The sandbox is paused or frozen: nothing in it can answer. */
  readonly isSuspended: (sessionId: string) => boolean;
  readonly version: string;
  readonly log: Log;
  readonly now: () => number;
}

/**
 * The conversation of one session with its agent. Performs what `AcpMachine` decides: reads the output of the agent's process
 * (`AgentProcess`), stores what comes of it (`ConversationSteps`) and sends what is stored, in this order, so that a supervisor that
 * is killed on any line leaves a state from which the next one goes on. It works while a turn runs; between turns the process stays,
 * and nobody reads it.
 */
export class AgentConversation {
  readonly sessionId: string;
  readonly #options: AgentConversationOptions;
  readonly #steps: ConversationSteps;
  readonly #process: AgentProcess;
  #launch: AgentLaunch;
  #restarts = 0;
  #cancelledAt: number | null = null;
  #run: { readonly stop: AbortController; readonly done: Promise<void> } | null = null;

  constructor(sessionId: string, launch: AgentLaunch, options: AgentConversationOptions) {
    this.sessionId = sessionId;
    this.#options = options;
    this.#launch = launch;
    const { store, ids, changes, onLive, log, now } = options;
    const channel = options.channel(sessionId);
    this.#steps = new ConversationSteps({
      ...{ sessionId, channel, store, changes, onLive, log, now },
      command: JSON.stringify(launch.command),
      newMachine: (state) => this.#newMachine(state),
    });
    this.#process = new AgentProcess({ sessionId, steps: this.#steps, channel, store, ids, log, now });
  }

  get #machine(): AcpMachine {
    return this.#steps.machine;
  }

  /** The outcome of a turn; null while it runs, or if it is not this conversation's. */
  outcomeOf(turnId: string): AgentTurnOutcome | null {
    return this.#machine.state.turn?.id === turnId ? this.#machine.outcome : null;
  }

  hasTurn(turnId: string): boolean {
    return this.#machine.state.turn?.id === turnId;
  }

  isOverLimit(turnId: string): boolean {
    const { turn } = this.#machine.state;
    return turn?.id === turnId && turn.isOverLimit;
  }

  /** Why what the agent says cannot be stored for now. */
  get storeFailure(): HoldfastError | null {
    return this.#steps.storeFailure;
  }

  get settings() {
    return this.#machine.state.connection?.settings ?? [];
  }

  /** Begins a turn, or goes on with the one that an earlier supervisor began. Its prompt is sent as soon as the agent takes it. */
  async begin(turn: BegunTurn, launch: AgentLaunch): Promise<void> {
    const isKnown = this.hasTurn(turn.id);
    if (isKnown && (this.#run !== null || this.#machine.outcome !== null)) return;
    await this.stop();
    this.#launch = launch;
    const isResumed = this.hasTurn(turn.id);
    if (!isResumed) await this.#prepareProcess();
    if (!isResumed) {
      const { outputLimit: limitBytes, budget } = launch;
      const { model, choices } = this.#options.wantedOf(this.sessionId);
      const begun = { id: turn.id, model, choices: [...choices], limitBytes, budget };
      this.#machine.beginTurn(begun, this.#options.now());
      this.#restarts = 0;
    }
    this.#steps.errors.beginTurn(turn.id, turn.errorBytes);
    this.#cancelledAt = null;
    if (turn.isCancelled) this.#machine.cancel();
    this.#steps.save();
    const stop = new AbortController();
    const done = this.#follow(turn.id, turn.prompt, stop.signal).finally(() => {
      if (this.#run?.stop === stop) this.#run = null;
      this.#options.changes.notify(`run:${turn.id}`);
    });
    this.#run = { stop, done };
  }

  /**
   * The turn is over for its session; what the agent says later does not belong to it. `recordEnd` stores the end of the turn, in one
   * transaction with the last of what the agent said: a turn that has not ended is never taken for a new one. Repeat it after an error.
   */
  end(turnId: string, recordEnd: () => void): void {
    if (this.#machine.state.turn?.id === turnId) {
      this.#steps.storePending();
      this.#machine.endTurn();
      this.#steps.prepare();
    }
    try {
      if (this.#steps.hasPending) this.#steps.storePending(recordEnd);
      else recordEnd();
    } catch (error) {
      // What cannot be stored at all is left out: the next try ends the turn as it is stored.
      if (!this.#steps.hasPending) this.#steps.reload();
      throw error;
    }
  }

  /** Stops reading. The agent goes on. */
  async stop(): Promise<void> {
    const run = this.#run;
    run?.stop.abort();
    await run?.done;
  }

  /** A person has answered a permission, and the answer is stored. */
  answer(permissionId: string, option: PermissionOption): void {
    this.#machine.answer(permissionId, option);
    this.#wakeUp();
  }

  /** People have chosen one of the agent's settings, and the choice is stored. */
  chosen(): void {
    if (this.#run === null) return;
    this.#machine.choose(this.#options.wantedOf(this.sessionId), this.#options.now());
    this.#wakeUp();
  }

  /** The protocol's cancel first; its process ends when that does not help. */
  async cancel(turnId: string): Promise<void> {
    if (this.#machine.state.turn?.id !== turnId) return;
    const now = performance.now();
    this.#cancelledAt ??= now;
    this.#machine.cancel();
    this.#wakeUp();
    const { processId } = this.#steps.row;
    if (processId !== null && now - this.#cancelledAt >= CANCEL_GRACE_MS)
      await this.#process.kill(processId, KILL_GRACE_MS);
  }

  /** Uses the process of the last turn if it is well, and reads what it has said since, which belongs to no turn. */
  async #prepareProcess(): Promise<void> {
    this.#machine.endTurn();
    const { row } = this.#steps;
    const { processId, generation } = row;
    const command = JSON.stringify(this.#launch.command);
    const mustStartOver = await this.#options.mustStartOver(this.sessionId);
    if (row.command !== command || mustStartOver) {
      // Another program has not had this conversation.
      this.#machine.state.conversationId = null;
      this.#machine.state.fatalLoads = 0;
      this.#machine.state.kept = {};
      this.#machine.state.taken = {};
    }
    const isOther = row.command !== command || generation !== this.#launch.generation;
    this.#steps.changeRow({ command });
    if (processId === null) return;
    // One that refused to begin, or was too late, never takes a prompt. One that was loading may have loaded since.
    const { connection } = this.#machine.state;
    const mayBeIdle = isIdle(connection) || isLoading(connection);
    const isUsable = !isOther && !mustStartOver && mayBeIdle && (await this.#process.isUsable(processId));
    if (!isUsable || !isIdle(this.#machine.state.connection)) await this.#process.drop(processId);
  }

  async #follow(turnId: string, prompt: MakePrompt, stop: AbortSignal): Promise<void> {
    let retryMs: number = RETRY_MS.first;
    let isReattached = this.#steps.row.processId !== null;
    while (!stop.aborted) {
      try {
        if (this.#steps.hasPending) this.#steps.save();
        if (this.#machine.outcome !== null) return;
        const { processId } = this.#steps.row;
        if (isReattached && processId !== null) await this.#reattach(processId);
        isReattached = false;
        await this.#advance(turnId, prompt, stop);
        retryMs = RETRY_MS.first;
      } catch (error) {
        if (isAborted(stop)) return;
        const failure = HoldfastError.from(error, 'The agent could not be reached');
        if (!isTransient(failure)) {
          this.#options.log.error('a turn of an agent failed', {
            session: this.sessionId,
            turn: turnId,
            error,
          });
          this.#machine.fail(failedOutcome(failure));
          this.#steps.saveAtEnd();
          if (!this.#steps.hasPending) return;
        }
        isReattached = true;
        await this.#options.changes.wait(`agent:${this.sessionId}`, retryMs, stop);
        retryMs = Math.min(retryMs * 2, RETRY_MS.most);
      }
    }
  }

  /** After a lost connection or a new supervisor: what the process has received decides what may be sent. */
  async #reattach(processId: string): Promise<void> {
    await this.#process.reattach(processId, this.#launch);
    for (const { id } of [...this.#machine.state.waiting]) {
      const option = this.#options.answerTo(id);
      if (option !== null) this.#machine.answer(id, option);
    }
    this.#machine.choose(this.#options.wantedOf(this.sessionId), this.#options.now());
  }

  /** One round: send, read, store. */
  async #advance(turnId: string, prompt: MakePrompt, stop: AbortSignal): Promise<void> {
    if (this.#steps.row.processId === null) await this.#startProcess(turnId);
    const processId = this.#steps.row.processId ?? '';
    if (this.#machine.isReadyForPrompt) await this.#sendPrompt(turnId, prompt);
    if (this.#machine.isUrgent) this.#steps.save();
    await this.#process.deliver(processId);
    if (this.outcomeOf(turnId) !== null) return;
    const output = await this.#process.read(processId, this.#waitMs(), stop);
    if (output !== null) {
      if (!(await this.#steps.take(output))) return this.#process.abandon(processId, UNREAD);
      await failpoint('agent.after-output');
      const errorOffset = this.#steps.errors.offset;
      await this.#steps.errors.read(processId, output.status);
      // An agent that only logs must be heard as well: it waits once its errors are not taken.
      if (this.#steps.errors.offset > errorOffset) this.#steps.noteUnstored();
      const isEnded = output.status.state === 'ended' || output.status.state === 'absent';
      if (isEnded && this.#steps.outputOffset >= output.status.stdout.end)
        return this.#onProcessEnded(processId, output.status);
      if (output.status.damage !== null) {
        throw new HoldfastError('agent_failed', 'The agent damaged the files of its process', {
          why: output.status.damage,
          next: 'programs must not change /run/holdfast; the next prompt starts the agent again',
        });
      }
    }
    this.#machine.tick(this.#options.now());
    if (this.#machine.isUnstoppable(this.#options.now()))
      return this.#process.abandon(processId, UNSTOPPABLE);
    if (this.#machine.outcome !== null) {
      this.#steps.saveAtEnd();
      await this.#process.acknowledge(processId);
      await this.#process.deliver(processId);
    } else if (this.#steps.isDue) {
      this.#steps.save();
      await this.#process.acknowledge(processId);
    }
  }

  async #startProcess(turnId: string): Promise<void> {
    const hasHistory = (await this.#options.handover(this.sessionId, turnId)) !== null;
    await this.#process.start(this.#launch, hasHistory);
  }

  async #sendPrompt(turnId: string, prompt: MakePrompt): Promise<void> {
    const { connection } = this.#machine.state;
    const history =
      connection?.needsHandover === true ? await this.#options.handover(this.sessionId, turnId) : null;
    const asked = await prompt(connection?.can ?? { image: false, embed: false });
    // A cancel may have come meanwhile.
    if (!this.#machine.isReadyForPrompt) return;
    this.#machine.sendPrompt(promptOf(this.#machine.state, asked, history));
    const { turn } = this.#machine.state;
    if (turn !== null) turn.promptEnd = this.#steps.row.inputOffset + this.#machine.toSend.bytes;
    // Stored as sent before it can reach the process: it is never sent a second time.
    this.#steps.save();
    await failpoint('agent.before-prompt');
  }

  async #onProcessEnded(processId: string, status: ProcessStatus): Promise<void> {
    const { turn } = this.#machine.state;
    const accepted = Math.max(this.#steps.accepted, status.inputAccepted);
    const { connection } = this.#machine.state;
    const hasPrompt = turn?.promptEnd !== null && accepted >= (turn?.promptEnd ?? 0);
    // A process that is left from the last turn may end at any time; a new one that ends has a reason.
    const isUnlucky = connection?.how === 'warm' || turn?.phase === 'prompted';
    const canRestart = !hasPrompt && isUnlucky && this.#restarts < RESTARTS;
    if (canRestart) this.#restarts += 1;
    const tail = this.#steps.errors.tail();
    this.#machine.processEnded(
      canRestart ? null : agentEndedOutcome(status.exitCode, this.#launch.command[0] ?? '', tail),
      status.state === 'ended',
    );
    await this.#process.forget(processId);
  }

  #waitMs(): number {
    const now = this.#options.now();
    const { nextTick } = this.#machine;
    const toTick = nextTick === null ? POLL_MS : nextTick - now;
    const toStore = this.#steps.dueInMs ?? POLL_MS;
    // Input that the process did not take is offered again soon.
    const toSend = this.#steps.accepted < this.#steps.row.inputOffset ? 100 : POLL_MS;
    const pollMs = this.#options.isSuspended(this.sessionId) ? 1000 : POLL_MS;
    const wait = Math.max(0, Math.ceil(Math.min(POLL_MS, toTick, toStore, toSend, pollMs)));
    if (pollMs !== POLL_MS) this.#machine.postpone(Math.max(wait, 1));
    return wait;
  }

  #newMachine(state: unknown): AcpMachine {
    const known = AcpStateSchema.safeParse(state);
    // A state of another version: the agent is started again, and gets the conversation.
    return new AcpMachine(known.success ? known.data : NO_CONVERSATION, {
      version: this.#options.version,
      permissions: () => this.#launch.permissions,
      newPermissionId: () => this.#options.ids.next('perm'),
    });
  }

  #wakeUp(): void {
    this.#process.wakeReader();
    this.#options.changes.notify(`agent:${this.sessionId}`);
  }
}

/** A function, because the compiler takes what it has seen of a signal for constant. */
function isAborted(signal: AbortSignal): boolean {
  return signal.aborted;
}
