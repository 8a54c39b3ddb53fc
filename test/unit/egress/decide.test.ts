import { describe, expect, test } from 'vitest';
import { parseHostPattern, type RuleOrigin } from '../../../protocol/egress.ts';
import { isPublicAddress } from '../../../supervisor/egress/addresses.ts';
import { addressVerdict, decide, type Rule } from '../../../supervisor/egress/decide.ts';
import { resolveAllowedAddresses } from '../../../supervisor/egress/dial.ts';

let ids = 0;
function rule(effect: 'allow' | 'deny', host: string, from: RuleOrigin = 'session'): Rule {
  const pattern = parseHostPattern(host);
  if ('refused' in pattern) throw new Error(`${host}: ${pattern.refused}`);
  ids += 1;
  return { pattern, effect, from, id: from === 'file' ? null : ids };
}
const allow = (host: string, from?: RuleOrigin) => rule('allow', host, from);
const deny = (host: string, from?: RuleOrigin) => rule('deny', host, from);
const verdict = (rules: readonly Rule[], host: string, port: number) => {
  const said = decide(rules, host, port);
  return said.allowed ? `allowed by ${said.rule.from}` : said.reason;
};

describe('a decision', () => {
  test.each([
    [['a.test'], 'a.test', 443, 'allowed by session'],
    [['a.test'], 'a.test', 80, 'allowed by session'],
    [['a.test'], 'a.test', 8080, 'other_port'],
    [['a.test:8080'], 'a.test', 8080, 'allowed by session'],
    [['a.test:8080'], 'a.test', 443, 'other_port'],
    [['a.test'], 'b.a.test', 443, 'no_rule'],
    [['*.a.test'], 'a.test', 443, 'no_rule'],
    [['*.a.test'], 'b.a.test', 443, 'allowed by session'],
    [['*.a.test'], 'c.b.a.test', 80, 'allowed by session'],
    [['*.a.test'], 'ba.test', 443, 'no_rule'],
    [['*.a.test:22'], 'b.a.test', 22, 'allowed by session'],
    [['127.0.0.1:5'], '127.0.0.1', 5, 'allowed by session'],
    [['[::1]:5'], '::1', 5, 'allowed by session'],
    [[], 'a.test', 443, 'no_rule'],
  ])('of %j about %s:%i is: %s', (rules, host, port, expected) => {
    expect(
      verdict(
        rules.map((one) => allow(one)),
        host,
        port,
      ),
    ).toBe(expected);
  });

  test('carries what the deciding rules carry, and any protocol to the own machine', () => {
    const carried = (rules: readonly Rule[], host = 'a.test', port = 443): string => {
      const said = decide(rules, host, port);
      return said.allowed ? `${said.tcp ? 'tcp' : ''} ${said.ech ? 'ech' : ''}`.trim() : said.reason;
    };
    const tcp = (one: Rule): Rule => ({ ...one, tcp: true });
    const ech = (one: Rule): Rule => ({ ...one, ech: true });
    expect(carried([allow('a.test')])).toBe('');
    expect(carried([allow('*.test'), tcp(allow('a.test')), ech(allow('a.test:443'))])).toBe('tcp ech');
    expect(carried([tcp(allow('a.test', 'file')), allow('a.test')])).toBe('');
    // The second rule for once is for the next connection.
    expect(carried([allow('a.test', 'once'), tcp(allow('*.test', 'once'))])).toBe('');
    expect(carried([allow('host.holdfast.internal:5')], 'host.holdfast.internal', 5)).toBe('tcp');
    expect(carried([allow('127.0.0.1:5')], '127.0.0.1', 5)).toBe('tcp');
    expect(carried([allow('*.localhost')], 'a.localhost', 443)).toBe('');
  });

  test('is made by the most specific origin; within one origin a denial wins', () => {
    const host = 'a.test';
    expect(verdict([allow(host, 'file'), deny(host, 'profile')], host, 443)).toBe('denied');
    expect(verdict([deny(host, 'profile'), allow(host, 'session')], host, 443)).toBe('allowed by session');
    expect(verdict([deny(host, 'session'), allow(host, 'profile')], host, 443)).toBe('denied');
    expect(verdict([deny('*.test', 'session'), allow(host, 'session')], host, 443)).toBe('denied');
    expect(verdict([deny(host, 'session'), allow(host, 'once')], host, 443)).toBe('allowed by once');
    expect(verdict([deny(`${host}:80`, 'session'), allow(host, 'file')], host, 443)).toBe('allowed by file');
  });

  test('keeps a one-time rule if another rule allows the connection', () => {
    expect(verdict([allow('a.test', 'once'), allow('*.test', 'file')], 'a.test', 443)).toBe(
      'allowed by file',
    );
    expect(verdict([allow('a.test', 'once')], 'a.test', 443)).toBe('allowed by once');
  });

  test('that denies names the rule that would allow it', () => {
    expect(decide([], 'a.test', 443)).toMatchObject({ allow: 'a.test' });
    expect(decide([], 'a.test', 22)).toMatchObject({ allow: 'a.test:22' });
    expect(decide([], '2001:db8::1', 22)).toMatchObject({ allow: '[2001:db8::1]:22' });
  });

  test('about the address of a name ignores one-time rules', () => {
    expect(addressVerdict([allow('127.0.0.1:5', 'once')], '127.0.0.1', 5)).toBe('unnamed');
    expect(addressVerdict([allow('127.0.0.1:5')], '127.0.0.1', 5)).toBe('named');
    expect(addressVerdict([deny('192.0.2.1')], '192.0.2.1', 443)).toBe('denied');
  });
});

