import { createHash } from 'node:crypto';
import {
  chmodSync,
  closeSync,
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  openSync,
  readFileSync,
  readdirSync,
  readlinkSync,
  renameSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import {
  errorCode,
  READ_ALL,
  STAT_OPTIONS,
  RESOLUTION_MODES,
  useWorkspaceFixture,
} from '../../fixtures/files/workspace-fixture.ts';

describe.each(RESOLUTION_MODES)('files of a workspace, where %s', (_how, withoutNative) => {
  const scene = useWorkspaceFixture(withoutNative);
  const { at, left, put, read } = scene;

  test('a write needs a precondition', async () => {
    expect(await errorCode(put('/workspace/a', '1', {}))).toBe('invalid_params');
    expect(await errorCode(put('/workspace/a', '1', { overwrite: true }))).toBe('file_not_found');
    expect(await errorCode(put('/workspace/a', '1', { ifVersion: 'c-x' }))).toBe('conflict');
    const first = await put('/workspace/a', '1', { create: true });
    expect(first).toMatchObject({ created: true, hardlinked: false, size: 1 });
    expect(statSync(at('a')).mode & 0o777).toBe(0o644);
    expect(await errorCode(put('/workspace/a', '2', { create: true }))).toBe('file_exists');
    const second = await put('/workspace/a', '2', { ifVersion: first.version });
    expect(second.created).toBe(false);
    expect(await errorCode(put('/workspace/a', '3', { ifVersion: first.version }))).toBe('conflict');
    expect(await read('/workspace/a')).toBe('2');
    expect((await scene.files.stat('/workspace/a', STAT_OPTIONS)).version).toBe(second.version);
    expect(await errorCode(put('/workspace', '1'))).toBe('file_is_a_directory');
    expect(await errorCode(put('/workspace/a/b', '1'))).toBe('file_not_a_directory');
    expect(await errorCode(put('/workspace/none/b', '1'))).toBe('file_not_found');
    expect(left()).toEqual([]);
    expect(readdirSync(join(scene.top, 'control/entries'))).toEqual([]);
  });

  test('an edit of the same size and time conflicts and is not overwritten', async () => {
    const { version } = await put('/workspace/a', 'one');
    const { atimeMs, mtimeMs } = statSync(at('a'));
    writeFileSync(at('a'), 'two');
    utimesSync(at('a'), atimeMs / 1000, mtimeMs / 1000);
    const error = await put('/workspace/a', 'six', { ifVersion: version }).catch((caught: unknown) => caught);
    expect(error).toBeInstanceOf(HoldfastError);
    expect((error as HoldfastError).code).toBe('conflict');
    const now = (await scene.files.stat('/workspace/a', STAT_OPTIONS)).version;
    expect((error as HoldfastError).details).toEqual({ version: now });
    expect(readFileSync(at('a'), 'utf8')).toBe('two');
    expect(left()).toEqual([]);
  });

  test('a write may be repeated after its answer was lost', async () => {
    const { version } = await put('/workspace/a', 'one');
    const second = await put('/workspace/a', 'two', { ifVersion: version });
    const again = await put('/workspace/a', 'two', { ifVersion: version });
    expect(again.version).toBe(second.version);
  });

  test('a write keeps the mode, drops set-id bits, and breaks a hard link', async () => {
    writeFileSync(at('a'), 'old');
    chmodSync(at('a'), 0o4750);
    linkSync(at('a'), at('other'));
    expect((await put('/workspace/a', 'new')).hardlinked).toBe(true);
    expect([readFileSync(at('a'), 'utf8'), readFileSync(at('other'), 'utf8')]).toEqual(['new', 'old']);
    expect(statSync(at('a')).mode & 0o7777).toBe(0o750);
    chmodSync(at('a'), 0o444);
    expect(await errorCode(put('/workspace/a', 'newer'))).toBe('permission_denied');
  });

  test('a write through a link changes its target, and the link stays', async () => {
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
    expect(await errorCode(put('/workspace/escape', 'x'))).toBe('file_not_found');
    expect(existsSync(join(scene.top, 'escape'))).toBe(false);
  });

  test('a large file is written and read in chunks of one version', async () => {
    const content = Buffer.alloc(9 * 2 ** 20 + 17, 'abcdefg');
    const uploads = await scene.files.uploads();
    const id = uploads.begin(await scene.files.target('/workspace/big'), { create: true });
    expect(existsSync(at('big'))).toBe(false);
    for (let offset = 0; offset < content.length; offset += 2 ** 22) {
      await uploads.append(id, offset, content.subarray(offset, offset + 2 ** 22));
    }
    expect(await errorCode(uploads.append(id, 5, content.subarray(0, 1)))).toBe('invalid_params');
    const done = await uploads.commit(id, content.length);
    expect(await errorCode(uploads.commit(id, 1))).toBe('not_found');
    const hash = createHash('sha256');
    for (let offset = 0; offset < content.length;) {
      const { bytes, version } = await scene.files.read('/workspace/big', {
        ...READ_ALL,
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
    expect(
      await errorCode(scene.files.read('/workspace/big', { ...READ_ALL, ifVersion: done.version })),
    ).toBe('conflict');
    const stale = uploads.begin(await scene.files.target('/workspace/big'), { ifVersion: done.version });
    expect(await errorCode(uploads.commit(stale, 0))).toBe('conflict');
    uploads.begin(await scene.files.target('/workspace/never'), { create: true });
    uploads.close();
    expect(left()).toEqual([]);
    expect(readdirSync(at(''))).toEqual(['big']);
  });

  test('a large file is replaced only if it is the checked one', async () => {
    writeFileSync(at('big'), Buffer.alloc(5 * 2 ** 20, 'a'));
    const { version } = await scene.files.read('/workspace/big', { ...READ_ALL, length: 1 });
    expect(version).toMatch(/^s-/);
    await put('/workspace/big', 'small', { ifVersion: version });
    expect(readFileSync(at('big'), 'utf8')).toBe('small');
  });

  test('of concurrent writes by an editor and an agent one wins, or they conflict', async () => {
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
      version = (await scene.files.stat('/workspace/a', STAT_OPTIONS)).version ?? '';
    }
    expect(conflicts).toBeGreaterThan(0);
    expect(left()).toEqual([]);
    expect(lstatSync(at('a')).isFile()).toBe(true);
  });
});
