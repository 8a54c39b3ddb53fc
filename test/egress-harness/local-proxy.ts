import { type Duplex, duplexPair } from 'node:stream';
import { ProxyServer } from '../../egress-proxy/proxy-server.ts';
import { CREDENTIAL_MESSAGE_BYTES, type Purpose } from '../../egress-proxy/wire.ts';
import { MessageChannel } from '../../protocol/wire/message-channel.ts';
import type { CredentialConnections } from '../../supervisor/egress/credentials/endpoint.ts';
import type { ProxyConnections } from '../../supervisor/egress/session-gate.ts';

function dialInside(server: ProxyServer): Duplex {
  const [ours, theirs] = duplexPair();
  tie(ours, theirs);
  tie(theirs, ours);
  server.accept(theirs);
  return ours;
}

/** The egress proxy's code in this process, with the interface of a process that is kept. */
export class LocalProxy implements ProxyConnections, CredentialConnections {
  readonly #server = new ProxyServer();
  #lastId = 0;

  acquireLease(): () => void {
    return () => undefined;
  }

  close(): Promise<void> {
    return Promise.resolve();
  }

  openClient(session: string): Promise<{ readonly id: number; readonly channel: MessageChannel }> {
    this.#lastId += 1;
    const id = this.#lastId;
    return Promise.resolve({ id, channel: this.#open({ for: 'client', id, session }) });
  }

  openServer(id: number): Promise<MessageChannel> {
    return Promise.resolve(this.#open({ for: 'server', id }));
  }

  openCredential(): Promise<{ readonly id: number; readonly channel: MessageChannel }> {
    this.#lastId += 1;
    const id = this.#lastId;
    return Promise.resolve({ id, channel: this.#open({ for: 'credential', id }, CREDENTIAL_MESSAGE_BYTES) });
  }

  openExchange(id: number, exchange: number): Promise<MessageChannel> {
    return Promise.resolve(this.#open({ for: 'exchange', id, exchange }));
  }

  #open(purpose: Purpose, mostMessageBytes?: number): MessageChannel {
    const channel = new MessageChannel(dialInside(this.#server), mostMessageBytes);
    channel.on('error', () => channel.destroy());
    channel.send(purpose);
    return channel;
  }
}

/** Destroying one half of a pair does not notify the other, as that of a socket does. */
function tie(one: Duplex, other: Duplex): void {
  one.once('close', () => setImmediate(() => other.destroy()));
}
