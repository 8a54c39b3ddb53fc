import type { EngineStatus } from '../../protocol/entities.ts';
import type { HoldfastError } from '../../protocol/errors.ts';
import type { SupervisorPeer } from '../../protocol/client/connect.ts';

/** What stands between a person and their sessions. */
export type ConnectionState =
  /** Nobody has asked for anything yet. */
  | { readonly kind: 'unused' }
  | { readonly kind: 'connecting' }
  | { readonly kind: 'connected'; readonly peer: SupervisorPeer; readonly engine: EngineStatus }
  /** The supervisor answers, its engine does not. */
  | { readonly kind: 'engineDown'; readonly peer: SupervisorPeer; readonly engine: EngineStatus }
  | { readonly kind: 'noSupervisor'; readonly error: HoldfastError };

export type StateKind = ConnectionState['kind'];

/** The same state with the engine as it is now. */
export function connectedState(peer: SupervisorPeer, engine: EngineStatus): ConnectionState {
  return { kind: engine.reachable ? 'connected' : 'engineDown', peer, engine };
}

/** How long to wait before the next try, ms. It never ends, and never becomes a nuisance. */
export function backoffMs(failures: number): number {
  return Math.min(30_000, 250 * 2 ** Math.min(failures, 10));
}

export interface SupervisorExit {
  readonly at: number;
  /** It was told to leave, or made room for a newer one. */
  readonly onPurpose: boolean;
}

/** More crashes than this in a minute are not mended by starting it once more. */
const CRASHES_A_MINUTE = 3;

/**
 * Whether to start a supervisor where none answers. Not against somebody's will (it was stopped), and not again and again
 * when it crashes or cannot start; then only a person's next step does.
 */
export function mayStartSupervisor(
  departures: readonly SupervisorExit[],
  startFailed: boolean,
  now: number,
): boolean {
  if (startFailed) return false;
  const last = departures.at(-1);
  if (last === undefined) return true;
  if (last.onPurpose) return false;
  const recent = departures.filter(({ at, onPurpose }) => !onPurpose && now - at < 60_000);
  return recent.length < CRASHES_A_MINUTE;
}
