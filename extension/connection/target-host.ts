import { HoldfastError } from '../../protocol/errors.ts';
import type { Connection } from './connection.ts';
import type { HostConnection } from './host-connection.ts';

const SESSION_PREFIX = 'ses-';

/**
 * The host that the first argument of a command is about: an entry of the Sessions view, or the id of a session. Undefined
 * where it names no host. Errors: `not_found` for a host that is no longer in the list.
 */
export function hostOfTarget(
  connection: Pick<Connection, 'of' | 'hosts'>,
  target: unknown,
): HostConnection | undefined {
  if (typeof target === 'string')
    return target.startsWith(SESSION_PREFIX) ? connection.of(target) : undefined;
  if (typeof target !== 'object' || target === null) return undefined;
  if ('session' in target) {
    const { session } = target;
    const id = typeof session === 'object' && session !== null && 'id' in session ? session.id : session;
    return typeof id === 'string' ? connection.of(id) : undefined;
  }
  if (!('host' in target)) return undefined;
  const host = connection.hosts.find(({ name }) => name === target.host);
  // Never another one in its place.
  if (host === undefined) throw new HoldfastError('not_found', 'The host is no longer in the list');
  return host;
}

/** Where something new begins: the window's host; where that one has no engine, the first host that has one. */
export function hostForNew({ own, known }: Pick<Connection, 'own' | 'known'>): HostConnection {
  if (own.state.kind !== 'engineDown') return own;
  return known.find(({ state }) => state.kind === 'connected') ?? own;
}
