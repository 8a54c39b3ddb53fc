import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { exportTree } from '../../../../extension/transfer/export-tree.ts';
import type { ExportSource } from '../../../../extension/transfer/export-tree.ts';
import { importTree } from '../../../../extension/transfer/import-tree.ts';
import type { ImportTarget } from '../../../../extension/transfer/import-tree.ts';
import { FILES_TOGETHER } from '../../../../extension/transfer/transfer.ts';
import type { TransferOptions } from '../../../../extension/transfer/transfer.ts';
import { HoldfastError } from '../../../../protocol/errors.ts';
import {
  READ_ALL,
  signal,
  STAT_OPTIONS,
  TREE_OPTIONS,
  useWorkspaceFixture,
} from '../../../fixtures/files/workspace-fixture.ts';

const scene = useWorkspaceFixture(false);
const { at } = scene;
let local = '';

beforeEach(() => {
  local = mkdtempSync(join(tmpdir(), 'holdfast-transfer-'));
});
afterEach(() => rmSync(local, { recursive: true, force: true }));

/** The workspace as its sidecar serves it, in small pieces. */
function source(): ExportSource {
  return {
    stat: (path) => scene.files.stat(path, { ...STAT_OPTIONS, follow: false }),
    async *list(path) {
      for (let cursor: string | undefined; ;) {
        const page = await scene.files.list(path, { cursor, limit: 2, signal });
        yield* page.entries;
        if (page.nextCursor === null) return;
        cursor = page.nextCursor;
      }
    },
    read: (path, offset, ifVersion) =>
      scene.files.read(path, { ...READ_ALL, offset, length: 1024, ifVersion }),
  };
}

function target(): ImportTarget {
  return {
    makeFolder: async (path) => {
      await scene.files.mkdir(path, true);
    },
    write: async (path, pieces, { mode, overwrite }) => {
      const content: Buffer[] = [];
      for await (const piece of pieces) content.push(piece);
      await scene.files.write(path, { create: true, overwrite, mode }, Buffer.concat(content), signal);
    },
    link: (path, text) => scene.files.symlink(path, text),
    remove: async (path) => {
      await scene.files.delete(path, { ...TREE_OPTIONS, recursive: false });
    },
  };
}

function options(existing?: 'overwrite' | 'skip'): TransferOptions & { asked: string[] } {
  const asked: string[] = [];
  return {
    asked,
    signal,
    onProgress: () => undefined,
    onExisting: (path) => {
      asked.push(path);
      if (existing === undefined) throw new HoldfastError('cancelled', 'nobody was to be asked');
      return Promise.resolve(existing);
    },
  };
}

/** Counts what runs at the same time. */
class Together {
  running = 0;
  most = 0;
  ended = 0;

  async run<T>(work: () => Promise<T>): Promise<T> {
    this.running += 1;
    this.most = Math.max(this.most, this.running);
    await new Promise((resolve) => setTimeout(resolve, 2));
    try {
      return await work();
    } finally {
      this.running -= 1;
      this.ended += 1;
    }
  }
}

describe('files are copied at the same time, because each waits for a round trip', () => {
  const names = Array.from({ length: 60 }, (_, n) => `file-${String(n)}`);

  test('an import has no more on their way than it may, and copies all', async () => {
    mkdirSync(join(local, 'many'));
    for (const name of names) writeFileSync(join(local, 'many', name), name);
    const together = new Together();
    const { write, ...rest } = target();
    const slow: ImportTarget = { ...rest, write: (...args) => together.run(() => write(...args)) };
    const report = await importTree([join(local, 'many')], slow, '/workspace', options());
    expect(report).toMatchObject({ files: 60, folders: 1, leftOutCount: 0 });
    expect(together.most).toBeGreaterThan(4);
    expect(together.most).toBeLessThanOrEqual(FILES_TOGETHER);
    for (const name of names) expect(readFileSync(at(`many/${name}`), 'utf8')).toBe(name);
  });

  test('an export has no more on their way than it may, and copies all', async () => {
    mkdirSync(at('many'));
    for (const name of names) writeFileSync(at(`many/${name}`), name);
    const together = new Together();
    const { read, ...rest } = source();
    const slow: ExportSource = { ...rest, read: (...args) => together.run(() => read(...args)) };
    expect(await exportTree(slow, ['/workspace/many'], local, options())).toMatchObject({ files: 60 });
    expect(together.most).toBeGreaterThan(4);
    expect(together.most).toBeLessThanOrEqual(FILES_TOGETHER);
    for (const name of names) expect(readFileSync(join(local, 'many', name), 'utf8')).toBe(name);
  });

  test('an import that fails has ended when it says so', async () => {
    mkdirSync(join(local, 'many'));
    for (const name of names) writeFileSync(join(local, 'many', name), name);
    const together = new Together();
    const { write, ...rest } = target();
    let begun = 0;
    const failing: ImportTarget = {
      ...rest,
      write: (...args) => {
        begun += 1;
        const isFatal = begun === 20;
        return together.run(() =>
          isFatal ? Promise.reject(new HoldfastError('connection_closed', 'gone')) : write(...args),
        );
      },
    };
    const failure = importTree([join(local, 'many')], failing, '/workspace', options());
    await expect(failure).rejects.toThrow('gone');
    expect(together.running).toBe(0);
    expect(begun).toBeLessThanOrEqual(20 + FILES_TOGETHER);
    expect(together.ended).toBe(begun);
  });
});

