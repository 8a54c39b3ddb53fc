import { SeededRandom } from '../fixtures/protocol/seeded-random.ts';

/** Random numbers below `limit`. */
export type Dice = (limit: number) => number;

export function diceFrom(seed: number): Dice {
  const random = new SeededRandom(seed);
  return (limit) => random.below(limit);
}

const METHODS = ['GET', 'POST', 'CONNECT', 'HEAD', 'OPTIONS', 'PUT', 'TRACE', 'PRI', 'get', 'CONNECT '];
const HOSTS = [
  'open.test',
  'OPEN.TEST.',
  'a.wild.test',
  'evil.test',
  'open.test.evil.test',
  '127.0.0.1',
  '127.1',
  '0x7f000001',
  '[::1]',
  '[::ffff:127.0.0.1]',
  'user@open.test',
  'open.test@evil.test',
  'evil.test#.wild.test',
  'evil.test?.wild.test',
  'evil.test\\.wild.test',
  'evil.test%2e.wild.test',
  'evil.test\0.wild.test',
  '',
  '*',
  'xn--ls8h.wild.test',
  'f\xfc.wild.test',
];
const PORTS = ['', ':80', ':443', ':22', ':0', ':65536', ':080', ':+80', ': 80', ':80:443', ':', ':8e1'];
const HEADERS = [
  'Host: open.test',
  'Host: evil.test',
  'Host : open.test',
  'Content-Length: 5',
  'Content-Length: 0',
  'Content-Length: -1',
  'Content-Length: 5, 5',
  'Transfer-Encoding: chunked',
  'Transfer-Encoding: identity, chunked',
  'Transfer-Encoding:\x0bchunked',
  'Connection: keep-alive',
  'Connection: host, content-length',
  'Proxy-Connection: keep-alive',
  'Upgrade: h2c',
  'Expect: 100-continue',
  'Expect: more',
  ' folded',
  'X: \0',
  'X: \r\ry',
  ': none',
];
const BODIES = [
  '',
  'hello',
  '0\r\n\r\n',
  '5\r\nhello\r\n0\r\n\r\n',
  'GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n',
];
const ODD = '\0\t\n\r %/:?#@[]\\"\x7f\x80\xad\xff;,.-_*0aZ';

/** A valid or nearly valid request to a proxy, then mutated at random. Latin-1. */
export function fuzzedRequest(dice: Dice): string {
  const one = (from: readonly string[]): string => from[dice(from.length)] ?? '';
  const mostly = (usual: readonly string[], odd: readonly string[]): string => one(dice(8) > 0 ? usual : odd);
  const method = mostly(['GET', 'POST', 'CONNECT', 'CONNECT'], METHODS);
  const known = dice(2) > 0;
  const authority =
    (known ? one(['open.test', 'OPEN.test.', 'a.wild.test', 'b.a.wild.test']) : one(HOSTS)) +
    (method === 'CONNECT' ? mostly([':80', ':443', ':22'], PORTS) : mostly(['', ':80', ':8080'], PORTS));
  const scheme = mostly(['http://'], ['HTTP://', 'https://', 'http:/', '//', '']);
  const absolute = scheme + authority + one(['', '/', '/x?y#z', '//evil.test/']);
  const target = (method === 'CONNECT') === dice(12) > 0 ? authority : absolute;
  const headers = Array.from({ length: Math.max(0, dice(5) - 2) }, () => one(HEADERS));
  headers.unshift(...(dice(8) > 0 ? [`Host: ${authority}`] : []));
  const end = mostly(['\r\n'], ['\n', '\r']);
  const version = mostly(['HTTP/1.1'], ['HTTP/1.0', 'HTTP/2.0', 'HTTP/1.1 ', '']);
  const text = [`${method} ${target} ${version}`, ...headers, '', ''].join(end) + mostly([''], BODIES);
  return dice(3) > 0 ? text : mutated(text, dice);
}

/** Changes, inserts or removes a few bytes. */
export function mutated(text: string, dice: Dice): string {
  let out = text;
  for (let bites = 1 + dice(4); bites > 0; bites -= 1) {
    const at = dice(out.length + 1);
    const character = ODD[dice(ODD.length)] ?? '';
    const cut = dice(3);
    out = out.slice(0, at) + (cut < 2 ? character : '') + out.slice(at + (cut > 0 ? 1 + dice(3) : 0));
  }
  return out;
}

/** Notations of a host by people, programs and attackers. */
export function fuzzedHost(dice: Dice): string {
  const pieces = [
    'open',
    'test',
    '.',
    '.',
    'wild',
    'xn--',
    '-',
    '_',
    '127',
    '0x7f',
    '0177',
    '1',
    ':',
    '[',
    ']',
    '::',
    'ffff',
    '%',
    '@',
    '/',
    '\0',
    '\\',
    '。',
    '１',
    'ü',
    '\u00ad',
    'İ',
    'ß',
    '\u200d',
    '#',
    '?',
    ' ',
    '*.',
    ':80',
    ':65536',
    'A',
    '0',
    'e1',
  ];
  const text = Array.from({ length: 1 + dice(7) }, () => pieces[dice(pieces.length)] ?? '').join('');
  return dice(4) > 0 ? text : mutated(text, dice);
}
