import type { EngineStatus, SessionEvent } from '../../protocol/entities.ts';
import { typesThat } from '../../protocol/event-facts.ts';
import { parseEvent } from '../../protocol/events.ts';
import type { HostChange, HostPosition } from '../../protocol/host.ts';
import type { Engine } from '../engine/port.ts';
import type { Profiles } from '../store/profiles.ts';
import type { Sessions } from '../store/sessions.ts';
import type { SessionViews } from './session-views.ts';

/** Occurrences that are kept for readers that are behind. */
const MAX_OCCURRENCES = 1000;
/** Changed states whose place in the order is kept. A reader that is further behind starts over. */
const MAX_STATES = 20_000;
/** A part of the feed ends at this size, or at this many sessions. */
const PART_BYTES = 256 * 1024;
const PART_SESSIONS = 100;
const STREAMED: ReadonlySet<string> = new Set(typesThat('isStreamed'));

export interface HostFeedOptions {
  readonly epoch: number;
  readonly sessions: Pick<Sessions, 'get' | 'all'>;
  readonly profiles: Pick<Profiles, 'get' | 'list'>;
  readonly views: Pick<SessionViews, 'of' | 'list'>;
  readonly engine: Pick<Engine, 'status'>;
  /** Limits; only tests change them. */
  readonly maxOccurrences?: number;
  readonly maxStates?: number;
}

/** Where a reader stands: after a change, or within a snapshot that was begun at `seq`. */
export type HostCursor =
  | { readonly kind: 'after'; readonly seq: number }
  | { readonly kind: 'snapshot'; readonly seq: number; readonly page: string | null };

export interface HostPart {
  readonly seq: number;
  readonly isSnapshot: boolean;
  readonly isComplete: boolean;
  readonly changes: readonly HostChange[];
  readonly next: HostCursor;
}

/** A state that clients see, by what identifies it. */
type State =
  | { readonly kind: 'session'; readonly id: string }
  | { readonly kind: 'profile'; readonly id: string }
  | { readonly kind: 'engine'; readonly id: '' };

interface Mark {
  readonly seq: number;
  readonly state: State;
}

type Occurrence = Extract<HostChange, { kind: 'turn' | 'permission' | 'denial' }>;

/**
 * Everything that changes on this host, in one order for all clients. It keeps no copy of any state: for each state it
 * knows when it last changed, and reads it when a reader gets there. So a reader costs a number, however slow it is.
 */
export class HostFeed {
  readonly #options: HostFeedOptions;
  readonly #listeners = new Set<() => void>();
  /** In the order of their last change. */
  readonly #marks = new Map<string, Mark>();
  readonly #occurrences: { readonly seq: number; readonly change: Occurrence }[] = [];
  #seq = 0;
  /** Changes up to here are not known one by one any more. */
  #floor = 0;
  #wasReachable: boolean;

  constructor(options: HostFeedOptions) {
    this.#options = options;
    this.#wasReachable = options.engine.status().reachable;
  }

