import type { Session } from '../entities.ts';
import type { HostChange, HostPosition } from '../host.ts';
import type { NotificationParams } from '../methods.ts';

/** What a client knows of the host from its feed. */
export class HostState {
  #sessions: Map<string, Session> | undefined;
  #sorted: readonly Session[] | undefined;
  /** The parts of a snapshot that is not complete yet. */
  #snapshot: Map<string, Session> | undefined;
  #position: HostPosition | undefined;
  readonly #maxSessions: number;

  /** `maxSessions`: further ones are left out, for a host that may say anything. */
  constructor({ maxSessions = Infinity }: { readonly maxSessions?: number } = {}) {
    this.#maxSessions = maxSessions;
  }

  /** Where a new subscription continues; undefined before the first snapshot is complete. */
  get position(): HostPosition | undefined {
    return this.#position;
  }

  /** In the order of `session/list`: pinned sessions first, then the latest active. Undefined before the first snapshot. */
  get sessions(): readonly Session[] | undefined {
    if (this.#sessions === undefined) return undefined;
    this.#sorted ??= [...this.#sessions.values()].sort(
      (a, b) =>
        Number(b.pinned) - Number(a.pinned) || compare(b.lastActiveAt, a.lastActiveAt) || compare(a.id, b.id),
    );
    return this.#sorted;
  }

  /** Applies a notification. Returns whether `sessions` is another list now. */
  apply({ epoch, seq, isSnapshot, isComplete, changes }: NotificationParams<'host/changed'>): boolean {
    if (isSnapshot) this.#snapshot = new Map();
    const target = this.#snapshot ?? (this.#sessions ??= new Map<string, Session>());
    let isChanged = isSnapshot;
    for (const change of changes) isChanged = this.#applyTo(target, change) || isChanged;
    if (!isComplete) return false;
    if (this.#snapshot !== undefined) {
      this.#sessions = this.#snapshot;
      this.#snapshot = undefined;
      isChanged = true;
    }
    this.#position = { epoch, seq };
    if (isChanged) this.#sorted = undefined;
    return isChanged;
  }

  #applyTo(sessions: Map<string, Session>, change: HostChange): boolean {
    switch (change.kind) {
      case 'session':
        if (sessions.size >= this.#maxSessions && !sessions.has(change.session.id)) return false;
        sessions.set(change.session.id, change.session);
        return true;
      case 'session-removed':
        return sessions.delete(change.sessionId);
      default:
        return false;
    }
  }
}

function compare(a: string, b: string): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}
