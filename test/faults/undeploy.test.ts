import { afterAll, describe, expect, test } from 'vitest';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { expectSettled, turnOutput } from './harness/expectations.ts';
import { waitForTurn, useFaultFixture } from './harness/fault-fixture.ts';
import { deploy } from '../setup/deploy.ts';

const TRIES = 6;

describe('an undeploy', () => {
  const bench = useFaultFixture(afterAll);

  test('right after the turn of an ephemeral session succeeds, and a new deployment of the name stays', async () => {
    const home = await bench.createHome();
    await home.start();
    const ephemeral = await writeProject(await bench.temporaryFolder(), shellProject('q', ''));
    for (let tries = 1; tries <= TRIES; tries += 1) {
      await deploy(home, ephemeral);
      const { turn } = await home.call('turn/start', { profile: 'q', prompt: 'echo ran' });
      expect(await waitForTurn(home, turn.turnId)).toMatchObject({ status: 'succeeded' });
      await expect(home.call('profile/undeploy', { profile: 'q', force: true })).resolves.toBeDefined();
    }
    await bench.deploy(home, shellProject('q'));
    const work = await home.call('turn/start', { profile: 'q', name: 'keepme', prompt: 'echo work > f' });
    expect(await waitForTurn(home, work.turn.turnId)).toMatchObject({ status: 'succeeded' });
    const { pid } = await home.call('supervisor/status', {});
    process.kill(pid, 'SIGKILL');
    await home.start();
    await expectSettled(home);
    const look = await home.call('turn/start', { profile: 'q', name: 'keepme', prompt: 'cat f' });
    expect(await waitForTurn(home, look.turn.turnId)).toMatchObject({ status: 'succeeded' });
    expect((await turnOutput(home, look.turn.turnId, 'stdout')).toString()).toBe('work\n');
  }, 180_000);
});
