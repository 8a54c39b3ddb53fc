import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { EgressFixture, gatewayAddresses, ALLOWED_ADDRESS, WILDCARD_DOMAIN } from './egress-fixture.ts';

const OutcomeSchema = z.object({ did: z.string().optional(), error: z.string().optional() });
const OutcomesSchema = z.record(z.string(), OutcomeSchema);
const succeeded = (outcomes: z.infer<typeof OutcomesSchema>) =>
  Object.entries(outcomes).filter(([, { did }]) => did !== undefined);

let fixture: EgressFixture;
beforeAll(async () => {
  fixture = await EgressFixture.create();
});
afterAll(async () => {
  await fixture.dispose();
});

describe('without the proxy nothing is reachable', () => {
  test('no interface but loopback, and no route', async () => {
    const shape = z.object({ interfaces: z.array(z.string()), routes: z.number() });
    const { interfaces, routes } = await fixture.runAttack(shape, { deed: 'interfaces' });
    // Kernels list tunnel devices that are not configured.
    expect(
      interfaces.filter((name) => !/^(tunl|gre|gretap|erspan|ip_vti|ip6_vti|sit|ip6tnl|ip6gre)0$/.test(name)),
    ).toEqual(['lo']);
    expect(routes).toBe(0);
  });

  test('no address answers over TCP or UDP: this machine, gateways, metadata, name servers, public hosts', async () => {
    const targets = [
      '127.0.0.1',
      ALLOWED_ADDRESS,
      '::1',
      ...gatewayAddresses(),
      '172.17.0.1',
      '10.0.2.2',
      '192.168.65.2',
      '169.254.169.254',
      '169.254.170.2',
      '100.100.100.200',
      '168.63.129.16',
      '127.0.0.11',
      '8.8.8.8',
      '1.1.1.1',
      '255.255.255.255',
      '224.0.0.1',
      'fd00:ec2::254',
      'fe80::1',
      'ff02::1',
      '2001:4860:4860::8888',
      '::ffff:127.0.0.1',
      '::ffff:169.254.169.254',
    ];
    const outcomes = await fixture.runAttack(OutcomesSchema, { deed: 'direct', targets, port: fixture.port });
    expect(Object.keys(outcomes)).toHaveLength(2 * new Set(targets).size);
    expect(succeeded(outcomes)).toEqual([]);
  });

  test('no names are resolved', async () => {
    expect(succeeded(await fixture.runAttack(OutcomesSchema, { deed: 'names' }))).toEqual([]);
  });

  test('no raw, packet or ping sockets reach anything, none leads to a hypervisor, and no interface or namespace can be created', async () => {
    const outcomes = await fixture.runAttack(OutcomesSchema, { deed: 'kernel' });
    expect(succeeded(outcomes)).toEqual([]);
  });
});

test('no socket of the supervisor, of Docker or of the sidecar can be found', async () => {
  const outcomes = await fixture.runAttack(
    z.object({ tried: OutcomesSchema, listed: z.array(z.string()), walked: z.array(z.string()) }),
    {
      deed: 'sockets',
      paths: [
        '/var/run/docker.sock',
        '/run/docker.sock',
        '/run/containerd/containerd.sock',
        '@containerd-shim',
        '/ctl/sidecar.sock',
        join(fixture.home.path, 'supervisor.sock'),
        '/proc/1/root/var/run/docker.sock',
      ],
    },
  );
  expect(succeeded(outcomes.tried)).toEqual([]);
  expect(outcomes.walked).toEqual([]);
  // The sidecar's control socket is a file in its own mount: its name may be visible, because the namespace is
  // shared, but does not resolve.
  expect(outcomes.listed.filter((path) => path.startsWith('@'))).toEqual([]);
});

