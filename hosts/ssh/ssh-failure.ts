import { HoldfastError } from '../../protocol/errors.ts';
import type { Host } from '../base/host-list.ts';

interface Known {
  readonly sign: RegExp;
  readonly code: 'permission_denied' | 'connection_closed' | 'timeout' | 'not_found' | 'cancelled';
  readonly why: string;
  readonly next: string;
}

/** What ssh says when it cannot connect, and what a person can do. The first that fits counts. */
const KNOWN: readonly Known[] = [
  {
    sign: /REMOTE HOST IDENTIFICATION HAS CHANGED/,
    code: 'permission_denied',
    why: 'its host key is not the one that ssh knows: the machine was installed again, or somebody is intercepting the connection',
    next: 'ask whoever runs the machine; if the new key is right, remove the old one with `ssh-keygen -R HOST`',
  },
  {
    sign: /Host key verification failed/,
    code: 'permission_denied',
    why: 'its host key is not known and was not accepted',
    next: 'compare the fingerprint with whoever runs the machine, and accept the key',
  },
  {
    sign: /Too many authentication failures/,
    code: 'permission_denied',
    why: 'ssh offered too many keys',
    next: 'name the right one in ~/.ssh/config (IdentityFile, IdentitiesOnly yes)',
  },
  {
    sign: /Permission denied/,
    code: 'permission_denied',
    why: 'it accepts none of your keys, passwords and codes',
    next: 'try `ssh` to that host first; when it works there, it works here',
  },
  {
    sign: /Could not resolve hostname|Name or service not known/,
    code: 'not_found',
    why: 'its name cannot be resolved',
    next: 'check the name, or your ~/.ssh/config',
  },
  {
    sign: /Connection refused/,
    code: 'connection_closed',
    why: 'nothing listens on its ssh port',
    next: 'check that the machine runs sshd, and the port',
  },
  {
    sign: /No route to host|Network is unreachable/,
    code: 'connection_closed',
    why: 'there is no route to it',
    next: 'check the network, or whether you need a VPN',
  },
  {
    // As ssh says it of a proxy that ends: "Connection closed by UNKNOWN port 65535".
    sign: /Connection closed by|Connection reset by peer|kex_exchange_identification|Broken pipe/,
    code: 'connection_closed',
    why: 'the connection ended during the login',
    next: 'check the network and try again; a machine that refuses many logins in a row may need a minute',
  },
  {
    sign: /timed out|not responding/i,
    code: 'timeout',
    why: 'it does not answer',
    next: 'check the network, and whether the machine is up',
  },
];

/** Why ssh ended before the other side answered. `said`: what it wrote to standard error. */
export function sshFailure(host: Host, said: string, exit: string): HoldfastError {
  const what = `${host.name} (${host.destination}) cannot be reached`;
  const known = KNOWN.find(({ sign }) => sign.test(said));
  if (known !== undefined)
    return new HoldfastError(known.code, what, {
      why: known.why,
      next: known.next.replace('HOST', host.name),
      details: { ssh: said.slice(-2000) },
    });
  const last = said
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '')
    .at(-1);
  return new HoldfastError('connection_closed', what, {
    why: last === undefined ? `ssh ${exit}` : `ssh says: ${last.slice(0, 500)}`,
    next: `try \`ssh ${host.name}\` yourself; when it works there, it works here`,
    details: { ssh: said.slice(-2000) },
  });
}

/** Reasons for ending an attempt: the machine asks for a password or a code, and the person does not answer … */
export const DECLINED = Symbol('declined');
/** … or nobody can be asked. */
export const NOBODY = Symbol('nobody');

/** The error of an attempt that was ended for such a reason. */
export function unansweredFailure(host: Host, { reason }: AbortSignal): HoldfastError | undefined {
  if (reason === DECLINED)
    return new HoldfastError('cancelled', `Connecting to ${host.name} was cancelled`, {
      why: 'its question was not answered',
    });
  if (reason !== NOBODY) return undefined;
  return new HoldfastError('permission_denied', `${host.name} (${host.destination}) cannot be reached`, {
    why: 'it asks for a password or a code, and nobody can be asked here',
    next: 'run the command on a terminal; commands without one then share that login for ten minutes',
  });
}
