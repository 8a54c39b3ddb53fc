import type { EngineStatus } from '../../protocol/entities.ts';
import type { HoldfastError } from '../../protocol/errors.ts';
import type { SupervisorPeer } from '../../protocol/client/connect.ts';

/** The state of the window's connection to the supervisor of a host. */
export type ConnectionState =
  /** Nothing has needed the supervisor yet. */
  | { readonly kind: 'unused' }
  | {
      readonly kind: 'connecting';
      /** What is being done. Another machine may have said it. */
      readonly stage?: string;
      /** The connection before broke at `since` (ms), and why the attempts since have failed. */
      readonly lost?: { readonly since: number; readonly why?: string };
    }
  | { readonly kind: 'connected'; readonly peer: SupervisorPeer; readonly engine: EngineStatus }
  /** The supervisor answers, and its engine does not. */
  | { readonly kind: 'engineDown'; readonly peer: SupervisorPeer; readonly engine: EngineStatus }
  | { readonly kind: 'noSupervisor'; readonly error: HoldfastError; readonly since: number };

export type StateKind = ConnectionState['kind'];

/** The state of a connection whose engine has this status. */
export function connectedState(peer: SupervisorPeer, engine: EngineStatus): ConnectionState {
  return { kind: engine.reachable ? 'connected' : 'engineDown', peer, engine };
}