test('names of a hostile host lead nowhere but into the folder', async () => {
  const names = [
    ...['..', '.', '', 'a/..', '../evil', 'a/../../evil', '/etc/evil', '%2e%2e', '..%2fevil', 'x\0y', 'a\\b'],
    ...['ok', '.git', '.git/config', '.vscode', '../.git'],
  ];
  const entry = { size: 1, mtimeMs: 0, mtimeNs: '0', mode: 0o644, link: '../../evil', linkType: null };
  const lying: ExportSource = {
    stat: () => Promise.resolve({ ...entry, type: 'directory' }),
    async *list(path) {
      if (path.split('/').length > 4) return;
      for (const name of names)
        for (const type of ['file', 'directory', 'symlink'] as const)
          yield await Promise.resolve({ ...entry, type, name });
    },
    read: () => Promise.resolve({ bytes: Buffer.from('x'), size: 1, version: 'v' }),
  };
  mkdirSync(join(local, 'into'));
  const into = join(local, 'into');
  await exportTree(lying, ['/workspace/d', '/workspace/..'], into, options('overwrite'));
  expect(readdirSync(local)).toEqual(['into']);
  expect(readdirSync(into)).toEqual(['d']);
  const written = readdirSync(into, { recursive: true, encoding: 'utf8' });
  expect(written).toContain('d/ok');
  expect(written.filter((path) => /(^|\/)(\.git|\.vscode|\.\.?)(\/|$)/.test(path))).toEqual([]);
  expect(written.filter((path) => lstatSync(join(into, path)).isSymbolicLink())).toEqual([]);
});

