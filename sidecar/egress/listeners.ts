import { AGENT_TOOLS } from '../../protocol/agent-tools.ts';
import { EGRESS_PROXY, HOST_MACHINE } from '../../protocol/egress.ts';
import { EgressListener } from './listener.ts';

/** Which listener a call of the supervisor is for; without a field the proxy's. */
export interface EgressTarget {
  /** A port of the supervisor's machine. */
  readonly hostPort?: number | undefined;
  /** The port of a credential. */
  readonly credentialPort?: number | undefined;
}

/**
 * The listeners on the sandbox's loopback: one for the proxy, one for each forwarded port of the supervisor's machine,
 * one for each credential, and one for the tools of the agent.
 */
export class EgressListeners {
  readonly #proxyPort: number;
  #proxy: EgressListener | undefined;
  readonly #forwards = new Map<number, EgressListener>();
  readonly #credentials = new Map<number, EgressListener>();
  /** For the tools that Holdfast offers to agents. */
  readonly tools: EgressListener;

  constructor(proxyPort: number = EGRESS_PROXY.port, toolsPort: number = AGENT_TOOLS.port) {
    this.#proxyPort = proxyPort;
    this.tools = new EgressListener(AGENT_TOOLS.host, toolsPort);
  }

  forTarget({ hostPort, credentialPort }: EgressTarget): EgressListener {
    if (credentialPort !== undefined)
      return kept(
        this.#credentials,
        credentialPort,
        (port) => new EgressListener(EGRESS_PROXY.host, port, { persistent: true }),
      );
    if (hostPort !== undefined)
      return kept(this.#forwards, hostPort, (port) => new EgressListener(HOST_MACHINE.address, port));
    this.#proxy ??= new EgressListener(EGRESS_PROXY.host, this.#proxyPort);
    return this.#proxy;
  }

  close(): void {
    this.#proxy?.close();
    this.tools.close();
    for (const listener of [...this.#forwards.values(), ...this.#credentials.values()]) listener.close();
  }
}

function kept(
  known: Map<number, EgressListener>,
  port: number,
  make: (port: number) => EgressListener,
): EgressListener {
  const listener = known.get(port) ?? make(port);
  known.set(port, listener);
  return listener;
}
