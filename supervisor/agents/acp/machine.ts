import type { ContentBlock } from '@agentclientprotocol/sdk';
import type { PermissionOption } from '../../../protocol/agent-events.ts';
import type { Permissions } from '../../../protocol/profile.ts';
import { PERMISSION_LIMITS } from '../../../protocol/permissions.ts';
import { chooseOption } from '../permission-policy.ts';
import { cutJson, cutText } from './bounded-text.ts';
import {
  type Commit,
  type LiveText,
  type NewEvent,
  type NewPermission,
  type SettledPermission,
  contentOfJson,
} from './effects.ts';
import { OpenMessage } from './messages.ts';
import { CANCELLED, SUCCEEDED, refusedOutcome, silentOutcome, stoppedOutcome } from './outcomes.ts';
import { automaticAnswer, commandOf, optionsOf } from './permission-requests.ts';
import * as requests from './requests.ts';
import { MODE_SETTING, type Setting, describeMissingModel, findValue, settingsOf } from './settings.ts';
import type { AcpState, AgentTurn, AgentTurnOutcome, Connection, PendingRequest } from './state.ts';
import { ToolCalls } from './tool-calls.ts';
import {
  CANCEL_REQUEST,
  CancelRequestSchema,
  ChunkSchema,
  FROM_AGENT,
  InitializeResultSchema,
  OpenedSchema,
  PermissionParamsSchema,
  PromptResultSchema,
  RPC_ERRORS,
  type RpcError,
  RpcErrorSchema,
  type RpcId,
  RpcIdSchema,
  ToolUpdateSchema,
  type Update,
  UpdateParamsSchema,
  UsageSchema,
  VERSION,
  textOf,
} from './wire.ts';

/** How long an agent may take to answer, ms. `prompt` has the limit of its turn. */
export const DEADLINES_MS = {
  initialize: 60_000,
  new: 60_000,
  resume: 60_000,
  /** From the last update of the replay. */
  load: 60_000,
  set: 20_000,
} as const;

/** Silence after which a loaded conversation counts as replayed, and the most that it may take. */
const SETTLE_MS = { silence: 150, most: 5000 } as const;
const MAX_NOTICES = 100;
/** What an event costs of the turn's limit of output, at least: a row, two hashes and an index entry. */
const EVENT_BYTES = 1024;
const PLAN_BYTES = 256 * 1024;

export interface MachineOptions {
  /** Our version, for the agent. */
  readonly version: string;
  readonly permissions: Permissions;
  /** Creates `perm-…`. */
  readonly newPermissionId: () => string;
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
  #message: OpenMessage | null;
  #tools: ToolCalls | null;
  #plan: { readonly update: Update } | null = null;
  #lastPlan: string | null = null;
  #usage: NewEvent | null = null;
  #events: NewEvent[] = [];
  #asked: NewPermission[] = [];
  #settled: SettledPermission[] = [];
  #lines: Buffer[] = [];
  #live: LiveText[] = [];
  /** Settings that were set as the session wants them, and are not reported yet. */
  readonly #byPerson = new Map<string, string>();

  constructor(state: AcpState, options: MachineOptions) {
    this.state = structuredClone(state);
    this.#options = options;
    const { turn } = this.state;
    this.#message = turn === null ? null : new OpenMessage(turn);
    this.#tools = turn === null ? null : new ToolCalls(turn);
  }

  /** Something must be stored and sent without delay: somebody waits for it. */
  get isUrgent(): boolean {
    return (
      this.#lines.length > 0 ||
      this.#asked.length > 0 ||
      this.#settled.length > 0 ||
      this.#events.length >= 500
    );
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
    return {
      messages: this.#lines.length,
      bytes: this.#lines.reduce((sum, line) => sum + line.length, 0),
    };
  }

