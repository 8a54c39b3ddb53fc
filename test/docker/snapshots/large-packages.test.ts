import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { chownSync, lstatSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { cp, mkdir, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { FaultHome } from '../../faults/harness/fault-home.ts';
import { shellProject, writeProject } from '../../setup/profiles.ts';
import { SOAK } from '../../setup/run-length.ts';
import { deploy } from '../../setup/deploy.ts';

const run = promisify(execFile);
/** Real packages: those that this project is built with, and in the long run the largest ones that people install. */
const BUILT_WITH = ['typescript', 'zod', '@types/node', 'playwright-core'];
const LARGE = ['@fluentui/react-icons@2.0.344', '@mui/icons-material@7.3.11', '@tabler/icons-react@3.51.0'];
const LEAST_FILES = SOAK ? 100_000 : 1000;

let home: FaultHome;
beforeAll(async () => {
  home = await FaultHome.create();
  await home.start();
  const project = await writeProject(join(home.path, '..'), shellProject('corpus'));
  await deploy(home, project);
});
// Two trees of a hundred thousand files go.
afterAll(() => home.dispose(), 900_000);

async function install(into: string): Promise<void> {
  await mkdir(join(into, 'node_modules'), { recursive: true });
  if (SOAK) {
    await writeFile(join(into, 'package.json'), '{"private":true}');
    const options = ['--no-audit', '--no-fund', '--ignore-scripts', '--legacy-peer-deps'];
    await run('npm', ['install', ...options, ...LARGE], { cwd: into });
  } else {
    for (const name of BUILT_WITH) {
      const from = join(import.meta.dirname, '../../../node_modules', name);
      await cp(from, join(into, 'node_modules', name), {
        recursive: true,
        preserveTimestamps: true,
        verbatimSymlinks: true,
      });
    }
  }
}

/** Path → mode, time, and the hash of every byte. */
function manifest(root: string): Map<string, string> {
  const found = new Map<string, string>();
  const waiting = [''];
  for (let below = waiting.pop(); below !== undefined; below = waiting.pop()) {
    const here = below;
    const path = join(root, below);
    const { mode, mtimeNs, size } = lstatSync(path, { bigint: true });
    const status = lstatSync(path);
    let content = '';
    if (status.isDirectory()) waiting.push(...readdirSync(path).map((name) => join(here, name)));
    else if (status.isSymbolicLink()) content = readlinkSync(path);
    else content = `${size} ${createHash('sha256').update(readFileSync(path)).digest('hex')}`;
    found.set(below, `${mode.toString(8)} ${mtimeNs} ${content}`);
  }
  return found;
}

function differing(one: ReadonlyMap<string, string>, other: ReadonlyMap<string, string>): string[] {
  return [...new Set([...one.keys(), ...other.keys()])]
    .filter((path) => one.get(path) !== other.get(path))
    .slice(0, 10);
}

function own(path: string, uid: number, gid: number): void {
  chownSync(path, uid, gid);
  for (const entry of readdirSync(path, { withFileTypes: true })) {
    if (entry.isDirectory()) own(join(path, entry.name), uid, gid);
    else if (entry.isFile()) chownSync(join(path, entry.name), uid, gid);
  }
}

test(
  'large packages are byte-identical after a fork and a restore',
  { timeout: SOAK ? 3_600_000 : 300_000 },
  async () => {
    const { session } = await home.call('session/create', { profile: 'corpus' });
    const folder = join(home.path, 'workspaces', session.id);
    const { uid, gid } = await stat(folder);
    await install(folder);
    own(folder, uid, gid);
    const before = manifest(folder);
    expect([...before.values()].filter((one) => one.startsWith('100')).length).toBeGreaterThanOrEqual(
      LEAST_FILES,
    );

    const taken = await home.call('snapshot/create', { session: session.id });
    expect(await home.call('snapshot/verify', { snapshot: taken.id })).toMatchObject({
      ok: true,
      damages: [],
    });
    const fork = await home.call('snapshot/fork', { snapshot: taken.id });
    await home.call('workspace/wait', { session: fork.session.id });
    const copy = join(home.path, 'workspaces', fork.session.id);
    expect(differing(before, manifest(copy))).toEqual([]);

    // A package goes, files of another change, something new comes.
    const [first = '', second = ''] = readdirSync(join(folder, 'node_modules')).filter(
      (name) => !name.startsWith('.'),
    );
    await rm(join(folder, 'node_modules', first), { recursive: true });
    const files = [...before.keys()]
      .filter((path) => path.startsWith(`node_modules/${second}/`))
      .filter((path) => before.get(path)?.startsWith('100') === true);
    for (const path of files.slice(0, 20)) await writeFile(join(folder, path), 'changed');
    await cp(join(folder, 'node_modules', second), join(folder, 'copied'), { recursive: true });
    own(folder, uid, gid);
    await home.call('snapshot/restore', { session: session.id, snapshot: taken.id, cancel: true });
    expect(differing(before, manifest(folder))).toEqual([]);
    expect(differing(before, manifest(copy))).toEqual([]);
    const again = await home.call('snapshot/create', { session: session.id, label: 'as at first' });
    expect((await home.call('snapshot/diff', { a: taken.id, b: again.id })).changes).toEqual([]);
  },
);
