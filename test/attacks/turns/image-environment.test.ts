import Docker from 'dockerode';
import { expect, test } from 'vitest';
import { turnOutput } from '../../faults/harness/expectations.ts';
import { waitForTurn, useFaultFixture } from '../../faults/harness/fault-fixture.ts';
import { handlerProject, shellProject } from '../../setup/profiles.ts';

const fixture = useFaultFixture();

/** What our scripts or the shell that runs them could obey. */
const HOSTILE = {
  HOLDFAST_BUSYBOX: '/evil',
  HOLDFAST_RUN: '/evil',
  HOLDFAST_WORKSPACE: '/',
  HOLDFAST_TMP: '/workspace',
  HOLDFAST_SESSION: 'ses-aaaaaaaaaaaaaaaa',
  HOLDFAST_RUNNER: 'evil',
  HOLDFAST_TURN: 'turn-aaaaaaaaaaaaaaaa',
  HOLDFAST_WORKER: 'w-evil',
  HOLDFAST_FIRST_TURN: 'turn-aaaaaaaaaaaaaaaa',
  HOLDFAST_EXEC: 'exec-aaaaaaaaaaaaaaaa',
  HOLDFAST_TERMINAL: 'term-aaaaaaaaaaaaaaaa',
  IFS: '/',
  ENV: '/evil',
  BASH_ENV: '/evil',
  hf_bb: '/evil',
  hf_run: '/evil',
  hf_met: ' memory',
  hf_entry: '/evil',
  hf_fresh_tmp: '1',
};

/** An image that is the usual one but for its environment. */
async function hostileImage(): Promise<string> {
  const docker = new Docker();
  const container = await docker.createContainer({ Image: __AGENT_IMAGE__, Cmd: ['true'] });
  const tag = `environment-${process.pid.toString()}-${Date.now().toString(36)}`;
  try {
    const changes = Object.entries(HOSTILE).map(([name, value]) => `ENV ${name}="${value}"`);
    await container.commit({ repo: 'holdfast-test', tag, changes: changes.join('\n') });
  } finally {
    await container.remove();
  }
  const image = `holdfast-test:${tag}`;
  fixture.onCleanup(() => docker.getImage(image).remove({ force: true }));
  return image;
}

test("an image's environment steers neither our runner nor a worker, and a turn there has nothing of it that is ours", async () => {
  const image = await hostileImage();
  const home = await fixture.createHome();
  await home.start();
  await fixture.deploy(home, shellProject('sh', `image: ${image}\npersistence: persistent\n`));
  await fixture.deploy(
    home,
    handlerProject(
      'py',
      'import os\ndef handler(i):\n    return [os.getcwd(), i["n"], os.environ["HOLDFAST_RUN"], os.environ.get("HOLDFAST_EXEC")]\n',
      `image: ${image}\n`,
    ),
  );

  const shell = async (prompt: string): Promise<string> => {
    const { turn } = await home.call('turn/start', { profile: 'sh', prompt });
    const end = await waitForTurn(home, turn.turnId);
    expect(end).toMatchObject({ status: 'succeeded', exitCode: 0 });
    return (await turnOutput(home, turn.turnId, 'stdout')).toString();
  };
  expect(await shell('echo kept > file; pwd')).toBe('/workspace\n');
  const own = await shell('cat file; env | grep ^HOLDFAST_ | sort | cut -d= -f1; env | grep -c evil');
  // The image's own business stays: what only its programs obey.
  expect(own).toBe(
    [
      'kept',
      'HOLDFAST_BUSYBOX',
      'HOLDFAST_PROFILE',
      'HOLDFAST_RUN',
      'HOLDFAST_RUNNER',
      'HOLDFAST_SESSION',
      'HOLDFAST_SESSION_NAME',
      'HOLDFAST_TMP',
      'HOLDFAST_TURN',
      'HOLDFAST_WORKSPACE',
      '',
    ]
      .join('\n')
      .concat(own.split('\n').at(-2) ?? '', '\n'),
  );

  for (const n of [1, 2]) {
    const { turn } = await home.call('turn/start', { profile: 'py', prompt: JSON.stringify({ n }) });
    expect(await waitForTurn(home, turn.turnId)).toMatchObject({
      status: 'succeeded',
      output: ['/workspace', n, '/run/holdfast', null],
    });
  }
});
