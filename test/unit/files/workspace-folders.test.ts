import {
  existsSync,
  mkdirSync,
  readdirSync,
  readlinkSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { describe, expect, test } from 'vitest';
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
  const { at, put, read } = scene;

  test('unusual names are read, written, renamed and removed', async () => {
    const hard = [
      Buffer.from('caf\xe9', 'latin1'),
      Buffer.from('a\nb'),
      Buffer.from('-rf'),
      Buffer.from('\u202egpj.exe'),
      Buffer.from('a\\b'),
      Buffer.from(ESCAPE),
    ];
    for (const name of hard) writeFileSync(Buffer.concat([Buffer.from(at('')), name]), name);
    const { entries } = await scene.files.list('/workspace', { cursor: undefined, limit: 100, signal });
    for (const { name } of entries) {
      const path = `/workspace/${name}`;
      const { bytes, version } = await scene.files.read(path, READ_ALL);
      await scene.files.write(path, { ifVersion: version }, Buffer.concat([bytes, Buffer.from('!')]), signal);
      await scene.files.rename(path, `${path}2`, false);
    }
    const found = readdirSync(at(''), { encoding: 'buffer' }).map((name) => name.toString('latin1'));
    expect(found.sort()).toEqual(hard.map((name) => `${name.toString('latin1')}2`).sort());
    for (const { name } of entries)
      await scene.files.delete(`/workspace/${name}2`, { ...TREE_OPTIONS, recursive: false });
    expect(readdirSync(at(''))).toEqual([]);
  });

  test('a copy keeps the execute bit, and is a link where the original is one', async () => {
    writeFileSync(at('run'), '#!/bin/sh', { mode: 0o755 });
    symlinkSync('run', at('link'));
    await scene.files.copy('/workspace/run', '/workspace/run 2', false, TREE_OPTIONS);
    await scene.files.copy('/workspace/link', '/workspace/link 2', false, TREE_OPTIONS);
    expect(statSync(at('run 2')).mode & 0o777).toBe(0o755);
    expect(readlinkSync(at('link 2'))).toBe('run');
  });

  test('links are created with any target and never followed', async () => {
    await put('/workspace/there', 'x');
    for (const [index, link] of [
      'there',
      '/etc/passwd',
      '../../canary',
      `caf${ESCAPE}e9`,
      'x'.repeat(4_000),
    ].entries()) {
      const path = `/workspace/link-${String(index)}`;
      await scene.files.symlink(path, link);
      expect((await scene.files.stat(path, { ...STAT_OPTIONS, follow: false })).link).toBe(link);
      expect(await errorCode(scene.files.symlink(path, link))).toBe('file_exists');
    }
    expect(readlinkSync(at('link-3'), { encoding: 'buffer' })).toEqual(Buffer.from('caf\xe9', 'latin1'));
    // A link in the way is not followed either.
    expect(await errorCode(scene.files.symlink('/workspace/link-2', 'x'))).toBe('file_exists');
    expect(await errorCode(scene.files.symlink('/workspace/none/link', 'x'))).toBe('file_not_found');
    expect(await errorCode(scene.files.symlink('/workspace', 'x'))).toBe('permission_denied');
    expect(await errorCode(scene.files.symlink('/workspace/new', 'a\0b'))).toBe('invalid_params');
    expect(await errorCode(scene.files.symlink('/workspace/new', `a${ESCAPE}`))).toBe('invalid_params');
    expect(await errorCode(scene.files.symlink('/workspace/new', 'x'.repeat(5_000)))).toBe('invalid_params');
    expect(readdirSync(scene.top).sort()).toEqual(['canary', 'control', 'workspace']);
  });

  test('folders are created, moved, copied and removed', async () => {
    expect(await scene.files.mkdir('/workspace/a', false)).toBe(true);
    expect(await errorCode(scene.files.mkdir('/workspace/a', false))).toBe('file_exists');
    expect(await errorCode(scene.files.mkdir('/workspace/x/y', false))).toBe('file_not_found');
    expect(await errorCode(scene.files.mkdir('/workspace', false))).toBe('file_exists');
    expect(await scene.files.mkdir('/workspace/x/y/z', true)).toBe(true);
    expect(await scene.files.mkdir('/workspace/x/y/z', true)).toBe(false);
    expect(statSync(at('x/y')).mode & 0o777).toBe(0o755);
    writeFileSync(at('x/y/f'), '1', { mode: 0o600 });
    symlinkSync('/etc/passwd', at('x/l'));
    expect(await errorCode(scene.files.rename('/workspace/x', '/workspace/a', false))).toBe('file_exists');
    expect(await errorCode(scene.files.rename('/workspace/x', '/workspace/x/y/q', false))).toBe(
      'invalid_params',
    );
    expect(await errorCode(scene.files.rename('/workspace', '/workspace/q', false))).toBe(
      'permission_denied',
    );
    expect(await errorCode(scene.files.rename('/workspace/none', '/workspace/q', false))).toBe(
      'file_not_found',
    );
    await scene.files.rename('/workspace/x', '/workspace/a', true);
    expect(await errorCode(scene.files.copy('/workspace/a', '/workspace/a/in', false, TREE_OPTIONS))).toBe(
      'invalid_params',
    );
    expect(await scene.files.copy('/workspace/a', '/workspace/b', false, TREE_OPTIONS)).toEqual({
      files: 2,
      bytes: 1,
      skipped: 0,
    });
    expect([statSync(at('b/y/f')).mode & 0o777, readlinkSync(at('b/l'))]).toEqual([0o600, '/etc/passwd']);
    expect(await errorCode(scene.files.copy('/workspace/a', '/workspace/b', false, TREE_OPTIONS))).toBe(
      'file_exists',
    );
    expect(await errorCode(scene.files.delete('/workspace/b', { ...TREE_OPTIONS, recursive: false }))).toBe(
      'directory_not_empty',
    );
    expect(await scene.files.delete('/workspace/b', { ...TREE_OPTIONS, recursive: true })).toEqual({
      files: 2,
      bytes: 1,
    });
    expect(await errorCode(scene.files.delete('/workspace', { ...TREE_OPTIONS, recursive: true }))).toBe(
      'permission_denied',
    );
    expect(readdirSync(at(''))).toEqual(['a']);
    expect(existsSync('/etc/passwd')).toBe(true);
  });

  test('deleting a link to a folder removes the link', async () => {
    mkdirSync(at('d'));
    writeFileSync(at('d/keep'), '');
    symlinkSync('d', at('l'));
    await scene.files.delete('/workspace/l', { ...TREE_OPTIONS, recursive: true });
    expect([existsSync(at('d/keep')), existsSync(at('l'))]).toEqual([true, false]);
  });

  test('a deep tree is copied and removed', async () => {
    const deep = Array.from({ length: 150 }, () => 'd').join('/');
    await scene.files.mkdir(`/workspace/${deep}`, true);
    await put(`/workspace/${deep}/f`, 'deep');
    await scene.files.copy('/workspace/d', '/workspace/c', false, TREE_OPTIONS);
    expect(await read(`/workspace/c/${deep.slice(2)}/f`)).toBe('deep');
    await scene.files.delete('/workspace/d', { ...TREE_OPTIONS, recursive: true });
    await scene.files.delete('/workspace/c', { ...TREE_OPTIONS, recursive: true });
    expect(readdirSync(at(''))).toEqual([]);
  });
});
