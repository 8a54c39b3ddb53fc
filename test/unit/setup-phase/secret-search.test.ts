import { createHash, randomBytes } from 'node:crypto';
import { Readable } from 'node:stream';
import { pack } from 'tar-stream';
import { describe, expect, test } from 'vitest';
import { scanFiles } from '../../../supervisor/setup/secret-scan.ts';
import type { SetupSecret } from '../../../supervisor/setup/secret-parts.ts';
import { SecretRedaction, SecretSearch } from '../../../supervisor/setup/secret-search.ts';
import { seededRandom } from '../../fixtures/protocol/seeded-random.ts';
import { printInSoak, SOAK, soakCount } from '../../setup/run-length.ts';

const KEY = 'tok_4f9Qw/7+zz é"\\x1kP0';
/** How programs write what they were given. */
const ENCODINGS: Readonly<Record<string, (bytes: Buffer, random: () => number) => Buffer>> = {
  plain: (bytes) => bytes,
  base64: (bytes, random) =>
    Buffer.from(
      Buffer.concat([randomBytes(Math.floor(random() * 4)), bytes, randomBytes(2)]).toString('base64'),
    ),
  base64url: (bytes, random) =>
    Buffer.from(Buffer.concat([randomBytes(Math.floor(random() * 4)), bytes]).toString('base64url')),
  hex: (bytes) => Buffer.from(bytes.toString('hex')),
  HEX: (bytes) => Buffer.from(bytes.toString('hex').toUpperCase()),
  url: (bytes) => Buffer.from(encodeURIComponent(bytes.toString())),
  form: (bytes) => Buffer.from(new URLSearchParams({ a: bytes.toString() }).toString()),
  json: (bytes) => Buffer.from(JSON.stringify({ a: bytes.toString() })),
};
const SECRETS: readonly SetupSecret[] = [
  { name: 'KEY', value: Buffer.from(KEY) },
  { name: 'LONG', value: Buffer.from('0123456789abcdef'.repeat(40) + 'middle'.repeat(9) + 'x'.repeat(600)) },
  ...Array.from({ length: 18 }, (_, at) => ({
    name: `N${at}`,
    value: Buffer.from(createHash('sha256').update(`secret ${at}`).digest('base64').slice(0, 20)),
  })),
];

/** Cuts bytes at random places, into pieces of one byte at times. */
function chunksOf(bytes: Buffer, random: () => number): Buffer[] {
  const chunks: Buffer[] = [];
  for (let at = 0; at < bytes.length;) {
    const length = 1 + Math.floor(random() * (random() < 0.5 ? 3 : 64));
    chunks.push(bytes.subarray(at, at + length));
    at += length;
  }
  return chunks;
}

function embed(bytes: Buffer, random: () => number): Buffer {
  const around = (): Buffer => Buffer.from('lorem = ipsum;\n'.repeat(Math.floor(random() * 20)));
  return Buffer.concat([around(), bytes, around()]);
}

function readAll(search: SecretSearch, chunks: readonly Buffer[]): string[] {
  const reader = search.begin();
  for (const chunk of chunks) {
    const found = reader.read(chunk);
    // The memory of a chunk is used again by whoever reads files.
    if (found.length > 0) return found;
  }
  return [];
}