describe('an export', () => {
  test('keeps contents, execute bits, links and folders', async () => {
    mkdirSync(at('d/e'), { recursive: true });
    mkdirSync(at('d/empty'));
    writeFileSync(at('d/run.sh'), '#!/bin/sh\n', { mode: 0o755 });
    writeFileSync(at('d/e/text'), 'x'.repeat(5_000));
    writeFileSync(at('d/nothing'), '');
    symlinkSync('e/text', at('d/link'));
    symlinkSync('../run.sh', at('d/e/up'));
    symlinkSync('nowhere', at('d/dangling'));
    const report = await exportTree(source(), ['/workspace/d'], local, options());
    expect(report).toMatchObject({
      files: 3,
      executables: 1,
      links: 3,
      folders: 3,
      bytes: 5_010,
      leftOutCount: 0,
    });
    expect(readFileSync(join(local, 'd/e/text'), 'utf8')).toBe('x'.repeat(5_000));
    expect(readFileSync(join(local, 'd/nothing'), 'utf8')).toBe('');
    expect(statSync(join(local, 'd/run.sh')).mode & 0o100).toBe(0o100);
    expect(statSync(join(local, 'd/e/text')).mode & 0o111).toBe(0);
    expect(readlinkSync(join(local, 'd/link'))).toBe('e/text');
    expect(readlinkSync(join(local, 'd/e/up'))).toBe('../run.sh');
    expect(readlinkSync(join(local, 'd/dangling'))).toBe('nowhere');
    expect(readdirSync(join(local, 'd')).filter((name) => name.startsWith('.holdfast'))).toEqual([]);
  });

  test('creates no link that points outside, and skips git folders and special files', async () => {
    mkdirSync(at('d/.git/hooks'), { recursive: true });
    mkdirSync(at('d/sub/.GIT'), { recursive: true });
    writeFileSync(at('d/.git/config'), '[core]\n');
    symlinkSync('/etc/passwd', at('d/absolute'));
    symlinkSync('../../canary', at('d/sub/out'));
    symlinkSync('../../../canary', at('d/sub/further'));
    symlinkSync('../..', at('d/sub/top'));
    symlinkSync('sub/../../..', at('d/behind'));
    const report = await exportTree(source(), ['/workspace/d'], local, options());
    expect(readdirSync(join(local, 'd'))).toEqual(['sub']);
    // The chosen folder itself is not out of it.
    expect(readdirSync(join(local, 'd/sub')).sort()).toEqual(['out', 'top']);
    expect(report.leftOut.map(({ path }) => path).sort()).toEqual(
      ['.git', 'absolute', 'behind', 'sub/.GIT', 'sub/further'].map((name) => `/workspace/d/${name}`),
    );
  });

  test('writes through no existing link, whatever the answer', async () => {
    const outside = join(local, 'outside');
    const chosen = join(local, 'chosen');
    mkdirSync(outside);
    mkdirSync(chosen);
    writeFileSync(join(outside, 'file'), 'mine');
    symlinkSync('../outside', join(chosen, 'd'));
    symlinkSync('../outside/file', join(chosen, 'f'));
    mkdirSync(at('d'));
    writeFileSync(at('d/file'), 'theirs');
    writeFileSync(at('f'), 'theirs');
    const report = await exportTree(source(), ['/workspace/d', '/workspace/f'], chosen, options('overwrite'));
    expect(readFileSync(join(outside, 'file'), 'utf8')).toBe('mine');
    expect(report.leftOut).toEqual([
      { path: '/workspace/d', why: 'something other than a folder already exists there' },
    ]);
    // The link itself has given way.
    expect(lstatSync(join(chosen, 'f')).isFile()).toBe(true);
    expect(readFileSync(join(chosen, 'f'), 'utf8')).toBe('theirs');
  });

  test('asks once what to do with existing files', async () => {
    for (const name of ['a', 'b', 'c']) writeFileSync(at(name), 'theirs');
    symlinkSync('a', at('l'));
    writeFileSync(join(local, 'a'), 'mine');
    writeFileSync(join(local, 'b'), 'mine');
    writeFileSync(join(local, 'l'), 'mine');
    const paths = ['a', 'b', 'c', 'l'].map((name) => `/workspace/${name}`);
    const skipping = options('skip');
    const skipped = await exportTree(source(), paths, local, skipping);
    expect(skipping.asked).toHaveLength(1);
    expect(skipped).toMatchObject({ files: 1, existing: 3, links: 0 });
    expect(readFileSync(join(local, 'a'), 'utf8')).toBe('mine');
    const overwriting = options('overwrite');
    const overwritten = await exportTree(source(), paths, local, overwriting);
    expect(overwriting.asked).toHaveLength(1);
    expect(overwritten).toMatchObject({ files: 3, existing: 0, links: 1 });
    expect(readFileSync(join(local, 'b'), 'utf8')).toBe('theirs');
    expect(readlinkSync(join(local, 'l'))).toBe('a');
  });

  test('of two entries with one name takes the first, asks nobody, and reports the other', async () => {
    for (const folder of ['one', 'two']) {
      mkdirSync(at(folder));
      writeFileSync(at(`${folder}/config`), folder);
    }
    const paths = ['/workspace/one/config', '/workspace/two/config'];
    const report = await exportTree(source(), paths, local, options());
    expect(readFileSync(join(local, 'config'), 'utf8')).toBe('one');
    expect(report.leftOut).toEqual([
      { path: '/workspace/two/config', why: '/workspace/one/config has the same name' },
    ]);
  });

  test('does not replace a folder with a file', async () => {
    writeFileSync(at('a'), 'theirs');
    mkdirSync(join(local, 'a'));
    const report = await exportTree(source(), ['/workspace/a'], local, options('overwrite'));
    expect(report.leftOut).toEqual([{ path: '/workspace/a', why: 'a folder already exists there' }]);
  });

  test('leaves no partial file when it is cancelled', async () => {
    writeFileSync(at('a'), 'x'.repeat(100_000));
    const cancel = new AbortController();
    const work = exportTree(source(), ['/workspace/a'], local, {
      ...options(),
      signal: cancel.signal,
      onProgress: ({ bytes }) => {
        if (bytes > 10_000) cancel.abort(new HoldfastError('cancelled', 'cancelled'));
      },
    });
    await expect(work).rejects.toThrow('cancelled');
    expect(readdirSync(local)).toEqual([]);
  });

  test('reads a file again that changes meanwhile', async () => {
    writeFileSync(at('a'), 'old '.repeat(1_000));
    let isChanged = false;
    await exportTree(source(), ['/workspace/a'], local, {
      ...options(),
      onProgress: () => {
        if (isChanged) return;
        isChanged = true;
        writeFileSync(at('a'), 'new');
      },
    });
    expect(readFileSync(join(local, 'a'), 'utf8')).toBe('new');
  });
});

