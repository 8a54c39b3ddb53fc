import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { cp, mkdir, mkdtemp, readFile, readdir, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Params, Result } from '../../../protocol/methods.ts';
import type { Change } from '../../../protocol/snapshots.ts';
import { FaultHome } from '../../faults/harness/fault-home.ts';
import { shellProject, writeProject } from '../../setup/profiles.ts';
import { errorCode, SnapshotFixture } from './snapshot-fixture.ts';
import { deploy } from '../../setup/deploy.ts';

const run = promisify(execFile);
const MIB = 2 ** 20;

let home: FaultHome;
let scene: SnapshotFixture;

beforeAll(async () => {
  home = await FaultHome.create();
  scene = await SnapshotFixture.create(home);
});
afterAll(async () => {
  await home.dispose();
});

const told = (changes: readonly Change[]): string[] =>
  changes.map(({ kind, path, oldPath }) => `${kind} ${oldPath === undefined ? '' : `${oldPath} -> `}${path}`);

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
    leftOut += result.omitted;
    cursor = result.nextCursor;
  }
  return { text: Buffer.concat(parts), pieces: parts.length, leftOut };
}

describe('differences', () => {
  test('between two snapshots, and between a snapshot and the current workspace, in pages', async () => {
    const { id, folder } = await scene.createSession();
    await mkdir(join(folder, 'src'));
    await writeFile(join(folder, 'src/a'), 'one\n');
    await writeFile(join(folder, 'src/moves'), 'the same content\n');
    await writeFile(join(folder, 'goes'), 'x');
    const first = await scene.createSnapshot(id);
    await writeFile(join(folder, 'src/a'), 'two\n');
    await rename(join(folder, 'src/moves'), join(folder, 'moved'));
    await rm(join(folder, 'goes'));
    await symlink('src/a', join(folder, 'link'));
    const second = await scene.createSnapshot(id);

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
      directories: 0,
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
    expect(clean.totals).toMatchObject({ deleted: 6 + 3, directories: 1, added: 0, modified: 0 });
    expect((await home.call('snapshot/preview', { session: id, from: 'files' })).changes).toEqual([]);
  });

  test('a renamed and edited file is one change, and git applies its patch; a chmod shows both modes', async () => {
    const { id, folder } = await scene.createSession();
    const text = Array.from({ length: 20 }, (_, line) => `line ${line}\n`).join('');
    await mkdir(join(folder, 'src'));
    await writeFile(join(folder, 'src/parser.ts'), text);
    await writeFile(join(folder, 'run.sh'), 'echo\n', { mode: 0o644 });
    const taken = await scene.createSnapshot(id);
    await mkdir(join(folder, 'lib'));
    await rename(join(folder, 'src/parser.ts'), join(folder, 'lib/scanner.ts'));
    await writeFile(join(folder, 'lib/scanner.ts'), `${text}and more\n`);
    await run('chmod', ['755', join(folder, 'run.sh')]);

    const { changes, totals } = await home.call('snapshot/diff', { a: taken, b: 'now' });
    expect(
      changes.map(({ path, kind, oldPath, edited, oldMode, newMode }) => [
        path,
        kind,
        oldPath,
        edited,
        oldMode,
        newMode,
      ]),
    ).toEqual([
      ['/workspace/lib', 'added', undefined, undefined, null, 0o755],
      ['/workspace/lib/scanner.ts', 'renamed', '/workspace/src/parser.ts', true, 0o644, 0o644],
      ['/workspace/run.sh', 'mode', undefined, undefined, 0o644, 0o755],
    ]);
    expect(totals).toMatchObject({ added: 0, deleted: 0, renamed: 1, mode: 1, directories: 1 });
    const { text: said } = await patch({ a: taken, b: 'now' });
    expect(said.toString()).toContain('rename from src/parser.ts\nrename to lib/scanner.ts\n');
    expect(said.toString()).toContain('+and more\n');
    const place = await mkdtemp(join(tmpdir(), 'holdfast-renamed-'));
    try {
      await mkdir(join(place, 'src'));
      await writeFile(join(place, 'src/parser.ts'), text);
      await writeFile(join(place, 'run.sh'), 'echo\n', { mode: 0o644 });
      await writeFile(`${place}.patch`, said);
      await run('git', ['apply', `${place}.patch`], { cwd: place });
      expect(await readFile(join(place, 'lib/scanner.ts'), 'utf8')).toBe(`${text}and more\n`);
    } finally {
      await rm(place, { recursive: true, force: true });
      await rm(`${place}.patch`, { force: true });
    }
  });

  test(
    'what a reset would change, without the files that the project seeds again',
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
      await deploy(home, directory);
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

  test('ids of other lineages, forged ids and invalid cursors are rejected', async () => {
    const [one, other] = [await scene.createSession(), await scene.createSession()];
    await writeFile(join(one.folder, 'a'), 'one');
    const [a, b] = [await scene.createSnapshot(one.id), await scene.createSnapshot(other.id)];
    expect(await errorCode(home.call('snapshot/diff', { a, b }))).toBe('invalid_params');
    expect(await errorCode(home.call('snapshot/diff', { a, b: 'now', session: other.id }))).toBe('not_found');
    expect(await errorCode(home.call('snapshot/verify', { snapshot: a, session: other.id }))).toBe(
      'not_found',
    );
    const from = `snapshot:${a}` as const;
    expect(await errorCode(home.call('snapshot/preview', { session: other.id, from }))).toBe('not_found');
    expect(await errorCode(home.call('snapshot/diff', { a: `snp-${'a'.repeat(16)}`, b: a }))).toBe(
      'not_found',
    );
    expect(await errorCode(home.call('snapshot/diff', { a: 'now', b: 'now' }))).toBe('invalid_params');
    expect(await errorCode(home.call('snapshot/diff', { a, b: a, path: '/workspace/none' }))).toBe(
      'file_not_found',
    );
    expect(await errorCode(home.call('snapshot/diff', { a, b: a, path: '/etc' }))).toBe('file_not_found');
    expect(await errorCode(home.call('snapshot/diff', { a, b: a, cursor: 'x' }))).toBe('invalid_params');
    const forged = `${'A'.repeat(86)}/x`;
    expect(await errorCode(home.call('snapshot/diff', { a, b: a, cursor: forged }))).toBe('conflict');
    expect(await errorCode(home.call('snapshot/diff', { a, b: 'now', cursor: forged }))).toBe('conflict');
  });

  test(
    'as a patch that git applies, in chunks, without the paths that git would reject',
    { timeout: 180_000 },
    async () => {
      const { id, folder } = await scene.createSession();
      const lines = Array.from({ length: 30_000 }, (_, line) => `line ${line}\n`);
      await writeFile(join(folder, 'long.txt'), lines.join(''));
      await writeFile(join(folder, 'old name'), 'moves\n');
      await mkdir(join(folder, 'keeps'));
      await writeFile(join(folder, 'keeps/x'), 'x');
      const before = await scene.createSnapshot(id);
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

  test('after a supervisor crash a patch continues between two files, and is rejected inside a file', async () => {
    const { id, folder } = await scene.createSession();
    const before = await scene.createSnapshot(id);
    for (const name of ['a', 'b', 'c']) await writeFile(join(folder, name), randomBytes(4 * MIB));
    const after = await scene.createSnapshot(id);
    const whole = await patch({ a: before, b: after });
    const { peer } = await home.connect();
    const first = await peer.callWithBytes('snapshot/patch', { a: before, b: after });
    const cursor = first.result.nextCursor ?? '';
    await scene.restartSupervisor();
    expect(await errorCode(home.call('snapshot/patch', { a: before, b: after, cursor }))).toBe('conflict');
    // The same place, had the piece ended behind the first file.
    const between = `${cursor.slice(0, 86)}w1/a`;
    const rest = await patch({ a: before, b: after, cursor: between });
    const at = whole.text.indexOf('diff --git a/b b/b');
    expect(at).toBeGreaterThan(0);
    expect(rest.text.equals(whole.text.subarray(at))).toBe(true);
  });
});
