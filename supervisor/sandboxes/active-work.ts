import { HoldfastError } from '../../protocol/errors.ts';
import { Emitter } from '../base/emitter.ts';
import type { SessionRow } from '../store/sessions.ts';

export type WorkKind = 'turn' | 'exec' | 'terminal';

/**
 * The turns, execs and terminals of each session that count as use. A session with active work is never idle. Kept in memory only:
 * after a restart turns and terminals are found in the database, and execs have ended with the supervisor that streamed them.
 */
export class ActiveWork {
  /** The id of a session in which something started or ended. */
  readonly changed = new Emitter<string>();
  readonly #bySession = new Map<string, Map<string, WorkKind>>();

  add(sessionId: string, id: string, kind: WorkKind): void {
    const work = this.#bySession.get(sessionId) ?? new Map<string, WorkKind>();
    if (work.has(id)) return;
    work.set(id, kind);
    this.#bySession.set(sessionId, work);
    this.changed.emit(sessionId);
  }

  remove(sessionId: string, id: string): void {
    const work = this.#bySession.get(sessionId);
    if (work?.delete(id) !== true) return;
    if (work.size === 0) this.#bySession.delete(sessionId);
    this.changed.emit(sessionId);
  }

  has(sessionId: string, id: string): boolean {
    return this.#bySession.get(sessionId)?.has(id) ?? false;
  }

  count(sessionId: string): number {
    return this.#bySession.get(sessionId)?.size ?? 0;
  }

  /** Errors: `conflict` while the session has active work. `option` is the flag that ends the work instead. */
  requireIdle({ id, name }: Pick<SessionRow, 'id' | 'name'>, change: string, option = '--force'): void {
    const active = this.count(id);
    if (active === 0) return;
    throw new HoldfastError('conflict', `Session ${name} is not ${change}`, {
      why: `${this.#describe(id)} still running in it`,
      next: `wait, cancel the work, or repeat the command with ${option}`,
      details: { live: active },
    });
  }

  /** Active work beside `id`. With none, a turn may get an empty /tmp. */
  countOthers(sessionId: string, id: string): number {
    const work = this.#bySession.get(sessionId);
    if (work === undefined) return 0;
    return work.size - (work.has(id) ? 1 : 0);
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