describe('the search for secrets', () => {
  const search = new SecretSearch(SECRETS);

  test.each(Object.keys(ENCODINGS))('finds each in %s, wherever chunks are cut', (name) => {
    const random = seededRandom(7);
    const encode = ENCODINGS[name] ?? ((bytes) => bytes);
    for (let round = 0; round < soakCount(30, 20_000); round += 1) {
      const secret = SECRETS[Math.floor(random() * SECRETS.length)];
      if (secret === undefined) throw new Error('none');
      const chunks = chunksOf(embed(encode(secret.value, random), random), random);
      expect(readAll(search, chunks), `round ${round}`).toContain(secret.name);
    }
  });

  test('finds nothing where there is nothing', () => {
    const random = seededRandom(8);
    for (let round = 0; round < 50; round += 1)
      expect(readAll(search, chunksOf(randomBytes(4096), random))).toEqual([]);
    expect(readAll(search, [Buffer.from(KEY.slice(0, -1)), Buffer.from('!')])).toEqual([]);
  });

  test('finds the key alone of a value that has one', () => {
    const search = new SecretSearch([
      { name: 'INDEX', value: Buffer.from('https://reader:p%40ssw0rd-1@index.example.com/simple/') },
      {
        name: 'NPMRC',
        value: Buffer.from('registry=https://a.example.com/\n//a/:_authToken=npm_0123456789abcdefgh\n'),
      },
    ]);
    const found = (text: string): string[] => readAll(search, [Buffer.from(text)]);
    expect(found('machine a password p%40ssw0rd-1')).toEqual(['INDEX']);
    expect(found('machine a password p@ssw0rd-1')).toEqual(['INDEX']);
    expect(found('Bearer npm_0123456789abcdefgh')).toEqual(['NPMRC']);
    expect(found('registry=https://a.example.com/')).toEqual([]);
    expect(found('https://index.example.com/simple/')).toEqual([]);
  });

  test.each([
    ['[global]\nextra-index-url = https://__token__:S3cret-of-pip@h/simple\n', 'S3cret-of-pip'],
    ['https://tok_4f9Qw0%2F@h/simple', 'tok_4f9Qw0/'],
    ['https://a:first-password@h/ https://b:second-p@ssword@i/', 'second-p@ssword'],
    ['//h/:_password="c2VjcmV0"\n', 'c2VjcmV0'],
    ["//h/:_authToken='npm_0123456789abcdefgh' \n", 'npm_0123456789abcdefgh'],
    ['url = https://h/simple?sig=0123456789abcdef', 'https://h/simple?sig=0123456789abcdef'],
    ['machine h\nlogin u\npassword net-rc-pass\n', 'net-rc-pass'],
    ['{"auths":{"h":{"auth":"dTpwYXNzd29yZA=="}}}', 'dTpwYXNzd29yZA=='],
    [
      Array.from({ length: 30 }, (_, at) => `//h${at}/:_authToken=npm_token_${at}`).join('\n'),
      'npm_token_29',
    ],
  ])('finds what is worth as much as the secret: %j', (value, key) => {
    const search = new SecretSearch([{ name: 'KEY', value: Buffer.from(value) }]);
    expect(readAll(search, [Buffer.from(`x ${key} y`)])).toEqual(['KEY']);
    expect(search.redact(`x ${key} y`)).toBe('x [secret KEY] y');
    for (const plain of ['https://h/simple', '__token__', 'password', 'machine h login u'])
      expect(readAll(search, [Buffer.from(plain)]), plain).toEqual([]);
  });

  test('refuses secrets with more keys than it can search for', () => {
    const lines = (count: number) =>
      Array.from({ length: count }, (_, at) => `//h${at}/:_authToken=npm_token_${at}`).join('\n');
    const given =
      (...values: string[]) =>
      () =>
        new SecretRedaction(values.map((value, at) => ({ name: `K${at}`, value: Buffer.from(value) })));
    expect(given(lines(40), lines(30))).toThrow('The setup cannot search its image for the secret K1');
    expect(given(lines(40))).not.toThrow();
  });

  test('names the files of a tar, and their secrets; no name shows one', async () => {
    const archive = pack();
    archive.entry({ name: 'etc/hello' }, 'hello');
    archive.entry({ name: 'etc/leak' }, Buffer.concat([randomBytes(200_000), Buffer.from(KEY)]));
    archive.entry({ name: 'opt/N3', type: 'symlink', linkname: `/x/${SECRETS[5]?.value.toString() ?? ''}` });
    archive.entry({ name: `opt/${SECRETS[6]?.value.toString() ?? ''}/a` }, '');
    archive.entry({ name: 'last' }, 'end');
    archive.finalize();
    const signal = new AbortController().signal;
    const found = await scanFiles(Readable.from(archive), new SecretSearch(SECRETS), signal);
    expect(found[2]?.file).toBe(`/opt/${SECRETS[6]?.value.toString() ?? ''}/a`);
    expect(found.map(({ secret, path }) => ({ secret, path }))).toEqual([
      { secret: 'KEY', path: '/etc/leak' },
      { secret: 'N3', path: '/opt/N3' },
      { secret: 'N4', path: '/opt/[secret N4]/a' },
    ]);
  });

  test('of a file system that breaks off, or that nobody waits for, is an error and not an answer', async () => {
    const half = pack();
    half.entry({ name: 'a', size: 100 }).write('only a part');
    const broken = Readable.from(
      (async function* () {
        yield (half.read() as Buffer | null) ?? Buffer.alloc(0);
        await Promise.resolve();
        throw new Error('the connection broke');
      })(),
    );
    const search = new SecretSearch(SECRETS);
    await expect(scanFiles(broken, search, new AbortController().signal)).rejects.toThrow();
    const cancel = new AbortController();
    const endless = scanFiles(new Readable({ read: () => undefined }), search, cancel.signal);
    cancel.abort(new Error('enough'));
    await expect(endless).rejects.toThrow();
  });

  test.runIf(SOAK)('reads 500 MB for 20 secrets in 3 s of a processor', () => {
    const search = new SecretSearch(SECRETS);
    const chunk = randomBytes(64 * 1024);
    const reader = search.begin();
    const began = process.cpuUsage();
    for (let read = 0; read < 500e6; read += chunk.length) reader.read(chunk);
    const { user, system } = process.cpuUsage(began);
    const ms = (user + system) / 1000;
    printInSoak(`500 MB for ${SECRETS.length} secrets: ${Math.round(ms)} ms`);
    expect(ms).toBeLessThan(3000);
  });
});

describe('what a setup prints', () => {
  test('has names in place of secrets, wherever chunks are cut', () => {
    const random = seededRandom(9);
    const redaction = new SecretRedaction(SECRETS);
    const searches = new Map(SECRETS.map((secret) => [secret, new SecretSearch([secret])]));
    for (let round = 0; round < soakCount(60, 20_000); round += 1) {
      const secret = SECRETS[Math.floor(random() * SECRETS.length)];
      if (secret === undefined) throw new Error('none');
      const [name, encode] = Object.entries(ENCODINGS)[round % 8] ?? ['plain', (bytes: Buffer) => bytes];
      const stream = redaction.begin();
      const printed = embed(encode(secret.value, random), random);
      const shown = Buffer.concat([
        ...chunksOf(printed, random).map((one) => stream.push(one)),
        stream.end(),
      ]);
      expect(shown.toString(), `${name}, round ${round}`).toContain(`[secret ${secret.name}]`);
      expect(searches.get(secret)?.begin().read(shown)).toEqual([]);
      if (name === 'plain') expect(shown.includes(secret.value.subarray(0, 40))).toBe(false);
    }
  });

  test('is as it was where there is no secret', () => {
    const stream = new SecretRedaction(SECRETS).begin();
    const text = `nearly: ${KEY.slice(0, -2)}\n`;
    expect(
      Buffer.concat([...Array.from(text, (one) => stream.push(Buffer.from(one))), stream.end()]).toString(),
    ).toBe(text);
  });
});
