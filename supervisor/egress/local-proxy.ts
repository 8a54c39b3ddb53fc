import { type Duplex, duplexPair } from 'node:stream';
import { ProxyServer } from '../../egress-proxy/proxy-server.ts';
import type { Purpose } from '../../egress-proxy/wire.ts';
import { MessageChannel } from '../../protocol/wire/message-channel.ts';
import type { ProxyConnections } from './session-gate.ts';

/** The egress proxy in the supervisor's own process, with the same interface as one that runs elsewhere. */
export class LocalProxy implements ProxyConnections {
  readonly #server = new ProxyServer();
  #lastId = 0;

  hold(): () => void {
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

  #open(purpose: Purpose): MessageChannel {
    const [ours, theirs] = duplexPair();
    tie(ours, theirs);
    tie(theirs, ours);
    this.#server.accept(theirs);
    const channel = new MessageChannel(ours);
    channel.send(purpose);
    return channel;
  }
}

/** Destroying one half of a pair does not notify the other, as that of a socket does. */
function tie(one: Duplex, other: Duplex): void {
  one.once('close', () => setImmediate(() => other.destroy()));
}
