import { cutText } from './bounded-text.ts';
import type { AgentSettings } from './agent-settings.ts';
import { refusedOutcome } from './outcomes.ts';
import type { Outbox } from './outbox.ts';
import * as requests from './requests.ts';
import { settingsOf } from './settings.ts';
import type { AcpState, AgentTurnOutcome, Connection } from './state.ts';
import { InitializeResultSchema, OpenedSchema, type RpcError, VERSION } from './wire.ts';

/** Silence after which a loaded conversation counts as replayed, and the most that it may take. */
const SETTLE_MS = { silence: 150, most: 5000 } as const;

/** Processes in a row that may end while they load a conversation; the next one begins a new conversation. */
const FATAL_LOADS = 2;

/** The agent has been asked for its memory of the conversation, and has not answered. */
export function isLoading(connection: Connection | null): boolean {
  return connection?.pending.some(({ what }) => what === 'load' || what === 'resume') === true;
}

/** The agent is idle, or repeats what it has loaded: it takes the prompt of a next turn. */
export function isIdle(connection: Connection | null): boolean {
  if (connection?.stage === 'settling') return true;
  return connection?.stage === 'ready' && connection.pending.every(({ what }) => what === 'set');
}

/** From the first message of a process to its settings: the agent resumes or loads its conversation, or begins a new one. */
export class Opening {
  readonly #state: AcpState;
  readonly #outbox: Outbox;
  readonly #settings: AgentSettings;
  readonly #fail: (outcome: AgentTurnOutcome) => void;

  constructor(
    state: AcpState,
    outbox: Outbox,
    settings: AgentSettings,
    fail: (outcome: AgentTurnOutcome) => void,
  ) {
    this.#state = state;
    this.#outbox = outbox;
    this.#settings = settings;
    this.#fail = fail;
  }

  onInitialized(connection: Connection, result: unknown, now: number): void {
    const parsed = InitializeResultSchema.safeParse(result);
    if (!parsed.success) {
      this.refuse('to begin', { code: 0, message: 'its answer to `initialize` cannot be read' });
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
      this.#outbox.notice(
        'version',
        `The agent speaks version ${protocolVersion} of the protocol, and this program version ${VERSION}`,
      );
    connection.stage = 'opening';
    const { conversationId } = this.#state;
    if (conversationId === null) this.#openNew(connection, 'the agent has no memory of it', now);
    else if (this.#state.fatalLoads >= FATAL_LOADS)
      this.#openNew(connection, `the agent ended ${FATAL_LOADS} times while it loaded it`, now);
    else if (connection.can.resume)
      this.#outbox.request(connection, 'resume', requests.resumeSession(conversationId), now);
    else if (connection.can.load)
      this.#outbox.request(connection, 'load', requests.loadSession(conversationId), now);
    else this.#openNew(connection, 'the agent cannot load a conversation', now);
  }

  onOpened(connection: Connection, what: 'new' | 'load' | 'resume', result: unknown, now: number): void {
    const parsed = OpenedSchema.safeParse(result ?? {});
    const opened = parsed.success ? parsed.data : { sessionId: null, modes: null, configOptions: null };
    if (what === 'new') {
      if (opened.sessionId === undefined || opened.sessionId === null) {
        this.refuse('a conversation', {
          code: 0,
          message: 'its answer to `session/new` has no session id',
        });
        return;
      }
      this.#state.conversationId = opened.sessionId;
      this.#state.reported = { tokens: 0, cost: 0 };
    } else {
      connection.how = what === 'load' ? 'loaded' : 'resumed';
      connection.needsHandover = false;
    }
    this.#state.fatalLoads = 0;
    connection.settings = settingsOf(opened);
    this.#settings.recordOpened(connection);
    if (what === 'load') {
      connection.stage = 'settling';
      connection.settledAt = now + SETTLE_MS.silence;
      connection.settledBy = now + SETTLE_MS.most;
    } else this.#settings.apply(connection, now);
  }

  /** From `resume` to `load` to a new conversation, which gets our history. */
  onNotOpened(
    connection: Connection,
    what: 'new' | 'load' | 'resume',
    why: string,
    failure: RpcError | null,
    now: number,
  ): void {
    const { conversationId } = this.#state;
    if (what === 'new') this.refuse('a conversation', failure ?? { code: 0, message: why });
    else if (what === 'resume' && connection.can.load && conversationId !== null)
      this.#outbox.request(connection, 'load', requests.loadSession(conversationId), now);
    else this.#openNew(connection, `the agent could not ${what} it: ${why}`, now);
  }

  /** An agent that ends of its own memory would do so with every prompt. */
  onProcessEndedByItself(): void {
    if (isLoading(this.#state.connection)) this.#state.fatalLoads += 1;
  }

  /** It goes on to replay what it has loaded. */
  postponeSettling(connection: Connection, now: number): void {
    connection.settledAt = now + SETTLE_MS.silence;
  }

  refuse(what: string, failure: RpcError): void {
    this.#fail(refusedOutcome(what, failure));
  }

  /** `why`: the agent does not know the conversation so far. */
  #openNew(connection: Connection, why: string, now: number): void {
    this.#state.conversationId = null;
    this.#state.fatalLoads = 0;
    connection.how = connection.needsHandover ? 'handover' : 'new';
    connection.why = connection.needsHandover ? cutText(why, 2000) : null;
    this.#outbox.request(connection, 'new', requests.newSession(), now);
  }
}
