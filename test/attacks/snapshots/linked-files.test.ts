import { afterAll, beforeAll, expect, test } from 'vitest';
import { TestHome } from '../../setup/test-home.ts';
import { shellProject, writeProject } from '../../setup/profiles.ts';
import { SOAK } from '../../setup/run-length.ts';

const MIB = 2 ** 20;
/** What a turn may take on a busy machine where its snapshot reads 100 MiB once. Read for each of 1,000 names it takes a minute. */
const TURN_MS = 30_000;
/** What a deletion may take: its own snapshot is given up after 20 s. */
const DELETE_MS = 45_000;
/** One file with 100 MiB and 1,000 names, in two folders. */
const PLANT = `python3 - <<'END'
import os
os.makedirs('/workspace/links')
block = os.urandom(1 << 20)
with open('/workspace/large', 'wb') as f:
    for n in range(100): f.write(n.to_bytes(8, 'big') + block[8:])
for n in range(999): os.link('/workspace/large', '/workspace/links/%d' % n)
END`;

let home: TestHome;
beforeAll(async () => {
  home = await TestHome.create();
  await home.runOk(['deploy', await writeProject(home.projects, shellProject('sh'))]);
});
afterAll(() => home.dispose());

async function timed(act: () => Promise<unknown>): Promise<number> {
  const began = performance.now();
  await act();
  return performance.now() - began;
}

interface Listed {
  readonly snapshots: readonly {
    readonly id: string;
    readonly changedBytes: number;
    readonly bytes: number;
  }[];
}

test('a file with a thousand hard links is read once before the next turn, after a touch, and before its session is deleted', async () => {
  const turn = (script: string): Promise<string> => home.runOk(['run', 'sh', script, '--session', 'links']);
  const newest = async () =>
    ((await home.runJson(['snapshot', 'list', 'links'])) as Listed).snapshots.find(({ bytes }) => bytes > 0);
  await turn(PLANT);
  const next = await timed(() => turn('true'));
  // On a very busy machine it is completed while the turn runs.
  await expect.poll(newest, { timeout: 60_000, interval: 500 }).toMatchObject({ bytes: 100 * MIB });
  const touched = await timed(() => turn('touch links/7'));
  const after = await timed(() => turn('true'));
  if (SOAK) console.error(`next turn ${next} ms, before a touch ${touched} ms, after it ${after} ms`);
  for (const ms of [next, touched, after]) expect(ms).toBeLessThan(TURN_MS);
  // What several looks have read counts each time.
  expect((await newest())?.changedBytes).toBeLessThanOrEqual(300 * MIB);
  await turn('touch links/8');
  expect(await timed(() => home.runOk(['session', 'delete', 'links', '--force']))).toBeLessThan(DELETE_MS);
}, 300_000);
