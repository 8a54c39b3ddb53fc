import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import {
  cp,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  symlink,
  truncate,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { HoldfastError } from '../../../protocol/errors.ts';
import type { Params, Result } from '../../../protocol/methods.ts';
import type { Change } from '../../../protocol/snapshots.ts';
import { FaultHome } from '../../faults/harness/fault-home.ts';
import { shellProject, writeProject } from '../../setup/profiles.ts';

const run = promisify(execFile);
const MIB = 2 ** 20;

let home: FaultHome;
let project: string;
let supervisor: Awaited<ReturnType<FaultHome['start']>>;

beforeAll(async () => {
  home = await FaultHome.create();
  supervisor = await home.start();
  project = await writeProject(join(home.path, '..'), shellProject('looks'));
  await home.call('profile/deploy', { directory: project });
});
afterAll(async () => {
  await home.end();
});

async function session(): Promise<{ id: string; folder: string }> {
  const made = await home.call('session/create', { profile: 'looks' });
  return { id: made.session.id, folder: join(home.path, 'workspaces', made.session.id) };
}

async function snapshot(of: string): Promise<string> {
  return (await home.call('snapshot/create', { session: of })).id;
}

const told = (changes: readonly Change[]): string[] =>
  changes.map(({ kind, path, oldPath }) => `${kind} ${oldPath === undefined ? '' : `${oldPath} -> `}${path}`);

async function codeOf(promise: Promise<unknown>): Promise<string> {
  const error: unknown = await promise.then(
    () => null,
    (reason: unknown) => reason,
  );
  return (error as HoldfastError | null)?.code ?? 'it did not fail';
}

async function patch(
  params: Params<'snapshot/patch'>,
): Promise<{ text: Buffer; pieces: number; leftOut: number }> {
  const { peer } = await home.connect();
  const parts: Buffer[] = [];
  let leftOut = 0;
  for (let cursor: string | null | undefined = params.cursor; cursor !== null;) {
    const piece: { result: Result<'snapshot/patch'>; bytes: Buffer } = await peer.callWithBytes(
      'snapshot/patch',
      {
        ...params,
        ...(cursor === undefined ? {} : { cursor }),
      },
    );
    const { result, bytes } = piece;
    expect(bytes.length).toBe(result.bytes);
    parts.push(Buffer.from(bytes));
    leftOut += result.leftOut;
    cursor = result.nextCursor;
  }
  return { text: Buffer.concat(parts), pieces: parts.length, leftOut };
}

describe('what differs', () => {
  test('between two snapshots, and between one and the workspace as it is, page by page', async () => {
    const { id, folder } = await session();
    await mkdir(join(folder, 'src'));
    await writeFile(join(folder, 'src/a'), 'one\n');
    await writeFile(join(folder, 'src/moves'), 'the same content\n');
    await writeFile(join(folder, 'goes'), 'x');
    const first = await snapshot(id);
    await writeFile(join(folder, 'src/a'), 'two\n');
    await rename(join(folder, 'src/moves'), join(folder, 'moved'));
    await rm(join(folder, 'goes'));
    await symlink('src/a', join(folder, 'link'));
    const second = await snapshot(id);

    const whole = await home.call('snapshot/diff', { a: first, b: second });
    expect(told(whole.changes)).toEqual([
      'deleted /workspace/goes',
      'added /workspace/link',
      'renamed /workspace/src/moves -> /workspace/moved',
      'modified /workspace/src/a',
    ]);
    expect(whole.totals).toEqual({
      added: 1,
      modified: 1,
      deleted: 1,
      renamed: 1,
      mode: 0,
      typechange: 0,
      bytes: 4,
    });
    expect(whole.nextCursor).toBeNull();
    expect((await home.call('snapshot/diff', { a: first, b: first })).changes).toEqual([]);
    const part = await home.call('snapshot/diff', { a: first, b: second, path: '/workspace/src' });
    expect(told(part.changes)).toEqual(['modified /workspace/src/a', 'deleted /workspace/src/moves']);

    // Nothing has changed since; then something has, and goes on changing between the pages.
    expect((await home.call('snapshot/diff', { a: second, b: 'now' })).changes).toEqual([]);
    for (let file = 0; file < 7; file += 1) await writeFile(join(folder, `new-${file}`), `${file}`);
    const seen: string[] = [];
    for (let cursor: string | null | undefined; cursor !== null;) {
      const page = await home.call('snapshot/diff', {
        a: second,
        b: 'now',
        limit: 2,
        ...(cursor === undefined ? {} : { cursor }),
      });
      seen.push(...told(page.changes));
      expect(page.totals.added).toBe(7);
      cursor = page.nextCursor;
      await rm(join(folder, 'new-6'), { force: true });
    }
    expect(seen).toEqual(Array.from({ length: 7 }, (_, file) => `added /workspace/new-${file}`));
    const back = await home.call('snapshot/preview', { session: id, from: `snapshot:${second}` });
    expect(told(back.changes)).toEqual(
      Array.from({ length: 6 }, (_, file) => `deleted /workspace/new-${file}`),
    );
    const clean = await home.call('snapshot/preview', { session: id, from: 'clean' });
    expect(clean.totals).toMatchObject({ deleted: 6 + 4, added: 0, modified: 0 });
    expect((await home.call('snapshot/preview', { session: id, from: 'files' })).changes).toEqual([]);
  });

  test(
    'what a reset would change: what the project brings again is no change',
    { timeout: 120_000 },
    async () => {
      const files = {
        'src/kept': 'the same',
        'src/edited': 'before',
        'src/gone': 'comes back',
        '-x': '',
        'run.sh': 'x',
      };
      const seeded = {
        ...shellProject('seeded', 'persistence: persistent\nworkspace: { ignore: [run.sh] }\n'),
        ...files,
      };
      const directory = await writeProject(join(home.path, '..'), seeded);
      await writeFile(join(directory, 'large'), randomBytes(3 * MIB));
      await symlink('src/kept', join(directory, 'link'));
      await home.call('profile/deploy', { directory });
      const { id } = (await home.call('session/create', { profile: 'seeded' })).session;
      const folder = join(home.path, 'workspaces', id);
      const preview = (more: object = {}) =>
        home.call('snapshot/preview', { session: id, from: 'clean', ...more });
      expect((await preview()).changes).toEqual([]);
      await writeFile(join(folder, 'src/edited'), 'after');
      await rm(join(folder, 'src/gone'));
      await run('chmod', ['700', join(folder, '-x')]);
      await writeFile(join(folder, 'more'), 'of the agent');
      await rm(join(folder, 'link'));
      await mkdir(join(folder, 'link'));
      const expected = [
        'mode /workspace/-x',
        'typechange /workspace/link',
        'deleted /workspace/more',
        'modified /workspace/src/edited',
        'added /workspace/src/gone',
      ];
      const whole = await preview();
      expect(told(whole.changes)).toEqual(expected);
      expect(whole.totals).toMatchObject({ added: 1, deleted: 1, modified: 1, mode: 1, typechange: 1 });
      const pages: string[] = [];
      for (let cursor: string | null | undefined; cursor !== null;) {
        const page = await preview({ limit: 2, ...(cursor === undefined ? {} : { cursor }) });
        pages.push(...told(page.changes));
        cursor = page.nextCursor;
      }
      expect(pages).toEqual(expected);

      const { undo } = await home.call('session/resume', { session: id, from: 'clean' });
      expect((await preview()).changes).toEqual([]);
      // Times are new: what it was differs in that too.
      const came = (await home.call('snapshot/diff', { a: undo ?? '', b: 'now', session: id })).changes;
      expect(told(came.filter(({ kind }) => kind !== 'mode'))).toEqual(expected.slice(1));
    },
  );

  test('ids of others, forged ones and cursors that are none are refused', async () => {
    const [one, other] = [await session(), await session()];
    await writeFile(join(one.folder, 'a'), 'one');
    const [a, b] = [await snapshot(one.id), await snapshot(other.id)];
    expect(await codeOf(home.call('snapshot/diff', { a, b }))).toBe('invalid_params');
    expect(await codeOf(home.call('snapshot/diff', { a, b: 'now', session: other.id }))).toBe('not_found');
    expect(await codeOf(home.call('snapshot/verify', { snapshot: a, session: other.id }))).toBe('not_found');
    const from = `snapshot:${a}` as const;
    expect(await codeOf(home.call('snapshot/preview', { session: other.id, from }))).toBe('not_found');
    expect(await codeOf(home.call('snapshot/diff', { a: `snp-${'a'.repeat(16)}`, b: a }))).toBe('not_found');
    expect(await codeOf(home.call('snapshot/diff', { a: 'now', b: 'now' }))).toBe('invalid_params');
    expect(await codeOf(home.call('snapshot/diff', { a, b: a, path: '/workspace/none' }))).toBe(
      'file_not_found',
    );
    expect(await codeOf(home.call('snapshot/diff', { a, b: a, path: '/etc' }))).toBe('file_not_found');
    expect(await codeOf(home.call('snapshot/diff', { a, b: a, cursor: 'x' }))).toBe('invalid_params');
    const forged = `${'A'.repeat(86)}/x`;
    expect(await codeOf(home.call('snapshot/diff', { a, b: a, cursor: forged }))).toBe('conflict');
    expect(await codeOf(home.call('snapshot/diff', { a, b: 'now', cursor: forged }))).toBe('conflict');
  });

  test(
    'as a patch that git takes, in pieces, with what git refuses left out and told',
    { timeout: 180_000 },
    async () => {
      const { id, folder } = await session();
      const lines = Array.from({ length: 30_000 }, (_, line) => `line ${line}\n`);
      await writeFile(join(folder, 'long.txt'), lines.join(''));
      await writeFile(join(folder, 'old name'), 'moves\n');
      await mkdir(join(folder, 'keeps'));
      await writeFile(join(folder, 'keeps/x'), 'x');
      const before = await snapshot(id);
      const place = await mkdtemp(join(tmpdir(), 'holdfast-looks-'));
      try {
        await cp(folder, join(place, 'tree'), { recursive: true, verbatimSymlinks: true });
        lines[20_000] = 'changed\n';
        await writeFile(join(folder, 'long.txt'), lines.join(''));
        await rename(join(folder, 'old name'), join(folder, 'new "name"'));
        await writeFile(join(folder, 'bytes'), randomBytes(9 * MIB));
        await writeFile(join(folder, 'run.sh'), '#!/bin/sh\n', { mode: 0o755 });
        await symlink('../outside', join(folder, 'link'));
        await mkdir(join(folder, '.git'));
        await writeFile(join(folder, '.git/config'), '[core]\n');
        const { text, pieces, leftOut } = await patch({ a: before, b: 'now' });
        expect(pieces).toBeGreaterThan(2);
        expect(leftOut).toBe(1);
        await writeFile(join(place, 'patch'), text);
        const plain = {
          PATH: process.env['PATH'],
          HOME: place,
          GIT_CONFIG_NOSYSTEM: '1',
          GIT_CEILING_DIRECTORIES: place,
        };
        await run('git', ['apply', '--whitespace=nowarn', join(place, 'patch')], {
          cwd: join(place, 'tree'),
          env: plain,
        });
        await rm(join(folder, '.git'), { recursive: true });
        await run('diff', ['-r', '--no-dereference', folder, join(place, 'tree')]);
        await run('git', ['apply', '-R', '--whitespace=nowarn', join(place, 'patch')], {
          cwd: join(place, 'tree'),
          env: plain,
        });
        expect((await readdir(join(place, 'tree'))).sort()).toEqual(['keeps', 'long.txt', 'old name']);
      } finally {
        await rm(place, { recursive: true, force: true });
      }
    },
  );

  test('pieces that a killed supervisor was asked for go on between two files, and are refused inside of one', async () => {
    const { id, folder } = await session();
    const before = await snapshot(id);
    for (const name of ['a', 'b', 'c']) await writeFile(join(folder, name), randomBytes(4 * MIB));
    const after = await snapshot(id);
    const whole = await patch({ a: before, b: after });
    const { peer } = await home.connect();
    const first = await peer.callWithBytes('snapshot/patch', { a: before, b: after });
    const cursor = first.result.nextCursor ?? '';
    await supervisor.kill();
    supervisor = await home.start();
    expect(await codeOf(home.call('snapshot/patch', { a: before, b: after, cursor }))).toBe('conflict');
    // The same place, had the piece ended behind the first file.
    const between = `${cursor.slice(0, 86)}w1/a`;
    const rest = await patch({ a: before, b: after, cursor: between });
    const at = whole.text.indexOf('diff --git a/b b/b');
    expect(at).toBeGreaterThan(0);
    expect(rest.text.equals(whole.text.subarray(at))).toBe(true);
  });
});

describe('on the command line', () => {
  const PROGRAM = join(import.meta.dirname, '../../../scripts/holdfast.cjs');
  const holdfast = async (...args: string[]): Promise<{ code: number; stdout: string; stderr: string }> => {
    const env = { ...process.env, HOLDFAST_HOME: home.path };
    return await run(process.execPath, [PROGRAM, ...args], { env }).then(
      (said) => ({ code: 0, ...said }),
      (error: unknown) => error as { code: number; stdout: string; stderr: string },
    );
  };

  test('what differs, as lines, totals, JSON and a patch; what a restore would change; whether all is whole', async () => {
    const { id, folder } = await session();
    await writeFile(join(folder, 'a'), 'one\n');
    await writeFile(join(folder, 'moves'), 'content\n');
    const taken = await snapshot(id);
    await writeFile(join(folder, 'a'), 'two\n');
    await rename(join(folder, 'moves'), join(folder, 'moved'));

    const lines = await holdfast('snapshot', 'diff', taken, 'now');
    expect(lines).toMatchObject({
      code: 0,
      stdout: 'M /workspace/a\nR /workspace/moves → /workspace/moved\n',
    });
    expect((await holdfast('snapshot', 'diff', taken, 'now', '--stat')).stdout).toMatch(
      /1 modified, 1 renamed/,
    );
    const json = JSON.parse((await holdfast('snapshot', 'diff', taken, 'now', '--json')).stdout) as {
      changes: Change[];
    };
    expect(json.changes.map(({ path, kind }) => [path, kind])).toEqual([
      ['/workspace/a', 'modified'],
      ['/workspace/moved', 'renamed'],
    ]);
    const written = await holdfast('snapshot', 'diff', taken, 'now', '--patch', '--path', 'a');
    expect(written.stdout).toContain('--- a/a\n+++ b/a\n@@ -1,1 +1,1 @@\n-one\n+two\n');

    for (const args of [
      ['session', 'resume', id, '--from', `snapshot:${taken}`, '--preview'],
      ['snapshot', 'restore', id, taken, '--preview'],
    ]) {
      const would = await holdfast(...args);
      expect(would.stdout).toBe('M /workspace/a\nR /workspace/moved → /workspace/moves\n');
    }
    const reset = await holdfast('session', 'reset', id, '--preview');
    expect(reset.stdout).toBe('D /workspace/a\nD /workspace/moved\n');
    expect(await readFile(join(folder, 'a'), 'utf8')).toBe('two\n');
    const nothing = await holdfast('snapshot', 'restore', id, taken, '--path', 'no/such');
    expect(nothing).toMatchObject({
      code: 1,
      stderr:
        'error file_not_found: The snapshot has no /workspace/no/such; see `holdfast workspace ls SESSION --snapshot SNAPSHOT`; nothing was changed\n',
    });

    expect(await holdfast('snapshot', 'verify', taken)).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/is whole/) as string,
    });
    const packs = join(home.path, 'store', id, 'packs');
    for (const pack of await readdir(packs)) await truncate(join(packs, pack), 200);
    const damaged = await holdfast('snapshot', 'verify', taken);
    expect(damaged).toMatchObject({
      code: 1,
      stdout: expect.stringMatching(/^damaged \/workspace/) as string,
    });

    // And it does not come back as something else. (This supervisor still has it in memory, as it was.)
    await supervisor.kill();
    supervisor = await home.start();
    const refused = (await holdfast('snapshot', 'restore', id, taken, '--force')).stderr;
    expect(refused).toMatch(/^error snapshot_damaged/);
    expect(refused).toMatch(/nothing was changed$/m);
    expect(await readFile(join(folder, 'a'), 'utf8')).toBe('two\n');
    expect((await holdfast('snapshot', 'diff', 'x', 'now')).code).toBe(2);
  });

  test('files of a snapshot', async () => {
    const { id, folder } = await session();
    await writeFile(join(folder, 'a'), 'then\n');
    const taken = await snapshot(id);
    await rm(join(folder, 'a'));
    expect((await holdfast('workspace', 'cat', id, 'a', '--snapshot', taken)).stdout).toBe('then\n');
    expect((await holdfast('workspace', 'ls', id, '--snapshot', taken)).stdout).toMatch(/-rw-r--r-- .* a\n$/);
    expect((await holdfast('workspace', 'cat', id, 'a')).stderr).toMatch(/^error file_not_found/);
  });
});

