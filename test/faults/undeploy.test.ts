import { afterAll, describe, expect, test } from 'vitest';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { expectSettled, outputOf } from './harness/expectations.ts';
import { endOfTurn, useWorkbench } from './harness/workbench.ts';

const TRIES = 6;

describe('an undeploy', () => {
  const bench = useWorkbench(afterAll);

  test('right after a turn whose session goes by itself succeeds, and a new deployment of the name stays', async () => {
    const home = await bench.home();
    await home.start();
    const ephemeral = await writeProject(await bench.folder(), shellProject('q', ''));
    for (let tries = 1; tries <= TRIES; tries += 1) {
      await home.call('profile/deploy', { directory: ephemeral });
      const { turn } = await home.call('turn/start', { profile: 'q', prompt: 'echo ran' });
      expect(await endOfTurn(home, turn.turnId)).toMatchObject({ status: 'succeeded' });
      await expect(home.call('profile/undeploy', { profile: 'q', force: true })).resolves.toBeDefined();
    }
    await bench.deploy(home, shellProject('q'));
    const work = await home.call('turn/start', { profile: 'q', name: 'keepme', prompt: 'echo work > f' });
    expect(await endOfTurn(home, work.turn.turnId)).toMatchObject({ status: 'succeeded' });
    const { pid } = await home.call('supervisor/status', {});
    process.kill(pid, 'SIGKILL');
    await home.start();
    await expectSettled(home);
    const look = await home.call('turn/start', { profile: 'q', name: 'keepme', prompt: 'cat f' });
    expect(await endOfTurn(home, look.turn.turnId)).toMatchObject({ status: 'succeeded' });
    expect((await outputOf(home, look.turn.turnId, 'stdout')).toString()).toBe('work\n');
  }, 180_000);
});
