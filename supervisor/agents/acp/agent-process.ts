import { HoldfastError } from '../../../protocol/errors.ts';
import type { Permissions } from '../../../protocol/profile.ts';
import { failpoint } from '../../base/failpoints.ts';
import type { Ids } from '../../base/ids.ts';
import type { Log } from '../../base/log.ts';
import type { ProcessChannel, ProcessOutput, ProcessStatus } from '../../workspace/process-channel.ts';
import type { ConversationStore } from './conversation-store.ts';
import type { ConversationSteps } from './conversation-steps.ts';
import { interruptedOutcome } from './outcomes.ts';
import { WORKING_DIRECTORY } from './requests.ts';
import type { AgentTurnOutcome, BudgetLimits } from './state.ts';

const READ_BYTES = 256 * 1024;
/** What an agent may have written since its last turn. It waits in its own write beyond that. */
const LEFTOVER_BYTES = 64 * 2 ** 20;

/** How an agent is started, and what the session and its profile say about its turns. */
export interface AgentLaunch {
  readonly command: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Of the sandbox in which it runs. */
  readonly generation: number;
  readonly permissions: Permissions;
  readonly outputLimit: number;
  readonly budget: BudgetLimits;
}

export interface AgentProcessOptions {
  readonly sessionId: string;
  readonly steps: ConversationSteps;
  readonly channel: ProcessChannel;
  readonly store: ConversationStore;
  readonly ids: Pick<Ids, 'next'>;
  readonly log: Log;
  /** ms since 1970. */
  readonly now: () => number;
}

/**
 * The process of one session's agent: starts and removes it, sends it what is stored, in order, and reads what it says. Which
 * process that is stands in the row of the conversation.
 */
export class AgentProcess {
  readonly #options: AgentProcessOptions;
  readonly #steps: ConversationSteps;
  readonly #channel: ProcessChannel;
  #wake = new AbortController();

  constructor(options: AgentProcessOptions) {
    this.#options = options;
    this.#steps = options.steps;
    this.#channel = options.channel;
  }

  /** Starts a new one. `hasHistory`: the session has had a conversation that the agent should know. */
  async start(launch: AgentLaunch, hasHistory: boolean): Promise<void> {
    const processId = this.#options.ids.next('proc');
    this.#steps.changeRow({ processId, generation: launch.generation });
    this.#steps.machine.processStarted(this.#options.now(), hasHistory);
    // Before it starts: a supervisor that is killed here starts it, and no second one.
    this.#steps.save();
    await failpoint('agent.before-start');
    await this.#launch(processId, launch);
    await failpoint('agent.after-start');
  }

  #launch(id: string, { command, env }: AgentLaunch): Promise<ProcessStatus> {
    return this.#channel.start({ id, argv: command, env, cwd: WORKING_DIRECTORY });
  }

  /** After a lost connection or a new supervisor: what the process has received decides what may be sent. */
  async reattach(processId: string, launch: AgentLaunch): Promise<void> {
    const { turn } = this.#steps.machine.state;
    const { stdoutOffset } = this.#steps.row;
    let status = await this.#channel.status(processId);
    if (status.state === 'absent' && stdoutOffset === 0 && turn?.phase === 'waiting')
      status = await this.#launch(processId, launch);
    this.#steps.accept(status.inputAccepted);
  }

  /** Whether the process of the last turn is well. What it has said since belongs to no turn, and is read. */
  async isUsable(processId: string): Promise<boolean> {
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
    await this.deliver(processId);
    const end = status.stdout.end;
    if (end - this.#steps.outputOffset > LEFTOVER_BYTES) return false;
    while (status.state === 'running' && this.#steps.outputOffset < end) {
      const output = await this.read(processId, 0);
      // Somebody woke up a reader that had gone.
      if (output === null) continue;
      if (output.bytes.length === 0) break;
      status = output.status;
      if (!(await this.#steps.take(output))) return false;
      this.#steps.save();
      await this.acknowledge(processId);
    }
    this.#steps.errors.discard(status);
    await this.deliver(processId);
    return status.state === 'running' && status.damage === null;
  }

  /** As `ProcessChannel.kill`. */
  async kill(processId: string, graceMs: number): Promise<void> {
    await this.#channel.kill(processId, graceMs);
  }

  /** The turn cannot go on with this process, and with no other. */
  async abandon(processId: string, outcome: AgentTurnOutcome): Promise<void> {
    this.#steps.machine.fail(outcome);
    await this.drop(processId);
  }

  /** The next turn, or the rest of this one, has another process. */
  async drop(processId: string): Promise<void> {
    this.#steps.machine.processEnded(null, false);
    await this.forget(processId);
  }

  /** Its files are removed, always: a session has a bounded number of processes. */
  async forget(processId: string): Promise<void> {
    try {
      this.#steps.forgetProcess();
    } finally {
      await this.#remove(processId);
    }
  }

  async #remove(processId: string): Promise<void> {
    try {
      await this.#channel.remove(processId);
    } catch (error) {
      // With its container everything of it is gone as well.
      const session = this.#options.sessionId;
      this.#options.log.debug('the files of an agent process stay', { session, error });
    }
  }

  /** Sends what is stored, in order. Bytes that the process has are not sent again. */
  async deliver(processId: string): Promise<void> {
    for (;;) {
      const messages = this.#options.store.input(this.#options.sessionId, this.#steps.accepted);
      if (messages.length === 0) return;
      for (const { start, bytes } of messages) {
        const from = Math.max(start, this.#steps.accepted);
        const written = await this.#write(processId, from, bytes.subarray(from - start));
        if (written === null) return;
        if (written.undecided) {
          const why = 'a crash left it unknown whether the agent received a message';
          return this.abandon(processId, interruptedOutcome(why));
        }
        this.#steps.accept(written.accepted);
        const { turn } = this.#steps.machine.state;
        if (this.#steps.accepted === turn?.promptEnd) await failpoint('agent.after-prompt');
        // Its input is full: it reads on later, and its output is read meanwhile.
        if (this.#steps.accepted < start + bytes.length) return;
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

  /** What it has said since the last time, after at most `waitMs`. Null if somebody woke us up first. */
  async read(id: string, waitMs: number, stop?: AbortSignal): Promise<ProcessOutput | null> {
    const wake = this.#wake.signal;
    const signal = stop === undefined ? wake : AbortSignal.any([wake, stop]);
    try {
      const request = {
        id,
        stream: 'stdout',
        offset: this.#steps.outputOffset,
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

  /** Whoever waits for its output looks again at what there is to do. */
  wakeReader(): void {
    this.#wake.abort();
  }

  /** What is stored, and nothing else: the process forgets it. */
  async acknowledge(processId: string): Promise<void> {
    await failpoint('agent.after-store');
    const { stdoutOffset, stderrOffset } = this.#steps.stored;
    await this.#channel.acknowledge(processId, 'stdout', stdoutOffset);
    if (stderrOffset > 0) await this.#channel.acknowledge(processId, 'stderr', stderrOffset);
  }
}

/** The process has ended, or was never there. */
function isGone(error: unknown): boolean {
  return error instanceof HoldfastError && (error.code === 'not_found' || error.code === 'invalid_state');
}
