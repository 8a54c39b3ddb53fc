import { type Duplex, duplexPair } from 'node:stream';
import { expect, test } from 'vitest';
import { CREDENTIAL_MESSAGE_BYTES } from '../../../egress-proxy/wire.ts';
import { credentialsOf } from '../../../protocol/credentials.ts';
import { MessageChannel } from '../../../protocol/wire/message-channel.ts';
import { CredentialEndpoint } from '../../../supervisor/egress/credentials/endpoint.ts';
import { EchoGuards } from '../../../supervisor/egress/credentials/echo-guard.ts';
import { EgressEventAggregator } from '../../../supervisor/egress/event-aggregator.ts';
import { Policies } from '../../../supervisor/egress/policies.ts';
import { SessionGate } from '../../../supervisor/egress/session-gate.ts';
import { Tunnel } from '../../../supervisor/egress/tunnel.ts';
import { EventLog } from '../../../supervisor/history/event-log.ts';
import { EgressRules } from '../../../supervisor/store/egress-rules.ts';
import { Profiles } from '../../../supervisor/store/profiles.ts';
import { Sessions } from '../../../supervisor/store/sessions.ts';
import { type Dice, diceFrom, fuzzedHost } from '../../egress-harness/fuzz-requests.ts';
import { sessionId, sessionRow, temporaryDatabase } from '../../fixtures/store/temporary-home.ts';
import { SOAK } from '../../setup/run-length.ts';

const SEED = Number(process.env['HOLDFAST_SEED'] ?? 20_260_101);
const CASES = SOAK ? 1_000_000 : 250;
const SOAK_MS = 60 * 60_000;
const SECRET = 'sk-fuzzed-0123456789';

function pick<T>(dice: Dice, from: readonly [T, ...T[]]): T {
  return from[dice(from.length)] ?? from[0];
}

/** What a process might say about a client, in its form or almost. */
function gateMessage(dice: Dice): object {
  const method = pick(dice, ['CONNECT', 'GET', 'POST', 'get', '', 'G T', 'X'.repeat(40)]);
  const host = pick<unknown>(dice, [
    'open.test',
    'a.wild.test',
    'evil.test',
    'OPEN.test',
    fuzzedHost(dice),
    7,
  ]);
  const port = pick<unknown>(dice, [80, 443, 8080, 0, -1, 70_000, 'x']);
  switch (dice(8)) {
    case 0:
    case 1:
    case 2:
      return { say: 'dial', method, host, port };
    case 3:
      return { say: 'request', method };
    case 4:
      return { say: 'carry', from: pick<unknown>(dice, [0, 1, 50, 10 ** 9, -1, null]) };
    case 5:
      return { say: 'denied', method, reason: pick(dice, ['bad_request', 'placeholder', 'no_rule']) };
    case 6:
      return { say: 'misused', reason: pick(dice, ['ech', 'no_sni', 'x']), serverName: host };
    default:
      return pick<object>(dice, [{ say: 'reset' }, { say: 'allow' }, {}, { say: ['dial'] }]);
  }
}

function requestMessage(dice: Dice): object {
  const odd = (usual: string): string =>
    dice(6) === 0
      ? usual +
        pick(dice, ['\r\nX: y', ' ', '\0', '\u00e9', '\u2028', '#', '\n', '\ud800', 'x'.repeat(70_000)])
      : usual;
  const names = [
    'Host',
    'Content-Length',
    'Transfer-Encoding',
    'Authorization',
    'Expect',
    'Upgrade',
    'Connection',
  ] as const;
  const values = ['x', '0', '5', 'chunked', 'Bearer y', '100-continue', 'close, host', '-1', '1e3'] as const;
  const headers = Array.from({ length: dice(5) }, () => [
    odd(pick(dice, names)),
    odd(pick(dice, values)),
  ]).flat();
  if (dice(20) === 0) headers.push('alone');
  switch (dice(8)) {
    case 0:
      return pick<object>(dice, [{ say: 'reset' }, { say: 'denied' }, { say: 'secret' }, {}]);
    default:
      return {
        say: 'request',
        exchange: dice(10) === 0 ? dice(3) - 1 : 1 + dice(4),
        method: odd(pick(dice, ['GET', 'POST', 'PUT', 'TRACE', 'CONNECT', 'HEAD', 'get'])),
        path: odd(pick(dice, ['/', '/v1?a=b', 'http://evil.test/', '*', '//evil.test/', ''])),
        headers,
      };
  }
}

