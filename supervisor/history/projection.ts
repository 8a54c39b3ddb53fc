import type { SessionEvent, TurnStatus } from '../../protocol/entities.ts';
import { type TurnChange, changesSession, changesTurn } from '../../protocol/event-facts.ts';
import { parseEvent } from '../../protocol/events.ts';
import type { EventEntry } from '../../protocol/events.ts';
import type { SessionRow } from '../store/sessions.ts';
import type { TurnSummary } from '../store/turns.ts';
import { canonicalJson } from './canonical-json.ts';

/**
 * The fields of a session's row that can be rebuilt from its history. Activity and expiry times are not part of the
 * history, and the first prompt is a content, which the history names.
 */
export const PROJECTED_SESSION = [
  'id',
  'name',
  'profile',
  'status',
  'persistent',
  'throwaway',
  'backing',
  'uid',
  'gid',
  'generation',
  'codeVersion',
  'pinned',
  'starred',
  'archived',
  'tags',
  'model',
  'workspaceBytes',
] as const satisfies readonly (keyof SessionRow)[];

/** The fields of a turn's row that can be rebuilt from the history. */
export const PROJECTED_TURN = [
  'id',
  'status',
  'kind',
  'inputBytes',
  'timeoutMs',
  'dispatchCase',
  'reused',
  'codeVersion',
  'generation',
  'queuedMs',
  'dispatchMs',
  'stdoutBytes',
  'stderrBytes',
  'resultBytes',
  'cancelRequested',
  'exitCode',
  'error',
  'resultSha256',
  'outputArtifact',
  'turnMs',
  'workerStartMs',
  'workerId',
  'workerReused',
] as const satisfies readonly (keyof TurnSummary)[];

export type ProjectedTurn = Pick<TurnSummary, (typeof PROJECTED_TURN)[number]>;
export interface ProjectedSession extends Pick<SessionRow, (typeof PROJECTED_SESSION)[number]> {
  readonly lastSeq: number;
  /** Oldest first. */
  readonly turns: readonly ProjectedTurn[];
}

/**
 * The state after these events; null before `session.created`. `from`: the state that they follow, of a checkpoint. Pure: the same
 * events give the same state. Takes time in proportion to the events, however many turns there are.
 */
export function replay(
  events: Iterable<SessionEvent>,
  from: ProjectedSession | null = null,
): ProjectedSession | null {
  const replayed = new Replay(from);
  for (const event of events) replayed.add(event);
  return replayed.state();
}

/** The same for events that come in parts. */
export class Replay {
  #state: ProjectedSession | null;
  readonly #turns: Map<string, ProjectedTurn>;

  constructor(from: ProjectedSession | null) {
    this.#state = from;
    this.#turns = new Map(from?.turns.map((turn) => [turn.id, turn]));
  }

  add(event: SessionEvent): void {
    const entry = parseEvent(event);
    if (entry?.type === 'session.created') this.#turns.clear();
    const isOfOne = this.#state !== null && entry !== null && changesTurn(entry);
    if (isOfOne) applyToMap(this.#turns, entry);
    this.#state = applyParsed(this.#state, event, isOfOne ? null : entry);
  }

  state(): ProjectedSession | null {
    return this.#state && { ...this.#state, turns: [...this.#turns.values()] };
  }
}

function applyToMap(turns: Map<string, ProjectedTurn>, entry: TurnChange): void {
  const { turnId } = entry.data;
  const turn = turns.get(turnId);
  if (entry.type === 'turn.queued') turns.set(turnId, queued(entry.data));
  else if (turn !== undefined) turns.set(turnId, applyToTurn(turn, entry));
}

/** Applies one event. An unknown event type changes only the seq. */
export function applyEvent(state: ProjectedSession | null, event: SessionEvent): ProjectedSession | null {
  return applyParsed(state, event, parseEvent(event));
}

function applyParsed(
  state: ProjectedSession | null,
  event: SessionEvent,
  entry: EventEntry | null,
): ProjectedSession | null {
  if (entry?.type === 'session.created') return { ...created(event.sessionId, entry), lastSeq: event.seq };
  if (state === null) return null;
  return { ...(entry === null ? state : applyEntry(state, entry)), lastSeq: event.seq };
}

const INITIAL_STATE = {
  status: 'created',
  generation: 0,
  codeVersion: null,
  pinned: false,
  starred: false,
  archived: false,
  tags: [],
  workspaceBytes: null,
} as const satisfies Partial<ProjectedSession>;

function created(id: string, { data }: Extract<EventEntry, { type: 'session.created' }>): ProjectedSession {
  return {
    id,
    ...data,
    ...INITIAL_STATE,
    model: null,
    lastSeq: 0,
    turns: [],
  };
}

function applyEntry(state: ProjectedSession, entry: EventEntry): ProjectedSession {
  if (changesTurn(entry)) return { ...state, turns: applyToTurns(state.turns, entry) };
  if (!changesSession(entry)) return state;
  switch (entry.type) {
    case 'session.created':
      return state;
    case 'session.status':
      return { ...state, status: entry.data.to };
    case 'session.updated':
      return { ...state, ...definedMembers(withoutAbout(entry.data)) };
    case 'session.deleted':
      return { ...state, status: 'deleted' };
    case 'session.contents-removed':
      return { ...state, tags: [], model: null };
    case 'sandbox.starting':
      return { ...state, generation: entry.data.generation };
    case 'sandbox.started':
      return { ...state, generation: entry.data.generation, codeVersion: entry.data.codeVersion };
    case 'sandbox.lost':
    case 'sandbox.removed':
      return { ...state, codeVersion: null };
    case 'workspace.cleaned':
      return { ...state, workspaceBytes: 0 };
    case 'workspace.measured':
      return { ...state, workspaceBytes: entry.data.bytes };
    case 'session.forked':
    case 'session.imported':
      return { ...state, ...forked(entry) };
  }
}

/** A fork or an import is a new session. It keeps the turns of its source, but not its labels and sandboxes. */
function forked({
  data,
}: Extract<EventEntry, { type: 'session.forked' | 'session.imported' }>): Partial<ProjectedSession> {
  const { name, profile, persistent, backing, uid, gid } = data;
  return { ...INITIAL_STATE, name, profile, persistent, throwaway: false, backing, uid, gid };
}

/** `about` is the text of a prompt, which only earlier versions wrote. */
function withoutAbout({
  about: _,
  ...data
}: Extract<EventEntry, { type: 'session.updated' }>['data']): Omit<typeof data, 'about'> {
  return data;
}

/** Drops undefined members: they change nothing. */
function definedMembers<T extends object>(data: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(data).filter(([, value]) => value !== undefined)) as never;
}

