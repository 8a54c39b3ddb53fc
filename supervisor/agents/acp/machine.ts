import type { ContentBlock } from '@agentclientprotocol/sdk';
import type { PermissionOption } from '../../../protocol/agent-events.ts';
import type { Permissions } from '../../../protocol/profile.ts';
import { AgentSettings } from './agent-settings.ts';
import { Answers } from './answers.ts';
import { cutText } from './bounded-text.ts';
import type { Commit, LiveText } from './effects.ts';
import { Opening } from './opening.ts';
import { Outbox, DEADLINES_MS, deadlineOf } from './outbox.ts';
import { CANCELLED } from './outcomes.ts';
import * as requests from './requests.ts';
import {
  type AcpState,
  type AgentTurn,
  type AgentTurnOutcome,
  type BudgetLimits,
  type Connection,
  type Wanted,
  newBudget,
} from './state.ts';
import { TurnBudget } from './turn-budget.ts';
import { TurnContent } from './turn-content.ts';
import { WaitingPermissions } from './waiting-permissions.ts';
import {
  CANCEL_REQUEST,
  CancelRequestSchema,
  FROM_AGENT,
  RPC_ERRORS,
  type RpcId,
  RpcIdSchema,
  UpdateParamsSchema,
} from './wire.ts';

export interface MachineOptions {
  /** Our version, for the agent. */
  readonly version: string;
  /** What the profile of the turn answers: a redeploy may have changed it since the last one. */
  readonly permissions: () => Permissions;
  /** Creates `perm-…`. */
  readonly newPermissionId: () => string;
}

export interface BegunTurn extends Pick<AgentTurn, 'id' | 'model' | 'choices' | 'limitBytes'> {
  readonly budget: BudgetLimits;
}

/**
 * The client's side of the Agent Client Protocol, without input and output of its own: messages and times go in, and events,
 * permissions and messages to the agent come out with `takeCommit`. It is as deterministic as the ids that it is given. Its `state`
 * is plain data; a machine that is made from a stored state goes on where that one was.
 *
 * It never trusts an agent: what is missing, unknown, too large, too often or out of order costs a detail, a notice or the turn,
 * and never the session.
 */
export class AcpMachine {
  readonly state: AcpState;
  readonly #options: MachineOptions;
  readonly #outbox: Outbox;
  readonly #settings: AgentSettings;
  readonly #opening: Opening;
  readonly #answers: Answers;
  readonly #permissions: WaitingPermissions;
  readonly #budget: TurnBudget;
  #content: TurnContent | null;

