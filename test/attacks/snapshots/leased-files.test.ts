import { afterAll, beforeAll, expect, test } from 'vitest';
import { waitUntil } from '../../fixtures/sidecar/turns.ts';
import { TestHome } from '../../setup/test-home.ts';
import { shellProject, writeProject } from '../../setup/profiles.ts';

/** The kernel takes a lease away 45 s after it was asked for; once while the agent runs, once while it stands still, and a busy machine. */
const MOST_MS = 200_000;
/**
 * Keeps leases on a file that it writes to before each snapshot. `again`: it gives a lease up when it is asked to and has another one at
 * once, so that the kernel never takes one away while it runs.
 */
const HOLDER = `
import fcntl, os, signal, sys, time
signal.signal(signal.SIGIO, signal.SIG_IGN)
fd = os.open('/workspace/leased', os.O_RDWR | os.O_CREAT, 0o644)
os.write(fd, b'written by the holder')
open('/workspace/begun', 'w').close()
while True:
    try:
        if sys.argv[1] == 'again': fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        else: time.sleep(0.001)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError: pass
`;

let home: TestHome;
beforeAll(async () => {
  home = await TestHome.create();
  await home.runOk(['deploy', await writeProject(home.projects, shellProject('sh'))]);
  const required = shellProject('strict', 'persistence: persistent\nsnapshots: required\n');
  await home.runOk(['deploy', await writeProject(home.projects, required)]);
});
afterAll(() => home.dispose());

interface Taken {
  readonly id: string;
  readonly missing: number;
  readonly missingPaths: readonly string[];
}

/** Settles when the leases are held; gives the way to end it. */
async function hold(session: string, how: 'stays' | 'again'): Promise<() => void> {
  const holder = home.spawn(['exec', session, '--', 'python3', '-c', HOLDER, how]);
  const hasBegun = async (): Promise<boolean> =>
    (await home.run(['workspace', 'cat', session, 'begun'])).code === 0;
  await waitUntil('the leases are held', hasBegun, 60_000);
  return () => void holder.kill('SIGKILL');
}

// At the same time, each in a session of its own: they wait for the kernel most of their time.
test.concurrent.each(['stays', 'again'] as const)(
  'a lease that %s does not prevent a snapshot',
  async (how) => {
    await home.runOk(['run', 'sh', 'echo kept > beside', '--session', how]);
    const release = await hold(how, how);
    try {
      const began = performance.now();
      const taken = (await home.runJson(['snapshot', 'create', how])) as Taken;
      expect(performance.now() - began).toBeLessThan(MOST_MS);
      expect(await home.runOk(['workspace', 'cat', how, 'beside', '--snapshot', taken.id])).toBe('kept\n');
      // The kernel ends a lease that stays; of one that is taken again and again either the kernel does, or the snapshot says that it lacks it.
      if (how === 'stays') expect(taken.missing).toBe(0);
      if (taken.missing === 0) {
        const text = await home.runOk(['workspace', 'cat', how, 'leased', '--snapshot', taken.id]);
        expect(text).toBe('written by the holder');
      } else expect(taken.missingPaths).toEqual(['/workspace/leased']);
    } finally {
      release();
    }
  },
  MOST_MS + 90_000,
);

test.concurrent(
  'the next turn begins and says that its snapshot was not complete; if the profile requires one, the turn waits',
  async () => {
    await Promise.all(
      ['sh', 'strict'].map((profile) => home.runOk(['run', profile, 'true', '--session', 'held'])),
    );
    const release = await Promise.all([hold('sh/held', 'stays'), hold('strict/held', 'stays')]);
    try {
      const [auto, strict] = await Promise.all(
        ['sh', 'strict'].map(async (profile) => {
          const began = performance.now();
          const { code, stdout, stderr } = await home.run(['run', profile, 'echo done', '--session', 'held']);
          return { code, stdout, stderr, ms: performance.now() - began };
        }),
      );
      expect(auto).toMatchObject({ code: 0, stdout: 'done\n' });
      expect(auto?.stderr).toContain('is not finished: the turn has started');
      expect(strict).toMatchObject({ code: 0, stdout: 'done\n' });
      expect(strict?.stderr).not.toContain('snapshot');
      expect(strict?.ms).toBeGreaterThan(20_000);
      const isTaken = async (): Promise<boolean> =>
        JSON.stringify(await home.runJson(['snapshot', 'list', 'sh/held'])).includes('"duringTurn":true');
      await waitUntil('the snapshot during the turn', isTaken, MOST_MS);
    } finally {
      for (const one of release) one();
    }
  },
  MOST_MS * 2,
);
