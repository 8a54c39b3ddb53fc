import { execFile } from 'node:child_process';
import { cp, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { FaultHome } from '../../faults/harness/fault-home.ts';
import { shellProject, writeProject } from '../../setup/profiles.ts';
import { deploy } from '../../setup/deploy.ts';

const run = promisify(execFile);
/** More than what is left behind at once, without an end. */
const FILES = 1500;
/** Longer than bytes of a small write may be on their way: what was written before is relied on then. */
const SETTLED_MS = 250;

let home: FaultHome;

beforeAll(async () => {
  home = await FaultHome.create();
  await home.start();
  const directory = await writeProject(join(home.path, '..'), shellProject('keeps'));
  await deploy(home, directory);
});
afterAll(() => home.dispose());

const folderOf = (id: string): string => join(home.path, 'workspaces', id);
const cacheOf = (id: string): string => join(home.path, 'store', id, 'scans', id);
const take = (session: string) => home.call('snapshot/create', { session });

async function filled(): Promise<{ id: string; first: string }> {
  const { id } = (await home.call('session/create', { profile: 'keeps' })).session;
  await home.call('session/resume', { session: id });
  const script = `for n in $(seq ${FILES}); do echo file $n > f$n; done; mkdir d; ln f1 d/same; ln -s f1 link; chown -hR --reference=. .`;
  await run('sh', ['-c', script], { cwd: folderOf(id) });
  await sleep(SETTLED_MS);
  return { id, first: (await take(id)).id };
}

/** Changes one file and says how many a snapshot had to read. */
async function readAfterChange(id: string, text: string): Promise<number> {
  await writeFile(join(folderOf(id), 'f7'), text);
  await sleep(SETTLED_MS);
  return (await take(id)).changedFiles;
}

async function inodeOf(path: string): Promise<number | null> {
  return await stat(path).then(
    ({ ino }) => ino,
    () => null,
  );
}

async function changesFrom(path: string, before: number | null): Promise<void> {
  for (let tries = 0; (await inodeOf(path)) === before; tries += 1) {
    if (tries > 300) throw new Error(`${path} stays as it is`);
    await sleep(100);
  }
}

async function sidecarOf(id: string): Promise<string> {
  const objects = await home.listObjects();
  const found = objects.find(
    ({ kind, labels }) =>
      kind === 'container' &&
      labels['dev.holdfast.session'] === id &&
      labels['dev.holdfast.role'] === 'sidecar',
  );
  if (found === undefined) throw new Error('there is no sidecar');
  return found.id;
}

test(
  'the files of a stopped session are not read again, and are restored exactly',
  { timeout: 180_000 },
  async () => {
    const { id, first } = await filled();
    const copy = join(home.path, '..', `copy-${id}`);
    await cp(folderOf(id), copy, { recursive: true, verbatimSymlinks: true });
    for (const text of ['once', 'twice']) {
      await home.call('session/stop', { session: id });
      expect((await readdir(join(home.path, 'store', id, 'scans'))).sort()).toEqual([id]);
      expect(await readAfterChange(id, text)).toBe(1);
    }
    await home.call('session/stop', { session: id });
    await home.call('snapshot/restore', { session: id, snapshot: first });
    await run('diff', ['-r', '--no-dereference', folderOf(id), copy]);
    const { snapshots } = await home.call('snapshot/list', { session: id });
    for (const { id: snapshot } of snapshots) {
      expect(await home.call('snapshot/verify', { snapshot })).toMatchObject({ ok: true });
    }
  },
);

test(
  'nor are those of a session whose sidecar was killed after it had saved its scan cache',
  { timeout: 180_000 },
  async () => {
    const { id } = await filled();
    await changesFrom(cacheOf(id), null);
    await home.docker.getContainer(await sidecarOf(id)).kill({ signal: 'SIGKILL' });
    expect(await readAfterChange(id, 'after the kill')).toBe(1);
  },
);

test(
  'a damaged scan cache is not used, and the cache is deleted with its session',
  { timeout: 180_000 },
  async () => {
    const { id } = await filled();
    await home.call('session/stop', { session: id });
    const bytes = await readFile(cacheOf(id));
    bytes[bytes.length >> 1] = (bytes[bytes.length >> 1] ?? 0) ^ 4;
    await writeFile(cacheOf(id), bytes);
    await writeFile(`${cacheOf(id)}.incoming`, bytes.subarray(0, 1000));
    expect(await readAfterChange(id, 'with a damaged one')).toBe(FILES + 2);
    await home.call('session/stop', { session: id });
    expect(await readAfterChange(id, 'with a good one')).toBe(1);

    // Of another session: its folder is not the one that is meant.
    const other = await filled();
    await home.call('session/stop', { session: other.id });
    await cp(cacheOf(id), cacheOf(other.id));
    expect(await readAfterChange(other.id, 'with that of another')).toBe(FILES + 2);

    const pinned = await home.call('snapshot/create', { session: id, label: 'stays', pinned: true });
    await home.call('session/delete', { session: id, force: true });
    await expect.poll(() => readdir(join(home.path, 'store', id, 'scans'))).toEqual([]);
    expect(await home.call('snapshot/verify', { snapshot: pinned.id })).toMatchObject({ ok: true });
  },
);
