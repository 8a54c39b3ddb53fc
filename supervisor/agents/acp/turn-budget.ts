import type { PermissionOption } from '../../../protocol/agent-events.ts';
import type { Outbox } from './outbox.ts';
import { stoppedAtBudgetOutcome } from './outcomes.ts';
import * as requests from './requests.ts';
import type { AcpState, AgentTurn, AgentTurnOutcome } from './state.ts';
import type { WaitingPermissions } from './waiting-permissions.ts';

/** From the question to the end of the process, if the agent does not stop meanwhile. */
const STOP_MS = 10_000;

const OPTIONS: readonly PermissionOption[] = [
  { id: 'more', name: 'Go on, and ask again after as much', kind: 'allow_once' },
  { id: 'unlimited', name: 'Go on without a limit in this turn', kind: 'allow_always' },
  { id: 'stop', name: 'Stop the turn', kind: 'reject_once' },
];

export interface TurnBudgetOptions {
  readonly state: AcpState;
  readonly outbox: Outbox;
  readonly permissions: WaitingPermissions;
  /** Creates `perm-…`. */
  readonly newPermissionId: () => string;
  /** Ends the turn that runs, if it has no outcome yet. */
  readonly end: (outcome: AgentTurnOutcome) => void;
}

/** What the agent reports; null: it does not. */
export interface Usage {
  /** Tokens in its context. */
  readonly used: number | null;
  /** Since its conversation began. */
  readonly cost: { readonly amount: number; readonly currency: string } | null;
}

/**
 * What a turn may use, as the agent counts it. Beyond it the agent is told to stop, and a person is asked: then it is prompted to go on,
 * or the turn ends. The question is a row like a permission, so that it waits for whoever answers first, also over a restart.
 */
export class TurnBudget {
  readonly #options: TurnBudgetOptions;

  constructor(options: TurnBudgetOptions) {
    this.#options = options;
  }

  /** When an agent that was told to stop is ended, ms since 1970; null: it has stopped, or was not told. */
  get deadline(): number | null {
    const question = this.#turn?.budget.question;
    return question === undefined || question === null || question.hasStopped ? null : question.deadline;
  }

  get #turn(): AgentTurn | null {
    return this.#options.state.turn;
  }

  /** The agent reports what it has used. A context that got smaller was summarized; a cost that did was counted from zero. */
  count({ used, cost }: Usage, now: number): void {
    const { reported } = this.#options.state;
    const budget = this.#turn?.budget;
    if (used !== null) {
      if (budget !== undefined) budget.tokens.used += Math.max(0, used - reported.tokens);
      if (budget !== undefined) budget.tokens.isReported = true;
      reported.tokens = used;
    }
    if (cost !== null) {
      const more = cost.amount >= reported.cost ? cost.amount - reported.cost : cost.amount;
      if (budget !== undefined) budget.cost.used += more;
      if (budget !== undefined) budget.cost.isReported = true;
      if (budget !== undefined) budget.currency = /^[A-Za-z]{1,10}$/.test(cost.currency) ? cost.currency : '';
      reported.cost = cost.amount;
    }
    this.#askIfOver(now);
  }

  /** A person has answered. False if the permission is not a question about the budget. */
  answer(permissionId: string, { id }: PermissionOption): boolean {
    const turn = this.#turn;
    const question = turn?.budget.question ?? null;
    if (turn === null || question?.id !== permissionId) return false;
    const { tokens, cost } = turn.budget;
    this.#options.permissions.take(permissionId);
    question.answer = id === 'stop' ? 'stop' : 'go';
    for (const one of [tokens, cost])
      one.limit = one.step === null || id === 'unlimited' ? null : one.used + one.step;
    if (question.hasStopped) this.#continueTurn(turn);
    return true;
  }

  /**
   * The agent's prompt has ended. True if it did so because it was told to, and the turn waits for its question. An agent that was done just
   * then says so with `end_turn`, and its turn ends.
   */
  onPromptEnded(reason: string | null): boolean {
    const turn = this.#turn;
    if (turn === null) return false;
    const { question } = turn.budget;
    if (question === null || reason === 'end_turn') {
      this.#noticeAtEnd(turn);
      return false;
    }
    question.hasStopped = true;
    if (question.answer !== null) this.#continueTurn(turn);
    return true;
  }

  /** The process is gone, and the question with it: the next process is asked again. What a person answered counts. */
  onProcessEnded(): void {
    const turn = this.#turn;
    if (turn === null) return;
    const answer = turn.budget.question?.answer ?? null;
    turn.budget.question = null;
    if (answer === 'stop') this.#options.end(stoppedAtBudgetOutcome(describeUse(turn)));
  }

  postpone(ms: number): void {
    const { question = null } = this.#turn?.budget ?? {};
    if (question !== null) question.deadline += ms;
  }

  #askIfOver(now: number): void {
    const { permissions, outbox, newPermissionId, state } = this.#options;
    const turn = this.#turn;
    if (turn?.phase !== 'prompted' || turn.isCancelled || state.conversationId === null) return;
    const over = describeOver(turn);
    if (over === null || turn.budget.question !== null) return;
    // Some agents never stop while a request of theirs is open.
    permissions.cancelAll();
    outbox.send(requests.cancelLine(state.conversationId));
    const id = newPermissionId();
    turn.budget.question = { id, hasStopped: false, answer: null, deadline: now + STOP_MS };
    permissions.ask({ id, title: `${over}. Go on?`, options: [...OPTIONS] });
  }

  /** The agent has stopped, and a person has answered. */
  #continueTurn(turn: AgentTurn): void {
    const { connection } = this.#options.state;
    const answer = turn.budget.question?.answer;
    if (answer === 'stop') {
      this.#options.end(stoppedAtBudgetOutcome(describeUse(turn)));
      return;
    }
    turn.budget.question = null;
    turn.phase = 'waiting';
    turn.promptEnd = null;
    turn.isContinuing = true;
    if (connection === null) return;
    connection.how = 'warm';
    connection.why = null;
  }

  #noticeAtEnd(turn: AgentTurn): void {
    const { tokens, cost, question } = turn.budget;
    const { outbox } = this.#options;
    const unknown = [
      ...(tokens.step !== null && !tokens.isReported ? ['limits.tokens'] : []),
      ...(cost.step !== null && !cost.isReported ? ['limits.cost'] : []),
    ];
    for (const limit of unknown)
      outbox.notice(`unknown:${limit}`, `${limit} had no effect: the agent did not report what it used`);
    if (question !== null)
      outbox.notice('over_budget', `The turn was done when it had used its budget: ${describeUse(turn)}`);
  }
}

function describeOver({ budget: { tokens, cost, currency } }: AgentTurn): string | null {
  if (tokens.limit !== null && tokens.used > tokens.limit)
    return `The turn has used ${shown(tokens.used)} tokens of ${shown(tokens.limit)}`;
  if (cost.limit !== null && cost.used > cost.limit)
    return `The turn has cost ${`${shown(cost.used)} ${currency}`.trim()} of ${shown(cost.limit)}`;
  return null;
}

function describeUse({ budget: { tokens, cost, currency } }: AgentTurn): string {
  const parts = [
    ...(tokens.isReported ? [`${shown(tokens.used)} tokens`] : []),
    ...(cost.isReported ? [`${shown(cost.used)} ${currency}`.trim()] : []),
  ];
  return `it used ${parts.join(' and ')}`;
}

function shown(amount: number): string {
  return amount.toLocaleString('en-US', { maximumFractionDigits: 4 });
}
