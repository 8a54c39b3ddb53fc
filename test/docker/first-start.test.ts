import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { cp, mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { PrivateEngine, privateEngineObstacle } from '../engine-harness/private-engine.ts';

const execute = promisify(execFile);
const ROOT = join(import.meta.dirname, '../..');
/** Installing, building both images and three sandboxes, on a machine that has other work. */
const LIMIT_MS = 10 * 60_000;

/** What Node and npm need of this machine; no variable of ours, and none that npm or the test runner has set for itself. */
function newcomer(folder: string, engine: PrivateEngine): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(
    ([name]) => !/^(HOLDFAST_|DOCKER_|XDG_|VITEST|NODE_|npm_(?!config_registry))/i.test(name),
  );
  return {
    ...Object.fromEntries(kept),
    HOME: join(folder, 'home'),
    DOCKER_HOST: `unix://${engine.socketPath}`,
    // The Node that a newcomer has: not the one that `npm run` puts before it.
    PATH: (process.env['PATH'] ?? '')
      .split(':')
      .filter((entry) => !entry.includes('node_modules'))
      .join(':'),
  };
}

const obstacle = privateEngineObstacle();

describe.skipIf(obstacle !== null)('npm start in a fresh checkout (needs root)', () => {
  let engine: PrivateEngine;
  let folder: string;

  beforeAll(async () => {
    // 0700, as the home of root on Debian: nothing in it can be read by another user.
    folder = await mkdtemp(join(tmpdir(), 'holdfast-newcomer-'));
    engine = await PrivateEngine.start();
  });
  afterAll(async () => {
    await engine.close();
    await rm(folder, { recursive: true, force: true });
  });

  test(
    'leads from a checkout, an empty home and an engine without images to an agent that counts on, and purge removes all of it',
    async () => {
      const checkout = join(folder, 'checkout');
      const tracked = await execute('git', ['ls-files', '-z', '-co', '--exclude-standard'], { cwd: ROOT });
      for (const path of tracked.stdout.split('\0').filter((name) => existsSync(join(ROOT, name)))) {
        if (path !== '') await cp(join(ROOT, path), join(checkout, path));
      }
      await mkdir(join(folder, 'home'));
      const options = { cwd: checkout, env: newcomer(folder, engine), maxBuffer: 2 ** 26 };

      const { stdout } = await execute('npm', ['start'], options);
      expect(stdout.match(/\{"count": \d+\}/g)).toEqual(['{"count": 1}', '{"count": 2}', '{"count": 3}']);
      expect(stdout).toContain(`The workspace, kept while no container exists: ${join(folder, 'home')}`);

      const holdfast = ['run', '-s', 'holdfast', '--'];
      const next = await execute('npm', [...holdfast, 'run', 'counter', '{}'], options);
      expect(JSON.parse(next.stdout)).toEqual({ count: 4 });
      await execute('npm', [...holdfast, 'purge', '--force'], options);
      expect(await engine.docker.listContainers({ all: true })).toEqual([]);
      expect((await engine.docker.listVolumes()).Volumes).toEqual([]);
      // The supervisor answers, and removes its home as it leaves.
      await expect.poll(() => existsSync(join(folder, 'home', '.holdfast'))).toBe(false);
    },
    LIMIT_MS,
  );
});
