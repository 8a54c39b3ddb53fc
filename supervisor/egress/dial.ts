import { connect, isIP, type OnReadOpts, type Socket } from 'node:net';
import { type EgressReason, HOST_MACHINE } from '../../protocol/egress.ts';
import { isOffLimitsAddress, isPublicAddress, isUnspecifiedAddress } from './addresses.ts';
import { addressVerdict, decide, type Rule } from './decide.ts';
import type { ResolveName } from './resolver.ts';

/** Time limits for one address, and for all of them together. */
const CONNECT_MS = 10_000;
const DIAL_MS = 20_000;
const KEEP_ALIVE_MS = 60_000;
const MOST_ADDRESSES = 8;
/** Addresses of the services on the supervisor's machine. */
const OWN_ADDRESSES: readonly string[] = ['127.0.0.1', '::1'];

/** Why no connection was made. */
export class DialError extends Error {
  override readonly name = 'NotDialled';
  readonly reason: Extract<EgressReason, 'private_address' | 'denied' | 'not_resolved' | 'not_reached'>;
  /** The address concerned, if any. */
  readonly address: string | null;

  constructor(reason: DialError['reason'], message: string, address: string | null, cause?: unknown) {
    super(message, { cause });
    this.reason = reason;
    this.address = address;
  }
}

export interface DialedConnection {
  readonly socket: Socket;
  readonly address: string;
}

/** Connects to the first address that answers. Errors: `DialError`. */
export async function dialFirst(
  addresses: readonly string[],
  port: number,
  signal: AbortSignal,
  onread?: OnReadOpts,
): Promise<DialedConnection> {
  const until = performance.now() + DIAL_MS;
  let failure: unknown;
  for (const address of addresses) {
    signal.throwIfAborted();
    const left = Math.min(CONNECT_MS, until - performance.now());
    if (left <= 0) break;
    try {
      return { socket: await connected(address, port, left, signal, onread), address };
    } catch (error) {
      failure = error;
    }
  }
  const why = failure instanceof Error ? failure.message : 'no answer in time';
  throw new DialError('not_reached', why, addresses[0] ?? null, failure);
}

/**
 * Resolves an allowed host, once, and checks every address. Only the addresses returned may be dialed, and nobody
 * resolves the name a second time. In the resolver's order. Errors: `DialError`.
 */
export async function resolveAllowedAddresses(
  host: string,
  port: number,
  rules: readonly Rule[],
  resolve: ResolveName,
): Promise<readonly string[]> {
  const isHostMachine = host === HOST_MACHINE.name;
  let found: readonly string[];
  try {
    if (isHostMachine) found = OWN_ADDRESSES;
    else found = isIP(host) === 0 ? await resolve(host) : [host];
  } catch (error) {
    const why = error instanceof Error && 'code' in error ? String(error.code) : String(error);
    throw new DialError('not_resolved', `the name cannot be resolved (${why})`, null, error);
  }
  const byName = decide(rules, host, port);
  const mayBePrivate = byName.allowed && byName.rule.mayBePrivate === true;
  const verdicts = found.slice(0, MOST_ADDRESSES).map((address) => {
    const verdict = addressVerdict(rules, address, port);
    const isReachable = isPublicAddress(address) || (mayBePrivate && !isOffLimitsAddress(address));
    const passes = verdict === 'named' || (verdict === 'unnamed' && isReachable);
    // A host requested by its address has been decided already.
    const isDecided = address === host || isHostMachine;
    // The supervisor would reach its own loopback interface with it.
    const isNobodys = isUnspecifiedAddress(address);
    return { address, verdict, passes: !isNobodys && (passes || (isDecided && verdict !== 'denied')) };
  });
  const passed = verdicts.filter(({ passes }) => passes).map(({ address }) => address);
  if (passed.length > 0) return passed;
  const [first] = verdicts;
  if (first === undefined) throw new DialError('not_resolved', 'the name has no address', null);
  if (first.verdict === 'denied') throw new DialError('denied', 'a rule denies its address', first.address);
  throw new DialError('private_address', 'its address is not public', first.address);
}

function connected(
  address: string,
  port: number,
  timeoutMs: number,
  signal: AbortSignal,
  onread: OnReadOpts | undefined,
): Promise<Socket> {
  const { promise, resolve, reject } = Promise.withResolvers<Socket>();
  const socket = connect({
    host: address,
    port,
    allowHalfOpen: true,
    noDelay: true,
    keepAlive: true,
    keepAliveInitialDelay: KEEP_ALIVE_MS,
    ...(onread === undefined ? {} : { onread }),
  });
  const fail = (error: Error): void => {
    done();
    socket.destroy();
    reject(error);
  };
  const late = setTimeout(() => fail(new Error('no answer in time')), timeoutMs);
  const aborted = (): void => fail(new Error('the client closed the connection'));
  const done = (): void => {
    clearTimeout(late);
    signal.removeEventListener('abort', aborted);
    socket.off('error', fail);
  };
  signal.addEventListener('abort', aborted, { once: true });
  socket.once('error', fail);
  socket.once('connect', () => {
    done();
    resolve(socket);
  });
  return promise;
}