  get position(): HostPosition {
    return { epoch: this.#options.epoch, seq: this.#seq };
  }

  /** Calls `listener` after every change until the returned function is called. */
  onChange(listener: () => void): () => void {
    const own = (): void => listener();
    this.#listeners.add(own);
    return () => this.#listeners.delete(own);
  }

  reportSession(id: string): void {
    this.#mark({ kind: 'session', id });
  }

  reportProfile(name: string): void {
    this.#mark({ kind: 'profile', id: name });
    // When a session expires follows from its profile.
    for (const row of this.#options.sessions.all()) {
      if (row.profile === name && row.status !== 'deleted') this.reportSession(row.id);
    }
  }

  handleEngineStatus({ reachable }: EngineStatus): void {
    this.#mark({ kind: 'engine', id: '' });
    if (reachable === this.#wasReachable) return;
    this.#wasReachable = reachable;
    for (const row of this.#options.sessions.all()) {
      if (row.status !== 'deleted') this.reportSession(row.id);
    }
  }

  handleEvent(event: SessionEvent): void {
    const change = occurrenceOf(event);
    if (change !== null) {
      this.#seq += 1;
      this.#occurrences.push({ seq: this.#seq, change });
      if (this.#occurrences.length > (this.#options.maxOccurrences ?? MAX_OCCURRENCES)) {
        this.#occurrences.shift();
      }
    }
    if (!STREAMED.has(event.type)) this.reportSession(event.sessionId);
  }

  /** The cursor of a reader that has seen everything up to `after`; of a snapshot where that cannot be continued. */
  cursorAfter(after: HostPosition | undefined): HostCursor {
    const isKnown =
      after?.epoch === this.#options.epoch && after.seq >= this.#floor && after.seq <= this.#seq;
    return isKnown ? { kind: 'after', seq: after.seq } : { kind: 'snapshot', seq: this.#seq, page: null };
  }

  /** The next part for a reader; null if there is nothing new. */
  read(cursor: HostCursor): HostPart | null {
    if (cursor.kind === 'snapshot') return this.#readSnapshot(cursor);
    if (cursor.seq < this.#floor) return this.#readSnapshot({ kind: 'snapshot', seq: this.#seq, page: null });
    return cursor.seq === this.#seq ? null : this.#readChanges(cursor.seq);
  }

  #readSnapshot({ seq, page }: Extract<HostCursor, { kind: 'snapshot' }>): HostPart {
    const { views, profiles, engine } = this.#options;
    const changes: HostChange[] = [];
    if (page === null) {
      changes.push({ kind: 'engine', engine: engine.status() });
      for (const { name, version } of profiles.list())
        changes.push({ kind: 'profile', profile: name, version });
    }
    // A session that changes its place between two pages has changed, and follows after the snapshot.
    let limit = PART_SESSIONS;
    for (;;) {
      const { sessions, nextCursor } = views.list({ limit, ...(page === null ? {} : { cursor: page }) });
      if (limit > 1 && sizeOf(sessions) > PART_BYTES) {
        limit = Math.ceil(limit / 4);
        continue;
      }
      for (const session of sessions) changes.push({ kind: 'session', session });
      const next: HostCursor =
        nextCursor === null ? { kind: 'after', seq } : { kind: 'snapshot', seq, page: nextCursor };
      return { seq, isSnapshot: page === null, isComplete: nextCursor === null, changes, next };
    }
  }

  #readChanges(after: number): HostPart {
    const states = [...this.#marks.values()].filter(({ seq }) => seq > after);
    const occurrences = this.#occurrences.filter(({ seq }) => seq > after);
    const ordered = [...states, ...occurrences].sort((a, b) => a.seq - b.seq);
    const changes: HostChange[] = [];
    let bytes = 0;
    let seq = this.#seq;
    for (const one of ordered) {
      const change = 'change' in one ? one.change : this.#stateOf(one.state);
      const size = sizeOf(change);
      if (changes.length > 0 && bytes + size > PART_BYTES) {
        seq = one.seq - 1;
        break;
      }
      bytes += size;
      changes.push(change);
    }
    return { seq, isSnapshot: false, isComplete: true, changes, next: { kind: 'after', seq } };
  }

  #stateOf(state: State): HostChange {
    const { sessions, profiles, views, engine } = this.#options;
    switch (state.kind) {
      case 'engine':
        return { kind: 'engine', engine: engine.status() };
      case 'profile':
        return { kind: 'profile', profile: state.id, version: profiles.get(state.id)?.version ?? null };
      case 'session': {
        const row = sessions.get(state.id);
        if (row === null || row.status === 'deleted') {
          return { kind: 'session-removed', sessionId: state.id };
        }
        return { kind: 'session', session: views.of(row) };
      }
    }
  }

  #mark(state: State): void {
    const key = `${state.kind} ${state.id}`;
    this.#seq += 1;
    // Deleted first, because a map keeps the place of a key that it has.
    this.#marks.delete(key);
    this.#marks.set(key, { seq: this.#seq, state });
    if (this.#marks.size > (this.#options.maxStates ?? MAX_STATES)) {
      const [oldest] = this.#marks;
      if (oldest !== undefined) {
        this.#marks.delete(oldest[0]);
        this.#floor = oldest[1].seq;
      }
    }
    for (const listener of this.#listeners) listener();
  }
}

/** What a person may want to be notified of; null for every other event. */
function occurrenceOf(event: SessionEvent): Occurrence | null {
  const { sessionId, at } = event;
  switch (event.type) {
    case 'turn.queued':
    case 'turn.started':
    case 'turn.ended':
    case 'permission.asked':
    case 'permission.answered':
    case 'egress':
      break;
    default:
      return null;
  }
  const entry = parseEvent(event);
  switch (entry?.type) {
    case 'turn.queued':
      return { kind: 'turn', sessionId, turnId: entry.data.turnId, status: 'queued', at };
    case 'turn.started':
      return { kind: 'turn', sessionId, turnId: entry.data.turnId, status: 'running', at };
    case 'turn.ended':
      return { kind: 'turn', sessionId, turnId: entry.data.turnId, status: entry.data.status, at };
    case 'permission.asked': {
      const { permissionId, turnId, title } = entry.data;
      return { kind: 'permission', sessionId, turnId, permissionId, state: 'asked', title, at };
    }
    case 'permission.answered': {
      const { permissionId, turnId } = entry.data;
      return { kind: 'permission', sessionId, turnId, permissionId, state: 'answered', title: '', at };
    }
    case 'egress': {
      const { decision, host, port, allow } = entry.data;
      return decision === 'denied' ? { kind: 'denial', sessionId, host, port, allow, at } : null;
    }
    default:
      return null;
  }
}

function sizeOf(value: unknown): number {
  return Buffer.byteLength(JSON.stringify(value));
}
