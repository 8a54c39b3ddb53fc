import { readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { type DeployConnection, deployProject } from '../../project/deploy.ts';
import { deployOver } from '../setup/deploy.ts';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { expectSettled, turnOutput } from './harness/expectations.ts';
import { useFaultFixture, waitForTurn, waitUntil } from './harness/fault-fixture.ts';
import type { FaultHome } from './harness/fault-home.ts';

/** Calls `act` before the message that publishes what was sent. */
function beforeCommit(home: FaultHome, act: () => Promise<void>): DeployConnection {
  return {
    async call(method, params, { bytes }) {
      if (method === 'profile/deploy/commit') await act();
      return await home.call(method, params, bytes);
    },
  };
}

const uploadsOf = (home: FaultHome): Promise<string[]> =>
  readdir(join(home.path, 'deploys/.uploads')).catch(() => []);

describe('a deploy', () => {
  const bench = useFaultFixture(afterAll);
  const write = async (name: string, text: string): Promise<string> =>
    writeProject(await bench.temporaryFolder(), {
      ...shellProject(name),
      'data.txt': text,
      'large.bin': 'x'.repeat(5 * 2 ** 20),
    });

  test('of a folder that the supervisor cannot see works: everything was sent', async () => {
    const home = await bench.createHome();
    await home.start();
    const directory = await write('far', 'sent');
    const gone = beforeCommit(home, () => rm(directory, { recursive: true }));
    const { profile } = await deployOver(gone, directory);
    expect(profile).toMatchObject({ name: 'far', version: 1, source: directory });
    const { turn } = await home.call('turn/start', { profile: 'far', prompt: 'cat /agent/data.txt' });
    expect(await waitForTurn(home, turn.turnId)).toMatchObject({ status: 'succeeded' });
    expect(String(await turnOutput(home, turn.turnId, 'stdout'))).toBe('sent');
    expect(await uploadsOf(home)).toEqual([]);
  });

  test('is sent again after kill -9 of the supervisor, and nothing of the first attempt is left', async () => {
    const home = await bench.createHome();
    await home.start();
    const directory = await write('killed', 'first');
    let isKilled = false;
    const connection = beforeCommit(home, async () => {
      if (isKilled) return;
      isKilled = true;
      expect(await uploadsOf(home)).toHaveLength(1);
      const { pid } = await home.call('supervisor/status', {});
      process.kill(pid, 'SIGKILL');
      await writeFile(join(directory, 'data.txt'), 'second');
      await home.start();
    });
    const deployed = await deployProject(connection, {
      directory,
      home: home.path,
      opId: 'op-killed-upload',
    });
    expect(deployed).toMatchObject({ replaced: false, unchanged: false, profile: { version: 1 } });
    await waitUntil('no upload is left', async () => (await uploadsOf(home)).length === 0);
    expect(await readFile(join(home.path, 'deploys/killed/1/data.txt'), 'utf8')).toBe('second');
    await expectSettled(home);
  });

  test('ends with its connection', async () => {
    const home = await bench.createHome();
    await home.start();
    const directory = await write('left', 'text');
    const connection = beforeCommit(home, async () => {
      (await home.connect()).peer.close();
      await waitUntil('the upload is gone', async () => (await uploadsOf(home)).length === 0);
    });
    await expect(deployOver(connection, directory)).rejects.toMatchObject({ code: 'interrupted' });
    expect((await home.call('profile/list', {})).profiles).toEqual([]);
    expect(await uploadsOf(home)).toEqual([]);
  });
});
