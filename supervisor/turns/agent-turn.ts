import type { Profile } from '../../protocol/profile.ts';
import { PROFILE_DEFAULTS, permissionsOf } from '../../protocol/profile.ts';
import { ABSENT_TURN, type TurnProgress } from '../../sidecar/wire.ts';
import type { AgentConversations } from '../agents/acp/agent-conversations.ts';
import type { ChangeNotifier } from '../base/change-notifier.ts';
import type { SessionRow } from '../store/sessions.ts';
import type { TurnRow } from '../store/turns.ts';
import type { TurnOutcome } from './turn-records.ts';

const RUNNING: TurnProgress = { ...ABSENT_TURN, state: 'running' };
/** No supervisor has begun it. */
export const NOT_BEGUN = ABSENT_TURN;
/** Nothing killed the program of an agent that says how it ended. */
const ENDED: TurnProgress = { ...RUNNING, state: 'ended', exitCode: 0 };

/** The conversations with agents, as turns use them. */
export type AgentTurns = Pick<
  AgentConversations,
  'begin' | 'hasBegun' | 'outcomeOf' | 'isOverLimit' | 'storeFailure' | 'cancel' | 'stop' | 'end'
>;

export interface AgentTurnOptions {
  readonly conversations: AgentTurns;
  readonly changes: ChangeNotifier;
  /** Notified when the turn should be looked at. */
  readonly wakeKey: string;
  readonly shutdown: AbortSignal;
}

/** A turn that is a prompt to an agent which stays: for the state machine of a turn, a program that reports how it goes. */
export class AgentTurn {
  readonly #turn: TurnRow;
  readonly #options: AgentTurnOptions;

  constructor(turn: TurnRow, options: AgentTurnOptions) {
    this.#turn = turn;
    this.#options = options;
  }

  /** A supervisor has begun it: the agent may have the prompt. */
  get hasBegun(): boolean {
    return this.#options.conversations.hasBegun(this.#turn.sessionId, this.#turn.id);
  }

  /** Sends the prompt, unless that was done, also by an earlier supervisor. `isCancelled`: a prompt that was not sent is never sent. */
  async begin(
    session: SessionRow,
    agent: AcpAgent,
    env: Readonly<Record<string, string>>,
    isCancelled: boolean,
  ): Promise<TurnProgress> {
    const { id, sessionId, input, attachments, stderrBytes } = this.#turn;
    const { profile, command } = agent;
    await this.#options.conversations.begin(
      { id, sessionId, input, attachments, stderrBytes, isCancelled },
      {
        command,
        env,
        generation: session.generation,
        permissions: permissionsOf(profile),
        outputLimit: profile.limits?.output ?? PROFILE_DEFAULTS.limits.output,
        budget: { tokens: profile.limits?.tokens ?? null, cost: profile.limits?.cost ?? null },
      },
    );
    return this.#report();
  }

  /** Waits up to `waitMs` for the end. */
  async progress(waitMs: number): Promise<TurnProgress> {
    const { changes, wakeKey, shutdown } = this.#options;
    if (this.#report().state === 'running') await changes.wait(wakeKey, waitMs, shutdown);
    return this.#report();
  }

  /** What came is stored as it comes. Errors: why it cannot be stored for now. */
  stored(): { readonly isComplete: boolean; readonly isOverLimit: boolean } {
    const { conversations } = this.#options;
    const failure = conversations.storeFailure(this.#turn.sessionId);
    if (failure !== null) throw failure;
    return { isComplete: true, isOverLimit: conversations.isOverLimit(this.#turn.sessionId, this.#turn.id) };
  }

  async cancel(): Promise<void> {
    await this.#options.conversations.cancel(this.#turn.sessionId, this.#turn.id);
  }

  outcome(): TurnOutcome {
    const outcome = this.#options.conversations.outcomeOf(this.#turn.sessionId, this.#turn.id);
    const { status, error } = outcome ?? { status: 'interrupted' as const, error: null };
    return { status, exitCode: null, output: null, error };
  }

  /** Before the end is recorded. */
  async stop(): Promise<void> {
    await this.#options.conversations.stop(this.#turn.sessionId);
  }

  /** Stores what is not stored yet, and then the end, all of it at once. */
  end(recordEnd: () => void): void {
    this.#options.conversations.end(this.#turn.sessionId, this.#turn.id, recordEnd);
  }

  #report(): TurnProgress {
    const outcome = this.#options.conversations.outcomeOf(this.#turn.sessionId, this.#turn.id);
    return outcome === null ? RUNNING : ENDED;
  }
}

export interface AcpAgent {
  readonly profile: Profile;
  readonly command: readonly string[];
}
