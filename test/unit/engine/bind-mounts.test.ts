import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { BindMountStrategy } from '../../../supervisor/engine/docker/bind-mounts.ts';

test('a session does not wait until all that its agent left in the run directory is removed, and its deletion leaves nothing', async () => {
  const home = await mkdtemp(join(tmpdir(), 'holdfast-runs-'));
  try {
    const runs = join(home, 'run');
    for (const folder of ['ses-a/agent/planted', '.gone-ses-a-0000/agent']) {
      await mkdir(join(runs, folder), { recursive: true });
      for (let file = 0; file < 1000; file += 1) await writeFile(join(runs, folder, String(file)), '');
    }
    const mounts = new BindMountStrategy(home, undefined as never, undefined as never, 0);
    await mounts.removeSandboxFiles('ses-a');
    const left = await readdir(runs);
    expect(left).not.toContain('ses-a');
    expect(left.some((name) => name.startsWith('.gone-ses-a-'))).toBe(true);
    await mounts.deleteWorkspace({ sessionId: 'ses-a', backing: 'directory', uid: 1000, gid: 1000 });
    expect(await readdir(runs)).toEqual([]);
  } finally {
    await rm(home, { recursive: true, force: true });
  }
});
