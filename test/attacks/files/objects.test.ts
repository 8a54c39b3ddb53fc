import { execFileSync } from 'node:child_process';
import { readdirSync, statSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { FilesFixture, CANARY, resultOrErrorCode, CONTROL_ENTRIES, MAX_STALL_MS } from './files-fixture.ts';
import { SOAK } from '../../setup/run-length.ts';

const MIB = 2 ** 20;
const LOST = new Set(['file_not_found', 'file_unavailable', 'file_not_a_directory']);

describe.each([
  ['the kernel resolves', []],
  ['every step is walked', ['HOLDFAST_WITHOUT_NATIVE=1']],
])('what a hostile agent leaves lying about, where %s', (_how, sidecarEnv) => {
  let fixture: FilesFixture;
  beforeAll(async () => {
    fixture = await FilesFixture.create(sidecarEnv);
  });
  afterAll(async () => {
    await fixture.dispose();
  });
  const read = async (path: string) => (await fixture.files.call('files/read', { path })).bytes;

  test('links to what the sidecar alone has give nothing of it', async () => {
    await fixture.runAttack('links', '/workspace/links');
    const { entries } = (await fixture.files.call('files/list', { path: '/workspace/links' })).result;
    expect(entries.length).toBeGreaterThan(20);
    expect(entries.map(({ type, linkType }) => `${type} ${String(linkType)}`)).toEqual(
      entries.map(() => 'symlink null'),
    );
    for (const { name } of entries) {
      const path = `/workspace/links/${name}`;
      const got = [
        await resultOrErrorCode(read(path)),
        await resultOrErrorCode(fixture.files.call('files/stat', { path })),
        await resultOrErrorCode(fixture.files.call('files/list', { path })),
        await resultOrErrorCode(read(`${path}/secret`)),
        await resultOrErrorCode(read(`${path}/passwd`)),
        await resultOrErrorCode(
          fixture.files.call(
            'files/write',
            { path, create: true, overwrite: true },
            { bytes: Buffer.from('x') },
          ),
        ),
        await resultOrErrorCode(
          fixture.files.call(
            'files/write',
            { path: `${path}/secret`, create: true, overwrite: true },
            { bytes: Buffer.from('x') },
          ),
        ),
        await resultOrErrorCode(fixture.files.call('files/mkdir', { path: `${path}/made` })),
        await resultOrErrorCode(fixture.files.call('files/delete', { path: `${path}/secret` })),
        await resultOrErrorCode(
          fixture.files.call('files/rename', { from: `${path}/secret`, to: '/workspace/stolen' }),
        ),
        await resultOrErrorCode(
          fixture.files.call('files/copy', { from: `${path}/secret`, to: '/workspace/stolen' }),
        ),
        await resultOrErrorCode(
          fixture.files.call('files/rename', { from: '/workspace/links/self', to: `${path}/made` }),
        ),
      ];
      const odd = got.filter((code) => typeof code !== 'string' || !LOST.has(code));
      expect([name, odd]).toEqual([name, []]);
    }
    expect(fixture.listControlDirectory()).toEqual(CONTROL_ENTRIES);
    expect(readdirSync(fixture.pair.path('workspace')).filter((name) => name !== 'links')).toEqual([]);
    const copied = await fixture.files.call('files/copy', {
      from: '/workspace/links',
      to: '/workspace/copied',
    });
    expect(copied.result.bytes).toBe(0);
  });

  test.each([
    ['', 'invalid_params'],
    ['workspace/links', 'invalid_params'],
    ['/workspace/../ctl/secret', 'invalid_params'],
    ['/workspace/./links', 'invalid_params'],
    ['/workspace//links', 'invalid_params'],
    ['/workspace/links/', 'invalid_params'],
    ['/workspace/a\0b', 'invalid_params'],
    ['/workspace/␛2e␛2e/ctl/secret', 'invalid_params'],
    ['/workspace/␛00', 'invalid_params'],
    [`/workspace/${'n'.repeat(256)}`, 'invalid_params'],
    [`/workspace/${'n/'.repeat(2043)}`, 'invalid_params'],
    ['/ctl/secret', 'file_not_found'],
    ['/proc/self/environ', 'file_not_found'],
    // These are names like any other, of files that are not there.
    ['/workspace/%2e%2e%2fctl%2fsecret', 'file_not_found'],
    ['/workspace/..%2f..%2fctl/secret', 'file_not_found'],
    ['/workspace/..\\..\\ctl\\secret', 'file_not_found'],
    ['/workspace/．．/ctl/secret', 'file_not_found'],
    [`/workspace/a${'/n'.repeat(2042)}`, 'file_not_found'],
  ])('path %# is refused by every method, and does nothing', async (path, code) => {
    const bytes = Buffer.from('x');
    const { files } = fixture;
    const got = [
      await resultOrErrorCode(read(path)),
      await resultOrErrorCode(files.call('files/stat', { path })),
      await resultOrErrorCode(files.call('files/list', { path })),
      await resultOrErrorCode(files.call('files/write', { path, overwrite: true }, { bytes })),
      await resultOrErrorCode(files.call('files/begin', { path, overwrite: true })),
      await resultOrErrorCode(files.call('files/rename', { from: path, to: '/workspace/stolen' })),
      await resultOrErrorCode(files.call('files/copy', { from: path, to: '/workspace/stolen' })),
      await resultOrErrorCode(files.call('files/delete', { path, recursive: true })),
      await resultOrErrorCode(files.call('files/watch-open', { path })),
      await resultOrErrorCode(files.call('files/search-open', { path, pattern: 'x' })),
      await resultOrErrorCode(files.call('files/find', { path, query: 'x' })),
      await resultOrErrorCode(files.call('files/usage', { path })),
    ];
    expect(got).toEqual(got.map(() => code));
    expect(readdirSync(fixture.pair.path('workspace'))).not.toContain('stolen');
    expect(fixture.listControlDirectory()).toEqual(CONTROL_ENTRIES);
  });

  test('FIFOs, sockets, devices and files without permissions are typed errors, and nobody waits', async () => {
    await fixture.runAttack('special', '/workspace/special');
    // The agent may make none; whoever has given it the volume may.
    const devices = process.getuid?.() === 0 ? ['null c 1 3', 'tty c 5 0', 'loop b 7 0'] : [];
    for (const device of devices) {
      const [name = '', ...numbers] = device.split(' ');
      execFileSync('mknod', ['-m', '666', fixture.pair.path('workspace/special', name), ...numbers]);
    }
    const paths = Array.from({ length: 64 }, (_, n) => `/workspace/special/fifo-${n}.ts`);
    const stall = await fixture.measureStall(async () => {
      const codes = await Promise.all([
        ...paths.map((path) => resultOrErrorCode(read(path))),
        ...paths.map((path) =>
          resultOrErrorCode(fixture.files.call('files/write', { path, overwrite: true })),
        ),
        resultOrErrorCode(read('/workspace/special/socket')),
        ...devices.map((device) =>
          resultOrErrorCode(read(`/workspace/special/${device.split(' ')[0] ?? ''}`)),
        ),
      ]);
      expect([...new Set(codes)]).toEqual(['file_not_regular']);
      const wanted: [string, string][] = [
        ['secret', 'permission_denied'], ['closed/f', 'permission_denied'], ['unsearchable/f', 'permission_denied'],
      ]; // prettier-ignore
      for (const [name, code] of wanted)
        expect(await resultOrErrorCode(read(`/workspace/special/${name}`))).toBe(code);
      const list = (name: string) =>
        resultOrErrorCode(fixture.files.call('files/list', { path: `/workspace/special/${name}` }));
      expect(await list('closed')).toBe('permission_denied');
      expect(await list('unsearchable')).toBe('permission_denied');
      const write = (name: string) =>
        resultOrErrorCode(
          fixture.files.call('files/write', {
            path: `/workspace/special/${name}`,
            create: true,
            overwrite: true,
          }),
        );
      for (const name of ['secret', 'closed/f', 'unwritable/f', 'unwritable/new'])
        expect(await write(name)).toBe('permission_denied');
      expect(
        await resultOrErrorCode(
          fixture.files.call('files/delete', { path: '/workspace/special/unwritable/f' }),
        ),
      ).toBe('permission_denied');
      const written = await fixture.files.call('files/write', {
        path: '/workspace/special/setuid',
        overwrite: true,
      });
      expect(written.result.created).toBe(false);
      expect(statSync(fixture.pair.path('workspace/special/setuid')).mode & 0o7777).toBe(0o755);
    });
    expect(stall).toBeLessThan(MAX_STALL_MS);
  });

  test('a terabyte that is not there costs neither time nor memory', async () => {
    const before = await fixture.pair.sidecarMemory();
    const stall = await fixture.measureStall(async () => {
      for (const [name, size] of [
        ['tera', 2 ** 40],
        ['ten', 10 * 10 ** 9],
      ] as const) {
        const path = `/workspace/special/${name}`;
        for (let piece = 0; piece < 8; piece += 1) {
          const { result, bytes } = await fixture.files.call('files/read', { path, offset: piece * 4 * MIB });
          expect([result.size, bytes.length, bytes.every((byte) => byte === 0)]).toEqual([
            size,
            4 * MIB,
            true,
          ]);
        }
        const end = await fixture.files.call('files/read', { path, offset: size - 5, length: 100 });
        expect(end.bytes.toString()).toBe('\0\0end');
        const stat = await fixture.files.call('files/stat', { path, version: true });
        expect(stat.result.version).toMatch(/^s-/);
      }
    });
    expect(stall).toBeLessThan(MAX_STALL_MS);
    expect((await fixture.pair.sidecarMemory()) - before).toBeLessThan(64 * MIB);
  });

  test('many large reads and writes at once hold up nobody, and their memory comes to an end', async () => {
    const before = await fixture.pair.sidecarMemory();
    const bytes = Buffer.alloc(4 * MIB, 'x');
    const stall = await fixture.measureStall(async () => {
      await Promise.all(
        Array.from({ length: 12 }, (_, n) =>
          fixture.files.call(
            'files/write',
            { path: `/workspace/big-${n}`, create: true, overwrite: true },
            { bytes },
          ),
        ),
      );
      for (let round = 0; round < 4; round += 1) {
        await Promise.all(Array.from({ length: 12 }, (_, n) => read(`/workspace/big-${n}`)));
      }
    });
    expect(stall).toBeLessThan(MAX_STALL_MS);
    expect((await fixture.pair.sidecarMemory()) - before).toBeLessThan(200 * MIB);
  });

  test('hard names come back byte for byte', async () => {
    await fixture.runAttack('hard-names', '/workspace/names');
    const { entries } = (await fixture.files.call('files/list', { path: '/workspace/names' })).result;
    expect(entries).toHaveLength(11);
    const onDisk = readdirSync(fixture.pair.path('workspace/names'), { encoding: 'buffer' }).map((name) =>
      name.toString('hex'),
    );
    const contents = await Promise.all(
      entries.map(async ({ name }) => (await read(`/workspace/names/${name}`)).toString('hex')),
    );
    expect(contents.sort()).toEqual(onDisk.sort());
    for (const { name } of entries)
      await fixture.files.call('files/delete', { path: `/workspace/names/${name}` });
    expect(readdirSync(fixture.pair.path('workspace/names'))).toEqual([]);
  });

  test('a tree deeper than any path can name is removed, and holds up nobody', async () => {
    const depth = SOAK ? 100_000 : 3000;
    await fixture.runAttack('deep', '/workspace/deep', String(depth));
    const deepest = `/workspace/deep${'/d'.repeat(2000)}`;
    expect((await fixture.files.call('files/list', { path: deepest })).result.entries).toHaveLength(1);
    const stall = await fixture.measureStall(() =>
      fixture.files.call('files/delete', { path: '/workspace/deep', recursive: true }),
    );
    expect(stall).toBeLessThan(MAX_STALL_MS);
    expect(readdirSync(fixture.pair.path('workspace'))).not.toContain('deep');
  });

  test.runIf(SOAK)(
    'a folder of a million entries is listed page by page (in the long run: it takes minutes to make)',
    async () => {
      const script =
        "import os\nos.mkdir('/workspace/many')\nfor n in range(1000000): os.close(os.open('/workspace/many/%d' % n, os.O_CREAT))";
      expect((await fixture.pair.runInAgent(['python3', '-c', script])).exitCode).toBe(0);
      const before = await fixture.pair.sidecarMemory();
      let seen = 0;
      const stall = await fixture.measureStall(async () => {
        for (let cursor: string | undefined; ;) {
          const params = {
            path: '/workspace/many',
            limit: 5000,
            ...(cursor === undefined ? {} : { cursor }),
          };
          const { entries, nextCursor } = (await fixture.files.call('files/list', params)).result;
          seen += entries.length;
          if (nextCursor === null) break;
          cursor = nextCursor;
        }
      });
      expect(seen).toBe(1_000_000);
      expect(stall).toBeLessThan(MAX_STALL_MS);
      expect((await fixture.pair.sidecarMemory()) - before).toBeLessThan(128 * MIB);
    },
    1_200_000,
  );

  test('mode 0000 in a tree does not keep it from being removed', async () => {
    await fixture.files.call('files/delete', { path: '/workspace/special', recursive: true });
    expect(readdirSync(fixture.pair.path('workspace'))).not.toContain('special');
    expect(fixture.listControlDirectory()).toEqual(CONTROL_ENTRIES);
    expect(JSON.stringify(fixture.listTemporaryFiles())).not.toContain(CANARY);
    expect(fixture.listTemporaryFiles()).toEqual([]);
  });
});