describe('the files of a snapshot', () => {
  test('are listed and read as they were, whatever became of them, and cannot be written', async () => {
    const { id, folder } = await session();
    const content = randomBytes(5 * MIB);
    await mkdir(join(folder, 'd'));
    await writeFile(join(folder, 'd/big'), content);
    await symlink('d/big', join(folder, 'link'));
    const taken = await snapshot(id);
    const live = await home.call('files/list', { session: id, path: '/workspace/d' });
    await rm(join(folder, 'd'), { recursive: true });
    await writeFile(join(folder, 'd'), 'a file now');
    const other = await session();

    const listed = await home.call('files/list', { snapshot: taken, path: '/workspace/d' });
    expect(listed).toEqual(live);
    expect(
      (await home.call('files/list', { snapshot: taken, session: id, path: '/workspace' })).entries,
    ).toHaveLength(2);
    const { peer } = await home.connect();
    const parts: Buffer[] = [];
    for (let offset = 0; offset < content.length; offset += 4 * MIB) {
      const { bytes } = await peer.callWithBytes('files/read', {
        snapshot: taken,
        path: '/workspace/link',
        offset,
      });
      parts.push(Buffer.from(bytes));
    }
    expect(Buffer.concat(parts).equals(content)).toBe(true);
    const wrong = { snapshot: taken, session: other.id, path: '/workspace' };
    expect(await codeOf(home.call('files/list', wrong))).toBe('not_found');
    expect(await codeOf(home.call('files/stat', { path: '/workspace' }))).toBe('invalid_params');
    const write = { snapshot: taken, path: '/workspace/x', create: true } as unknown as Params<'files/write'>;
    expect(await codeOf(home.call('files/write', write, Buffer.from('x')))).toBe('invalid_params');
  });
});

