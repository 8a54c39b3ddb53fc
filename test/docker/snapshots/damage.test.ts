import { randomBytes } from 'node:crypto';
import { lstat, mkdir, open, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { HoldfastError } from '../../../protocol/errors.ts';
import { OBJECT_KINDS, type ObjectKindName } from '../../../snapshot-format/objects.ts';
import { LineageStore } from '../../../supervisor/snapshots/store/lineage-store.ts';
import { FaultHome } from '../../faults/harness/fault-home.ts';
import { shellProject, writeProject } from '../../setup/profiles.ts';
import { soakCount } from '../../setup/run-length.ts';
import { deploy } from '../../setup/deploy.ts';

const MIB = 2 ** 20;
let home: FaultHome;
let supervisor: Awaited<ReturnType<FaultHome['start']>>;
let id: string;
let folder: string;
let taken: string;
/** The packs of what was taken; snapshots of later states have others. */
let packsOfTaken: string[];

beforeAll(async () => {
  home = await FaultHome.create();
  supervisor = await home.start();
  const project = await writeProject(join(home.path, '..'), shellProject('damage'));
  await deploy(home, project);
  id = (await home.call('session/create', { profile: 'damage' })).session.id;
  folder = join(home.path, 'workspaces', id);
  // Every kind of object: a list for more than eight pieces, a block for a file with holes.
  await writeFile(join(folder, 'large'), randomBytes(9 * MIB));
  await mkdir(join(folder, 'd'));
  await writeFile(join(folder, 'd/small'), 'small\n');
  const sparse = await open(join(folder, 'sparse'), 'w');
  await sparse.write(randomBytes(4096), 0, 4096, 4 * MIB);
  await sparse.truncate(8 * MIB);
  await sparse.close();
  taken = (await home.call('snapshot/create', { session: id, pinned: true })).id;
  packsOfTaken = await packs();
  await rm(join(folder, 'large'));
  await rm(join(folder, 'd'), { recursive: true });
  await rm(join(folder, 'sparse'));
  await writeFile(join(folder, 'now'), 'what is there now');
});
afterAll(() => home.dispose());

/** With a supervisor that has nothing of it in memory: the check names it, and nothing of it comes back. */
async function expectFound(pack: string): Promise<void> {
  await supervisor.kill();
  supervisor = await home.start();
  const result = await home.call('snapshot/verify', { snapshot: taken });
  expect(result.ok).toBe(false);
  expect(result.damages).toContainEqual(expect.objectContaining({ pack }));
  const restoring = home.call('snapshot/restore', { session: id, snapshot: taken, force: true });
  const error: unknown = await restoring.then(
    () => null,
    (reason: unknown) => reason,
  );
  expect((error as HoldfastError | null)?.code).toBe('snapshot_damaged');
  expect(await readdir(folder)).toEqual(['now']);
}

async function packs(): Promise<string[]> {
  const names = await readdir(join(home.path, 'store', id, 'packs'));
  return names.map((name) => join(home.path, 'store', id, 'packs', name));
}

test.each(Object.keys(OBJECT_KINDS) as ObjectKindName[])(
  'a flipped bit of a %s is found and reported, and nothing is restored',
  async (kindName) => {
    const store = await LineageStore.open(join(home.path, 'store', id));
    const place = store.packs
      .filter(({ path }) => packsOfTaken.includes(path))
      .flatMap((pack) =>
        Array.from({ length: pack.index.objects }, (_, at) => ({ pack, object: pack.index.object(at) })),
      )
      .find(({ object }) => object.kind === OBJECT_KINDS[kindName]);
    await store.close();
    if (place === undefined) throw new Error('there is none');
    const { pack, object } = place;
    const { offset, storedLength } = pack.index.frame(object.frame);
    const whole = await readFile(pack.path);
    const changed = Buffer.from(whole);
    const at = offset + Math.floor(storedLength / 2);
    changed[at] = (changed[at] ?? 0) ^ 4;
    await writeFile(pack.path, changed);
    try {
      await expectFound(pack.name);
    } finally {
      await writeFile(pack.path, whole);
    }
  },
);

test.each<[string, (whole: Buffer) => Buffer]>([
  ['that lacks its last byte', (whole) => whole.subarray(0, whole.length - 1)],
  ['of which next to nothing is there', (whole) => whole.subarray(0, 100)],
  [
    'whose index was modified',
    (whole) => {
      const index = Buffer.from(whole);
      index[index.length - 70] = (index[index.length - 70] ?? 0) ^ 1;
      return index;
    },
  ],
])('so is a pack %s', async (_what, broken) => {
  const large: string[] = [];
  for (const path of await packs()) if ((await lstat(path)).size >= MIB) large.push(path);
  expect(large.length).toBeGreaterThan(0);
  for (const path of large.slice(0, soakCount(1, large.length))) {
    const whole = await readFile(path);
    await writeFile(path, broken(whole));
    await expectFound(path.slice(path.lastIndexOf('/') + 1));
    await writeFile(path, whole);
  }
});

test('the next snapshot stores damaged objects again while the workspace has them; then both snapshots are complete', async () => {
  const kept = join(folder, 'kept');
  await writeFile(kept, randomBytes(MIB));
  const before = await packs();
  const first = await home.call('snapshot/create', { session: id });
  // The content's own: what is sent at the end may come in another one.
  const fresh = (await packs()).filter((one) => !before.includes(one));
  const sizes = await Promise.all(fresh.map(async (one) => (await lstat(one)).size));
  const path = fresh[sizes.findIndex((size) => size > MIB)] ?? '';
  const whole = await readFile(path);
  const changed = Buffer.from(whole);
  changed[MIB / 2] = (changed[MIB / 2] ?? 0) ^ 4;
  await writeFile(path, changed);

  const found = await home.call('snapshot/verify', { snapshot: first.id });
  expect(found).toMatchObject({ ok: false, damages: [{ path: '/workspace/kept' }] });
  const next = await home.call('snapshot/create', { session: id });
  expect(next).toMatchObject({ id: first.id, created: false });
  expect(await home.call('snapshot/verify', { snapshot: first.id })).toMatchObject({ ok: true, damages: [] });

  // Also where the supervisor that found it is not there any more, from what the disk has.
  await supervisor.kill();
  supervisor = await home.start();
  const content = await readFile(kept);
  await rm(kept);
  await home.call('snapshot/restore', { session: id, snapshot: first.id });
  expect((await readFile(kept)).equals(content)).toBe(true);
  await rm(kept);
  await writeFile(path, whole);
});

test('once the store is repaired, the snapshot can be restored', async () => {
  await supervisor.kill();
  supervisor = await home.start();
  expect(await home.call('snapshot/verify', { snapshot: taken })).toMatchObject({ ok: true, damages: [] });
  await home.call('snapshot/restore', { session: id, snapshot: taken });
  expect((await readdir(folder)).sort()).toEqual(['d', 'large', 'sparse']);
  expect(await readFile(join(folder, 'd/small'), 'utf8')).toBe('small\n');
});
