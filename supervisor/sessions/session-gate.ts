import type { SessionMove } from '../../protocol/move-state.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { MoveRow, MoveRows } from '../store/moves.ts';

/** How long requests that began before may take to end. */
const WAIT_MS = 20_000;

/**
 * Who may use a session. While it moves to another home or has come from one, its files, history and settings must not change: a change
 * that was acknowledged would be lost, or live twice.
 */
export class SessionGate {
  readonly #moves: Pick<MoveRows, 'holding' | 'findLeft'>;
  /** Requests under way that may change a session. */
  readonly #running = new Map<string, Set<Promise<unknown>>>();
  /** Sessions that are about to be held. */
  readonly #closing = new Set<string>();

  constructor(moves: Pick<MoveRows, 'holding' | 'findLeft'>) {
    this.#moves = moves;
  }

  /** Errors: `conflict` for a session that moves. `name` is the session's. */
  requireOpen(sessionId: string, name: string): void {
    const refusal = this.#refusal(sessionId, name);
    if (refusal !== null) throw refusal;
  }

  /** As `requireOpen`, for what works with the files before it is known what a session is being closed for. */
  requireNotHeld(sessionId: string): void {
    const held = this.#moves.holding(sessionId);
    if (held !== null) throw heldError(held, held.name);
  }

  /** Runs a request that may change the session. Errors: those of `requireOpen`, and of `act`. */
  async use<T>(sessionId: string, name: string, act: () => T | Promise<T>): Promise<T> {
    this.requireOpen(sessionId, name);
    const running = this.#running.get(sessionId) ?? new Set();
    this.#running.set(sessionId, running);
    const mine = Promise.resolve().then(act);
    const ended = mine.catch(() => undefined);
    running.add(ended);
    try {
      return await mine;
    } finally {
      running.delete(ended);
      if (running.size === 0) this.#running.delete(sessionId);
    }
  }

  /**
   * Refuses new requests until the returned function is called, and waits for those under way. Errors: `conflict` if they do not end, or
   * if somebody else closes it.
   */
  async close(sessionId: string, name: string): Promise<() => void> {
    this.requireOpen(sessionId, name);
    this.#closing.add(sessionId);
    const open = (): void => void this.#closing.delete(sessionId);
    const tooLong = Promise.withResolvers<'late'>();
    const timer = setTimeout(() => tooLong.resolve('late'), WAIT_MS);
    try {
      const running = Promise.all([...(this.#running.get(sessionId) ?? [])]);
      if ((await Promise.race([running, tooLong.promise])) !== 'late') return open;
      throw new HoldfastError('conflict', `Session ${name} is not moved`, {
        why: 'a request that uses it has not ended',
        next: 'try again when it has',
      });
    } catch (error) {
      open();
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  /** What clients see of it. */
  stateOf(sessionId: string): SessionMove | null {
    const held = this.#moves.holding(sessionId);
    if (held === null) return null;
    const state = held.state === 'leaving' || held.state === 'arriving' ? held.state : 'left';
    return { state, with: { home: held.peerHome, name: held.peerName } };
  }

  /** The error for a reference of which there is no session any more, if it has moved. */
  movedError(reference: string): HoldfastError | null {
    const left = this.#moves.findLeft(reference);
    return left === null ? null : heldError(left, left.name);
  }

  #refusal(sessionId: string, name: string): HoldfastError | null {
    const held = this.#moves.holding(sessionId);
    if (held !== null) return heldError(held, name);
    if (!this.#closing.has(sessionId)) return null;
    return new HoldfastError('conflict', `Session ${name} cannot be used now`, {
      why: 'it is being stopped, to move to another host',
      next: 'try again later',
    });
  }
}

function heldError(move: MoveRow, name: string): HoldfastError {
  const { state, peerName, peerSession, peerHome } = move;
  switch (state) {
    case 'leaving':
    case 'withdrawn':
      return new HoldfastError('conflict', `Session ${name} cannot be used now`, {
        why: `it is moving to ${peerName}`,
        next: `finish that with \`holdfast session move\`, or keep the session here with \`holdfast session move ${move.sessionId} --abort\``,
      });
    case 'released':
    case 'finished':
      return new HoldfastError('not_found', `Session ${name} is not here any more`, {
        why: `it has moved to ${peerName}, where it is ${peerSession ?? 'another session'}`,
        next: `use it there with \`--host\`; if the move was interrupted, repeat \`holdfast session move ${move.sessionId}\``,
        details: { movedTo: { home: peerHome, name: peerName, session: peerSession } },
      });
    case 'arriving':
    case 'active':
    case 'discarded':
      return new HoldfastError('conflict', `Session ${name} cannot be used yet`, {
        why: `it is arriving from ${peerName}, which has not released it as far as this machine knows`,
        next: 'repeat `holdfast session move` where you began it',
      });
  }
}