function applyToTurns(turns: readonly ProjectedTurn[], entry: TurnChange): readonly ProjectedTurn[] {
  if (entry.type === 'turn.queued') return [...turns, queued(entry.data)];
  const { turnId } = entry.data;
  return turns.map((turn) => (turn.id === turnId ? applyToTurn(turn, entry) : turn));
}

function queued(data: Extract<EventEntry, { type: 'turn.queued' }>['data']): ProjectedTurn {
  return {
    id: data.turnId,
    status: 'queued',
    kind: data.kind,
    inputBytes: data.inputBytes,
    timeoutMs: data.timeoutMs,
    dispatchCase: null,
    reused: null,
    codeVersion: null,
    generation: null,
    queuedMs: null,
    dispatchMs: null,
    stdoutBytes: 0,
    stderrBytes: 0,
    resultBytes: 0,
    cancelRequested: false,
    exitCode: null,
    error: null,
    resultSha256: null,
    outputArtifact: false,
    turnMs: null,
    workerStartMs: null,
    workerId: null,
    workerReused: null,
  };
}

function applyToTurn(
  turn: ProjectedTurn,
  entry: Exclude<TurnChange, { type: 'turn.queued' }>,
): ProjectedTurn {
  switch (entry.type) {
    case 'turn.edited':
      return { ...turn, inputBytes: entry.data.inputBytes };
    case 'turn.started': {
      const { turnId: _, case: dispatchCase, ...rest } = entry.data;
      return { ...turn, ...rest, dispatchCase, status: 'running' };
    }
    case 'turn.restarted': {
      const { generation, case: dispatchCase = turn.dispatchCase, reused = turn.reused } = entry.data;
      return { ...turn, generation, dispatchCase, reused };
    }
    case 'turn.worker': {
      const { turnId: _, ...worker } = entry.data;
      return { ...turn, ...worker };
    }
    case 'turn.output': {
      const { stream, offset, bytes } = entry.data;
      return { ...turn, [`${stream}Bytes` as const]: offset + bytes };
    }
    case 'turn.cancelling':
      return { ...turn, cancelRequested: true };
    case 'turn.ended': {
      const { turnId: _, content, output: __, ...rest } = entry.data;
      const status: TurnStatus = rest.status;
      return { ...turn, ...rest, status, resultSha256: content?.sha256 ?? null };
    }
  }
}

/**
 * Where the history and the rows disagree, one line each: `status: history "idle", row "active"`. Empty when they
 * agree.
 */
export function projectionMismatches(
  projected: ProjectedSession | null,
  session: SessionRow,
  turns: readonly TurnSummary[],
): string[] {
  if (projected === null) return ['the history does not begin with session.created'];
  const found: string[] = [];
  const compare = (what: string, history: unknown, row: unknown): void => {
    const [left, right] = [canonicalJson(history), canonicalJson(row)];
    if (left !== right) found.push(`${what}: history ${left}, row ${right}`);
  };
  for (const field of PROJECTED_SESSION) compare(field, projected[field], session[field]);
  const rows = new Map(turns.map((turn) => [turn.id, turn]));
  for (const turn of projected.turns) {
    const row = rows.get(turn.id);
    rows.delete(turn.id);
    if (row === undefined) found.push(`${turn.id}: in the history only`);
    else for (const field of PROJECTED_TURN) compare(`${turn.id}.${field}`, turn[field], row[field]);
  }
  for (const id of rows.keys()) found.push(`${id}: in the rows only`);
  return found;
}
