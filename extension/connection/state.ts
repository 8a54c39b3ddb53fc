import type { EngineStatus } from '../../protocol/entities.ts';
import type { HoldfastError } from '../../protocol/errors.ts';
import type { SupervisorPeer } from '../../protocol/client/connect.ts';

/** The state of the window's connection to the supervisor. */
export type ConnectionState =
  /** Nothing has needed the supervisor yet. */
  | { readonly kind: 'unused' }
  | { readonly kind: 'connecting' }
  | { readonly kind: 'connected'; readonly peer: SupervisorPeer; readonly engine: EngineStatus }
  /** The supervisor answers, and its engine does not. */
  | { readonly kind: 'engineDown'; readonly peer: SupervisorPeer; readonly engine: EngineStatus }
  | { readonly kind: 'noSupervisor'; readonly error: HoldfastError };

export type StateKind = ConnectionState['kind'];

/** The state of a connection whose engine has this status. */
export function connectedState(peer: SupervisorPeer, engine: EngineStatus): ConnectionState {
  return { kind: engine.reachable ? 'connected' : 'engineDown', peer, engine };
}

/** How long to wait before the next attempt, ms: from 250 ms, doubled up to 30 s. */
export function backoffMs(failures: number): number {
  return Math.min(30_000, 250 * 2 ** Math.min(failures, 10));
}

export interface SupervisorExit {
  readonly at: number;
  /** It was stopped, or replaced by a newer one. */
  readonly isIntended: boolean;
}

/** After this many crashes in a minute another start would not help. */
const MAX_CRASHES_PER_MINUTE = 3;

/**
 * Whether to start a supervisor where none answers. Not after somebody stopped it, and not after repeated crashes or a
 * failed start: then only a person's command starts one.
 */
export function mayStartSupervisor(
  exits: readonly SupervisorExit[],
  startFailed: boolean,
  now: number,
): boolean {
  if (startFailed) return false;
  const last = exits.at(-1);
  if (last === undefined) return true;
  if (last.isIntended) return false;
  const crashes = exits.filter(({ at, isIntended }) => !isIntended && now - at < 60_000);
  return crashes.length < MAX_CRASHES_PER_MINUTE;
}
