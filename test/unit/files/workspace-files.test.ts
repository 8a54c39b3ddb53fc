import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  chmodSync,
  closeSync,
  existsSync,
  ftruncateSync,
  linkSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  readdirSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { PayloadBuffers } from '../../../protocol/wire/payload-buffers.ts';
import { ESCAPE } from '../../../protocol/paths.ts';
import { WorkspaceFiles } from '../../../sidecar/files/workspace-files.ts';

const signal = new AbortController().signal;
const tree = { signal, onProgress: () => undefined };
const stat = { follow: true, version: true, signal };
const everything = {
  offset: 0,
  length: 4 * 2 ** 20,
  ifVersion: undefined,
  signal,
  payloads: new PayloadBuffers(),
};

async function codeOf(work: Promise<unknown>): Promise<string> {
  try {
    await work;
  } catch (error) {
    if (error instanceof HoldfastError) return error.code;
    throw error;
  }
  return 'none';
}

describe.each([
  ['the kernel resolves', false],
  ['every step is walked', true],
])('files of a workspace, where %s', (_how, withoutNative) => {
  let top: string;
  let at: (name: string) => string;
  let files: WorkspaceFiles;

  beforeEach(() => {
    top = mkdtempSync(join(tmpdir(), 'holdfast-files-'));
    mkdirSync(join(top, 'workspace'));
    mkdirSync(join(top, 'control'));
    writeFileSync(join(top, 'canary'), 'outside');
    at = (name) => `${top}/workspace/${name}`;
    files = new WorkspaceFiles({
      workspace: join(top, 'workspace'),
      control: join(top, 'control'),
      withoutNative,
    });
  });
  afterEach(() => {
    files.close();
    rmSync(top, { recursive: true, force: true });
  });

  const read = async (path: string): Promise<string> => (await files.read(path, everything)).bytes.toString();
  const put = (path: string, text: string, how: object = { create: true, overwrite: true }) =>
    files.write(path, how, Buffer.from(text), signal);
  const left = (): string[] =>
    readdirSync(join(top, 'workspace')).filter((name) => name.startsWith('.holdfast'));

  test('a file is what stat, list and read say', async () => {
    writeFileSync(at('a.txt'), 'hello', { mode: 0o640 });
    utimesSync(at('a.txt'), 1, 1_700_000_000.125);
    mkdirSync(at('b'));
    symlinkSync('a.txt', at('c'));
    const real = statSync(at('a.txt'), { bigint: true });
    const found = await files.stat('/workspace/a.txt', stat);
    expect(found).toMatchObject({
      type: 'file',
      size: 5,
      mode: 0o640,
      mtimeNs: String(real.mtimeNs),
      mtimeMs: 1_700_000_000_125,
    });
    const { entries, nextCursor } = await files.list('/workspace', { cursor: undefined, limit: 10, signal });
    expect(nextCursor).toBeNull();
    expect(entries.map(({ name, type, link, linkType }) => [name, type, link, linkType])).toEqual([
      ['a.txt', 'file', null, null],
      ['b', 'directory', null, null],
      ['c', 'symlink', 'a.txt', 'file'],
    ]);
    const piece = await files.read('/workspace/a.txt', { ...everything, offset: 1, length: 3 });
    expect([piece.bytes.toString(), piece.size, piece.version]).toEqual(['ell', 5, found.version]);
    expect((await files.stat('/workspace/c', { ...stat, follow: false })).type).toBe('symlink');
    expect((await files.stat('/workspace/c', stat)).type).toBe('file');
    expect((await files.stat('/workspace', stat)).type).toBe('directory');
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
      host: [join(top, 'canary'), 'file_not_found'],
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
    expect(await codeOf(files.stat('/workspace/out/canary', stat))).toBe('file_not_found');
    symlinkSync('/workspace/d/', at('folder-slash'));
    expect(
      (await files.list('/workspace/folder-slash', { cursor: undefined, limit: 9, signal })).entries,
    ).toHaveLength(2);
  });

  test('40 links in a row are followed, 41 are not', async () => {
    writeFileSync(at('l0'), 'end');
    for (let n = 1; n <= 41; n += 1) symlinkSync(`l${n - 1}`, at(`l${n}`));
    expect(await read('/workspace/l40')).toBe('end');
    expect(await codeOf(read('/workspace/l41'))).toBe('file_unavailable');
  });

  test('what is not a regular file is not read, not written, and not waited for', async () => {
    execFileSync(
      'mkfifo',
      Array.from({ length: 64 }, (_, n) => at(`fifo-${n}`)),
    );
    // Whoever waited for one would wait for ever.
    const codes = new Set(
      await Promise.all(Array.from({ length: 64 }, (_, n) => codeOf(read(`/workspace/fifo-${n}`)))),
    );
    expect([...codes]).toEqual(['file_not_regular']);
    expect(await codeOf(put('/workspace/fifo-0', 'x'))).toBe('file_not_regular');
    expect((await files.list('/workspace', { cursor: undefined, limit: 100, signal })).entries).toHaveLength(
      64,
    );
    expect(await codeOf(read('/workspace'))).toBe('file_is_a_directory');
  });

  test('a write says what it expects to find', async () => {
    expect(await codeOf(put('/workspace/a', '1', {}))).toBe('invalid_params');
    expect(await codeOf(put('/workspace/a', '1', { overwrite: true }))).toBe('file_not_found');
    expect(await codeOf(put('/workspace/a', '1', { ifVersion: 'c-x' }))).toBe('conflict');
    const first = await put('/workspace/a', '1', { create: true });
    expect(first).toMatchObject({ created: true, hardlinked: false, size: 1 });
    expect(statSync(at('a')).mode & 0o777).toBe(0o644);
    expect(await codeOf(put('/workspace/a', '2', { create: true }))).toBe('file_exists');
    const second = await put('/workspace/a', '2', { ifVersion: first.version });
    expect(second.created).toBe(false);
    expect(await codeOf(put('/workspace/a', '3', { ifVersion: first.version }))).toBe('conflict');
    expect(await read('/workspace/a')).toBe('2');
    expect((await files.stat('/workspace/a', stat)).version).toBe(second.version);
    expect(await codeOf(put('/workspace', '1'))).toBe('file_is_a_directory');
    expect(await codeOf(put('/workspace/a/b', '1'))).toBe('file_not_a_directory');
    expect(await codeOf(put('/workspace/none/b', '1'))).toBe('file_not_found');
    expect(left()).toEqual([]);
    expect(readdirSync(join(top, 'control/writes'))).toEqual([]);
  });

  test('an edit of the same size and time conflicts and is not overwritten', async () => {
    const { version } = await put('/workspace/a', 'one');
    const { atimeMs, mtimeMs } = statSync(at('a'));
    writeFileSync(at('a'), 'two');
    utimesSync(at('a'), atimeMs / 1000, mtimeMs / 1000);
    const error = await put('/workspace/a', 'six', { ifVersion: version }).catch((caught: unknown) => caught);
    expect(error).toBeInstanceOf(HoldfastError);
    expect((error as HoldfastError).code).toBe('conflict');
    const now = (await files.stat('/workspace/a', stat)).version;
    expect((error as HoldfastError).details).toEqual({ version: now });
    expect(readFileSync(at('a'), 'utf8')).toBe('two');
    expect(left()).toEqual([]);
  });

  test('what is there already may be written again: the answer of the first may have been lost', async () => {
    const { version } = await put('/workspace/a', 'one');
    const second = await put('/workspace/a', 'two', { ifVersion: version });
    const again = await put('/workspace/a', 'two', { ifVersion: version });
    expect(again.version).toBe(second.version);
  });

  test('a write keeps the mode, drops set-id bits, and takes a hard link apart', async () => {
    writeFileSync(at('a'), 'old');
    chmodSync(at('a'), 0o4750);
    linkSync(at('a'), at('other'));
    expect((await put('/workspace/a', 'new')).hardlinked).toBe(true);
    expect([readFileSync(at('a'), 'utf8'), readFileSync(at('other'), 'utf8')]).toEqual(['new', 'old']);
    expect(statSync(at('a')).mode & 0o7777).toBe(0o750);
    chmodSync(at('a'), 0o444);
    expect(await codeOf(put('/workspace/a', 'newer'))).toBe('permission_denied');
  });

  test('a write through a link reaches what it leads to, and the link stays', async () => {
    mkdirSync(at('d'));
    writeFileSync(at('d/x'), 'old');
    symlinkSync('/workspace/d/x', at('link'));
    symlinkSync('d/new', at('to-be'));
    symlinkSync('../escape', at('escape'));
    await put('/workspace/link', 'new');
    await put('/workspace/to-be', 'made');
    expect([
      readFileSync(at('d/x'), 'utf8'),
      readFileSync(at('d/new'), 'utf8'),
      readlinkSync(at('link')),
    ]).toEqual(['new', 'made', '/workspace/d/x']);
    expect(await codeOf(put('/workspace/escape', 'x'))).toBe('file_not_found');
    expect(existsSync(join(top, 'escape'))).toBe(false);
  });

  test('a large file is written in pieces and read in pieces of one version', async () => {
    const content = Buffer.alloc(9 * 2 ** 20 + 17, 'abcdefg');
    const uploads = await files.uploads();
    const id = uploads.begin(await files.target('/workspace/big'), { create: true });
    expect(existsSync(at('big'))).toBe(false);
    for (let offset = 0; offset < content.length; offset += 2 ** 22) {
      await uploads.append(id, offset, content.subarray(offset, offset + 2 ** 22));
    }
    expect(await codeOf(uploads.append(id, 5, content.subarray(0, 1)))).toBe('invalid_params');
    const done = await uploads.commit(id, content.length);
    expect(await codeOf(uploads.commit(id, 1))).toBe('not_found');
    const hash = createHash('sha256');
    for (let offset = 0; offset < content.length;) {
      const { bytes, version } = await files.read('/workspace/big', {
        ...everything,
        offset,
        ifVersion: done.version,
      });
      expect(version).toBe(done.version);
      hash.update(bytes);
      offset += bytes.length;
    }
    expect(hash.digest('hex')).toBe(createHash('sha256').update(content).digest('hex'));
    const fd = openSync(at('big'), 'r+');
    writeSync(fd, 'X', 100);
    closeSync(fd);
    expect(await codeOf(files.read('/workspace/big', { ...everything, ifVersion: done.version }))).toBe(
      'conflict',
    );
    const stale = uploads.begin(await files.target('/workspace/big'), { ifVersion: done.version });
    expect(await codeOf(uploads.commit(stale, 0))).toBe('conflict');
    uploads.begin(await files.target('/workspace/never'), { create: true });
    uploads.close();
    expect(left()).toEqual([]);
    expect(readdirSync(at(''))).toEqual(['big']);
  });

  test('a large file that is replaced by version is the one that was looked at', async () => {
    writeFileSync(at('big'), Buffer.alloc(5 * 2 ** 20, 'a'));
    const { version } = await files.read('/workspace/big', { ...everything, length: 1 });
    expect(version).toMatch(/^s-/);
    await put('/workspace/big', 'small', { ifVersion: version });
    expect(readFileSync(at('big'), 'utf8')).toBe('small');
  });

  test('a sparse terabyte is read where it is asked for, and copied as holes', async () => {
    const fd = openSync(at('sparse'), 'w');
    ftruncateSync(fd, 2 ** 40);
    writeSync(fd, 'end', 2 ** 40 - 3);
    closeSync(fd);
    const piece = await files.read('/workspace/sparse', { ...everything, offset: 2 ** 40 - 4, length: 100 });
    expect([piece.bytes.toString(), piece.size]).toEqual(['\0end', 2 ** 40]);
    expect((await files.read('/workspace/sparse', { ...everything, offset: 2 ** 41 })).bytes).toHaveLength(0);
    if (withoutNative)
      expect(await codeOf(files.copy('/workspace/sparse', '/workspace/b', false, tree))).toBe(
        'file_too_large',
      );
    else {
      await files.copy('/workspace/sparse', '/workspace/b', false, tree);
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
        const page = await files.list('/workspace', { cursor, limit, signal });
        expect(page.entries.length).toBeLessThanOrEqual(limit);
        seen.push(...page.entries.map(({ name }) => name));
        cursor = page.nextCursor ?? undefined;
      } while (cursor !== undefined);
      expect(seen).toEqual([...names.sort(), `${ESCAPE}ff`]);
      expect(await codeOf(files.list('/workspace/n1', { cursor: undefined, limit: 1, signal }))).toBe(
        'file_not_a_directory',
      );
    },
    30_000,
  );

  test('hard names are read, written, renamed and removed', async () => {
    const hard = [
      Buffer.from('caf\xe9', 'latin1'),
      Buffer.from('a\nb'),
      Buffer.from('-rf'),
      Buffer.from('\u202egpj.exe'),
      Buffer.from('a\\b'),
      Buffer.from(ESCAPE),
    ];
    for (const name of hard) writeFileSync(Buffer.concat([Buffer.from(at('')), name]), name);
    const { entries } = await files.list('/workspace', { cursor: undefined, limit: 100, signal });
    for (const { name } of entries) {
      const path = `/workspace/${name}`;
      const { bytes, version } = await files.read(path, everything);
      await files.write(path, { ifVersion: version }, Buffer.concat([bytes, Buffer.from('!')]), signal);
      await files.rename(path, `${path}2`, false);
    }
    const found = readdirSync(at(''), { encoding: 'buffer' }).map((name) => name.toString('latin1'));
    expect(found.sort()).toEqual(hard.map((name) => `${name.toString('latin1')}2`).sort());
    for (const { name } of entries) await files.delete(`/workspace/${name}2`, { ...tree, recursive: false });
    expect(readdirSync(at(''))).toEqual([]);
  });

  test('folders: made, moved, copied, removed', async () => {
    expect(await files.mkdir('/workspace/a', false)).toBe(true);
    expect(await codeOf(files.mkdir('/workspace/a', false))).toBe('file_exists');
    expect(await codeOf(files.mkdir('/workspace/x/y', false))).toBe('file_not_found');
    expect(await codeOf(files.mkdir('/workspace', false))).toBe('file_exists');
    expect(await files.mkdir('/workspace/x/y/z', true)).toBe(true);
    expect(await files.mkdir('/workspace/x/y/z', true)).toBe(false);
    expect(statSync(at('x/y')).mode & 0o777).toBe(0o755);
    writeFileSync(at('x/y/f'), '1', { mode: 0o600 });
    symlinkSync('/etc/passwd', at('x/l'));
    expect(await codeOf(files.rename('/workspace/x', '/workspace/a', false))).toBe('file_exists');
    expect(await codeOf(files.rename('/workspace/x', '/workspace/x/y/q', false))).toBe('invalid_params');
    expect(await codeOf(files.rename('/workspace', '/workspace/q', false))).toBe('permission_denied');
    expect(await codeOf(files.rename('/workspace/none', '/workspace/q', false))).toBe('file_not_found');
    await files.rename('/workspace/x', '/workspace/a', true);
    expect(await codeOf(files.copy('/workspace/a', '/workspace/a/in', false, tree))).toBe('invalid_params');
    expect(await files.copy('/workspace/a', '/workspace/b', false, tree)).toEqual({
      files: 2,
      bytes: 1,
      skipped: 0,
    });
    expect([statSync(at('b/y/f')).mode & 0o777, readlinkSync(at('b/l'))]).toEqual([0o600, '/etc/passwd']);
    expect(await codeOf(files.copy('/workspace/a', '/workspace/b', false, tree))).toBe('file_exists');
    expect(await codeOf(files.delete('/workspace/b', { ...tree, recursive: false }))).toBe(
      'directory_not_empty',
    );
    expect(await files.delete('/workspace/b', { ...tree, recursive: true })).toEqual({ files: 2, bytes: 1 });
    expect(await codeOf(files.delete('/workspace', { ...tree, recursive: true }))).toBe('permission_denied');
    expect(readdirSync(at(''))).toEqual(['a']);
    expect(existsSync('/etc/passwd')).toBe(true);
  });

  test('deleting a link to a folder removes the link', async () => {
    mkdirSync(at('d'));
    writeFileSync(at('d/keep'), '');
    symlinkSync('d', at('l'));
    await files.delete('/workspace/l', { ...tree, recursive: true });
    expect([existsSync(at('d/keep')), existsSync(at('l'))]).toEqual([true, false]);
  });

  test('a deep tree is copied and removed', async () => {
    const deep = Array.from({ length: 150 }, () => 'd').join('/');
    await files.mkdir(`/workspace/${deep}`, true);
    await put(`/workspace/${deep}/f`, 'deep');
    await files.copy('/workspace/d', '/workspace/c', false, tree);
    expect(await read(`/workspace/c/${deep.slice(2)}/f`)).toBe('deep');
    await files.delete('/workspace/d', { ...tree, recursive: true });
    await files.delete('/workspace/c', { ...tree, recursive: true });
    expect(readdirSync(at(''))).toEqual([]);
  });

  test('no descriptor stays open', async () => {
    const open = (): number => readdirSync('/proc/self/fd').length;
    await files.ready();
    writeFileSync(at('a'), '1');
    symlinkSync('/workspace/a', at('l'));
    symlinkSync('loop', at('loop'));
    const before = open();
    for (const path of ['a', 'l', 'loop', 'none', 'a/b']) {
      await codeOf(read(`/workspace/${path}`));
      await codeOf(files.stat(`/workspace/${path}`, stat));
      await codeOf(put(`/workspace/${path}`, 'x'));
      await codeOf(put(`/workspace/${path}`, 'x', { ifVersion: 'c-0' }));
      await codeOf(files.list(`/workspace/${path}`, { cursor: undefined, limit: 1, signal }));
      await codeOf(files.copy(`/workspace/${path}`, `/workspace/c-${path.length}`, false, tree));
      await codeOf(files.rename(`/workspace/${path}`, '/workspace/a', false));
    }
    expect(open()).toBe(before);
  });

  test('a temporary file is never listed, and cannot be named', async () => {
    writeFileSync(at('.holdfast-write-1'), '');
    expect((await files.list('/workspace', { cursor: undefined, limit: 9, signal })).entries).toEqual([]);
    expect(await codeOf(put('/workspace/.holdfast-write-1', ''))).toBe('permission_denied');
  });

  test('what an editor and the agent write at once is one of the two, or a conflict', async () => {
    let { version } = await put('/workspace/a', 'editor 0');
    let conflicts = 0;
    for (let round = 1; round <= 100; round += 1) {
      const write = put('/workspace/a', `editor ${round}`, { ifVersion: version }).catch(
        (error: unknown) => error,
      );
      if (round % 2 === 0) {
        writeFileSync(at('agent'), `agent! ${round}`);
        renameSync(at('agent'), at('a'));
      }
      const answer = await write;
      const now = readFileSync(at('a'), 'utf8');
      if (answer instanceof HoldfastError) {
        expect(answer.code).toBe('conflict');
        expect(now).toBe(`agent! ${round}`);
        conflicts += 1;
      } else expect([`editor ${round}`, `agent! ${round}`]).toContain(now);
      version = (await files.stat('/workspace/a', stat)).version ?? '';
    }
    expect(conflicts).toBeGreaterThan(0);
    expect(left()).toEqual([]);
    expect(lstatSync(at('a')).isFile()).toBe(true);
  });
});
