import { sanitize } from '../base/sanitize.ts';
import { LOCAL } from './host-name.ts';
import type { ConnectionState } from './state.ts';

/** A host as the view shows it. */
export interface HostStatus {
  /** Beside the name. */
  readonly text: string;
  /** Lines. */
  readonly tooltip: readonly string[];
  /** Name of a VS Code icon. */
  readonly icon: string;
  readonly isConnected: boolean;
}

/** What a person reads about a host. Some of the words are the other machine's. */
export function hostStatus(state: ConnectionState): HostStatus {
  switch (state.kind) {
    case 'unused':
      return {
        text: 'not connected',
        tooltip: ['Not connected.'],
        icon: 'debug-disconnect',
        isConnected: false,
      };
    case 'connecting': {
      const { stage, lost } = state;
      const since = lost === undefined ? undefined : `since ${formatTime(lost.since)}`;
      const doing = stage === undefined ? undefined : sanitize(stage, 80);
      return {
        text: since === undefined ? (doing ?? 'connecting…') : `reconnecting ${since}`,
        tooltip: [
          since === undefined ? 'Connecting.' : `The connection broke. Reconnecting ${since}.`,
          ...(lost?.why === undefined ? [] : [`${sanitize(lost.why, 500)}.`]),
          ...(doing === undefined ? [] : [doing]),
        ],
        icon: 'sync~spin',
        isConnected: false,
      };
    }
    case 'connected':
      return { text: '', tooltip: ['Connected.'], icon: 'vm-active', isConnected: true };
    case 'engineDown':
      return {
        text: 'Docker is not running',
        tooltip: [
          `Docker does not answer there: ${sanitize(state.engine.why ?? 'no reason is known', 300)}.`,
          sanitize(state.engine.next ?? '', 300),
        ],
        icon: 'warning',
        isConnected: true,
      };
    case 'noSupervisor': {
      const { message, why, next } = state.error;
      return {
        text: `away since ${formatTime(state.since)}`,
        tooltip: [message, why, next]
          .filter((part) => part !== undefined)
          .map((part) => `${sanitize(part, 500)}.`),
        icon: 'debug-disconnect',
        isConnected: false,
      };
    }
  }
}

/** The name of a host in lists. */
export function hostTitle(name: string): string {
  return name === LOCAL ? 'This Machine' : sanitize(name, 63);
}

/** `ms`: since 1970. The time of the day, because nobody waits longer. */
function formatTime(ms: number): string {
  const at = new Date(ms);
  return [at.getHours(), at.getMinutes()].map((part) => String(part).padStart(2, '0')).join(':');
}

/** The title of a question that is about one host; names it where there are several, or it is another machine. */
export function onHost(title: string, host: string, hosts: number): string {
  return hosts === 1 && host === LOCAL ? title : `${title} on ${hostTitle(host)}`;
}