  constructor(state: AcpState, options: MachineOptions) {
    this.state = structuredClone(state);
    this.#options = options;
    this.#outbox = new Outbox(this.state);
    this.#settings = new AgentSettings(this.state, this.#outbox);
    this.#opening = new Opening(this.state, this.#outbox, this.#settings, (outcome) => this.fail(outcome));
    this.#permissions = new WaitingPermissions(this.state, this.#outbox, options);
    const parts = {
      state: this.state,
      outbox: this.#outbox,
      end: (outcome: AgentTurnOutcome) => this.fail(outcome),
    };
    const { newPermissionId } = options;
    this.#budget = new TurnBudget({ ...parts, permissions: this.#permissions, newPermissionId });
    this.#answers = new Answers({
      ...parts,
      settings: this.#settings,
      opening: this.#opening,
      budget: this.#budget,
    });
    const { turn } = this.state;
    this.#content = turn === null ? null : this.#contentOf(turn);
  }

  /** Something must be stored and sent without delay: somebody waits for it. */
  get isUrgent(): boolean {
    return this.#outbox.isUrgent;
  }

  get outcome(): AgentTurnOutcome | null {
    return this.state.turn?.outcome ?? null;
  }

  /** The agent takes the prompt of the turn now. */
  get isReadyForPrompt(): boolean {
    const { turn, connection } = this.state;
    return turn?.phase === 'waiting' && connection?.stage === 'ready';
  }

  /** The messages that the next commit sends. */
  get toSend(): { readonly messages: number; readonly bytes: number } {
    return this.#outbox.toSend;
  }

  /** The agent goes on beyond its budget, though it was told to stop. */
  isUnstoppable(now: number): boolean {
    return this.#budget.deadline !== null && now >= this.#budget.deadline;
  }

  /** When `tick` has something to do, ms since 1970; null: never. */
  get nextTick(): number | null {
    const { connection } = this.state;
    if (connection === null) return null;
    const deadlines = connection.pending.flatMap(({ deadline }) => deadline ?? []);
    if (this.#budget.deadline !== null) deadlines.push(this.#budget.deadline);
    if (connection.stage === 'settling') deadlines.push(Math.min(connection.settledAt, connection.settledBy));
    return deadlines.length === 0 ? null : Math.min(...deadlines);
  }

  // Begin and end of turns and processes.

  beginTurn({ budget, ...turn }: BegunTurn, now: number): void {
    this.endTurn();
    this.#settings.report();
    const begun: AgentTurn = {
      ...turn,
      phase: 'waiting',
      isCancelled: false,
      promptEnd: null,
      messages: 0,
      tools: {},
      permissions: 0,
      notices: 0,
      noticed: [],
      storedBytes: 0,
      isOverLimit: false,
      budget: newBudget(budget),
      isContinuing: false,
      outcome: null,
    };
    this.state.turn = begun;
    this.#content = this.#contentOf(begun);
    const { connection } = this.state;
    if (connection === null) return;
    for (const pending of connection.pending) pending.deadline = deadlineOf(pending.what, now);
    if (connection.stage !== 'ready') return;
    connection.how = 'warm';
    connection.why = null;
    this.#settings.apply(connection, now);
  }

  /** The turn is over, however it ended: nobody can answer its permissions any more, and what comes later is not its own. */
  endTurn(): void {
    const { turn } = this.state;
    if (turn === null) return;
    this.#permissions.cancelAll();
    this.#flush();
    this.state.turn = null;
    this.#content = null;
  }

  /** A process of the agent runs. `hasHistory`: the session has had a conversation that the agent should know. */
  processStarted(now: number, hasHistory: boolean): void {
    const connection: Connection = {
      stage: 'initializing',
      nextId: 1,
      pending: [],
      name: '',
      version: '',
      can: { load: false, resume: false, image: false, embed: false },
      how: 'new',
      why: null,
      needsHandover: hasHistory,
      settings: [],
      settledAt: 0,
      settledBy: 0,
    };
    this.#settings.recordOffered();
    this.state.connection = connection;
    this.#outbox.dropLines();
    this.#outbox.request(connection, 'initialize', requests.initialize(this.#options.version), now);
  }

  /**
   * Its process is gone. `outcome`: of the turn, if it cannot go on with another process. `isByItself`: nobody ended it, and its
   * sandbox still runs. One that the kernel killed at the limit of memory counts as well: the same memory would kill the next one.
   */
  processEnded(outcome: AgentTurnOutcome | null, isByItself: boolean): void {
    // After a cancel the kill of a process that does not stop cannot be told from an end of its own.
    if (isByItself && this.state.turn?.isCancelled !== true) this.#opening.onProcessEndedByItself();
    // What it was set to last counts for the next process.
    this.#settings.report();
    this.#settings.recordOffered();
    this.state.connection = null;
    const { turn } = this.state;
    this.#permissions.cancelAll();
    this.#outbox.dropLines();
    if (turn?.outcome !== null) return;
    if (outcome !== null) this.#end(turn, turn.isCancelled ? CANCELLED : outcome);
    else {
      turn.phase = 'waiting';
      turn.promptEnd = null;
      this.#budget.onProcessEnded();
    }
  }

  /** Something of ours failed, so that the turn cannot go on. */
  fail(outcome: AgentTurnOutcome): void {
    const { turn } = this.state;
    if (turn?.outcome === null) this.#end(turn, outcome);
  }

  sendPrompt(blocks: ContentBlock[]): void {
    const { turn, connection, conversationId } = this.state;
    if (turn === null || connection === null || conversationId === null) return;
    turn.phase = 'prompted';
    connection.needsHandover = false;
    const { name, version, how, why } = connection;
    const isKnown = turn.isContinuing && how === 'warm';
    if (!isKnown)
      this.#outbox.emit({
        type: 'agent.connected',
        data: { turnId: turn.id, name, version, conversationId, how, why },
        bytes: null,
      });
    this.#outbox.request(connection, 'prompt', requests.prompt(conversationId, blocks), 0);
  }

  cancel(): void {
    const { turn, conversationId } = this.state;
    if (turn === null || turn.isCancelled || turn.outcome !== null) return;
    turn.isCancelled = true;
    const hasStopped = turn.budget.question?.hasStopped === true;
    if (
      turn.phase === 'prompted' &&
      !hasStopped &&
      conversationId !== null &&
      this.state.connection !== null
    ) {
      this.#outbox.send(requests.cancelLine(conversationId));
      // Some agents never end a cancelled turn while a request of theirs is open.
      this.#permissions.cancelAll();
    } else this.#end(turn, CANCELLED);
  }

  /** A person answered. The row and the event are stored by whoever took the answer. */
  answer(permissionId: string, option: PermissionOption): void {
    if (!this.#budget.answer(permissionId, option)) this.#permissions.answer(permissionId, option);
  }

  /** What people want of the agent's settings has changed: it reaches the agent while its turn runs. */
  choose(wanted: Wanted, now: number): void {
    this.#settings.choose(wanted, now);
  }

  tick(now: number): void {
    const { connection } = this.state;
    if (connection === null) return;
    if (connection.stage === 'settling' && now >= Math.min(connection.settledAt, connection.settledBy)) {
      this.#settings.apply(connection, now);
    }
    const late = connection.pending.filter(({ deadline }) => deadline !== null && now >= deadline);
    if (late.length === 0) return;
    connection.pending = connection.pending.filter((one) => !late.includes(one));
    for (const pending of late) this.#answers.onLate(connection, pending, now);
  }

  /** Time in which the agent could not run: its deadlines do not come nearer. */
  postpone(ms: number): void {
    const { connection } = this.state;
    if (connection === null) return;
    for (const pending of connection.pending) if (pending.deadline !== null) pending.deadline += ms;
    connection.settledAt += ms;
    connection.settledBy += ms;
    this.#budget.postpone(ms);
  }

  /** Everything since the last time, and the state is what it leads to. */
  takeCommit(): Commit {
    this.#flush();
    return this.#outbox.take();
  }

  takeLive(): LiveText[] {
    return this.#content?.takeLive() ?? [];
  }

  // Messages of the agent.

  /** Takes one line of at most `LINE_LIMITS`. */
  receive(line: Buffer, now: number): void {
    let message: unknown;
    try {
      message = JSON.parse(line.toString('utf8'));
    } catch {
      this.#outbox.notice('not_json', 'The agent wrote something that is not a message of the protocol');
      return;
    }
    if (typeof message !== 'object' || message === null || Array.isArray(message)) {
      this.#outbox.notice('not_a_message', 'The agent wrote JSON that is not a message of the protocol');
      return;
    }
    const { id, method, params } = message as { id?: unknown; method?: unknown; params?: unknown };
    const rpcId = RpcIdSchema.safeParse(id);
    if (typeof method !== 'string') {
      if (typeof id === 'number') this.#answers.receive(id, message, now);
      else this.#outbox.notice('unknown_answer', 'The agent answered a request that was not made');
    } else if (id === undefined || id === null) this.#onNotification(method, params, line.length, now);
    else if (rpcId.success) this.#onRequest(rpcId.data, method, params, line.length);
    else
      this.#outbox.notice('bad_id', 'The agent made a request whose id is neither a number nor a short text');
  }

  /** `isRepeated`: more than once in a turn. */
  notice(code: string, text: string, isRepeated = false): void {
    this.#outbox.notice(code, text, isRepeated);
  }

  skipped(why: 'too_long' | 'too_deep' | 'too_many_values' | 'unstorable', bytes: number): void {
    const reason = {
      too_long: 'it is too long',
      too_deep: 'it nests too deep',
      too_many_values: 'it has too many values',
      unstorable: 'it could not be stored',
    }[why];
    this.#outbox.notice('message_skipped', `A message of ${bytes} bytes was left out: ${reason}`, true);
  }

  #onNotification(method: string, params: unknown, size: number, now: number): void {
    if (method === FROM_AGENT.session_update) this.#onUpdate(params, size, now);
    else if (method === CANCEL_REQUEST) {
      const { success, data } = CancelRequestSchema.safeParse(params);
      if (success) this.#permissions.withdraw(data.requestId);
    } else if (!method.startsWith('_') && !method.startsWith('$/')) {
      this.#outbox.notice(
        `notification:${method}`,
        `The agent sent ${cutText(method, 100)}, which is not known here`,
      );
    }
  }

  #onUpdate(params: unknown, size: number, now: number): void {
    const { connection, conversationId, turn } = this.state;
    const parsed = UpdateParamsSchema.safeParse(params);
    if (!parsed.success) {
      this.#outbox.notice('bad_update', 'The agent sent an update that cannot be read');
      return;
    }
    const { sessionId, update } = parsed.data;
    if (connection === null) return;
    if (connection.stage === 'settling') this.#opening.postponeSettling(connection, now);
    const loading = connection.pending.find(({ what }) => what === 'load');
    if (loading !== undefined) loading.deadline = now + DEADLINES_MS.load;
    if (this.#settings.onUpdate(connection, update)) return;
    // What a load replays is in our history already.
    if (loading !== undefined || connection.stage === 'settling' || turn?.outcome !== null) return;
    if (
      conversationId !== null &&
      sessionId !== undefined &&
      sessionId !== null &&
      sessionId !== conversationId
    ) {
      this.#outbox.notice('other_conversation', 'The agent sent an update of another conversation');
      return;
    }
    if (turn.isOverLimit) return;
    this.#content?.apply(update, size, now);
  }

  #onRequest(id: RpcId, method: string, params: unknown, size: number): void {
    if (method === FROM_AGENT.session_request_permission) {
      this.#permissions.onRequest(id, params, size, this.#content);
      return;
    }
    this.#outbox.send(
      requests.errorLine(id, RPC_ERRORS.methodNotFound, 'this client does not offer that method'),
    );
    if (!method.startsWith('_'))
      this.#outbox.notice(
        `request:${method}`,
        `The agent asked for ${cutText(method, 100)}, which is not offered`,
      );
  }

  #contentOf(turn: AgentTurn): TurnContent {
    return new TurnContent(turn, this.#outbox, (usage, now) => this.#budget.count(usage, now));
  }

  #end(turn: AgentTurn, outcome: AgentTurnOutcome): void {
    this.#permissions.cancelAll();
    this.#flush();
    turn.phase = 'ended';
    turn.outcome = outcome;
  }

  /** Makes events of everything that is collected. */
  #flush(): void {
    this.#content?.flush();
    if (this.state.turn !== null) this.#settings.report();
  }
}
