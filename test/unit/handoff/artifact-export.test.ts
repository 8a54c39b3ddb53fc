import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { exportArtifact } from '../../../handoff/artifact-export.ts';
import { type ArtifactConnection, readArtifactFiles } from '../../../handoff/artifact-files.ts';
import { artifactList } from '../../../protocol/artifacts.ts';
import { HoldfastError } from '../../../protocol/errors.ts';
import { ARTIFACT as ID, type Lies, fakeSupervisor, pathOf } from '../../fixtures/handoff/fake-artifact.ts';

const top = mkdtempSync(join(tmpdir(), 'holdfast-artifacts-'));
afterAll(() => rmSync(top, { recursive: true, force: true }));
let serial = 0;
async function exported(
  connection: ArtifactConnection,
  options: { folder?: string; paths?: string[]; released?: string[] } = {},
) {
  const folder = options.folder ?? join(top, `folder-${(serial += 1)}`);
  const { paths = [], released = [] } = options;
  const contents = await readArtifactFiles(connection, ID);
  return await exportArtifact(connection, contents, { folder, paths, released });
}

async function failure(promise: Promise<unknown>): Promise<HoldfastError> {
  const error: unknown = await promise.then(
    () => null,
    (reason: unknown) => reason,
  );
  if (error instanceof HoldfastError) return error;
  throw new Error(`no typed error: ${String(error)}`);
}

describe('the list of an artifact', () => {
  test('is as sha256sum writes it, also for odd names', () => {
    const names = ['plain', 'a b', 'back\\slash', 'new\nline', '\xff\xfe'];
    const list = artifactList(names.map((name) => ({ path: pathOf(name), sha256: 'aa' })));
    expect(list.toString('latin1')).toBe(
      'aa  plain\naa  a b\n\\aa  back\\\\slash\n\\aa  new\\nline\naa  \xff\xfe\n',
    );
  });
});

describe('an export', () => {
  test('writes what was kept, by page and by part', async () => {
    const connection = fakeSupervisor({ a: 'one', 'd/b': '', 'd/\xff': 'more than five', c: 'three' });
    const { folder, files } = await exported(connection);
    expect(files).toBe(4);
    expect(readFileSync(join(folder, 'a'), 'utf8')).toBe('one');
    expect(readFileSync(Buffer.from(`${folder}/d/\xff`, 'latin1'), 'utf8')).toBe('more than five');
    expect(readFileSync(join(folder, 'd/b'), 'utf8')).toBe('');
  });

  test('refuses names of git and names that a file system takes for one, and quarantines what would run', async () => {
    const connection = fakeSupervisor({
      '.git/config': '[core]',
      'd/.GIT/hooks/pre-commit': 'x',
      'git~1/config': 'x',
      '.g\xe2\x80\x8cit': 'x',
      '.vscode/tasks.json': '{}',
      'run.sh': { run: 'echo' },
      Same: 'one',
      same: 'two',
      'x\\..\\..\\y': 'x',
      fine: 'fine',
    });
    const { folder, refused, quarantined } = await exported(connection);
    expect(readdirSync(folder).sort()).toEqual(['fine', 'x\\..\\..\\y']);
    expect(refused.map(({ path }) => path).sort()).toEqual(
      ['.git/config', 'd/.GIT/hooks/pre-commit', 'git~1/config', '.g\xe2\x80\x8cit', 'Same', 'same'].sort(),
    );
    expect(quarantined.map(({ path }) => path)).toEqual(['.vscode/tasks.json', 'run.sh']);
    const chosen = await exported(connection, { paths: ['run.sh', 'fine'], released: ['run.*'] });
    expect(readdirSync(chosen.folder).sort()).toEqual(['fine', 'run.sh']);
  });

  test('writes nothing where something is, and through no link', async () => {
    const connection = fakeSupervisor({ a: 'one' });
    const elsewhere = join(top, 'elsewhere');
    mkdirSync(elsewhere);
    symlinkSync(elsewhere, join(top, 'link'));
    mkdirSync(join(top, 'full/inside'), { recursive: true });
    expect((await failure(exported(connection, { folder: join(top, 'full') }))).code).toBe('already_exists');
    await exported(connection, { folder: join(top, 'link') }).catch(() => undefined);
    expect(readdirSync(elsewhere)).toEqual([]);
  });

  test.each<[string, Lies]>([
    ['another list than was signed', { list: (files) => files.slice(1) }],
    ['a file more', { list: ([one, ...rest]) => (one === undefined ? [] : [one, one, ...rest]) }],
    ['the statement of another artifact', { statementOf: 'art-bbbbbbbbbbbbbbbb' }],
    ['other contents', { contents: (bytes) => Buffer.alloc(bytes.length, 'x') }],
    ['fewer contents', { contents: (bytes) => bytes.subarray(0, 4) }],
  ])('of %s leaves nothing', async (_name, lies) => {
    const folder = join(top, `lies-${(serial += 1)}`);
    const connection = fakeSupervisor({ a: 'one', b: 'two', c: 'three' }, lies);
    expect((await failure(exported(connection, { folder }))).code).toBe('protocol_error');
    expect(existsSync(folder)).toBe(false);
    expect(readdirSync(top).filter((name) => name.startsWith('.holdfast-'))).toEqual([]);
  });

  test.each<[string, Lies]>([
    ['larger than an artifact can be', { list: (files) => files.map((one) => ({ ...one, size: 2 ** 27 })) }],
    ['of a size that no disk has', { list: ([one]) => (one ? [{ ...one, size: 2 ** 53 - 1 }] : []) }],
    ['with a list that does not end', { page: (from) => ({ files: [], next: from + 1 }) }],
    ['with a page that leaves files out', { page: (from, files) => ({ files, next: from + 1000 }) }],
  ])('of files %s reads none of them', async (_name, lies) => {
    const connection = fakeSupervisor({ a: 'one', b: 'two', c: 'three' }, lies);
    const calls: string[] = [];
    const counted = {
      callWithBytes: (method: 'artifact/files', params: { artifact: string }) => {
        calls.push(method);
        return connection.callWithBytes(method, params);
      },
    } as ArtifactConnection;
    const folder = join(top, `large-${(serial += 1)}`);
    expect((await failure(exported(counted, { folder }))).code).toBe('protocol_error');
    expect(calls.length).toBeLessThanOrEqual(4);
    expect(calls).not.toContain('artifact/read');
    expect(existsSync(folder)).toBe(false);
  });

  test('a path that leads out of the workspace is no path', async () => {
    const lies: Lies = {
      list: (files) => files.map((file) => ({ ...file, path: '/workspace/../../etc/x' })),
    };
    await expect(exported(fakeSupervisor({ a: 'one' }, lies))).rejects.toThrow();
  });
});
