import type { Duplex } from 'node:stream';
import { MessageChannel } from '../protocol/wire/message-channel.ts';
import { HttpProxy } from './http-proxy.ts';
import { PurposeSchema } from './wire.ts';

/** Serves the connections that the supervisor opens. */
export class ProxyServer {
  readonly #proxy = new HttpProxy();

  accept(stream: Duplex): void {
    const channel = new MessageChannel(stream);
    channel.on('error', () => channel.destroy());
    channel.once('message', (message: unknown) => {
      const purpose = PurposeSchema.safeParse(message);
      if (!purpose.success) channel.destroy();
      else if (purpose.data.for === 'client')
        this.#proxy.serve(channel, purpose.data.id, purpose.data.session);
      else if (purpose.data.for === 'server') this.#proxy.takeServer(channel, purpose.data.id);
      else answerPulse(channel);
    });
  }
}

/** Says whatever it is told. */
function answerPulse(channel: MessageChannel): void {
  channel.on('message', (message: object) => channel.send(message));
}