/** Bytes that no honest process sends. */
function rawFrame(dice: Dice): Buffer {
  return Buffer.from(Array.from({ length: 1 + dice(20) }, () => (dice(2) === 0 ? dice(4) : dice(256))));
}

/** The far end of a channel, with everything that it is told. */
function evilPair(): { ours: MessageChannel; evil: MessageChannel; wire: Duplex; heard: unknown[] } {
  const [near, wire] = duplexPair();
  const ours = new MessageChannel(near, CREDENTIAL_MESSAGE_BYTES);
  const evil = new MessageChannel(wire, CREDENTIAL_MESSAGE_BYTES);
  const heard: unknown[] = [];
  for (const channel of [ours, evil]) channel.on('error', () => channel.destroy());
  evil.on('message', (message: unknown) => heard.push(message));
  evil.on('data', (bytes: Buffer) => heard.push(bytes.toString('latin1')));
  return { ours, evil, wire, heard };
}

async function misbehave(
  { evil, wire }: ReturnType<typeof evilPair>,
  dice: Dice,
  message: (dice: Dice) => object,
): Promise<void> {
  for (let left = 1 + dice(5); left > 0 && !evil.destroyed; left -= 1) {
    const act = dice(12);
    if (act === 0) wire.write(rawFrame(dice));
    else if (act === 1) evil.write('some bytes');
    else if (act === 2) evil.end();
    else evil.send(message(dice));
    if (dice(2) === 0) await new Promise(setImmediate);
  }
  await new Promise(setImmediate);
}

