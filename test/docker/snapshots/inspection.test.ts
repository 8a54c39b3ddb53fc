import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import {
  chmod,
  mkdir,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  symlink,
  truncate,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Params } from '../../../protocol/methods.ts';
import type { Change } from '../../../protocol/snapshots.ts';
import { FaultHome } from '../../faults/harness/fault-home.ts';
import { errorCode, SnapshotFixture } from './snapshot-fixture.ts';

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

describe('on the command line', () => {
  const PROGRAM = join(import.meta.dirname, '../../../scripts/holdfast.cjs');
  const holdfast = async (...args: string[]): Promise<{ code: number; stdout: string; stderr: string }> => {
    const env = { ...process.env, HOLDFAST_HOME: home.path };
    return await run(process.execPath, [PROGRAM, ...args], { env }).then(
      (said) => ({ code: 0, ...said }),
      (error: unknown) => error as { code: number; stdout: string; stderr: string },
    );
  };

  test('shows differences as lines, totals, JSON and a patch, previews a restore, and verifies', async () => {
    const { id, folder } = await scene.createSession();
    await writeFile(join(folder, 'a'), 'one\n');
    await writeFile(join(folder, 'moves'), 'content\n');
    const taken = await scene.createSnapshot(id);
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
      stderr: `error file_not_found: The snapshot has no /workspace/no/such; see \`holdfast workspace ls ${id} --snapshot SNAPSHOT\`; nothing was changed\n`,
    });

    expect(await holdfast('snapshot', 'verify', taken)).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/is intact/) as string,
    });
    const packs = join(home.path, 'store', id, 'packs');
    for (const pack of await readdir(packs)) await truncate(join(packs, pack), 200);
    const damaged = await holdfast('snapshot', 'verify', taken);
    expect(damaged).toMatchObject({
      code: 1,
      stdout: expect.stringMatching(/^damaged \/workspace/) as string,
    });

    // And it does not come back as something else. (This supervisor still has it in memory, as it was.)
    await scene.restartSupervisor();
    const refused = (await holdfast('snapshot', 'restore', id, taken, '--force')).stderr;
    expect(refused).toMatch(/^error snapshot_damaged/);
    expect(refused).toMatch(/nothing was changed$/m);
    expect(await readFile(join(folder, 'a'), 'utf8')).toBe('two\n');
    expect((await holdfast('snapshot', 'diff', 'x', 'now')).code).toBe(2);
  });

  test('shows a rename with an edit and a chmod as lines', async () => {
    const { id, folder } = await scene.createSession();
    await writeFile(join(folder, 'before.txt'), 'one\ntwo\nthree\n');
    await writeFile(join(folder, 'run.sh'), 'echo\n', { mode: 0o644 });
    const taken = await scene.createSnapshot(id);
    await rename(join(folder, 'before.txt'), join(folder, 'after.txt'));
    await writeFile(join(folder, 'after.txt'), 'one\ntwo\nthree\nfour\n');
    await chmod(join(folder, 'run.sh'), 0o755);
    const { stdout } = await holdfast('snapshot', 'diff', taken, 'now');
    expect(stdout).toBe(
      'R /workspace/before.txt → /workspace/after.txt (edited)\nm /workspace/run.sh (644 → 755)\n',
    );
    const stat = await holdfast('snapshot', 'diff', taken, 'now', '--stat');
    expect(stat.stdout).toMatch(/^1 renamed, 1 mode or time change; /);
  });

  test('files of a snapshot', async () => {
    const { id, folder } = await scene.createSession();
    await writeFile(join(folder, 'a'), 'then\n');
    const taken = await scene.createSnapshot(id);
    await rm(join(folder, 'a'));
    expect((await holdfast('workspace', 'cat', id, 'a', '--snapshot', taken)).stdout).toBe('then\n');
    expect((await holdfast('workspace', 'ls', id, '--snapshot', taken)).stdout).toMatch(/-rw-r--r-- .* a\n$/);
    expect((await holdfast('workspace', 'cat', id, 'a')).stderr).toMatch(/^error file_not_found/);
  });
});

describe('the files of a snapshot', () => {
  test('can be listed and read unchanged, and cannot be written', async () => {
    const { id, folder } = await scene.createSession();
    const content = randomBytes(5 * MIB);
    await mkdir(join(folder, 'd'));
    await writeFile(join(folder, 'd/big'), content);
    await symlink('d/big', join(folder, 'link'));
    const taken = await scene.createSnapshot(id);
    const live = await home.call('files/list', { session: id, path: '/workspace/d' });
    await rm(join(folder, 'd'), { recursive: true });
    await writeFile(join(folder, 'd'), 'a file now');
    const other = await scene.createSession();

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
    expect(await errorCode(home.call('files/list', wrong))).toBe('not_found');
    expect(await errorCode(home.call('files/stat', { path: '/workspace' }))).toBe('invalid_params');
    const write = { snapshot: taken, path: '/workspace/x', create: true } as unknown as Params<'files/write'>;
    expect(await errorCode(home.call('files/write', write, Buffer.from('x')))).toBe('invalid_params');
  });
});

describe('the store', () => {
  test('is verified, with damage located, and freed when nothing needs it', async () => {
    const { id, folder } = await scene.createSession();
    await writeFile(join(folder, 'kept'), randomBytes(2 * MIB));
    const kept = await scene.createSnapshot(id);
    await writeFile(join(folder, 'gone'), randomBytes(3 * MIB));
    const gone = await scene.createSnapshot(id);
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
    await scene.createSnapshot(fork);
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