describe('what is stored', () => {
  test('is checked and named where it is damaged, and given back when nobody needs it', async () => {
    const { id, folder } = await session();
    await writeFile(join(folder, 'kept'), randomBytes(2 * MIB));
    const kept = await snapshot(id);
    await writeFile(join(folder, 'gone'), randomBytes(3 * MIB));
    const gone = await snapshot(id);
    expect(await home.call('snapshot/verify', { snapshot: gone })).toMatchObject({ ok: true, damages: [] });

    const bytesOf = async (): Promise<number> =>
      (await home.call('snapshot/list', { session: id })).usage.bytes;
    const before = await bytesOf();
    await home.call('snapshot/delete', { snapshot: gone, force: true });
    const planned = await home.call('gc', { dryRun: true });
    const ours = planned.removed.find(({ kind, name }) => kind === 'snapshots' && name === id);
    expect(ours?.bytes).toBeGreaterThan(2.9 * MIB);
    expect(await bytesOf()).toBe(before);
    await home.call('gc', {});
    const { usage } = await home.call('snapshot/list', { session: id });
    expect((await home.call('workspace/info', { session: id })).snapshots).toEqual(usage);
    expect(usage).toMatchObject({ snapshots: 1, uniqueBytes: usage.bytes });
    // A fork shares all of it, until one of them has something of its own.
    const fork = (await home.call('snapshot/fork', { snapshot: kept })).session.id;
    await home.call('workspace/wait', { session: fork });
    await writeFile(join(home.path, 'workspaces', fork, 'more'), randomBytes(MIB));
    await snapshot(fork);
    expect((await home.call('snapshot/list', { session: fork })).usage.uniqueBytes).toBeNull();
    // Who has asked is told a little later.
    const own = async () => (await home.call('snapshot/list', { session: fork })).usage.uniqueBytes;
    await expect.poll(own, { timeout: 30_000 }).toBeGreaterThan(MIB);
    expect(await own()).toBeLessThan(1.1 * MIB);
    await home.call('gc', {});
    expect(await own()).toBeGreaterThan(MIB);
    await home.call('session/delete', { session: fork, force: true });
    for (const one of (await home.call('snapshot/list', { session: fork })).snapshots) {
      await home.call('snapshot/delete', { snapshot: one.id, force: true });
    }
    await home.call('gc', {});
    expect(await bytesOf()).toBeLessThan(before - 2.9 * MIB);
    expect(await home.call('snapshot/verify', { snapshot: kept })).toMatchObject({ ok: true });
    expect((await home.call('gc', {})).removed.filter(({ name }) => name === id)).toEqual([]);

    const packs = join(home.path, 'store', id, 'packs');
    const bySize = await Promise.all(
      (await readdir(packs)).map(async (name) => ({ name, size: (await stat(join(packs, name))).size })),
    );
    const { name: pack = '' } = bySize.sort((one, other) => other.size - one.size)[0] ?? {};
    const whole = await readFile(join(packs, pack));
    const changed = Buffer.from(whole);
    changed[100_000] = (changed[100_000] ?? 0) ^ 1;
    await writeFile(join(packs, pack), changed);
    const flipped = await home.call('snapshot/verify', { snapshot: kept });
    expect(flipped.ok).toBe(false);
    expect(flipped.damages).toContainEqual(expect.objectContaining({ pack, path: '/workspace/kept' }));
    await truncate(join(packs, pack), 1000);
    const cut = await home.call('snapshot/verify', { snapshot: kept });
    expect(cut.damages).toContainEqual(expect.objectContaining({ pack, object: null }));
    await writeFile(join(packs, pack), whole);
    expect(await home.call('snapshot/verify', { snapshot: kept })).toMatchObject({ ok: true });
  });
});
