import { cutText } from './bounded-text.ts';
import type { AgentSettings } from './agent-settings.ts';
import type { Opening } from './opening.ts';
import { type Outbox, DEADLINES_MS } from './outbox.ts';
import { CANCELLED, refusedOutcome, silentOutcome, stoppedOutcome } from './outcomes.ts';
import type { AcpState, AgentTurnOutcome, Connection, PendingRequest } from './state.ts';
import type { TurnBudget } from './turn-budget.ts';
import { PromptResultSchema, type RpcError, RpcErrorSchema } from './wire.ts';

export interface AnswersOptions {
  readonly state: AcpState;
  readonly outbox: Outbox;
  readonly settings: AgentSettings;
  readonly opening: Opening;
  readonly budget: TurnBudget;
  /** Ends the turn that runs, if it has no outcome yet. */
  readonly end: (outcome: AgentTurnOutcome) => void;
}

/** What the agent answers to our requests, and what follows where it does not answer in time. */
export class Answers {
  readonly #options: AnswersOptions;

  constructor(options: AnswersOptions) {
    this.#options = options;
  }

  receive(id: number, message: object, now: number): void {
    const { state, outbox, settings, opening } = this.#options;
    const { connection } = state;
    const at = connection?.pending.findIndex((one) => one.id === id) ?? -1;
    const [pending] = connection === null || at === -1 ? [] : connection.pending.splice(at, 1);
    if (connection === null || pending === undefined) {
      outbox.notice('unknown_answer', 'The agent answered a request that was not made, or answered twice');
      return;
    }
    const { result, error } = message as { result?: unknown; error?: unknown };
    const failure =
      error === undefined || error === null
        ? null
        : RpcErrorSchema.catch({ code: 0, message: 'unknown' }).parse(error);
    switch (pending.what) {
      case 'initialize':
        if (failure === null) opening.onInitialized(connection, result, now);
        else opening.refuse('to begin', failure);
        return;
      case 'new':
      case 'load':
      case 'resume':
        if (failure === null) opening.onOpened(connection, pending.what, result, now);
        else opening.onNotOpened(connection, pending.what, cutText(failure.message, 1000), failure, now);
        return;
      case 'set':
        if (failure === null) settings.onSet(connection, pending, result);
        else {
          const { id: setting = '', value = '' } = pending.setting ?? {};
          this.#noticeRefused(`The agent does not set ${setting} to ${value}: ${failure.message}`);
        }
        settings.settle(connection, pending);
        return;
      case 'prompt':
        this.#onPrompt(result, failure);
        return;
    }
  }

  /** The agent has not answered this request, and no longer needs to. */
  onLate(connection: Connection, pending: PendingRequest, now: number): void {
    const { settings, opening, end } = this.#options;
    const { what, setting } = pending;
    switch (what) {
      case 'load':
      case 'resume':
        opening.onNotOpened(connection, what, 'it did not answer in time', null, now);
        return;
      case 'set':
        this.#noticeRefused(`The agent did not answer when ${setting?.id ?? ''} was set`);
        settings.settle(connection, pending);
        return;
      case 'initialize':
      case 'new':
        end(silentOutcome(what === 'new' ? '`session/new`' : '`initialize`', DEADLINES_MS[what] / 1000));
        return;
      case 'prompt':
        return;
    }
  }

  #onPrompt(result: unknown, failure: RpcError | null): void {
    const { state, budget, end } = this.#options;
    const isCancelled = state.turn?.isCancelled === true;
    const { data } = PromptResultSchema.safeParse(result);
    const reason = data?.stopReason ?? 'end_turn';
    if (!isCancelled && budget.onPromptEnded(failure === null ? reason : null)) return;
    if (failure !== null) {
      end(isCancelled ? CANCELLED : refusedOutcome('the prompt', failure));
      return;
    }
    end(stoppedOutcome(reason, isCancelled));
  }

  #noticeRefused(text: string): void {
    this.#options.outbox.notice('setting_refused', text, true);
  }
}
