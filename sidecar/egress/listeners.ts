import { EGRESS_PROXY, HOST_MACHINE } from '../../protocol/egress.ts';
import { EgressListener } from './listener.ts';

/**
 * The listeners on the sandbox's loopback: one for the proxy, and one for each forwarded port of the supervisor's
 * machine.
 */
export class EgressListeners {
  readonly #proxyPort: number;
  #proxy: EgressListener | undefined;
  readonly #forwards = new Map<number, EgressListener>();

  constructor(proxyPort: number = EGRESS_PROXY.port) {
    this.#proxyPort = proxyPort;
  }

  /** `hostPort`: a port of the supervisor's machine; undefined for the proxy. */
  forPort(hostPort: number | undefined): EgressListener {
    if (hostPort === undefined) {
      this.#proxy ??= new EgressListener(EGRESS_PROXY.host, this.#proxyPort);
      return this.#proxy;
    }
    const known = this.#forwards.get(hostPort);
    if (known !== undefined) return known;
    const listener = new EgressListener(HOST_MACHINE.address, hostPort);
    this.#forwards.set(hostPort, listener);
    return listener;
  }

  close(): void {
    this.#proxy?.close();
    for (const listener of this.#forwards.values()) listener.close();
  }
}