  /** When `tick` has something to do, ms since 1970; null: never. */
  get nextTick(): number | null {
    const { connection } = this.state;
    if (connection === null) return null;
    const deadlines = connection.pending.flatMap(({ deadline }) => deadline ?? []);
    if (connection.stage === 'settling') deadlines.push(Math.min(connection.settledAt, connection.settledBy));
    return deadlines.length === 0 ? null : Math.min(...deadlines);
  }

  // Begin and end of turns and processes.

  beginTurn(turn: Pick<AgentTurn, 'id' | 'model' | 'limitBytes'>, now: number): void {
    this.endTurn();
    this.#reportSettings();
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
      outcome: null,
    };
    this.state.turn = begun;
    this.#message = new OpenMessage(begun);
    this.#tools = new ToolCalls(begun);
    this.#lastPlan = null;
    const { connection } = this.state;
    if (connection === null) return;
    for (const pending of connection.pending) pending.deadline = deadlineOf(pending.what, now);
    if (connection.stage !== 'ready') return;
    connection.how = 'warm';
    connection.why = null;
    this.#applySettings(connection, now);
  }

  /** The turn is over, however it ended: nobody can answer its permissions any more, and what comes later is not its own. */
  endTurn(): void {
    const { turn } = this.state;
    if (turn === null) return;
    this.#cancelPermissions();
    this.#flush();
    this.state.turn = null;
    this.#message = null;
    this.#tools = null;
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
    this.state.connection = connection;
    this.#lines = [];
    this.#request(connection, 'initialize', requests.initialize(this.#options.version), now);
  }

  /** Its process is gone. `outcome`: of the turn, if it cannot go on with another process. */
  processEnded(outcome: AgentTurnOutcome | null): void {
    this.#lines = [];
    this.state.connection = null;
    const { turn } = this.state;
    this.#cancelPermissions();
    this.#lines = [];
    if (turn?.outcome !== null) return;
    if (outcome !== null) this.#end(turn, turn.isCancelled ? CANCELLED : outcome);
    else {
      turn.phase = 'waiting';
      turn.promptEnd = null;
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
    this.#emit({
      type: 'agent.connected',
      data: { turnId: turn.id, name, version, conversationId, how, why },
      bytes: null,
    });
    this.#request(connection, 'prompt', requests.prompt(conversationId, blocks), 0);
  }

  cancel(): void {
    const { turn, conversationId } = this.state;
    if (turn === null || turn.isCancelled || turn.outcome !== null) return;
    turn.isCancelled = true;
    if (turn.phase === 'prompted' && conversationId !== null && this.state.connection !== null) {
      this.#lines.push(requests.cancelLine(conversationId));
      // Some agents never end a cancelled turn while a request of theirs is open.
      this.#cancelPermissions();
    } else this.#end(turn, CANCELLED);
  }

  /** A person answered. The row and the event are stored by whoever took the answer. */
  answer(permissionId: string, option: PermissionOption): void {
    const at = this.state.waiting.findIndex(({ id }) => id === permissionId);
    const [permission] = at === -1 ? [] : this.state.waiting.splice(at, 1);
    if (permission !== undefined) this.#lines.push(requests.permissionLine(permission.rpcId, option.id));
  }

  tick(now: number): void {
    const { connection } = this.state;
    if (connection === null) return;
    if (connection.stage === 'settling' && now >= Math.min(connection.settledAt, connection.settledBy)) {
      this.#applySettings(connection, now);
    }
    const late = connection.pending.filter(({ deadline }) => deadline !== null && now >= deadline);
    if (late.length === 0) return;
    connection.pending = connection.pending.filter((one) => !late.includes(one));
    for (const pending of late) this.#onLate(connection, pending, now);
  }

  /** Time in which the agent could not run: its deadlines do not come nearer. */
  postpone(ms: number): void {
    const { connection } = this.state;
    if (connection === null) return;
    for (const pending of connection.pending) if (pending.deadline !== null) pending.deadline += ms;
    connection.settledAt += ms;
    connection.settledBy += ms;
  }

  /** Everything since the last time, and the state is what it leads to. */
  takeCommit(): Commit {
    this.#flush();
    const commit = { events: this.#events, asked: this.#asked, settled: this.#settled, lines: this.#lines };
    this.#events = [];
    this.#asked = [];
    this.#settled = [];
    this.#lines = [];
    return commit;
  }

  takeLive(): LiveText[] {
    const live = this.#live;
    this.#live = [];
    return live;
  }

  // Messages of the agent.

  /** Takes one line of at most `LINE_LIMITS`. */
  receive(line: Buffer, now: number): void {
    let message: unknown;
    try {
      message = JSON.parse(line.toString('utf8'));
    } catch {
      this.notice('not_json', 'The agent wrote something that is not a message of the protocol');
      return;
    }
    if (typeof message !== 'object' || message === null || Array.isArray(message)) {
      this.notice('not_a_message', 'The agent wrote JSON that is not a message of the protocol');
      return;
    }
    const { id, method, params } = message as { id?: unknown; method?: unknown; params?: unknown };
    const rpcId = RpcIdSchema.safeParse(id);
    if (typeof method !== 'string') {
      if (typeof id === 'number') this.#onAnswer(id, message, now);
      else this.notice('unknown_answer', 'The agent answered a request that was not made');
    } else if (id === undefined || id === null) this.#onNotification(method, params, line.length, now);
    else if (rpcId.success) this.#onRequest(rpcId.data, method, params, line.length);
    else this.notice('bad_id', 'The agent made a request whose id is neither a number nor a short text');
  }

  skipped(why: 'too_long' | 'too_deep' | 'too_many_values' | 'unstorable', bytes: number): void {
    const reason = {
      too_long: 'it is too long',
      too_deep: 'it nests too deep',
      too_many_values: 'it has too many values',
      unstorable: 'it could not be stored',
    }[why];
    this.notice('message_skipped', `A message of ${bytes} bytes was left out: ${reason}`, true);
  }

  /** `isRepeated`: more than once in a turn. */
  notice(code: string, text: string, isRepeated = false): void {
    const { turn } = this.state;
    if (turn === null || turn.notices >= MAX_NOTICES) return;
    // Codes have names of the agent's, and stay in the stored state.
    const kind = cutText(code, 100);
    if (!isRepeated) {
      if (turn.noticed.includes(kind)) return;
      turn.noticed.push(kind);
    }
    turn.notices += 1;
    const last = turn.notices === MAX_NOTICES ? ' (further notices of this turn are left out)' : '';
    this.#emit({
      type: 'agent.notice',
      data: { turnId: turn.id, code: kind, text: `${cutText(text, 1900)}${last}` },
      bytes: null,
    });
  }

  #onAnswer(id: number, message: object, now: number): void {
    const { connection } = this.state;
    const at = connection?.pending.findIndex((one) => one.id === id) ?? -1;
    const [pending] = connection === null || at === -1 ? [] : connection.pending.splice(at, 1);
    if (connection === null || pending === undefined) {
      this.notice('unknown_answer', 'The agent answered a request that was not made, or answered twice');
      return;
    }
    const { result, error } = message as { result?: unknown; error?: unknown };
    const failure =
      error === undefined || error === null
        ? null
        : RpcErrorSchema.catch({ code: 0, message: 'unknown' }).parse(error);
    switch (pending.what) {
      case 'initialize': {
        if (failure === null) this.#onInitialized(connection, result, now);
        else this.#onRefused('to begin', failure);
        return;
      }
      case 'new':
      case 'load':
      case 'resume': {
        if (failure === null) this.#onOpened(connection, pending.what, result, now);
        else this.#onNotOpened(connection, pending.what, cutText(failure.message, 1000), failure, now);
        return;
      }
      case 'set':
        if (failure !== null) {
          const { id: setting = '', value = '' } = pending.setting ?? {};
          this.notice(
            'setting_refused',
            `The agent does not set ${setting} to ${value}: ${failure.message}`,
            true,
          );
        } else this.#onSet(connection, pending, result);
        {
          this.#continueSetting(connection);
          return;
        }
      case 'prompt': {
        this.#onPromptAnswered(result, failure);
        return;
      }
    }
  }

  #onInitialized(connection: Connection, result: unknown, now: number): void {
    const parsed = InitializeResultSchema.safeParse(result);
    if (!parsed.success) {
      this.#onRefused('to begin', { code: 0, message: 'its answer to `initialize` cannot be read' });
      return;
    }
    const { agentInfo, agentCapabilities: can, protocolVersion } = parsed.data;
    connection.name = cutText(agentInfo?.title ?? agentInfo?.name ?? '', 200);
    connection.version = cutText(agentInfo?.version ?? '', 100);
    connection.can = {
      load: can?.loadSession === true,
      resume: can?.sessionCapabilities?.resume === true,
      image: can?.promptCapabilities?.image === true,
      embed: can?.promptCapabilities?.embeddedContext === true,
    };
    if (protocolVersion !== VERSION)
      this.notice(
        'version',
        `The agent speaks version ${protocolVersion} of the protocol, and this program version ${VERSION}`,
      );
    connection.stage = 'opening';
    const { conversationId } = this.state;
    if (conversationId === null) this.#openNew(connection, 'the agent has no memory of it', now);
    else if (connection.can.resume)
      this.#request(connection, 'resume', requests.resumeSession(conversationId), now);
    else if (connection.can.load)
      this.#request(connection, 'load', requests.loadSession(conversationId), now);
    else this.#openNew(connection, 'the agent cannot load a conversation', now);
  }

  /** `why`: the agent does not know the conversation so far. */
  #openNew(connection: Connection, why: string, now: number): void {
    this.state.conversationId = null;
    connection.how = connection.needsHandover ? 'handover' : 'new';
    connection.why = connection.needsHandover ? cutText(why, 2000) : null;
    this.#request(connection, 'new', requests.newSession(), now);
  }

  #onOpened(connection: Connection, what: 'new' | 'load' | 'resume', result: unknown, now: number): void {
    const parsed = OpenedSchema.safeParse(result ?? {});
    const opened = parsed.success ? parsed.data : { sessionId: null, modes: null, configOptions: null };
    if (what === 'new') {
      if (opened.sessionId === undefined || opened.sessionId === null) {
        this.#onRefused('a conversation', {
          code: 0,
          message: 'its answer to `session/new` has no session id',
        });
        return;
      }
      this.state.conversationId = opened.sessionId;
    } else {
      connection.how = what === 'load' ? 'loaded' : 'resumed';
      connection.needsHandover = false;
    }
    connection.settings = settingsOf(opened);
    this.#keepOpened(connection);
    if (what === 'load') {
      connection.stage = 'settling';
      connection.settledAt = now + SETTLE_MS.silence;
      connection.settledBy = now + SETTLE_MS.most;
    } else this.#applySettings(connection, now);
  }

  /** From `resume` to `load` to a new conversation, to which ours is told. */
  #onNotOpened(
    connection: Connection,
    what: 'new' | 'load' | 'resume',
    why: string,
    failure: RpcError | null,
    now: number,
  ): void {
    const { conversationId } = this.state;
    if (what === 'new') this.#onRefused('a conversation', failure ?? { code: 0, message: why });
    else if (what === 'resume' && connection.can.load && conversationId !== null)
      this.#request(connection, 'load', requests.loadSession(conversationId), now);
    else this.#openNew(connection, `the agent could not ${what} it: ${why}`, now);
  }

  #onLate(connection: Connection, { what, setting }: PendingRequest, now: number): void {
    switch (what) {
      case 'load':
      case 'resume': {
        this.#onNotOpened(connection, what, 'it did not answer in time', null, now);
        return;
      }
      case 'set':
        this.notice('setting_refused', `The agent did not answer when ${setting?.id ?? ''} was set`, true);
        {
          this.#continueSetting(connection);
          return;
        }
      case 'initialize':
      case 'new': {
        this.fail(
          silentOutcome(what === 'new' ? '`session/new`' : '`initialize`', DEADLINES_MS[what] / 1000),
        );
        return;
      }
      case 'prompt':
        return;
    }
  }

  /** The model of the session, and what the agent was set to before it was loaded: agents forget both. */
  #applySettings(connection: Connection, now: number): void {
    connection.stage = 'setting';
    const { turn, conversationId, kept } = this.state;
    const wanted = new Map(connection.how === 'new' || connection.how === 'warm' ? [] : Object.entries(kept));
    if (turn?.model !== null && turn?.model !== undefined) {
      const models = connection.settings.find(({ category, id }) => category === 'model' || id === 'model');
      const value = models === undefined ? undefined : findValue(models, turn.model);
      if (models !== undefined && value !== undefined) wanted.set(models.id, value);
      else this.notice('model_unavailable', describeMissingModel(turn.model, models));
    }
    for (const setting of connection.settings) {
      const value = wanted.get(setting.id);
      if (value === undefined || value === setting.value || conversationId === null) continue;
      const request =
        setting.via === 'mode'
          ? requests.setMode(conversationId, value)
          : requests.setOption(conversationId, setting.id, value);
      this.#request(connection, 'set', request, now, { id: setting.id, value });
    }
    this.#continueSetting(connection);
  }

  #continueSetting(connection: Connection): void {
    if (connection.stage === 'setting' && !connection.pending.some(({ what }) => what === 'set'))
      connection.stage = 'ready';
  }

  /** What a new process begins with is no change; an agent that was loaded is compared with what it was set to before. */
  #keepOpened({ settings, how }: Connection): void {
    const before = new Map(how === 'new' ? [] : Object.entries(this.state.kept));
    this.state.kept = Object.fromEntries(settings.map(({ id, value }) => [id, before.get(id) ?? value]));
  }

  #onSet(connection: Connection, { setting }: PendingRequest, result: unknown): void {
    const parsed = OpenedSchema.safeParse(result ?? {});
    const options = parsed.success ? (parsed.data.configOptions ?? null) : null;
    if (setting !== null) this.#byPerson.set(setting.id, setting.value);
    if (options !== null)
      this.#changeSettings(connection, settingsOf({ configOptions: options, modes: null }));
    else if (setting !== null) this.#changeSetting(connection, setting.id, setting.value);
  }

  #changeSettings(connection: Connection, settings: readonly Setting[]): void {
    const others = connection.settings.filter(
      ({ id, via }) => via === 'mode' && !settings.some((one) => one.id === id),
    );
    connection.settings = [...settings, ...others];
  }

  #changeSetting(connection: Connection, id: string, value: string): void {
    connection.settings = connection.settings.map((one) => (one.id === id ? { ...one, value } : one));
  }

  /**
   * The settings that differ from what was reported last, however often they changed since: an agent may change them without end.
   * Between turns nothing is reported, and then once.
   */
  #reportSettings(): void {
    const { connection, turn } = this.state;
    if (connection?.stage !== 'ready' || turn?.isOverLimit === true) return;
    const kept = new Map(Object.entries(this.state.kept));
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
      this.#emit({ type: 'agent.option', data, bytes: null });
    }
    this.#byPerson.clear();
    this.state.kept = Object.fromEntries([...kept].filter(([id]) => current.has(id)));
  }

  #onPromptAnswered(result: unknown, failure: RpcError | null): void {
    const { turn } = this.state;
    if (turn?.outcome !== null) return;
    if (failure !== null) {
      this.#end(turn, turn.isCancelled ? CANCELLED : refusedOutcome('the prompt', failure));
      return;
    }
    const { success, data } = PromptResultSchema.safeParse(result);
    this.#end(turn, success ? stoppedOutcome(data.stopReason, turn.isCancelled) : SUCCEEDED);
  }

  #onRefused(what: string, failure: RpcError): void {
    this.fail(refusedOutcome(what, failure));
  }

  #onNotification(method: string, params: unknown, size: number, now: number): void {
    if (method === FROM_AGENT.session_update) this.#onUpdate(params, size, now);
    else if (method === CANCEL_REQUEST) {
      const { success, data } = CancelRequestSchema.safeParse(params);
      if (success) this.#withdrawPermission(data.requestId);
    } else if (!method.startsWith('_') && !method.startsWith('$/')) {
      this.notice(
        `notification:${method}`,
        `The agent sent ${cutText(method, 100)}, which is not known here`,
      );
    }
  }

  #onUpdate(params: unknown, size: number, now: number): void {
    const { connection, conversationId, turn } = this.state;
    const parsed = UpdateParamsSchema.safeParse(params);
    if (!parsed.success) {
      this.notice('bad_update', 'The agent sent an update that cannot be read');
      return;
    }
    const { sessionId, update } = parsed.data;
    if (connection === null) return;
    if (connection.stage === 'settling') connection.settledAt = now + SETTLE_MS.silence;
    const loading = connection.pending.find(({ what }) => what === 'load');
    if (loading !== undefined) loading.deadline = now + DEADLINES_MS.load;
    if (this.#onSettingUpdate(connection, update)) return;
    // What a load replays is in our history already.
    if (loading !== undefined || connection.stage === 'settling' || turn?.outcome !== null) return;
    if (
      conversationId !== null &&
      sessionId !== undefined &&
      sessionId !== null &&
      sessionId !== conversationId
    ) {
      this.notice('other_conversation', 'The agent sent an update of another conversation');
      return;
    }
    if (turn.isOverLimit) return;
    this.#onTurnUpdate(turn, update, size);
  }

  /** Whether the update was about settings. */
  #onSettingUpdate(connection: Connection, update: Update): boolean {
    if (update.sessionUpdate === 'current_mode_update') {
      const mode = update['currentModeId'];
      if (typeof mode === 'string') this.#changeSetting(connection, MODE_SETTING, mode.slice(0, 500));
      return true;
    }
    if (update.sessionUpdate !== 'config_option_update') return false;
    const options = update['configOptions'];
    if (Array.isArray(options))
      this.#changeSettings(connection, settingsOf({ configOptions: options as unknown[], modes: null }));
    return true;
  }

  #onTurnUpdate(turn: AgentTurn, update: Update, size: number): void {
    switch (update.sessionUpdate) {
      case 'agent_message_chunk': {
        this.#onChunk('agent', update);
        return;
      }
      case 'agent_thought_chunk': {
        this.#onChunk('thought', update);
        return;
      }
      case 'tool_call':
      case 'tool_call_update': {
        this.#onTool(update, size);
        return;
      }
      case 'plan':
        this.#plan = { update };
        return;
      case 'usage_update': {
        this.#onUsage(turn, update);
        return;
      }
      case 'user_message_chunk':
      case 'available_commands_update':
      case 'session_info_update':
        return;
      default:
        this.notice(
          `update:${update.sessionUpdate}`,
          `The agent sent an update of the kind ${update.sessionUpdate}, which is not known here`,
        );
    }
  }

  #onChunk(role: 'agent' | 'thought', update: Update): void {
    const { success, data } = ChunkSchema.safeParse(update);
    if (!success || this.#message === null) return;
    const { events, live } = this.#message.append(role, data.messageId ?? null, textOf(data.content));
    for (const event of events) this.#emit(event);
    if (live !== null) this.#live.push(live);
  }

  #onTool(update: unknown, size: number): void {
    const { success, data } = ToolUpdateSchema.safeParse(update);
    if (!success) {
      this.notice('bad_tool_call', 'The agent reported a tool call without an id');
      return;
    }
    this.#closeMessage();
    const event = this.#tools?.apply(data, size);
    if (event === false) this.notice('too_many_tools', 'The agent reports more tool calls than are stored');
    else if (event !== null && event !== undefined) this.#emit(event);
  }

  #onUsage(turn: AgentTurn, update: unknown): void {
    const { success, data } = UsageSchema.safeParse(update);
    if (!success) return;
    const { used = null, size = null, cost = null } = data;
    this.#usage = {
      type: 'agent.usage',
      data: {
        turnId: turn.id,
        contextUsed: used,
        contextSize: size,
        inputTokens: null,
        outputTokens: null,
        totalTokens: null,
        cost,
      },
      bytes: null,
    };
  }

  #onRequest(id: RpcId, method: string, params: unknown, size: number): void {
    if (method === FROM_AGENT.session_request_permission) {
      this.#onPermission(id, params, size);
      return;
    }
    this.#lines.push(
      requests.errorLine(id, RPC_ERRORS.methodNotFound, 'this client does not offer that method'),
    );
    if (!method.startsWith('_'))
      this.notice(`request:${method}`, `The agent asked for ${cutText(method, 100)}, which is not offered`);
  }

  #onPermission(rpcId: RpcId, params: unknown, size: number): void {
    const { turn, waiting } = this.state;
    if (turn?.phase !== 'prompted' || turn.isCancelled || turn.isOverLimit) {
      this.#lines.push(requests.permissionLine(rpcId, null));
      return;
    }
    if (waiting.some((one) => one.rpcId === rpcId)) {
      this.#lines.push(
        requests.errorLine(rpcId, RPC_ERRORS.invalidRequest, 'a request with this id is open'),
      );
      return;
    }
    const parsed = PermissionParamsSchema.safeParse(params);
    const options = parsed.success ? optionsOf(parsed.data.options) : [];
    if (!parsed.success || options.length === 0) {
      this.#lines.push(requests.permissionLine(rpcId, null));
      this.notice(
        'bad_permission',
        'The agent asked for a permission without options that can be chosen',
        true,
      );
      return;
    }
    turn.permissions += 1;
    if (turn.permissions > PERMISSION_LIMITS.perTurn) {
      // Without a row or an event: they would be without end.
      this.#noticeTooManyPermissions();
      const rejection = chooseOption(options, 'reject_once');
      this.#lines.push(requests.permissionLine(rpcId, rejection?.id ?? null));
      return;
    }
    const call = ToolUpdateSchema.safeParse(parsed.data.toolCall);
    if (call.success) this.#onTool(call.data, size);
    const tool = call.success ? (this.#tools?.get(call.data.toolCallId) ?? null) : null;
    const asked: NewPermission = {
      id: this.#options.newPermissionId(),
      turnId: turn.id,
      kind: tool?.kind ?? 'other',
      title: tool === null || tool.title === '' ? 'Use a tool' : tool.title,
      locations: tool?.locations ?? [],
      options,
      command: call.success ? commandOf(call.data.rawInput) : null,
    };
    const { content, bytes } = contentOfJson(
      cutJson(parsed.data.toolCall, PERMISSION_LIMITS.callBytes - 2048),
    );
    this.#emit({
      type: 'permission.asked',
      data: {
        permissionId: asked.id,
        turnId: turn.id,
        call: call.success ? call.data.toolCallId.toWellFormed() : null,
        kind: asked.kind,
        title: asked.title,
        options,
        content,
      },
      bytes,
    });
    this.#asked.push(asked);
    this.state.waiting.push({ id: asked.id, rpcId, options });
    this.#decide(asked);
  }

  #noticeTooManyPermissions(): void {
    this.notice(
      'too_many_permissions',
      'The agent asks for more permissions than can wait: further ones are rejected',
    );
  }

  /** Answers at once what the profile answers, and what is too much to ask a person. */
  #decide(asked: NewPermission): void {
    if (this.state.waiting.length > PERMISSION_LIMITS.waiting) {
      this.#noticeTooManyPermissions();
      this.#settle(asked.id, chooseOption(asked.options, 'reject_once'), { kind: 'turn', name: null });
      return;
    }
    const answer = automaticAnswer(this.#options.permissions, asked);
    if (answer !== null) this.#settle(asked.id, answer.option, answer.by);
  }

  #settle(id: string, option: PermissionOption | null, by: SettledPermission['by']): void {
    const { turn } = this.state;
    const at = this.state.waiting.findIndex((one) => one.id === id);
    const [permission] = at === -1 ? [] : this.state.waiting.splice(at, 1);
    if (permission === undefined || turn === null) return;
    this.#lines.push(requests.permissionLine(permission.rpcId, option?.id ?? null));
    this.#settled.push({ id, option, by });
    const data = { permissionId: permission.id, turnId: turn.id, option, by };
    this.#emit({ type: 'permission.answered', data, bytes: null });
  }

  #cancelPermissions(): void {
    for (const { id } of [...this.state.waiting]) this.#settle(id, null, { kind: 'turn', name: null });
    this.state.waiting = [];
  }

  /** The agent no longer wants to know. */
  #withdrawPermission(rpcId: RpcId): void {
    const permission = this.state.waiting.find((one) => one.rpcId === rpcId);
    if (permission === undefined) return;
    this.#settle(permission.id, null, { kind: 'turn', name: null });
    this.#lines.pop();
    this.#lines.push(requests.errorLine(rpcId, RPC_ERRORS.requestCancelled, 'cancelled'));
  }

  #request(
    connection: Connection,
    what: PendingRequest['what'],
    request: requests.Request,
    now: number,
    setting: PendingRequest['setting'] = null,
  ): void {
    const id = connection.nextId++;
    connection.pending.push({ id, what, deadline: deadlineOf(what, now), setting });
    this.#lines.push(requests.requestLine(id, request));
  }

  #end(turn: AgentTurn, outcome: AgentTurnOutcome): void {
    this.#cancelPermissions();
    this.#flush();
    turn.phase = 'ended';
    turn.outcome = outcome;
  }

  #closeMessage(): void {
    for (const event of this.#message?.close() ?? []) this.#emit(event);
  }

  /** Makes events of everything that is collected. */
  #flush(): void {
    for (const event of this.#message?.takeEvents() ?? []) this.#emit(event);
    for (const event of this.#tools?.takeEvents() ?? []) this.#emit(event);
    if (this.#plan !== null && this.state.turn !== null) {
      const { content, bytes } = contentOfJson(cutJson(this.#plan.update['entries'] ?? [], PLAN_BYTES));
      const { id: turnId } = this.state.turn;
      if (content.sha256 !== this.#lastPlan)
        this.#emit({ type: 'agent.plan', data: { turnId, content }, bytes });
      this.#lastPlan = content.sha256;
    }
    this.#plan = null;
    if (this.#usage !== null) this.#emit(this.#usage);
    this.#usage = null;
    if (this.state.turn !== null) this.#reportSettings();
  }

  #emit(event: NewEvent): void {
    const { turn } = this.state;
    if (turn !== null) {
      const size = Buffer.byteLength(JSON.stringify(event.data)) + (event.bytes?.length ?? 0);
      turn.storedBytes += Math.max(EVENT_BYTES, size);
      turn.isOverLimit ||= turn.storedBytes > turn.limitBytes;
    }
    this.#events.push(event);
  }
}

function deadlineOf(what: PendingRequest['what'], now: number): number | null {
  return what === 'prompt' ? null : now + DEADLINES_MS[what];
}