describe('an import', () => {
  test('keeps contents, execute bits and links, and follows none', async () => {
    mkdirSync(join(local, 'd/e'), { recursive: true });
    mkdirSync(join(local, 'd/.git'));
    writeFileSync(join(local, 'd/.git/config'), 'a password');
    writeFileSync(join(local, 'd/run'), 'x', { mode: 0o700 });
    writeFileSync(join(local, 'd/e/text'), 'y'.repeat(10_000), { mode: 0o600 });
    symlinkSync('/etc/passwd', join(local, 'd/absolute'));
    symlinkSync('e/text', join(local, 'd/link'));
    writeFileSync(Buffer.concat([Buffer.from(`${local}/d/caf`), Buffer.from([0xe9])]), 'bytes');
    const report = await importTree([join(local, 'd')], target(), '/workspace', options());
    expect(report).toMatchObject({ files: 3, executables: 1, links: 2, folders: 2, leftOutCount: 1 });
    expect(statSync(at('d/run')).mode & 0o777).toBe(0o755);
    expect(statSync(at('d/e/text')).mode & 0o777).toBe(0o644);
    expect(readFileSync(at('d/e/text'), 'utf8')).toBe('y'.repeat(10_000));
    expect(readlinkSync(at('d/absolute'))).toBe('/etc/passwd');
    expect(readlinkSync(at('d/link'))).toBe('e/text');
    expect(readFileSync(Buffer.concat([Buffer.from(at('d/caf')), Buffer.from([0xe9])]), 'utf8')).toBe(
      'bytes',
    );
    expect(existsSync(at('d/.git'))).toBe(false);
  });

  test('asks once what to do with existing files', async () => {
    for (const name of ['a', 'b']) {
      writeFileSync(join(local, name), 'mine');
      writeFileSync(at(name), 'theirs');
    }
    symlinkSync('a', join(local, 'l'));
    writeFileSync(at('l'), 'theirs');
    const locals = ['a', 'b', 'l'].map((name) => join(local, name));
    const skipping = options('skip');
    expect(await importTree(locals, target(), '/workspace', skipping)).toMatchObject({
      files: 0,
      existing: 3,
    });
    expect(skipping.asked).toHaveLength(1);
    expect(readFileSync(at('a'), 'utf8')).toBe('theirs');
    expect(await importTree(locals, target(), '/workspace', options('overwrite'))).toMatchObject({
      files: 2,
      links: 1,
    });
    expect(readFileSync(at('b'), 'utf8')).toBe('mine');
    expect(readlinkSync(at('l'))).toBe('a');
  });

  test('followed by an export restores the original tree', async () => {
    mkdirSync(join(local, 'in/deep'), { recursive: true });
    mkdirSync(join(local, 'out'));
    writeFileSync(join(local, 'in/deep/run'), 'run', { mode: 0o755 });
    symlinkSync('deep/run', join(local, 'in/link'));
    chmodSync(join(local, 'in'), 0o755);
    await importTree([join(local, 'in')], target(), '/workspace', options());
    await exportTree(source(), ['/workspace/in'], join(local, 'out'), options());
    expect(readlinkSync(join(local, 'out/in/link'))).toBe('deep/run');
    expect(statSync(join(local, 'out/in/deep/run')).mode & 0o111).not.toBe(0);
  });
});
