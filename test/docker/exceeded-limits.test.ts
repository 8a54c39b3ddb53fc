import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Turn } from '../../protocol/entities.ts';
import type { FaultHome } from '../faults/harness/fault-home.ts';
import { waitForTurn, waitUntil, useFaultFixture } from '../faults/harness/fault-fixture.ts';
import { handlerProject, shellProject } from '../setup/profiles.ts';

const bench = useFaultFixture((end) => afterAll(end));
const LIMITS = 'limits: { memory: 192MiB, pids: 40 }\n';
/** Keeps all of its input in memory and exceeds the limit. */
const HUNGRY = "sh -c 'head -c 600000000 /dev/zero | tail -c 500000000' >/dev/null";
let home: FaultHome;

beforeAll(async () => {
  home = await bench.createHome();
  await home.start();
  await bench.deploy(home, shellProject('sh', `persistence: persistent\n${LIMITS}`));
  await bench.deploy(
    home,
    handlerProject('py', 'import os, subprocess\ndef handler(i):\n    exec(i["code"])\n', LIMITS),
  );
});

async function run(profile: string, prompt: string): Promise<Turn> {
  const { turn } = await home.call('turn/start', { profile, prompt });
  return await waitForTurn(home, turn.turnId);
}
const python = (code: string): Promise<Turn> => run('py', JSON.stringify({ code }));
const limitsOf = ({ error }: Turn): unknown => error?.data.details?.['limits'];

describe('the error of a turn names the exhausted resource', () => {
  test.each([
    ['memory', `${HUNGRY}; exit 5`, 'raise `limits.memory`'],
    ['tmp', 'head -c 400000000 /dev/zero > /tmp/x; exit 5', 'raise `limits.memory`'],
    ['disk', 'echo "cp: error writing: No space left on device" >&2; exit 5', 'df -h'],
  ])('%s, of a command', async (limit, script, next) => {
    const turn = await run('sh', `rm -rf /tmp/* ~/*; ${script}`);
    expect(turn).toMatchObject({ status: 'failed', exitCode: 5, error: { data: { code: 'agent_failed' } } });
    expect(limitsOf(turn)).toEqual([limit]);
    expect(turn.error?.data.next).toContain(next);
    // The next turn reports nothing of it.
    const after = await run('sh', 'rm -rf /tmp/* ~/*; exit 6');
    expect(after).toMatchObject({ status: 'failed', exitCode: 6 });
    expect(limitsOf(after)).toBeUndefined();
  });

  test('processes, of a command; the session continues', async () => {
    const turn = await run('sh', 'for n in $(seq 200); do sleep 2 & done; wait; exit 5');
    expect(turn.status).toBe('failed');
    expect(limitsOf(turn)).toEqual(['processes']);
    expect(turn.error?.data.next).toContain('limits.pids');
    // Its remaining processes exit by themselves.
    await waitUntil(
      'there is room for processes',
      async () => (await run('sh', 'true')).status === 'succeeded',
    );
  });

  test('a turn that succeeds anyway has no error', async () => {
    expect(await run('sh', `${HUNGRY}; exit 0`)).toMatchObject({ status: 'succeeded', error: null });
  });

  test('memory, of a handler: of a process that it started, and of itself', async () => {
    const child = await python(`subprocess.run(["sh", "-c", ${JSON.stringify(HUNGRY)}], check=True)`);
    const quiet = await python('raise ValueError("something else")');
    const own = await python('x = bytearray(600000000)');
    expect(limitsOf(child)).toEqual(['memory']);
    expect(limitsOf(quiet)).toBeUndefined();
    expect(own.error?.data.code).toBe('worker_crashed');
    expect(limitsOf(own)).toEqual(['memory']);
    expect(await python('pass')).toMatchObject({ status: 'succeeded' });
  });

  test('a disk, of a handler', async () => {
    const turn = await python('open("/tmp/x", "wb").write(bytes(150000000))');
    expect(limitsOf(turn)).toEqual(['tmp']);
  });
});
