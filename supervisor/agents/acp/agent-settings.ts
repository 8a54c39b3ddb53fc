import { cutText } from './bounded-text.ts';
import type { Outbox } from './outbox.ts';
import * as requests from './requests.ts';
import {
  MODE_SETTING,
  type Setting,
  describeMissingModel,
  findValue,
  isModel,
  settingsOf,
} from './settings.ts';
import type { AcpState, Connection, PendingRequest, Wanted } from './state.ts';
import { OpenedSchema, type Update } from './wire.ts';

/** The settings of the agent: set as the session wants them, and reported as they are. */
export class AgentSettings {
  readonly #state: AcpState;
  readonly #outbox: Outbox;
  /** Settings that were set as the session wants them, and are not reported yet. */
  readonly #byPerson = new Map<string, string>();

  constructor(state: AcpState, outbox: Outbox) {
    this.#state = state;
    this.#outbox = outbox;
  }

  /**
   * The model of the session, what people chose, and what the agent was set to before it was loaded: agents forget all of it. A choice
   * counts until the agent changes the setting itself, as one does that leaves its plan mode; a new conversation begins with all choices.
   */
  apply(connection: Connection, now: number): void {
    connection.stage = 'setting';
    const { turn, kept, taken } = this.#state;
    const isNew = connection.how === 'new';
    const wanted = new Map(isNew || connection.how === 'warm' ? [] : Object.entries(kept));
    for (const { option, value, revision } of turn?.choices ?? [])
      if (isNew || taken[option] !== revision) wanted.set(option, value);
    if (turn?.model !== null && turn?.model !== undefined) {
      const models = connection.settings.find(isModel);
      const value = models === undefined ? undefined : findValue(models, turn.model);
      if (models !== undefined && value !== undefined) wanted.set(models.id, value);
      else this.#outbox.notice('model_unavailable', describeMissingModel(turn.model, models));
    }
    for (const setting of connection.settings) {
      const value = wanted.get(setting.id);
      if (value !== undefined && value !== setting.value)
        this.#request(connection, setting, value, null, now);
    }
    this.proceed(connection);
  }

  /**
   * People have chosen while the turn runs: the agent is asked at once, where it has a conversation, and is not asked twice for the
   * same choice. Before that, `apply` asks. What it has is no reason not to ask: an earlier choice may be on its way to it.
   */
  choose({ model, choices }: Wanted, now: number): void {
    const { connection, turn } = this.#state;
    if (turn?.outcome !== null) return;
    const known = new Map(turn.choices.map(({ option, revision }) => [option, revision]));
    const later = choices.filter(({ option, revision }) => known.get(option) !== revision);
    const isOtherModel = model !== null && model !== turn.model;
    turn.choices = choices.map((choice) => ({ ...choice }));
    if (isOtherModel) turn.model = model;
    if (connection?.stage !== 'setting' && connection?.stage !== 'ready') return;
    for (const { option, value, revision } of later) {
      const setting = connection.settings.find(({ id }) => id === option);
      if (setting !== undefined) this.#request(connection, setting, value, revision, now);
    }
    if (!isOtherModel) return;
    const models = connection.settings.find(isModel);
    const value = models === undefined ? undefined : findValue(models, model);
    if (models !== undefined && value !== undefined) this.#request(connection, models, value, null, now);
    else this.#outbox.notice('model_unavailable', describeMissingModel(model, models), true);
  }

  #request(
    connection: Connection,
    { id, via }: Setting,
    value: string,
    revision: number | null,
    now: number,
  ): void {
    const { conversationId } = this.#state;
    if (conversationId === null) return;
    const request =
      via === 'mode'
        ? requests.setMode(conversationId, value)
        : requests.setOption(conversationId, id, value);
    this.#outbox.request(connection, 'set', request, now, { id, value, revision });
  }

  /** The agent has answered what it was asked to set, or is not waited for any longer: it is not asked for this choice again. */
  settle(connection: Connection, { setting }: PendingRequest): void {
    if (connection.stage === 'ready' && setting !== null && setting.revision !== null)
      this.#state.taken[setting.id] = setting.revision;
    this.proceed(connection);
  }

  /** The agent is ready once nothing is being set. Only then it has taken the choices: one that dies before is asked again. */
  proceed(connection: Connection): void {
    if (connection.stage !== 'setting' || connection.pending.some(({ what }) => what === 'set')) return;
    connection.stage = 'ready';
    const choices = this.#state.turn?.choices ?? [];
    this.#state.taken = Object.fromEntries(choices.map(({ option, revision }) => [option, revision]));
  }

  /** The process goes: what it offers stays known. */
  recordOffered(): void {
    const { connection } = this.#state;
    if (connection !== null && connection.settings.length > 0) this.#state.offered = connection.settings;
  }

  /** What a new process begins with is no change; an agent that was loaded is compared with what it was set to before. */
  recordOpened({ settings, how }: Connection): void {
    this.#state.offered = [];
    const before = new Map(how === 'new' ? [] : Object.entries(this.#state.kept));
    this.#state.kept = Object.fromEntries(settings.map(({ id, value }) => [id, before.get(id) ?? value]));
  }

  /** The agent has set one. */
  onSet(connection: Connection, { setting }: PendingRequest, result: unknown): void {
    const parsed = OpenedSchema.safeParse(result ?? {});
    const options = parsed.success ? (parsed.data.configOptions ?? null) : null;
    if (setting !== null) this.#byPerson.set(setting.id, setting.value);
    if (options !== null) this.#changeAll(connection, settingsOf({ configOptions: options, modes: null }));
    else if (setting !== null) this.#change(connection, setting.id, setting.value);
  }

  /** Whether the update was about settings. */
  onUpdate(connection: Connection, update: Update): boolean {
    if (update.sessionUpdate === 'current_mode_update') {
      const mode = update['currentModeId'];
      if (typeof mode === 'string') this.#change(connection, MODE_SETTING, mode.slice(0, 500));
      return true;
    }
    if (update.sessionUpdate !== 'config_option_update') return false;
    const options = update['configOptions'];
    if (Array.isArray(options))
      this.#changeAll(connection, settingsOf({ configOptions: options as unknown[], modes: null }));
    return true;
  }

  /**
   * The settings that differ from what was reported last, however often they changed since: an agent may change them without end.
   * Between turns nothing is reported, and then once.
   */
  report(): void {
    const { connection, turn } = this.#state;
    if (connection?.stage !== 'ready' || turn?.isOverLimit === true) return;
    const kept = new Map(Object.entries(this.#state.kept));
    // An agent may list one twice.
    const current = new Map(connection.settings.map(({ id, value }) => [id, value]));
    for (const [id, value] of current) {
      const before = kept.get(id);
      if (before === value) continue;
      kept.set(id, value);
      if (before === undefined) continue;
      const by = this.#byPerson.get(id) === value ? 'person' : 'agent';
      const data = {
        turnId: turn?.id ?? null,
        option: cutText(id, 200),
        value: cutText(value, 500),
        by,
      } as const;
      this.#outbox.emit({ type: 'agent.option', data, bytes: null });
    }
    this.#byPerson.clear();
    this.#state.kept = Object.fromEntries([...kept].filter(([id]) => current.has(id)));
  }

  #changeAll(connection: Connection, settings: readonly Setting[]): void {
    const others = connection.settings.filter(
      ({ id, via }) => via === 'mode' && !settings.some((one) => one.id === id),
    );
    connection.settings = [...settings, ...others];
  }

  #change(connection: Connection, id: string, value: string): void {
    connection.settings = connection.settings.map((one) => (one.id === id ? { ...one, value } : one));
  }
}
