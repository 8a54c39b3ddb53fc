import type { ContentBlock } from '@agentclientprotocol/sdk';
import type { PermissionOption } from '../../../protocol/agent-events.ts';
import { HoldfastError } from '../../../protocol/errors.ts';
import type { Permissions } from '../../../protocol/profile.ts';
import { TimeSlice } from '../../../protocol/time-slice.ts';
import type { ChangeNotifier } from '../../base/change-notifier.ts';
import { failpoint } from '../../base/failpoints.ts';
import type { Ids } from '../../base/ids.ts';
import type { Log } from '../../base/log.ts';
import { isTransient } from '../../sandboxes/transient-errors.ts';
import type { AgentConversationRow, InputSize } from '../../store/agent-conversations.ts';
import type { ProcessChannel, ProcessOutput, ProcessStatus } from '../../workspace/process-channel.ts';
import type { Beside, ConversationStore, ErrorOutput } from './conversation-store.ts';
import type { Commit, LiveText } from './effects.ts';
import { ErrorOutputReader } from './error-output.ts';
import { LineScanner } from './line-scanner.ts';
import { AcpMachine } from './machine.ts';
import { UNREAD, agentEndedOutcome, failedOutcome, interruptedOutcome } from './outcomes.ts';
import { WORKING_DIRECTORY } from './requests.ts';
import { AcpStateSchema, type AgentTurnOutcome, NO_CONVERSATION, storedState } from './state.ts';

const READ_BYTES = 256 * 1024;
const POLL_MS = 20_000;
/** What an agent says is stored at the latest after this time, or after this much of its output. */
const STORE = { ms: 500, bytes: 512 * 1024 } as const;
const RETRY_MS = { first: 50, most: 2000 } as const;
/** New processes for one turn, whose prompt none of the earlier ones received. */
const RESTARTS = 2;
/** From the protocol's cancel to the end of the process. */
const CANCEL_GRACE_MS = 3000;
const KILL_GRACE_MS = 500;
/** What an agent may have written since its last turn. It waits in its own write beyond that. */
const LEFTOVER_BYTES = 64 * 2 ** 20;
/** Answers that an agent may leave unread, besides those that its process channel holds. */
const UNREAD_LIMIT = { messages: 1000, bytes: 2 ** 20 } as const;

/** How an agent is started, and what the session and its profile say about its turns. */
export interface AgentLaunch {
  readonly command: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Of the sandbox in which it runs. */
  readonly generation: number;
  readonly permissions: Permissions;
  readonly model: string | null;
  readonly outputLimit: number;
}

export interface BegunTurn {
  readonly id: string;
  readonly prompt: readonly ContentBlock[];
  /** Bytes of standard error that are stored with it. */
  readonly errorBytes: number;
}

export interface AgentConversationOptions {
  readonly channel: (sessionId: string) => ProcessChannel;
  readonly store: ConversationStore;
  readonly ids: Pick<Ids, 'next'>;
  readonly changes: ChangeNotifier;
  /** Text that is not stored yet. */
  readonly onLive: (sessionId: string, live: LiveText) => void;
  /** What an agent without memory is told of the conversation before this turn; null if there was none. */
  readonly handover: (sessionId: string, turnId: string) => Promise<string | null>;
  /** The agent must begin a new conversation, even if it could load its last one. */
  readonly mustStartOver: (sessionId: string) => Promise<boolean>;
  /** The answer that a person gave to a permission; null while it waits. */
  readonly answerTo: (permissionId: string) => PermissionOption | null;
  /** The sandbox is paused or frozen: nothing in it can answer. */
  readonly isStill: (sessionId: string) => boolean;
  readonly version: string;
  readonly log: Log;
  readonly now: () => number;
}

const NO_PROCESS = {
  processId: null,
  generation: null,
  stdoutOffset: 0,
  isSkipping: false,
  stderrOffset: 0,
  inputOffset: 0,
} as const;

