import { HoldfastError } from '../../../protocol/errors.ts';
import { TimeSlice } from '../../../protocol/time-slice.ts';
import type { ChangeNotifier } from '../../base/change-notifier.ts';
import type { Log } from '../../base/log.ts';
import { isTransient } from '../../sandboxes/transient-errors.ts';
import type { AgentConversationRow, InputSize } from '../../store/agent-conversations.ts';
import type { ProcessChannel, ProcessOutput } from '../../workspace/process-channel.ts';
import type { Beside, ConversationStore, ErrorOutput } from './conversation-store.ts';
import type { Commit, LiveText } from './effects.ts';
import { ErrorOutputReader } from './error-output.ts';
import { LineScanner } from './line-scanner.ts';
import type { AcpMachine } from './machine.ts';
import { NO_CONVERSATION, storedState } from './state.ts';

/** What an agent says is stored at the latest after this time, or after this much of its output. */
const STORE = { ms: 500, bytes: 512 * 1024 } as const;
/** Answers that an agent may leave unread, besides those that its process channel holds. */
const UNREAD_LIMIT = { messages: 1000, bytes: 2 ** 20 } as const;

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

export interface ConversationStepsOptions {
  readonly sessionId: string;
  /** Of a conversation that is not stored yet: the agent's command, as JSON. */
  readonly command: string;
  readonly channel: ProcessChannel;
  readonly store: ConversationStore;
  /** A machine that goes on from a stored state of any version. */
  readonly newMachine: (state: unknown) => AcpMachine;
  readonly changes: ChangeNotifier;
  /** Text that is not stored yet. */
  readonly onLive: (sessionId: string, live: LiveText) => void;
  readonly log: Log;
  /** ms since 1970. */
  readonly now: () => number;
}

/**
 * What is known of one conversation, and what of it is stored. Output of the agent goes through the machine; what comes of it is
 * stored in steps, each with the offset of the output that it leads to. Nothing is lost and nothing counts twice where a step
 * cannot be stored: it is stored first the next time, or the output is read once more.
 */
export class ConversationSteps {
  readonly errors: ErrorOutputReader;
  readonly #options: ConversationStepsOptions;
  #machine: AcpMachine;
  #row: AgentConversationRow;
  /** What of it is stored: nothing else may be acknowledged. */
  #stored: AgentConversationRow;
  #scanner: LineScanner;
  #accepted = 0;
  /** The step that could not be stored. */
  #pending: PendingStep | null = null;
  #storeFailure: HoldfastError | null = null;
  #firstUnstoredAt: number | null = null;
  /** Output up to here is stored line by line, because storing it at once failed. */
  #carefulUntil = 0;

