import type { Duplex } from 'node:stream';
import { MessageChannel } from '../protocol/wire/message-channel.ts';
import { CredentialServer } from './credential-server.ts';
import { HttpProxy } from './http-proxy.ts';
import { CREDENTIAL_MESSAGE_BYTES, type Purpose, PurposeSchema } from './wire.ts';

/** Serves the connections that the supervisor opens. */
export class ProxyServer {
  readonly #proxy = new HttpProxy();
  readonly #credentials = new CredentialServer();

  accept(stream: Duplex): void {
    const channel = new MessageChannel(stream, CREDENTIAL_MESSAGE_BYTES);
    channel.on('error', () => channel.destroy());
    channel.once('message', (message: unknown) => {
      const purpose = PurposeSchema.safeParse(message);
      if (purpose.success) this.#serve(channel, purpose.data);
      else channel.destroy();
    });
  }

  #serve(channel: MessageChannel, purpose: Purpose): void {
    switch (purpose.for) {
      case 'client':
        this.#proxy.serve(channel, purpose.id, purpose.session);
        break;
      case 'server':
        this.#proxy.takeServer(channel, purpose.id);
        break;
      case 'credential':
        this.#credentials.serve(channel, purpose.id);
        break;
      case 'exchange':
        this.#credentials.takeExchange(channel, purpose.id, purpose.exchange);
        break;
      case 'pulse':
        answerPulse(channel);
    }
  }
}

/** Says whatever it is told. */
function answerPulse(channel: MessageChannel): void {
  channel.on('message', (message: object) => channel.send(message));
}