describe('through the proxy', () => {
  const notations = (): string[] => [
    '127.0.0.1',
    '127.0.0.2',
    '127.1',
    '127.0.1',
    '0177.0.0.1',
    '0177.0.0.01',
    '0x7f.0.0.1',
    '0x7f000001',
    '0X7F000001',
    '2130706433',
    '017700000001',
    '127.000.000.001',
    '127.0.0.1.',
    '127.0.0.1..',
    '127.0.0.1%00',
    '127.0.0.1\0',
    '127。0。0。1',
    '１２７.0.0.1',
    '①②⑦.0.0.1',
    '0',
    '0.0.0.0',
    '00.00.00.00',
    '[::1]',
    '[::]',
    '[0:0:0:0:0:0:0:1]',
    '[0000:0000:0000:0000:0000:0000:0000:0001]',
    '[::ffff:127.0.0.1]',
    '[::ffff:7f00:1]',
    '[0:0:0:0:0:ffff:7f00:0001]',
    '[::127.0.0.1]',
    '[::7f00:1]',
    '[64:ff9b::7f00:1]',
    '[64:ff9b::127.0.0.1]',
    '[2002:7f00:1::]',
    '[::1%lo]',
    '[::1%25lo]',
    '[::1',
    '::1',
    'localhost',
    'LOCALHOST',
    'localhost.',
    'localhost.localdomain',
    'ip6-localhost',
    'host.docker.internal',
    '169.254.169.254',
    '2852039166',
    '0xa9fea9fe',
    '0251.0376.0251.0376',
    '[::ffff:169.254.169.254]',
    '[fd00:ec2::254]',
    '[fe80::1]',
    '100.100.100.200',
    '168.63.129.16',
    'metadata.google.internal',
    ...gatewayAddresses(),
  ];

  test('no notation of an address without a rule is dialed, by CONNECT or plain requests', async () => {
    const hosts = notations();
    // Every name resolves to a canary, so an illegal lookup shows.
    fixture.names.set('*', ['127.0.0.1', '::1']);
    const requests = hosts.flatMap((host) => {
      const target = `${Buffer.from(host).toString('latin1')}:${fixture.port}`;
      return [
        `CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n\r\n`,
        `GET http://${target}/hello HTTP/1.1\r\nHost: ${target}\r\n\r\n`,
      ];
    });
    const said = await fixture.sendRequests(requests);
    const wrong = said.flatMap((one, at) => ([400, 403].includes(one.status) ? [] : [[hosts[at >> 1], one]]));
    expect(wrong).toEqual([]);
    // No request waited: a lookup or a dial would time out after ten seconds.
    expect(said.filter(({ ended, ms }) => ended !== 'ended' || ms > 5000)).toEqual([]);
    expect(fixture.reachedCanaries()).toEqual([]);
    // None of the names was allowed, so none was resolved.
    expect(fixture.names.queries).toEqual([]);
  });

  test('an allowed name that resolves to a non-public address is not dialed', async () => {
    const addresses = [
      '127.0.0.1',
      '127.0.0.2',
      '0.0.0.0',
      '10.0.0.1',
      '100.64.0.1',
      '169.254.169.254',
      '172.17.0.1',
      '192.168.0.1',
      '198.18.0.1',
      '224.0.0.1',
      '255.255.255.255',
      '168.63.129.16',
      '::',
      '::1',
      '::ffff:7f00:1',
      '::ffff:a9fe:a9fe',
      '64:ff9b::7f00:1',
      '2002:7f00:1::',
      '2001::1',
      'fc00::1',
      'fd00:ec2::254',
      'fe80::1',
      'ff02::1',
      ...gatewayAddresses(),
    ];
    addresses.forEach((address, at) => fixture.names.set(`n${at}.${WILDCARD_DOMAIN}`, [address]));
    const targets = addresses.map((_, at) => `n${at}.${WILDCARD_DOMAIN}:${fixture.port}`);
    const said = await fixture.sendRequests(
      targets.map((target) => `CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n\r\n`),
    );
    const wrong = said.flatMap((one, at) =>
      one.status === 403 && one.answer.includes('X-Holdfast-Egress: private_address')
        ? []
        : [[addresses[at], one]],
    );
    expect(wrong).toEqual([]);
    expect(fixture.reachedCanaries()).toEqual([]);
    expect(said[0]?.answer).toContain(
      `holdfast policy allow ${await fixture.sessionId()} '127.0.0.1:${fixture.port}'`,
    );
  });

  test('a name is resolved once: later addresses are never dialed', async () => {
    const name = `rebinding.${WILDCARD_DOMAIN}`;
    fixture.names.set(name, (nth, family) =>
      family === 6 ? [] : [nth % 2 === 1 ? ALLOWED_ADDRESS : '127.0.0.1'],
    );
    const target = `${name}:${fixture.port}`;
    const before = fixture.names.queries.length;
    const request = `GET http://${target}/hello HTTP/1.1\r\nHost: ${target}\r\n\r\n`;
    const said = await fixture.sendRequests(Array.from({ length: 40 }, () => request));
    expect(said.map(({ status }) => status)).toEqual(said.map((_, at) => (at % 2 === 0 ? 200 : 403)));
    expect(fixture.names.queries.slice(before).filter((asked) => asked === `${name} 4`)).toHaveLength(40);
    expect(fixture.reachedCanaries()).toEqual([]);
  });

  test('of several addresses only those that pass are tried, also if none answers', async () => {
    const [both, dead] = [`both.${WILDCARD_DOMAIN}`, `dead.${WILDCARD_DOMAIN}`];
    fixture.names.set(both, ['127.0.0.1', ALLOWED_ADDRESS, '::1', '127.0.0.2']);
    // Nobody listens there.
    await fixture.home.runOk(['policy', 'allow', 'attack/default', `127.0.0.9:${fixture.port}`]);
    fixture.names.set(dead, ['127.0.0.9', '127.0.0.1', '::1']);
    const said = await fixture.sendRequests(
      [both, dead].map(
        (name) =>
          `GET http://${name}:${fixture.port}/hello HTTP/1.1\r\nHost: ${name}:${fixture.port}\r\n\r\n`,
      ),
    );
    expect(said.map(({ status }) => status)).toEqual([200, 502]);
    expect(fixture.reachedCanaries()).toEqual([]);
  });
});

