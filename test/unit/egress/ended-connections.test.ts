import { type Duplex, duplexPair } from 'node:stream';
import { setImmediate as turn } from 'node:timers/promises';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { credentialsOf } from '../../../protocol/credentials.ts';
import { MessageChannel } from '../../../protocol/wire/message-channel.ts';
import { TUNNEL_END } from '../../../protocol/wire/tunnel-frames.ts';
import { CredentialEndpoint } from '../../../supervisor/egress/credentials/endpoint.ts';
import { EchoGuards } from '../../../supervisor/egress/credentials/echo-guard.ts';
import { EgressEventAggregator } from '../../../supervisor/egress/event-aggregator.ts';
import { Tunnel } from '../../../supervisor/egress/tunnel.ts';
import { silent } from '../../egress-harness/in-process-egress.ts';

const MINUTE_MS = 60_000;

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
});
afterEach(() => {
  vi.useRealTimers();
});

interface Setting {
  readonly tunnel: Tunnel;
  /** The sandbox's end of it. */
  readonly client: Duplex;
  /** The process that reads the client, and that runs for each request. */
  readonly process: MessageChannel;
  readonly exchanges: MessageChannel[];
}

async function serving(): Promise<Setting> {
  const [credential] = credentialsOf({ credentials: [{ host: 'api.test', secret: 'KEY', as: 'bearer' }] });
  if (credential === undefined) throw new Error('there is no credential');
  const [ours, theirs] = duplexPair();
  const process = new MessageChannel(theirs);
  process.on('error', () => undefined);
  process.resume();
  const exchanges: MessageChannel[] = [];
  const endpoint = new CredentialEndpoint({
    sessionId: 'ses-1',
    credential,
    proxy: {
      openCredential: () => Promise.resolve({ id: 1, channel: new MessageChannel(ours) }),
      openExchange: () => {
        const [near, far] = duplexPair();
        const exchange = new MessageChannel(far);
        exchange.on('error', () => undefined);
        exchanges.push(exchange);
        return Promise.resolve(new MessageChannel(near));
      },
    },
    rules: () => [],
    resolve: () => new Promise(() => undefined),
    secret: () => ({ value: Buffer.from('sk-0123456789'), identity: 'KEY' }),
    guards: new EchoGuards(),
    aggregator: new EgressEventAggregator({ record: () => undefined, now: () => 1 }),
    log: silent,
    now: () => 1,
  });
  const [near, client] = duplexPair();
  client.resume();
  const tunnel = new Tunnel(near);
  endpoint.serve(tunnel);
  await turn();
  return { tunnel, client, process, exchanges };
}

test('a process cannot keep a connection that its client has ended', async () => {
  const { tunnel, client } = await serving();
  vi.advanceTimersByTime(10 * MINUTE_MS);
  expect(tunnel.destroyed).toBe(false);
  client.write(TUNNEL_END);
  await turn();
  vi.advanceTimersByTime(MINUTE_MS);
  expect(tunnel.destroyed).toBe(true);
});

test('a request of a client that has ended its side runs on', async () => {
  const { tunnel, client, process, exchanges } = await serving();
  process.send({ say: 'request', exchange: 1, method: 'GET', path: '/', headers: [] });
  await expect.poll(() => exchanges.length).toBe(1);
  client.write(TUNNEL_END);
  await turn();
  vi.advanceTimersByTime(10 * MINUTE_MS);
  expect(tunnel.destroyed).toBe(false);
  tunnel.destroy();
});
