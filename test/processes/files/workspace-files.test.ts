import { execFileSync } from 'node:child_process';
import {
  closeSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readdirSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { Directory } from '../../../sidecar/files/directory.ts';
import { ESCAPE } from '../../../protocol/paths.ts';
import {
  errorCode,
  READ_ALL,
  signal,
  STAT_OPTIONS,
  TREE_OPTIONS,
  RESOLUTION_MODES,
  useWorkspaceFixture,
} from '../../fixtures/files/workspace-fixture.ts';

describe.each(RESOLUTION_MODES)('files of a workspace, where %s', (_how, withoutNative) => {
  const scene = useWorkspaceFixture(withoutNative);
  const { at, left, put, read } = scene;

  test('a file is what stat, list and read say', async () => {
    writeFileSync(at('a.txt'), 'hello', { mode: 0o640 });
    utimesSync(at('a.txt'), 1, 1_700_000_000.125);
    mkdirSync(at('b'));
    symlinkSync('a.txt', at('c'));
    const real = statSync(at('a.txt'), { bigint: true });
    const found = await scene.files.stat('/workspace/a.txt', STAT_OPTIONS);
    expect(found).toMatchObject({
      type: 'file',
      size: 5,
      mode: 0o640,
      mtimeNs: String(real.mtimeNs),
      mtimeMs: 1_700_000_000_125,
    });
    const { entries, nextCursor } = await scene.files.list('/workspace', {
      cursor: undefined,
      limit: 10,
      signal,
    });
    expect(nextCursor).toBeNull();
    expect(entries.map(({ name, type, link, linkType }) => [name, type, link, linkType])).toEqual([
      ['a.txt', 'file', null, null],
      ['b', 'directory', null, null],
      ['c', 'symlink', 'a.txt', 'file'],
    ]);
    const piece = await scene.files.read('/workspace/a.txt', { ...READ_ALL, offset: 1, length: 3 });
    expect([piece.bytes.toString(), piece.size, piece.version]).toEqual(['ell', 5, found.version]);
    expect((await scene.files.stat('/workspace/c', { ...STAT_OPTIONS, follow: false })).type).toBe('symlink');
    expect((await scene.files.stat('/workspace/c', STAT_OPTIONS)).type).toBe('file');
    expect((await scene.files.stat('/workspace', STAT_OPTIONS)).type).toBe('directory');
  });

  test('links mean what they mean to the agent, and never lead out', async () => {
    mkdirSync(at('d/e'), { recursive: true });
    writeFileSync(at('d/x'), 'inside');
    const links: Record<string, [string, string]> = {
      relative: ['d/x', 'inside'],
      absolute: ['/workspace/d/x', 'inside'],
      'up-and-back': ['../workspace/d/x', 'inside'],
      around: ['d/e/../x', 'inside'],
      'far-up': ['/../../workspace/d/x', 'inside'],
      chain: ['absolute', 'inside'],
      passwd: ['/etc/passwd', 'file_not_found'],
      canary: ['../canary', 'file_not_found'],
      host: [join(scene.top, 'canary'), 'file_not_found'],
      proc: ['/proc/self/environ', 'file_not_found'],
      cwd: ['/proc/self/cwd', 'file_not_found'],
      out: ['..', 'file_not_found'],
      root: ['/', 'file_not_found'],
      loop: ['loop', 'file_unavailable'],
      dangling: ['nothing', 'file_not_found'],
      slash: ['d/x/', 'file_not_a_directory'],
    };
    for (const [name, [text]] of Object.entries(links)) symlinkSync(text, at(name));
    for (const [name, [, wanted]] of Object.entries(links)) {
      const got = await read(`/workspace/${name}`).catch((error: unknown) =>
        error instanceof HoldfastError ? error.code : error,
      );
      expect([name, got]).toEqual([name, wanted]);
    }
    symlinkSync('/workspace/d', at('folder'));
    expect(await read('/workspace/folder/x')).toBe('inside');
    symlinkSync('../..', at('d/e/up'));
    expect(await read('/workspace/d/e/up/d/x')).toBe('inside');
    expect(await errorCode(scene.files.stat('/workspace/out/canary', STAT_OPTIONS))).toBe('file_not_found');
    symlinkSync('/workspace/d/', at('folder-slash'));
    expect(
      (await scene.files.list('/workspace/folder-slash', { cursor: undefined, limit: 9, signal })).entries,
    ).toHaveLength(2);
  });

  test('40 links in a row are followed, 41 are not', async () => {
    writeFileSync(at('l0'), 'end');
    for (let n = 1; n <= 41; n += 1) symlinkSync(`l${n - 1}`, at(`l${n}`));
    expect(await read('/workspace/l40')).toBe('end');
    expect(await errorCode(read('/workspace/l41'))).toBe('file_unavailable');
  });

  test('what is not a regular file is not read, not written, and not waited for', async () => {
    execFileSync(
      'mkfifo',
      Array.from({ length: 64 }, (_, n) => at(`fifo-${n}`)),
    );
    // Whoever waited for one would wait for ever.
    const codes = new Set(
      await Promise.all(Array.from({ length: 64 }, (_, n) => errorCode(read(`/workspace/fifo-${n}`)))),
    );
    expect([...codes]).toEqual(['file_not_regular']);
    expect(await errorCode(put('/workspace/fifo-0', 'x'))).toBe('file_not_regular');
    expect(
      (await scene.files.list('/workspace', { cursor: undefined, limit: 100, signal })).entries,
    ).toHaveLength(64);
    expect(await errorCode(read('/workspace'))).toBe('file_is_a_directory');
  });

  test('a sparse terabyte is read where it is asked for, and copied as holes', async () => {
    const fd = openSync(at('sparse'), 'w');
    ftruncateSync(fd, 2 ** 40);
    writeSync(fd, 'end', 2 ** 40 - 3);
    closeSync(fd);
    const piece = await scene.files.read('/workspace/sparse', {
      ...READ_ALL,
      offset: 2 ** 40 - 4,
      length: 100,
    });
    expect([piece.bytes.toString(), piece.size]).toEqual(['\0end', 2 ** 40]);
    expect(
      (await scene.files.read('/workspace/sparse', { ...READ_ALL, offset: 2 ** 41 })).bytes,
    ).toHaveLength(0);
    if (withoutNative)
      expect(
        await errorCode(scene.files.copy('/workspace/sparse', '/workspace/b', false, TREE_OPTIONS)),
      ).toBe('file_too_large');
    else {
      await scene.files.copy('/workspace/sparse', '/workspace/b', false, TREE_OPTIONS);
      expect([statSync(at('b')).size, statSync(at('b')).blocks < 100]).toEqual([2 ** 40, true]);
    }
    expect(left()).toEqual([]);
  });

  test.each([
    ['few names', 700, 50],
    ['more names than are kept at a time', 1600, 100],
  ])(
    'a folder of %s is listed in pages, every name once, in the order of bytes',
    async (_what, count, limit) => {
      const names = Array.from({ length: count }, (_, n) => `n${n}`);
      for (const name of names) writeFileSync(at(name), '');
      writeFileSync(Buffer.concat([Buffer.from(at('')), Buffer.from([0xff])]), '');
      const seen: string[] = [];
      let cursor: string | undefined;
      do {
        const page = await scene.files.list('/workspace', { cursor, limit, signal });
        expect(page.entries.length).toBeLessThanOrEqual(limit);
        seen.push(...page.entries.map(({ name }) => name));
        cursor = page.nextCursor ?? undefined;
      } while (cursor !== undefined);
      expect(seen).toEqual([...names.sort(), `${ESCAPE}ff`]);
      expect(
        await errorCode(scene.files.list('/workspace/n1', { cursor: undefined, limit: 1, signal })),
      ).toBe('file_not_a_directory');
    },
    30_000,
  );

  test('no descriptor stays open', async () => {
    const open = (): number => readdirSync('/proc/self/fd').length;
    await scene.files.ready();
    writeFileSync(at('a'), '1');
    symlinkSync('/workspace/a', at('l'));
    symlinkSync('loop', at('loop'));
    const before = open();
    for (const path of ['a', 'l', 'loop', 'none', 'a/b']) {
      await errorCode(read(`/workspace/${path}`));
      await errorCode(scene.files.stat(`/workspace/${path}`, STAT_OPTIONS));
      await errorCode(put(`/workspace/${path}`, 'x'));
      await errorCode(put(`/workspace/${path}`, 'x', { ifVersion: 'c-0' }));
      await errorCode(scene.files.list(`/workspace/${path}`, { cursor: undefined, limit: 1, signal }));
      await errorCode(
        scene.files.copy(`/workspace/${path}`, `/workspace/c-${path.length}`, false, TREE_OPTIONS),
      );
      await errorCode(scene.files.rename(`/workspace/${path}`, '/workspace/a', false));
    }
    expect(open()).toBe(before);
  });

  test('a temporary entry of ours is not listed or copied; what only has such a name is a file like any other', async () => {
    const { temporaryEntries } = scene.files;
    const list = async (path: string): Promise<string[]> =>
      (await scene.files.list(path, { cursor: undefined, limit: 99, signal })).entries.map(
        ({ name }) => name,
      );
    // By now the notes of an earlier sidecar are settled.
    await scene.files.ready();
    mkdirSync(at('d'));
    const ours = temporaryEntries.newName('write');
    const planted = [
      '.holdfast-write-restore-q',
      '.holdfast-removing-1',
      temporaryEntries.newName('write').toString(),
    ];
    {
      using folder = Directory.open(at('d'));
      temporaryEntries.register(ours, folder);
    }
    for (const name of [ours.toString(), ...planted]) writeFileSync(at(`d/${name}`), 'x');
    // Of the same name, but in another folder.
    writeFileSync(at(ours.toString()), 'x');
    expect(await list('/workspace/d')).toEqual(planted.toSorted());
    expect(await list('/workspace')).toEqual([ours.toString(), 'd']);
    await scene.files.copy('/workspace/d', '/workspace/e', false, TREE_OPTIONS);
    expect(readdirSync(at('e')).toSorted()).toEqual(planted.toSorted());

    for (const name of planted) {
      expect(await read(`/workspace/d/${name}`)).toBe('x');
      await put(`/workspace/d/${name}`, 'y');
      await scene.files.delete(`/workspace/d/${name}`, { ...TREE_OPTIONS, recursive: false });
    }
    expect(await list('/workspace/d')).toEqual([]);
    temporaryEntries.unregister(ours);
    expect(await list('/workspace/d')).toEqual([ours.toString()]);
  });

  test('who has a name of ours already keeps it: the write takes another', async () => {
    const names = [
      Buffer.from('.holdfast-write-0000000000000001'),
      scene.files.temporaryEntries.newName('write'),
    ];
    const taken = names[0]?.toString() ?? '';
    writeFileSync(at(taken), 'planted');
    writeFileSync(at('a'), 'old');
    scene.files.temporaryEntries.newName = () => names.shift() ?? Buffer.from('none left');
    await put('/workspace/a', 'new');
    expect(names).toEqual([]);
    expect(await read('/workspace/a')).toBe('new');
    expect(await read(`/workspace/${taken}`)).toBe('planted');
    expect(scene.left()).toEqual([taken]);
  });
});