/** A step that is stored as a whole, again and again where the disk is full. */
interface PendingStep {
  readonly commit: Commit;
  readonly row: AgentConversationRow;
  readonly errorOutput: ErrorOutput | null;
  readonly dropsInput: boolean;
}

/**
 * The conversation of one session with its agent. Performs what `AcpMachine` decides: it runs the agent's process, reads its output,
 * stores what comes of it and sends what is stored, in this order, so that a supervisor that is killed on any line leaves a state
 * from which the next one goes on. It works while a turn runs; between turns the process stays, and nobody reads it.
 */
export class AgentConversation {
  readonly sessionId: string;
  readonly #options: AgentConversationOptions;
  readonly #channel: ProcessChannel;
  #launch: AgentLaunch;
  #machine: AcpMachine;
  #row: AgentConversationRow;
  /** What of it is stored: nothing else may be acknowledged. */
  #stored: AgentConversationRow;
  #scanner: LineScanner;
  #errors: ErrorOutputReader;
  /** Behind the last byte of input that the process has. */
  #accepted = 0;
  /** The step that could not be stored. */
  #pending: PendingStep | null = null;
  #storeFailure: HoldfastError | null = null;
  #firstUnstoredAt: number | null = null;
  /** Output up to here is stored line by line, because storing it at once failed. */
  #carefulUntil = 0;
  #restarts = 0;
  #cancelledAt: number | null = null;
  #wake = new AbortController();
  #run: { readonly stop: AbortController; readonly done: Promise<void> } | null = null;

  constructor(sessionId: string, launch: AgentLaunch, options: AgentConversationOptions) {
    this.sessionId = sessionId;
    this.#options = options;
    this.#launch = launch;
    this.#channel = options.channel(sessionId);
    const stored = options.store.get(sessionId);
    const command = JSON.stringify(launch.command);
    this.#row = stored ?? { ...NO_PROCESS, sessionId, state: NO_CONVERSATION, command };
    this.#machine = this.#newMachine(this.#row.state);
    this.#scanner = new LineScanner(this.#row.stdoutOffset, this.#row.isSkipping);
    this.#errors = new ErrorOutputReader(this.#channel, this.#row.stderrOffset);
    this.#stored = this.#row;
  }

  /** The outcome of a turn; null while it runs, or if it is not this conversation's. */
  outcomeOf(turnId: string): AgentTurnOutcome | null {
    return this.#machine.state.turn?.id === turnId ? this.#machine.outcome : null;
  }

  isOverLimit(turnId: string): boolean {
    const { turn } = this.#machine.state;
    return turn?.id === turnId && turn.isOverLimit;
  }

  /** Why what the agent says cannot be stored for now. */
  get storeFailure(): HoldfastError | null {
    return this.#storeFailure;
  }

  get settings() {
    return this.#machine.state.connection?.settings ?? [];
  }