describe('an address', () => {
  const PUBLIC = [
    '1.1.1.1',
    '9.255.255.255',
    '11.0.0.0',
    '100.63.255.255',
    '100.128.0.0',
    '126.255.255.255',
    '128.0.0.0',
    '169.253.255.255',
    '172.15.255.255',
    '172.32.0.0',
    '192.167.255.255',
    '198.17.255.255',
    '198.20.0.0',
    '223.255.255.255',
    '2606:4700::1',
    '2a00::1',
    '2001:4860:4860::8888',
  ];
  const SPECIAL = [
    '0.0.0.0',
    '0.255.255.255',
    '10.0.0.0',
    '10.255.255.255',
    '100.64.0.0',
    '100.127.255.255',
    '127.0.0.1',
    '127.255.255.255',
    '169.254.169.254',
    '172.16.0.0',
    '172.31.255.255',
    '192.0.0.1',
    '192.0.2.1',
    '192.88.99.1',
    '192.168.0.0',
    '192.168.255.255',
    '198.18.0.0',
    '198.19.255.255',
    '198.51.100.1',
    '203.0.113.1',
    '224.0.0.0',
    '239.255.255.255',
    '240.0.0.0',
    '255.255.255.255',
    '168.63.129.16',
    '::',
    '::1',
    '::ffff:1.1.1.1',
    '::1.1.1.1',
    '64:ff9b::101:101',
    '64:ff9b:1::1',
    '100::1',
    '2001::1',
    '2001:20::1',
    '2001:db8::1',
    '2002:101:101::1',
    '3fff::1',
    'fc00::1',
    'fd00:ec2::254',
    'fe80::1',
    'fec0::1',
    'ff02::1',
    '4000::1',
  ];
  const nobody = () => new Set<string>();

  test('is public outside the special ranges, up to their boundaries', () => {
    expect(PUBLIC.filter((address) => !isPublicAddress(address, nobody))).toEqual([]);
    expect(SPECIAL.filter((address) => isPublicAddress(address, nobody))).toEqual([]);
  });

  test('of this machine is not public', () => {
    expect(isPublicAddress('1.1.1.1', () => new Set(['1.1.1.1']))).toBe(false);
    expect(isPublicAddress('2606:4700::1', () => new Set(['2606:4700::1']))).toBe(false);
  });

  test('is dialed if it passes, in the resolver’s order; others are skipped', async () => {
    const found =
      (...addresses: string[]) =>
      () =>
        Promise.resolve(addresses);
    const rules = [allow('a.test'), allow('10.0.0.5'), deny('1.0.0.1')];
    const checked = (...addresses: string[]) =>
      resolveAllowedAddresses('a.test', 443, rules, found(...addresses));
    expect(await checked('10.0.0.1', '1.1.1.1', '1.0.0.1', '10.0.0.5', '::1', '9.9.9.9')).toEqual([
      '1.1.1.1',
      '10.0.0.5',
      '9.9.9.9',
    ]);
    await expect(checked('10.0.0.1')).rejects.toMatchObject({
      reason: 'private_address',
      address: '10.0.0.1',
    });
    await expect(checked('1.0.0.1')).rejects.toMatchObject({ reason: 'denied' });
    await expect(checked()).rejects.toMatchObject({ reason: 'not_resolved' });
  });

  test('of a private network is dialed for a name that the person who runs the supervisor gave, not one of this machine', async () => {
    const resolve = (): Promise<readonly string[]> =>
      Promise.resolve([
        ...['10.0.0.1', '127.0.0.1', '127.9.9.9', '169.254.169.254', '168.63.129.16', '224.0.0.1', '0.0.0.0'],
        '::1',
      ]);
    const resolve6 = (): Promise<readonly string[]> =>
      Promise.resolve([
        'fe80::1',
        '::ffff:127.0.0.1',
        'ff02::1',
        '64:ff9b::7f00:1',
        '192.168.1.4',
        'fd00::5',
      ]);
    const named = [{ ...allow('packages.test:4873'), mayBePrivate: true }];
    expect(await resolveAllowedAddresses('packages.test', 4873, named, resolve)).toEqual(['10.0.0.1']);
    expect(await resolveAllowedAddresses('packages.test', 4873, named, resolve6)).toEqual([
      '192.168.1.4',
      'fd00::5',
    ]);
    // Neither at another port nor for another name.
    const others = [...named, allow('packages.test:80'), allow('a.test:4873')];
    for (const [host, port] of [
      ['packages.test', 80],
      ['a.test', 4873],
    ] as const)
      await expect(resolveAllowedAddresses(host, port, others, resolve)).rejects.toMatchObject({
        reason: 'private_address',
      });
    await expect(
      resolveAllowedAddresses('packages.test', 4873, [...named, deny('10.0.0.1:4873')], resolve),
    ).rejects.toThrow();
  });

  test('of a metadata service or of a translation is not dialed for such a name either', async () => {
    const named = [{ ...allow('packages.test:4873'), mayBePrivate: true }];
    const passes = (address: string): Promise<boolean> =>
      resolveAllowedAddresses('packages.test', 4873, named, () => Promise.resolve([address])).then(
        () => true,
        () => false,
      );
    const dialed = async (addresses: readonly string[]): Promise<string[]> => {
      const verdicts = await Promise.all(addresses.map(passes));
      return addresses.filter((_, index) => verdicts[index]);
    };
    const never = [
      ...['fd00:ec2::254', 'fd20:ce::254', 'fd00:42::42', '100.100.100.200', '192.0.0.192'],
      // Each may stand for any IPv4 address.
      ...['64:ff9b:1::a9fe:a9fe', '2002:a9fe:a9fe::1', '2001:0:1::1', '::ffff:10.0.0.1', '::ffff:a00:1'],
      ...['0.1.2.3', '240.0.0.1', '255.255.255.255'],
    ];
    expect(await dialed(never)).toEqual([]);
    const open = ['100.64.0.1', '100.100.100.199', '192.0.1.1', 'fd00:ec1::254', 'fd00:ec3::1', 'fd20::1'];
    expect(await dialed(open)).toEqual(open);
  });

  test('what is the address of no machine is never dialed: a system would reach itself with it', async () => {
    const none = (): Promise<readonly string[]> => Promise.resolve([]);
    for (const [address, rule] of [
      ['0.0.0.0', '0.0.0.0'],
      ['0.1.2.3', '0.1.2.3'],
      ['::', '[::]'],
    ] as const)
      await expect(
        resolveAllowedAddresses(address, 8080, [allow(`${rule}:8080`)], none),
      ).rejects.toMatchObject({ reason: 'private_address', address });
    const found = (): Promise<readonly string[]> =>
      Promise.resolve(['0.0.0.0', '::', '::ffff:0.0.0.0', '1.1.1.1']);
    const rules = [allow('a.test'), allow('0.0.0.0'), allow('[::]')];
    expect(await resolveAllowedAddresses('a.test', 443, rules, found)).toEqual(['1.1.1.1']);
    // Addresses of a network stay those that a person can allow.
    expect(await resolveAllowedAddresses('10.0.0.5', 443, [allow('10.0.0.5')], none)).toEqual(['10.0.0.5']);
  });
});
