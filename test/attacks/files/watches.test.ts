import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { FilesConnection } from '../../../supervisor/workspace/files-connection.ts';
import { connectFiles } from '../../docker/connect-files.ts';
import { ContainerPairs, type ContainerPair } from '../../docker/container-pair.ts';
import { SOAK } from '../../setup/run-length.ts';
import { MAX_STALL_MS } from './files-fixture.ts';

const SECONDS = SOAK ? 600 : 8;
/** Swaps of a folder and a link while it is watched, at least. */
const SWAPS = SOAK ? 100_000 : 1000;
/** Files of a node_modules. */
const FILES = SOAK ? 100_000 : 20_000;

describe('watches while the agent turns against them', () => {
  let pairs: ContainerPairs;
  let pair: ContainerPair;
  let files: FilesConnection;
  beforeAll(async () => {
    pairs = await ContainerPairs.create();
    pair = await pairs.createPair();
    files = await connectFiles(pair);
  });
  afterAll(async () => {
    files.close();
    await pairs.dispose();
  });
  const python = async (script: string): Promise<string> => {
    const { exitCode, output } = await pair.runInAgent(['python3', '-c', script]);
    if (exitCode !== 0) throw new Error(output);
    return output;
  };
  const open = async (on = files, path = '/workspace') =>
    (await on.call('files/watch-open', { path })).result;
  const next = async (watch: string, on = files, waitMs = 500) =>
    (await on.call('files/watch-next', { watch, waitMs })).result;

  test('folders that swap places with links to what only the sidecar sees: nothing of that is reported', async () => {
    const { watch } = await open();
    const attack = python(`
import ctypes, os, time
libc = ctypes.CDLL(None)
os.makedirs('/workspace/s/d/inner', exist_ok=True)
os.chdir('/workspace/s')
os.symlink('/ctl', 'l')
end = time.time() + ${String(SECONDS)}
n = 0
while time.time() < end:
    for _ in range(50): libc.syscall(316, -100, b'd', -100, b'l', 2)
    n += 1
    try: open('d/inner/mine%d' % n, 'w').close()
    except OSError: pass
print(n * 50)
`);
    const attacked = { over: false };
    void attack.finally(() => (attacked.over = true));
    const told = new Set<string>();
    for (let round = 0; !attacked.over; round += 1) {
      writeFileSync(pair.path(`control/outside-${String(round % 5)}`), String(round));
      for (const { path } of (await next(watch, files, 50)).changes) told.add(path);
    }
    expect(Number(await attack)).toBeGreaterThan(SWAPS);
    expect([...told].filter((path) => path.includes('outside') || path.includes('sidecar.sock'))).toEqual([]);
    expect(told.size).toBeGreaterThan(0);
    // And it still works.
    await python(`open('/workspace/after', 'w').close()`);
    await expect
      .poll(async () => (await next(watch)).changes.map(({ path }) => path), { timeout: 10_000 })
      .toContain('/workspace/after');
    await files.call('files/watch-close', { watch });
    for (const name of ['s', 'after']) rmSync(pair.path('workspace', name), { recursive: true });
  });

  test('10,000 folders in each other, sockets, FIFOs and loops: nobody else waits for long', async () => {
    await python(`
import os, socket
os.makedirs('/workspace/odd'); os.chdir('/workspace/odd')
for n in range(64): os.mkfifo('fifo%d' % n)
socket.socket(socket.AF_UNIX).bind('socket')
os.symlink('.', 'loop'); os.symlink('/', 'root')
for n in range(10_000): os.mkdir('d'); os.chdir('d')
`);
    const other = await connectFiles(pair);
    let longest = 0;
    const meter = { running: true };
    const metering = (async () => {
      while (meter.running) {
        const began = performance.now();
        await other.call('files/stat', { path: '/workspace' });
        longest = Math.max(longest, performance.now() - began);
        await sleep(5);
      }
    })();
    const { watch } = await open();
    meter.running = false;
    await metering;
    other.close();
    expect(longest).toBeLessThan(MAX_STALL_MS);
    await python(`open('/workspace/odd/d/d/here', 'w').close()`);
    // Of so many folders the news may take a while.
    const told: unknown[] = [];
    await expect
      .poll(async () => (told.push(...(await next(watch)).changes), told), { timeout: 30_000 })
      .toEqual([{ path: '/workspace/odd/d/d/here', kind: 'created' }]);
    await files.call('files/watch-close', { watch });
    await python(`
import os
os.chdir('/workspace')
os.rename('odd', 'gone')`);
  });

  // As root every pair has a uid of its own, so that this takes nothing from anybody else.
  test.skipIf(process.getuid?.() !== 0)(
    'a neighbour of the same uid that holds all inotify instances: it polls, and says so (needs root)',
    async () => {
      const hog = python(`
import ctypes, os, time
libc = ctypes.CDLL(None)
while libc.inotify_init() >= 0: pass
open('/workspace/held', 'w').close()
end = time.time() + 60
while time.time() < end and not os.path.exists('/workspace/stop'): time.sleep(0.1)
`);
      await pair.replaceSidecar(async () => {
        // The one that the old sidecar had is free now: the hog gets it too.
        await python(`
import ctypes, os, time, subprocess, sys
subprocess.Popen([sys.executable, '-c', '''
import ctypes, os, time
libc = ctypes.CDLL(None)
while libc.inotify_init() >= 0: pass
end = time.time() + 60
while time.time() < end and not os.path.exists('/workspace/stop'): time.sleep(0.1)
'''])
time.sleep(1)
`);
      });
      const on = await connectFiles(pair);
      try {
        const { watch, mode } = await open(on);
        expect(mode).toBe('polling');
        writeFileSync(pair.path('workspace/new'), '1');
        await expect
          .poll(async () => (await next(watch, on)).changes, { timeout: 15_000 })
          .toContainEqual({ path: '/workspace/new', kind: 'created' });
      } finally {
        on.close();
        writeFileSync(pair.path('workspace/stop'), '');
        await hog;
      }
    },
  );

  // Without root all pairs have one uid: there is no neighbour of another one.
  test.skipIf(process.getuid?.() !== 0)(
    'a neighbour in another container, of another uid, that holds all it can get: it takes nothing of ours (needs root)',
    async () => {
      const neighbour = await pairs.createPair();
      const hog = neighbour.runInAgent([
        'python3',
        '-c',
        `
import ctypes, os, time
libc = ctypes.CDLL(None)
fds = []
while True:
    fd = libc.inotify_init()
    if fd < 0: break
    fds.append(fd)
made = 0
os.mkdir('/tmp/w')
for n in range(20000):
    os.mkdir('/tmp/w/%d' % n)
    if libc.inotify_add_watch(fds[0], b'/tmp/w/%d' % n, 0x100) >= 0: made += 1
open('/workspace/held.new', 'w').write('%d %d' % (len(fds), made))
os.rename('/workspace/held.new', '/workspace/held')
end = time.time() + 60
while time.time() < end and not os.path.exists('/workspace/stop'): time.sleep(0.1)
`,
      ]);
      const isHeld = () => existsSync(neighbour.path('workspace/held'));
      await expect.poll(isHeld, { timeout: 60_000 }).toBe(true);
      const [instances = 0, watches = 0] = readFileSync(neighbour.path('workspace/held'), 'utf8')
        .split(' ')
        .map(Number);
      expect([instances > 50, watches > 1000]).toEqual([true, true]);

      const mine = await pairs.createPair();
      const on = await connectFiles(mine);
      const { watch, mode } = await open(on);
      expect(mode).toBe('inotify');
      writeFileSync(mine.path('workspace/new'), '1');
      await expect
        .poll(async () => (await next(watch, on)).changes, { timeout: 20_000 })
        .toContainEqual({ path: '/workspace/new', kind: 'created' });
      on.close();
      writeFileSync(neighbour.path('workspace/stop'), '');
      expect((await hog).output).toBe('');
    },
    120_000,
  );

  test(`node_modules of ${String(FILES)} files: neither inotify nor memory is used up, and every change is reported`, async () => {
    const mine = await pairs.createPair();
    const on = await connectFiles(mine);
    const made = await mine.runInAgent([
      'python3',
      '-c',
      `
import os
os.mkdir('/workspace/src')
for n in range(${String(FILES / 5)}):
    folder = '/workspace/node_modules/p%d/lib' % n if n % 2 else '/workspace/node_modules/p%d' % (n - n % 2 + 1)
    os.makedirs(folder, exist_ok=True)
    for m in range(5): os.close(os.open('%s/f%d-%d.js' % (folder, n, m), os.O_CREAT))
`,
    ]);
    expect([made.exitCode, made.output]).toEqual([0, '']);
    const before = await mine.sidecarMemory();
    const told = async (watch: string, path: string): Promise<void> => {
      writeFileSync(mine.path(path), '1');
      await expect
        .poll(
          async () => {
            const { changes, overflow } = await next(watch, on);
            return overflow || changes.some((change) => change.path === `/${path}`);
          },
          { timeout: 60_000 },
        )
        .toBe(true);
    };

    // Left out, as editors ask for it: nothing of it costs anything.
    const excluding = await on.call('files/watch-open', {
      path: '/workspace',
      excludes: ['**/node_modules/**'],
    });
    expect(excluding.result.mode).toBe('inotify');
    await told(excluding.result.watch, 'workspace/src/a.ts');
    expect((await mine.sidecarMemory()) - before).toBeLessThan(32 * 2 ** 20);
    await on.call('files/watch-close', { watch: excluding.result.watch });

    // And with all of it.
    const all = (await on.call('files/watch-open', { path: '/workspace' })).result;
    await told(all.watch, 'workspace/src/b.ts');
    await told(all.watch, `workspace/node_modules/p${String(FILES / 5 - 1)}/lib/late.js`);
    expect((await mine.sidecarMemory()) - before).toBeLessThan(160 * 2 ** 20);
    // What the agent may use is its own uid's, as ours is: it still gets watches.
    const agent = await mine.runInAgent([
      'python3',
      '-c',
      `import ctypes; libc = ctypes.CDLL(None); fd = libc.inotify_init(); print(libc.inotify_add_watch(fd, b'/workspace/src', 0x100) >= 0)`,
    ]);
    expect(agent.output.trim()).toBe('True');
    await on.call('files/watch-close', { watch: all.watch });
    on.close();
  }, 300_000);
});