  /** Begins a turn, or goes on with the one that an earlier supervisor began. Its prompt is sent as soon as the agent takes it. */
  async begin(turn: BegunTurn, launch: AgentLaunch): Promise<void> {
    const isKnown = this.#machine.state.turn?.id === turn.id;
    if (isKnown && (this.#run !== null || this.#machine.outcome !== null)) return;
    await this.stop();
    this.#launch = launch;
    const isResumed = this.#machine.state.turn?.id === turn.id;
    if (!isResumed) await this.#prepareProcess();
    if (!isResumed) {
      const { model, outputLimit: limitBytes } = launch;
      this.#machine.beginTurn({ id: turn.id, model, limitBytes }, this.#options.now());
      this.#restarts = 0;
    }
    this.#errors.beginTurn(turn.id, turn.errorBytes);
    this.#cancelledAt = null;
    this.#save();
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
      this.#storePending();
      this.#machine.endTurn();
      this.#prepareStep();
    }
    try {
      if (this.#pending === null) recordEnd();
      else this.#storePending(recordEnd);
    } catch (error) {
      // What cannot be stored at all is left out: the next try ends the turn as it is stored.
      if (this.#pending === null) this.#load(this.#options.store.get(this.sessionId));
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

  /** The protocol's cancel first; its process ends when that does not help. */
  async cancel(turnId: string): Promise<void> {
    if (this.#machine.state.turn?.id !== turnId) return;
    const now = performance.now();
    this.#cancelledAt ??= now;
    this.#machine.cancel();
    this.#wakeUp();
    const { processId } = this.#row;
    if (processId !== null && now - this.#cancelledAt >= CANCEL_GRACE_MS)
      await this.#channel.kill(processId, KILL_GRACE_MS);
  }

  // The process.

  /** Uses the process of the last turn if it is well, and reads what it has said since, which belongs to no turn. */
  async #prepareProcess(): Promise<void> {
    this.#machine.endTurn();
    const { processId, generation } = this.#row;
    const command = JSON.stringify(this.#launch.command);
    const mustStartOver = await this.#options.mustStartOver(this.sessionId);
    if (this.#row.command !== command || mustStartOver) {
      // Another program has not had this conversation.
      this.#machine.state.conversationId = null;
      this.#machine.state.kept = {};
    }
    const isOther = this.#row.command !== command || generation !== this.#launch.generation;
    this.#row = { ...this.#row, command };
    if (processId === null) return;
    // One that refused to begin, or was too late, never takes a prompt.
    const { stage, pending } = this.#machine.state.connection ?? { stage: null, pending: [] };
    const isIdle = stage === 'ready' && pending.length === 0;
    if (isOther || mustStartOver || !isIdle || !(await this.#isUsable(processId)))
      await this.#dropProcess(processId);
  }

  async #isUsable(processId: string): Promise<boolean> {
    try {
      return await this.#readLeftovers(processId);
    } catch (error) {
      // It ended, or its files went, while it was looked at.
      if (isGone(error)) return false;
      throw error;
    }
  }

  /** False if the process has ended, damaged its files, or does not stop talking. */
  async #readLeftovers(processId: string): Promise<boolean> {
    let status = await this.#channel.status(processId);
    if (status.state !== 'running' || status.damage !== null) return false;
    await this.#deliver(processId);
    const end = status.stdout.end;
    if (end - this.#scanner.offset > LEFTOVER_BYTES) return false;
    while (status.state === 'running' && this.#scanner.offset < end) {
      const output = await this.#read(processId, 0);
      if (output === null || output.bytes.length === 0) break;
      status = output.status;
      if (!(await this.#take(output))) return false;
      this.#save();
      await this.#acknowledge(processId);
    }
    this.#errors.discard(status);
    await this.#deliver(processId);
    return status.state === 'running' && status.damage === null;
  }

  /** The turn cannot go on with this process, and with no other. */
  async #giveUp(processId: string, outcome: AgentTurnOutcome): Promise<void> {
    this.#machine.fail(outcome);
    await this.#dropProcess(processId);
  }

  async #dropProcess(processId: string): Promise<void> {
    this.#machine.processEnded(null);
    await this.#replaceProcess(processId);
  }

  /** Its files are removed, always: a session has a bounded number of processes. */
  async #replaceProcess(processId: string): Promise<void> {
    try {
      this.#forgetProcess();
    } finally {
      await this.#removeProcess(processId);
    }
  }

  async #removeProcess(processId: string): Promise<void> {
    try {
      await this.#channel.remove(processId);
    } catch (error) {
      // With its container everything of it is gone as well.
      this.#options.log.debug('the files of an agent process stay', { session: this.sessionId, error });
    }
  }

  #forgetProcess(): void {
    this.#row = { ...this.#row, ...NO_PROCESS };
    this.#scanner = new LineScanner(0);
    this.#errors.reset();
    this.#accepted = 0;
    this.#save(true);
  }

  async #startProcess(turnId: string): Promise<void> {
    const processId = this.#options.ids.next('proc');
    const hasHistory = (await this.#options.handover(this.sessionId, turnId)) !== null;
    this.#row = { ...this.#row, processId, generation: this.#launch.generation };
    this.#machine.processStarted(this.#options.now(), hasHistory);
    // Before it starts: a supervisor that is killed here starts it, and no second one.
    this.#save();
    await failpoint('agent.before-start');
    await this.#launchProcess(processId);
    await failpoint('agent.after-start');
  }

  #launchProcess(id: string): Promise<ProcessStatus> {
    const { command, env } = this.#launch;
    return this.#channel.start({ id, argv: command, env, cwd: WORKING_DIRECTORY });
  }

  // A turn.

  async #follow(turnId: string, prompt: readonly ContentBlock[], stop: AbortSignal): Promise<void> {
    let retryMs: number = RETRY_MS.first;
    let isReattached = this.#row.processId !== null;
    while (!stop.aborted) {
      try {
        if (this.#pending !== null) this.#save();
        if (this.#machine.outcome !== null) return;
        if (isReattached && this.#row.processId !== null) await this.#reattach(this.#row.processId);
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
          this.#saveAtEnd();
          if (this.#pending === null) return;
        }
        isReattached = true;
        await this.#options.changes.wait(`agent:${this.sessionId}`, retryMs, stop);
        retryMs = Math.min(retryMs * 2, RETRY_MS.most);
      }
    }
  }

  /** After a lost connection or a new supervisor: what the process has received decides what may be sent. */
  async #reattach(processId: string): Promise<void> {
    const { turn } = this.#machine.state;
    const { stdoutOffset } = this.#row;
    let status = await this.#channel.status(processId);
    if (status.state === 'absent' && stdoutOffset === 0 && turn?.phase === 'waiting')
      status = await this.#launchProcess(processId);
    this.#accepted = Math.max(this.#accepted, status.inputAccepted);
    for (const { id } of [...this.#machine.state.waiting]) {
      const option = this.#options.answerTo(id);
      if (option !== null) this.#machine.answer(id, option);
    }
  }

  /** One round: send, read, store. */
  async #advance(turnId: string, prompt: readonly ContentBlock[], stop: AbortSignal): Promise<void> {
    if (this.#row.processId === null) await this.#startProcess(turnId);
    const processId = this.#row.processId ?? '';
    if (this.#machine.isReadyForPrompt) await this.#sendPrompt(turnId, prompt);
    if (this.#machine.isUrgent) this.#save();
    await this.#deliver(processId);
    if (this.outcomeOf(turnId) !== null) return;
    const output = await this.#read(processId, this.#waitMs(), stop);
    if (output !== null) {
      if (!(await this.#take(output))) return this.#giveUp(processId, UNREAD);
      await failpoint('agent.after-output');
      const errorOffset = this.#errors.offset;
      await this.#errors.read(processId, output.status);
      // An agent that only logs must be heard as well: it waits once its errors are not taken.
      if (this.#errors.offset > errorOffset) this.#firstUnstoredAt ??= performance.now();
      const isEnded = output.status.state === 'ended' || output.status.state === 'absent';
      if (isEnded && this.#scanner.offset >= output.status.stdout.end)
        return this.#onProcessEnded(processId, output.status);
      if (output.status.damage !== null) {
        throw new HoldfastError('agent_failed', 'The agent damaged the files of its process', {
          why: output.status.damage,
          next: 'programs must not change /run/holdfast; the next prompt starts the agent again',
        });
      }
    }
    this.#machine.tick(this.#options.now());
    if (this.#machine.outcome !== null) {
      this.#saveAtEnd();
      await this.#acknowledge(processId);
      await this.#deliver(processId);
    } else if (this.#isDue()) {
      this.#save();
      await this.#acknowledge(processId);
    }
  }

  async #sendPrompt(turnId: string, prompt: readonly ContentBlock[]): Promise<void> {
    const { connection } = this.#machine.state;
    const told =
      connection?.needsHandover === true ? await this.#options.handover(this.sessionId, turnId) : null;
    // A cancel may have come meanwhile.
    if (!this.#machine.isReadyForPrompt) return;
    const blocks: ContentBlock[] = told === null ? [...prompt] : [{ type: 'text', text: told }, ...prompt];
    if (connection?.can.image === false && blocks.some(({ type }) => type === 'image')) {
      this.#machine.notice('no_images', 'The agent does not take images: they were left out');
      this.#machine.sendPrompt(blocks.filter(({ type }) => type !== 'image'));
    } else this.#machine.sendPrompt(blocks);
    const { turn } = this.#machine.state;
    if (turn !== null) turn.promptEnd = this.#row.inputOffset + this.#machine.toSend.bytes;
    // Stored as sent before it can reach the process: it is never sent a second time.
    this.#save();
    await failpoint('agent.before-prompt');
  }

  async #onProcessEnded(processId: string, status: ProcessStatus): Promise<void> {
    const { turn } = this.#machine.state;
    const accepted = Math.max(this.#accepted, status.inputAccepted);
    const { connection } = this.#machine.state;
    const hasPrompt = turn?.promptEnd !== null && accepted >= (turn?.promptEnd ?? 0);
    // A process that is left from the last turn may end at any time; a new one that ends has a reason.
    const isUnlucky = connection?.how === 'warm' || turn?.phase === 'prompted';
    const canRestart = !hasPrompt && isUnlucky && this.#restarts < RESTARTS;
    if (canRestart) this.#restarts += 1;
    const tail = this.#errors.tail();
    this.#machine.processEnded(
      canRestart ? null : agentEndedOutcome(status.exitCode, this.#launch.command[0] ?? '', tail),
    );
    await this.#replaceProcess(processId);
  }

  /** Sends what is stored, in order. Bytes that the process has are not sent again. */
  async #deliver(processId: string): Promise<void> {
    for (;;) {
      const messages = this.#options.store.input(this.sessionId, this.#accepted);
      if (messages.length === 0) return;
      for (const { start, bytes } of messages) {
        const from = Math.max(start, this.#accepted);
        const written = await this.#write(processId, from, bytes.subarray(from - start));
        if (written === null) return;
        if (written.undecided) {
          const why = 'a crash left it unknown whether the agent received a message';
          return this.#giveUp(processId, interruptedOutcome(why));
        }
        this.#accepted = Math.max(this.#accepted, written.accepted);
        if (this.#accepted === this.#machine.state.turn?.promptEnd) await failpoint('agent.after-prompt');
        // Its input is full: it reads on later, and its output is read meanwhile.
        if (this.#accepted < start + bytes.length) return;
      }
    }
  }

  /** Null while no more is taken: so much input waits for the agent, or it has ended, which its output tells. */
  async #write(processId: string, from: number, bytes: Buffer) {
    try {
      return await this.#channel.write(processId, from, bytes);
    } catch (error) {
      if (error instanceof HoldfastError && (error.code === 'overloaded' || isGone(error))) return null;
      throw error;
    }
  }

  /** Null if somebody woke us up first. */
  async #read(id: string, waitMs: number, stop?: AbortSignal): Promise<ProcessOutput | null> {
    const wake = this.#wake.signal;
    const signal = stop === undefined ? wake : AbortSignal.any([wake, stop]);
    try {
      const request = {
        id,
        stream: 'stdout',
        offset: this.#scanner.offset,
        limit: READ_BYTES,
        waitMs,
      } as const;
      return await this.#channel.read(request, signal);
    } catch (error) {
      if (wake.aborted) return null;
      throw error;
    } finally {
      if (wake.aborted) this.#wake = new AbortController();
    }
  }

  /** False once the agent leaves too much of its input unread. Then it is not taken to the end, and must go. */
  async #take(output: ProcessOutput): Promise<boolean> {
    const { offset } = this.#scanner;
    if (output.offset > offset || output.offset + output.bytes.length < offset) {
      throw new HoldfastError('internal', 'The output of the agent has a gap', {
        why: `it was read up to ${offset}, and goes on at ${output.offset}`,
      });
    }
    const slice = new TimeSlice();
    const unread = this.#unread();
    for (const scanned of this.#scanner.push(output.bytes.subarray(offset - output.offset))) {
      if ('line' in scanned) this.#machine.receive(scanned.line, this.#options.now());
      else this.#machine.skipped(scanned.skipped, scanned.bytes);
      this.#firstUnstoredAt ??= performance.now();
      const { messages, bytes } = this.#machine.toSend;
      if (unread.messages + messages > UNREAD_LIMIT.messages || unread.bytes + bytes > UNREAD_LIMIT.bytes)
        return false;
      if (scanned.end <= this.#carefulUntil) this.#saveLine(scanned.end);
      if (slice.isUsedUp) {
        this.#publishLive();
        await slice.yieldToEventLoop();
      }
    }
    this.#publishLive();
    return true;
  }

  /** Answers that are stored for the agent. Its prompt may be as large as it is. */
  #unread(): InputSize {
    const promptEnd = this.#machine.state.turn?.promptEnd ?? 0;
    return this.#options.store.countInput(this.sessionId, Math.max(this.#accepted, promptEnd));
  }

  #publishLive(): void {
    for (const live of this.#machine.takeLive()) this.#options.onLive(this.sessionId, live);
  }

  #waitMs(): number {
    const now = this.#options.now();
    const { nextTick } = this.#machine;
    const toTick = nextTick === null ? POLL_MS : nextTick - now;
    const toStore =
      this.#firstUnstoredAt === null ? POLL_MS : this.#firstUnstoredAt + STORE.ms - performance.now();
    // Input that the process did not take is offered again soon.
    const toSend = this.#accepted < this.#row.inputOffset ? 100 : POLL_MS;
    const stillMs = this.#options.isStill(this.sessionId) ? 1000 : POLL_MS;
    const wait = Math.max(0, Math.ceil(Math.min(POLL_MS, toTick, toStore, toSend, stillMs)));
    if (stillMs !== POLL_MS) this.#machine.postpone(Math.max(wait, 1));
    return wait;
  }

  #isDue(): boolean {
    if (this.#machine.isUrgent) return true;
    if (this.#scanner.resumeAt.offset - this.#row.stdoutOffset >= STORE.bytes) return true;
    return this.#firstUnstoredAt !== null && performance.now() - this.#firstUnstoredAt >= STORE.ms;
  }

  // Storing.

  /**
   * Stores everything that the machine has collected, and the offset that it leads to. Errors: those of the store. What could
   * not be stored stays, and is stored first the next time.
   */
  #save(dropsInput = false): void {
    this.#storePending();
    this.#prepareStep(dropsInput);
    this.#storePending();
  }

  #prepareStep(dropsInput = false): void {
    const { offset, isSkipping } = this.#scanner.resumeAt;
    this.#prepare(this.#machine.takeCommit(), { stdoutOffset: offset, isSkipping }, dropsInput);
  }

  #prepare(
    commit: Commit,
    position: Pick<AgentConversationRow, 'stdoutOffset' | 'isSkipping'>,
    dropsInput: boolean,
  ): void {
    const added = dropsInput ? 0 : commit.lines.reduce((sum, line) => sum + line.length, 0);
    const errorOutput = this.#errors.take();
    this.#row = {
      ...this.#row,
      ...position,
      state: structuredClone(storedState(this.#machine.state)),
      stderrOffset: this.#errors.offset,
      inputOffset: this.#row.inputOffset + added,
    };
    const stored = dropsInput ? { ...commit, lines: [] } : commit;
    this.#pending = { commit: stored, row: this.#row, errorOutput, dropsInput };
  }

  #storePending(beside?: Beside): void {
    if (this.#pending === null) return;
    const step = this.#pending;
    try {
      this.#options.store.save({ ...step, accepted: this.#accepted }, beside);
    } catch (error) {
      const failure = HoldfastError.from(error, 'What the agent said could not be stored');
      this.#storeFailure = failure;
      if (!isTransient(failure)) this.#goBack(step);
      throw failure;
    }
    this.#pending = null;
    this.#stored = step.row;
    this.#storeFailure = null;
    this.#firstUnstoredAt = null;
    const { turn } = this.#machine.state;
    if (turn !== null) this.#options.changes.notify(turn.id);
  }

  /** To the last stored state: the same output is read again, and stored line by line, so that only what cannot be stored is lost. */
  #goBack({ row }: PendingStep): void {
    this.#pending = null;
    const stored = this.#options.store.get(this.sessionId);
    if (stored === null || stored.stdoutOffset >= row.stdoutOffset || row.stdoutOffset <= this.#carefulUntil)
      return;
    this.#carefulUntil = row.stdoutOffset;
    this.#load(stored);
    throw new HoldfastError('timeout', 'What the agent said could not be stored at once');
  }

  #load(stored: AgentConversationRow | null): void {
    if (stored === null) return;
    this.#row = stored;
    this.#stored = stored;
    this.#machine = this.#newMachine(stored.state);
    this.#scanner = new LineScanner(stored.stdoutOffset, stored.isSkipping);
    this.#errors.goTo(stored.stderrOffset);
  }

  /** Stores what one line leads to. A line that cannot be stored is left out, with a notice. */
  #saveLine(end: number): void {
    const before = this.#row;
    const position = { stdoutOffset: end, isSkipping: false };
    try {
      this.#prepare(this.#machine.takeCommit(), position, false);
      this.#storePending();
    } catch (error) {
      if (isTransient(HoldfastError.from(error))) throw error;
      this.#options.log.warn('a message of an agent is left out', { session: this.sessionId, error });
      this.#row = before;
      this.#machine = this.#newMachine(before.state);
      this.#machine.skipped('unstorable', end - before.stdoutOffset);
      this.#prepare(this.#machine.takeCommit(), position, false);
      this.#storePending();
    }
  }

  /** The outcome counts even where it cannot be stored: whoever records the end of the turn waits for space. */
  #saveAtEnd(): void {
    try {
      this.#save();
    } catch (error) {
      this.#options.log.warn('the end of an agent turn is not stored yet', {
        session: this.sessionId,
        error,
      });
    }
  }

  /** What is stored, and nothing else: the process forgets it. */
  async #acknowledge(processId: string): Promise<void> {
    await failpoint('agent.after-store');
    const { stdoutOffset, stderrOffset } = this.#stored;
    await this.#channel.acknowledge(processId, 'stdout', stdoutOffset);
    if (stderrOffset > 0) await this.#channel.acknowledge(processId, 'stderr', stderrOffset);
  }

  #newMachine(state: unknown): AcpMachine {
    const known = AcpStateSchema.safeParse(state);
    // A state of another version: the agent is started again, and told the conversation.
    return new AcpMachine(known.success ? known.data : NO_CONVERSATION, {
      version: this.#options.version,
      permissions: this.#launch.permissions,
      newPermissionId: () => this.#options.ids.next('perm'),
    });
  }

  #wakeUp(): void {
    this.#wake.abort();
    this.#options.changes.notify(`agent:${this.sessionId}`);
  }
}

/** The process has ended, or was never there. */
function isGone(error: unknown): boolean {
  return error instanceof HoldfastError && (error.code === 'not_found' || error.code === 'invalid_state');
}

/** A function, because the compiler takes what it has seen of a signal for constant. */
function isAborted(signal: AbortSignal): boolean {
  return signal.aborted;
}