  constructor(options: ConversationStepsOptions) {
    const { sessionId, command, channel, store, newMachine } = options;
    this.#options = options;
    this.#row = store.get(sessionId) ?? { ...NO_PROCESS, sessionId, state: NO_CONVERSATION, command };
    this.#machine = newMachine(this.#row.state);
    this.#scanner = new LineScanner(this.#row.stdoutOffset, this.#row.isSkipping);
    this.errors = new ErrorOutputReader(channel, this.#row.stderrOffset);
    this.#stored = this.#row;
  }

  /** Another one after a step that could not be stored: it must not be kept. */
  get machine(): AcpMachine {
    return this.#machine;
  }

  get row(): Readonly<AgentConversationRow> {
    return this.#row;
  }

  /** The offsets up to which the process may forget its output. */
  get stored(): Pick<AgentConversationRow, 'stdoutOffset' | 'stderrOffset'> {
    return this.#stored;
  }

  /** Output before it was taken. */
  get outputOffset(): number {
    return this.#scanner.offset;
  }

  /** Behind the last byte of input that the process has. */
  get accepted(): number {
    return this.#accepted;
  }

  /** A step waits that could not be stored. */
  get hasPending(): boolean {
    return this.#pending !== null;
  }

  /** Why what the agent says cannot be stored for now. */
  get storeFailure(): HoldfastError | null {
    return this.#storeFailure;
  }

  /** Until what was taken must be stored, ms; null: nothing waits. */
  get dueInMs(): number | null {
    return this.#firstUnstoredAt === null ? null : this.#firstUnstoredAt + STORE.ms - performance.now();
  }

  get isDue(): boolean {
    if (this.#machine.isUrgent) return true;
    if (this.#scanner.resumeAt.offset - this.#row.stdoutOffset >= STORE.bytes) return true;
    return this.dueInMs !== null && this.dueInMs <= 0;
  }

  /** The process has its input up to here. */
  accept(end: number): void {
    this.#accepted = Math.max(this.#accepted, end);
  }

  /** Stored with the next step. */
  changeRow(change: Partial<Pick<AgentConversationRow, 'command' | 'processId' | 'generation'>>): void {
    this.#row = { ...this.#row, ...change };
  }

  /** The process is gone, with what it has not read. Errors: those of the store. */
  forgetProcess(): void {
    this.#row = { ...this.#row, ...NO_PROCESS };
    this.#scanner = new LineScanner(0);
    this.errors.reset();
    this.#accepted = 0;
    this.save(true);
  }

  /** False once the agent leaves too much of its input unread. Then it is not taken to the end, and must go. */
  async take(output: ProcessOutput): Promise<boolean> {
    const { offset } = this.#scanner;
    if (output.offset > offset || output.offset + output.bytes.length < offset) {
      throw new HoldfastError('internal', 'The output of the agent has a gap', {
        why: `it was read up to ${offset}, and continues at ${output.offset}`,
      });
    }
    const slice = new TimeSlice();
    const unread = this.#unread();
    for (const scanned of this.#scanner.push(output.bytes.subarray(offset - output.offset))) {
      if ('line' in scanned) this.#machine.receive(scanned.line, this.#options.now());
      else this.#machine.skipped(scanned.skipped, scanned.bytes);
      this.noteUnstored();
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

  /** Something was taken that must be stored in time. */
  noteUnstored(): void {
    this.#firstUnstoredAt ??= performance.now();
  }

  /** Answers that are stored for the agent. Its prompt may be as large as it is. */
  #unread(): InputSize {
    const promptEnd = this.#machine.state.turn?.promptEnd ?? 0;
    return this.#options.store.countInput(this.#row.sessionId, Math.max(this.#accepted, promptEnd));
  }

  #publishLive(): void {
    for (const live of this.#machine.takeLive()) this.#options.onLive(this.#row.sessionId, live);
  }

  /**
   * Stores everything that the machine has collected, and the offset that it leads to. Errors: those of the store. What could
   * not be stored stays, and is stored first the next time.
   */
  save(dropsInput = false): void {
    this.storePending();
    this.prepare(dropsInput);
    this.storePending();
  }

  /** Makes a step of everything that the machine has collected, without storing it. */
  prepare(dropsInput = false): void {
    const { offset, isSkipping } = this.#scanner.resumeAt;
    this.#prepareUpTo(this.#machine.takeCommit(), { stdoutOffset: offset, isSkipping }, dropsInput);
  }

  #prepareUpTo(
    commit: Commit,
    position: Pick<AgentConversationRow, 'stdoutOffset' | 'isSkipping'>,
    dropsInput: boolean,
  ): void {
    const added = dropsInput ? 0 : commit.lines.reduce((sum, line) => sum + line.length, 0);
    const errorOutput = this.errors.take();
    this.#row = {
      ...this.#row,
      ...position,
      state: structuredClone(storedState(this.#machine.state)),
      stderrOffset: this.errors.offset,
      inputOffset: this.#row.inputOffset + added,
    };
    const stored = dropsInput ? { ...commit, lines: [] } : commit;
    this.#pending = { commit: stored, row: this.#row, errorOutput, dropsInput };
  }

  /** Stores the step that waits, if there is one; `beside` in its transaction. Errors: those of the store and of `beside`. */
  storePending(beside?: Beside): void {
    if (this.#pending === null) return;
    const step = this.#pending;
    try {
      this.#options.store.save({ ...step, accepted: this.#accepted }, beside);
    } catch (error) {
      const failure = HoldfastError.from(error, 'What the agent said could not be stored');
      this.#storeFailure = failure;
      if (!isTransient(failure)) this.#rewindTo(step);
      throw failure;
    }
    this.#pending = null;
    this.#stored = step.row;
    this.#storeFailure = null;
    this.#firstUnstoredAt = null;
    const { turn } = this.#machine.state;
    if (turn !== null) this.#options.changes.notify(turn.id);
  }

  /** The outcome counts even where it cannot be stored: whoever records the end of the turn waits for space. */
  saveAtEnd(): void {
    try {
      this.save();
    } catch (error) {
      this.#options.log.warn('the end of an agent turn is not stored yet', {
        session: this.#row.sessionId,
        error,
      });
    }
  }

  /** Goes on from what is stored, if anything is. */
  reload(): void {
    this.#load(this.#options.store.get(this.#row.sessionId));
  }

  /** To the last stored state: the same output is read again, and stored line by line, so that only what cannot be stored is lost. */
  #rewindTo({ row }: PendingStep): void {
    this.#pending = null;
    const stored = this.#options.store.get(this.#row.sessionId);
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
    this.#machine = this.#options.newMachine(stored.state);
    this.#scanner = new LineScanner(stored.stdoutOffset, stored.isSkipping);
    this.errors.seek(stored.stderrOffset);
  }

  /** Stores what one line leads to. A line that cannot be stored is left out, with a notice. */
  #saveLine(end: number): void {
    const before = this.#row;
    const position = { stdoutOffset: end, isSkipping: false };
    try {
      this.#prepareUpTo(this.#machine.takeCommit(), position, false);
      this.storePending();
    } catch (error) {
      if (isTransient(HoldfastError.from(error))) throw error;
      this.#options.log.warn('a message of an agent is left out', { session: before.sessionId, error });
      this.#row = before;
      this.#machine = this.#options.newMachine(before.state);
      this.#machine.skipped('unstorable', end - before.stdoutOffset);
      this.#prepareUpTo(this.#machine.takeCommit(), position, false);
      this.storePending();
    }
  }
}
