import { HoldfastError } from '../../protocol/errors.ts';

/** Where ssh connects to. What is missing comes from the person's ssh configuration. */
export interface Destination {
  /** A name of `~/.ssh/config`, a host name or an address. */
  readonly host: string;
  readonly user: string | null;
  readonly port: number | null;
}

/** No character that ssh, its configuration or a shell could take for something else. */
const HOST = /^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$/;
const IPV6 = /^[0-9A-Fa-f:.]{2,45}(?:%[A-Za-z0-9._-]{1,32})?$/;
const USER = /^[A-Za-z0-9_][A-Za-z0-9._@+\\-]{0,63}$/;

/** Parses `ssh://user@host:2222`, `user@host` or a name of `~/.ssh/config`. Errors: `invalid_params`. */
export function parseDestination(text: string): Destination {
  const refuse = (why: string): never => {
    throw new HoldfastError('invalid_params', `${JSON.stringify(text)} is not a host that ssh can reach`, {
      why,
      next: 'write ssh://USER@HOST:PORT, USER@HOST, or a name of your ~/.ssh/config',
    });
  };
  const isUrl = text.startsWith('ssh://');
  if (!isUrl && text.includes('://')) return refuse('only ssh:// is supported');
  const rest = isUrl ? text.slice('ssh://'.length).replace(/\/$/, '') : text;
  if (rest.includes('/')) return refuse('it has a path; the home of the user on that machine is used');
  const at = rest.lastIndexOf('@');
  const user = at === -1 ? null : rest.slice(0, at);
  if (user?.includes(':') === true) return refuse('it has a password; let ssh ask for it, or use a key');
  if (user !== null && !USER.test(user)) return refuse('the user name has characters that are not allowed');
  const place = rest.slice(at + 1);
  const bracketed = /^\[([^\]]*)\](?::(\d+))?$/.exec(place);
  // Without ssh:// a colon belongs to an address.
  const split = bracketed ?? (isUrl ? /^([^:]*)(?::(\d+))?$/.exec(place) : null);
  const host = split?.[1] ?? place;
  if (!HOST.test(host) && !(host.includes(':') && IPV6.test(host)))
    return refuse('the host name has characters that are not allowed');
  const port = split?.[2] === undefined ? null : Number(split[2]);
  if (port !== null && (port < 1 || port > 65_535)) return refuse('the port is not between 1 and 65535');
  return { host, user, port };
}

/** As `parseDestination` reads it. */
export function formatDestination({ host, user, port }: Destination): string {
  const place = host.includes(':') ? `[${host}]` : host;
  return `ssh://${user === null ? '' : `${user}@`}${place}${port === null ? '' : `:${port}`}`;
}