test('another sandbox cannot be reached, and its rules do not apply here', async () => {
  await fixture.deploy('neighbour', [`theirs.test:${fixture.port}`, `${ALLOWED_ADDRESS}:${fixture.port}`]);
  fixture.names.set('theirs.test', [ALLOWED_ADDRESS]);
  await fixture.home.runOk(['session', 'create', 'neighbour', '--name', 'default']);
  const serving = fixture.runAttack(z.string(), { deed: 'serve', port: 9000, seconds: 6 }, 'neighbour');
  const neighbour = z
    .object({ path: z.string() })
    .parse(await fixture.home.runJson(['workspace', 'info', 'neighbour/default'])).path;
  await expect
    .poll(() => readFile(join(neighbour, 'serving'), 'utf8').catch(() => ''), { timeout: 30_000 })
    .toBe('9000');
  const direct = await fixture.runAttack(OutcomesSchema, {
    deed: 'direct',
    targets: ['127.0.0.1', '::1'],
    port: 9000,
  });
  expect(succeeded(direct)).toEqual([]);
  const said = await fixture.sendRequests([
    'CONNECT 127.0.0.1:9000 HTTP/1.1\r\nHost: 127.0.0.1:9000\r\n\r\n',
    `GET http://theirs.test:${fixture.port}/hello HTTP/1.1\r\nHost: theirs.test:${fixture.port}\r\n\r\n`,
  ]);
  expect(said.map(({ status }) => status)).toEqual([403, 403]);
  expect(await serving).toBe('nobody came');
  const target = `http://theirs.test:${fixture.port}/hello`;
  const allowed = await fixture.runAttack(
    z.array(z.object({ answer: z.string() })),
    {
      deed: 'say',
      requests: [
        Buffer.from(`GET ${target} HTTP/1.1\r\nHost: theirs.test:${fixture.port}\r\n\r\n`).toString('base64'),
      ],
    },
    'neighbour',
  );
  expect(Buffer.from(allowed[0]?.answer ?? '', 'base64').toString()).toContain('200 OK');
});