/** A connection of the sandbox that has sent a request, and is given up at the end. */
function sandbox(): { tunnel: Tunnel; leave: () => void } {
  const [near, far] = duplexPair();
  far.resume();
  const tunnel = new Tunnel(near);
  tunnel.on('error', () => undefined);
  const text = Buffer.from('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
  const length = Buffer.alloc(4);
  length.writeUInt32BE(text.length);
  far.write(Buffer.concat([length, text]));
  return { tunnel, leave: () => void tunnel.destroy() };
}

interface Watched {
  readonly log: ConstructorParameters<typeof SessionGate>[0]['log'];
  readonly errors: unknown[];
}

/** Distrust is a warning; an error is a fault of ours. */
function watched(): Watched {
  const errors: unknown[] = [];
  const none = (): void => undefined;
  const log: Watched['log'] = {
    debug: none,
    info: none,
    warn: none,
    error: (...said) => void errors.push(said),
    child: () => log,
  };
  return { log, errors };
}

test(
  `${CASES} processes that were taken over reach no name that the rules do not allow, and leave nothing behind`,
  async () => {
    const dice = diceFrom(SEED);
    const database = temporaryDatabase();
    const sessions = new Sessions(database);
    sessions.insert(sessionRow(1));
    const policies = new Policies({
      ...{ database, sessions },
      rules: new EgressRules(database),
      profiles: new Profiles(database),
      events: new EventLog(database),
      now: () => 1,
    });
    policies.setRule(sessionId(1), 'allow', 'open.test', 'session');
    policies.setRule(sessionId(1), 'allow', '*.wild.test', 'session');
    const asked = new Set<string>();
    const { log, errors } = watched();
    const pairs: ReturnType<typeof evilPair>[] = [];
    const gate = new SessionGate({
      sessionId: sessionId(1),
      policies,
      resolve: (name) => {
        asked.add(name);
        return Promise.reject(Object.assign(new Error('no'), { code: 'ENOTFOUND' }));
      },
      proxy: {
        openClient: () => {
          const pair = evilPair();
          pairs.push(pair);
          return Promise.resolve({ id: 1, channel: pair.ours });
        },
        openServer: () => Promise.resolve(evilPair().ours),
      },
      aggregator: new EgressEventAggregator({ record: () => undefined, now: () => 1 }),
      log,
    });
    let refused = 0;
    for (let at = 0; at < CASES; at += 1) {
      const { tunnel, leave } = sandbox();
      gate.serve(tunnel);
      await Promise.resolve();
      const pair = pairs.shift();
      if (pair === undefined) throw new Error('nobody was asked');
      await misbehave(pair, dice, gateMessage);
      refused += pair.heard.length;
      leave();
    }
    await expect.poll(() => gate.size).toBe(0);
    expect(errors).toEqual([]);
    expect([...asked].filter((name) => name !== 'open.test' && !name.endsWith('.wild.test'))).toEqual([]);
    expect(asked.has('open.test')).toBe(true);
    expect(refused).toBeGreaterThan(CASES / 20);
  },
  SOAK_MS,
);

test(
  `${CASES} processes that were taken over are told no key, and reach no host but the credential's`,
  async () => {
    const dice = diceFrom(SEED + 1);
    const [credential] = credentialsOf({
      credentials: [
        { host: 'api.test', secret: 'KEY', as: 'bearer', limits: { requests: 10_000_000, concurrent: 1000 } },
      ],
    });
    if (credential === undefined) throw new Error('there is no credential');
    const asked = new Set<string>();
    const { log, errors } = watched();
    const pairs: ReturnType<typeof evilPair>[] = [];
    const exchanges: ReturnType<typeof evilPair>[] = [];
    const endpoint = new CredentialEndpoint({
      sessionId: sessionId(1),
      credential,
      proxy: {
        openCredential: () => {
          const pair = evilPair();
          pairs.push(pair);
          return Promise.resolve({ id: 1, channel: pair.ours });
        },
        openExchange: () => {
          const pair = evilPair();
          exchanges.push(pair);
          return Promise.resolve(pair.ours);
        },
      },
      rules: () => [],
      resolve: (name) => {
        asked.add(name);
        return Promise.reject(Object.assign(new Error('no'), { code: 'ENOTFOUND' }));
      },
      secret: () => ({ value: Buffer.from(SECRET), identity: 'KEY' }),
      guards: new EchoGuards(),
      aggregator: new EgressEventAggregator({ record: () => undefined, now: () => 1 }),
      log,
      now: () => 1,
    });
    const statuses = new Set<unknown>();
    for (let at = 0; at < CASES; at += 1) {
      const { tunnel, leave } = sandbox();
      endpoint.serve(tunnel);
      await Promise.resolve();
      const pair = pairs.shift();
      if (pair === undefined) throw new Error('nobody was asked');
      await misbehave(pair, dice, requestMessage);
      const told = [pair, ...exchanges];
      for (const { evil } of exchanges.splice(0)) {
        if (dice(2) === 0) evil.write('x'.repeat(dice(20) + 1));
        if (dice(2) === 0) evil.end();
        await new Promise(setImmediate);
        evil.destroy();
      }
      for (const { heard } of told) {
        if (JSON.stringify(heard).includes(SECRET)) throw new Error(`case ${String(at)} was told the key`);
        for (const said of heard) {
          if (typeof said === 'object' && said !== null && 'status' in said) statuses.add(said.status);
        }
      }
      leave();
    }
    endpoint.close();
    expect(errors).toEqual([]);
    expect([...asked]).toEqual(['api.test']);
    for (const status of [400, 405, 502]) expect(statuses, String(status)).toContain(status);
    // Nothing of all that is still counted as running.
    await expect.poll(() => endpoint.size).toBe(0);
  },
  SOAK_MS,
);
