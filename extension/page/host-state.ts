import type { HOST_STATES } from '../../webview/messages.ts';
import type { ConnectionState } from '../connection/state.ts';

export interface PageHostState {
  readonly host: (typeof HOST_STATES)[number];
  /** What is wrong and what to do, for a state other than `connected`. */
  readonly why: string | null;
}

/** The state of a connection as the pages show it. */
export function hostState(state: ConnectionState): PageHostState {
  switch (state.kind) {
    case 'unused':
    case 'connecting':
      return { host: 'connecting', why: null };
    case 'connected':
      return { host: 'connected', why: null };
    case 'engineDown':
      return {
        host: 'engine-down',
        why: state.engine.why === null ? null : `Docker does not answer: ${state.engine.why}.`,
      };
    case 'noSupervisor':
      return { host: 'offline', why: `${state.error.sentence}.` };
  }
}
