import { Agent } from 'node:https';
import type { Duplex } from 'node:stream';
import { isIP } from 'node:net';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { HoldfastError } from '../../../protocol/errors.ts';
import { dialFirst, resolveAllowedAddresses } from '../dial.ts';
import type { Rule } from '../decide.ts';
import type { ResolveName } from '../resolver.ts';

const TLS_MS = 10_000;
/** How long an unused connection to a server is kept: less than servers usually do. */
const IDLE_MS = 4000;
const MOST_IDLE = 16;

export interface UpstreamOptions {
  /** Canonical. */
  readonly host: string;
  readonly port: number;
  readonly resolve: ResolveName;
  readonly rules: () => readonly Rule[];
  /** Certificates of authorities beside those that Node trusts, in PEM. */
  readonly authorities?: readonly string[] | undefined;
}

/**
 * Connections to one server: each is dialled to an address that was checked, and speaks TLS with a certificate for the
 * host. They are used again, and no request is ever sent a second time.
 */
export class Upstream extends Agent {
  readonly #options: UpstreamOptions;
  readonly #ending = new AbortController();
  /** The address of the latest connection. */
  address: string | null = null;

  constructor(options: UpstreamOptions) {
    super({ keepAlive: true, maxFreeSockets: MOST_IDLE, scheduling: 'lifo' });
    this.#options = options;
    // The next request on it sets its own.
    this.on('free', (socket: TLSSocket) => void socket.setTimeout(IDLE_MS));
  }

  override createConnection(
    _options: unknown,
    callback: (error: Error | null, stream: Duplex) => void,
  ): undefined {
    this.#connect().then(
      (socket) => callback(null, socket),
      // Node asks for a stream even where there is none.
      (error: unknown) =>
        callback(error instanceof Error ? error : HoldfastError.from(error), undefined as never),
    );
  }

  close(): void {
    this.#ending.abort(new HoldfastError('cancelled', 'The credential is no longer served'));
    this.destroy();
  }

  async #connect(): Promise<TLSSocket> {
    const { host, port, resolve, rules, authorities } = this.#options;
    const { signal } = this.#ending;
    const addresses = await resolveAllowedAddresses(host, port, rules(), resolve);
    signal.throwIfAborted();
    const { socket, address } = await dialFirst(addresses, port, signal);
    this.address = address;
    const { promise, resolve: opened, reject } = Promise.withResolvers<TLSSocket>();
    const secure = connectTls({
      socket,
      host,
      ...(isIP(host) === 0 ? { servername: host } : {}),
      ALPNProtocols: ['http/1.1'],
      minVersion: 'TLSv1.2',
      ...(authorities === undefined ? {} : { ca: [...authorities] }),
    });
    const fail = (error: Error): void => {
      secure.destroy();
      reject(error);
    };
    const late = setTimeout(() => fail(new Error('no TLS in time')), TLS_MS);
    const aborted = (): void => fail(new Error('no longer served'));
    signal.addEventListener('abort', aborted, { once: true });
    secure.once('error', fail);
    secure.once('close', () => reject(new Error('closed before TLS was there')));
    secure.once('secureConnect', () => {
      secure.off('error', fail);
      opened(secure);
    });
    try {
      return await promise;
    } finally {
      clearTimeout(late);
      signal.removeEventListener('abort', aborted);
    }
  }
}
