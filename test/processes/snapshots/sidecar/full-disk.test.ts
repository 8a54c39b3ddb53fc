import { execFileSync, spawnSync } from 'node:child_process';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { randomBytes } from 'node:crypto';
import { expect, onTestFinished, test } from 'vitest';
import { temporaryDirectory } from '../../../fixtures/store/temporary-home.ts';
import { MemoryStore } from '../../../fixtures/snapshots/memory-store.ts';
import { LocalWorkspace } from './local-workspace.ts';

/** A disk of its own; null where this process may not make one. */
function disk(options: string): string | null {
  const directory = temporaryDirectory();
  if (spawnSync('mount', ['-t', 'tmpfs', '-o', options, 'tmpfs', directory]).status !== 0) return null;
  onTestFinished(() => {
    execFileSync('umount', [directory]);
  });
  return directory;
}

const DESCRIBE = `find . -printf '%p %y %m %n %s %T@\\n' | sort; find . -type f | sort | xargs -d '\\n' -r sha256sum`;

test.for([
  ['bytes', 'size=8m', (path: string) => writeFileSync(join(path, 'big'), randomBytes(4 * 2 ** 20))],
  [
    'inodes',
    'size=64m,nr_inodes=300',
    (path: string) => execFileSync('bash', ['-c', `mkdir ${path}/many; cd ${path}/many; touch {1..150}`]),
  ],
] as const)(
  'on a disk without %s left a restore changes nothing, and says so; with room it succeeds',
  async ([_what, options, fill], { skip }) => {
    const below = disk(options);
    if (below === null) {
      skip('a small disk needs the right to mount one');
      return;
    }
    const store = new MemoryStore();
    using workspace = await LocalWorkspace.open(below, store);
    fill(workspace.path);
    workspace.runScript('mkdir folder; echo one > folder/file; echo two > two');
    const wanted = workspace.runScript(DESCRIBE);
    const { root } = await workspace.scan();
    workspace.runScript(
      'rm -r big many 2>/dev/null || true; echo changed > two; rm folder/file; touch keeps',
    );
    // Something else takes the place that the files had.
    const other = join(below, 'other');
    if (options.includes('inodes'))
      execFileSync('bash', ['-c', `mkdir ${other}; cd ${other}; touch {1..200}`]);
    else writeFileSync(other, randomBytes(6 * 2 ** 20));
    const before = workspace.runScript(DESCRIBE);

    await expect(workspace.restore(root)).rejects.toMatchObject({ code: 'no_space' });
    expect(workspace.runScript(DESCRIBE)).toBe(before);
    expect(workspace.runScript('ls -A | grep -c holdfast || true').trim()).toBe('0');

    rmSync(other, { recursive: true });
    await workspace.restore(root);
    expect(workspace.runScript(DESCRIBE)).toBe(wanted);
  },
);
