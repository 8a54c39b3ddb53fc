import { HoldfastError } from '../../protocol/errors.ts';
import type { SessionRow } from '../store/sessions.ts';

export type WorkKind = 'turn' | 'exec' | 'terminal';

/**
 * What runs in each sandbox on somebody's behalf. A session with a live turn, exec or terminal is active and never idle.
 * Kept in memory only: turns are found again in the database, execs end with the supervisor that streams them.
 */
export class ActiveWork {
  readonly #bySession = new Map<string, Map<string, WorkKind>>();
  readonly #changed: (sessionId: string, live: number) => void;

  constructor(changed: (sessionId: string, live: number) => void) {
    this.#changed = changed;
  }

  add(sessionId: string, id: string, kind: WorkKind): void {
    const things = this.#bySession.get(sessionId) ?? new Map<string, WorkKind>();
    if (things.has(id)) return;
    things.set(id, kind);
    this.#bySession.set(sessionId, things);
    this.#changed(sessionId, things.size);
  }

  remove(sessionId: string, id: string): void {
    const things = this.#bySession.get(sessionId);
    if (things?.delete(id) !== true) return;
    if (things.size === 0) this.#bySession.delete(sessionId);
    this.#changed(sessionId, things.size);
  }

  has(sessionId: string, id: string): boolean {
    return this.#bySession.get(sessionId)?.has(id) ?? false;
  }

  count(sessionId: string): number {
    return this.#bySession.get(sessionId)?.size ?? 0;
  }

  /** Errors: `conflict` where something is live in the session; `option`: what ends that instead. */
  requireIdle({ id, name }: Pick<SessionRow, 'id' | 'name'>, what: string, option = '--force'): void {
    const live = this.count(id);
    if (live === 0) return;
    throw new HoldfastError('conflict', `Session ${name} is not ${what}`, {
      why: `${this.#describe(id)} still running in it`,
      next: `wait, cancel it, or repeat it with ${option}`,
      details: { live },
    });
  }

  /** Live things in the sandbox other than this one: with none, a turn may have a fresh /tmp. */
  countOthers(sessionId: string, id: string): number {
    const things = this.#bySession.get(sessionId);
    if (things === undefined) return 0;
    return things.size - (things.has(id) ? 1 : 0);
  }

  sessionIds(): string[] {
    return [...this.#bySession.keys()];
  }

  /** `1 turn, 2 execs`. */
  #describe(sessionId: string): string {
    const kinds = [...(this.#bySession.get(sessionId)?.values() ?? [])];
    const counts = (['turn', 'exec', 'terminal'] as const)
      .map((kind) => ({ kind, n: kinds.filter((one) => one === kind).length }))
      .filter(({ n }) => n > 0);
    return counts.map(({ kind, n }) => `${String(n)} ${kind}${n === 1 ? '' : 's'}`).join(', ');
  }
}
