import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Turn } from '../../../protocol/entities.ts';
import { turnOutput } from '../../faults/harness/expectations.ts';
import type { FaultHome } from '../../faults/harness/fault-home.ts';
import { waitForTurn, waitUntil, useFaultFixture } from '../../faults/harness/fault-fixture.ts';
import { handlerProject, shellProject } from '../../setup/profiles.ts';

/** A turn that is given up long before its own timeout, and long before the test's. */
const SOON_MS = 100_000;
const bench = useFaultFixture((end) => afterAll(end));
let home: FaultHome;

beforeAll(async () => {
  home = await bench.createHome();
  await home.start();
  await bench.deploy(home, shellProject('sh'));
  await bench.deploy(
    home,
    handlerProject(
      'py',
      `import ctypes, os, shutil, signal, socket, subprocess, sys, time
def handler(i):
    d = "/run/holdfast/turns/" + os.environ["HOLDFAST_TURN"]
    scope = dict(globals(), d=d, given=i)
    exec(i["code"], scope)
    return scope.get("answer", "fine")
`,
    ),
  );
});

async function run(profile: string, name: string, input: string): Promise<Turn> {
  const { turn } = await home.call('turn/start', { profile, name, prompt: input });
  return await waitForTurn(home, turn.turnId, SOON_MS);
}

const python = (name: string, code: string): Promise<Turn> => run('py', name, JSON.stringify({ code }));

/** The same session goes on by itself. */
async function expectHandlerWorks(name: string): Promise<void> {
  expect(await python(name, 'answer = 6 * 7')).toMatchObject({ status: 'succeeded', output: 42 });
}

async function expectShellWorks(name: string): Promise<void> {
  const turn = await run('sh', name, 'echo works; exit 0');
  expect(turn).toMatchObject({ status: 'succeeded', exitCode: 0, error: null });
  expect((await turnOutput(home, turn.turnId, 'stdout')).toString()).toBe('works\n');
}

describe('the files in which a turn tells its end', () => {
  test.each([
    ['result is a folder', 'os.mkdir(d + "/result"); os._exit(0)'],
    ['exit is a folder', 'os.mkdir(d + "/exit"); os._exit(0)'],
    [
      'exit and result are folders with something in them',
      'os.makedirs(d + "/exit/x"); os.makedirs(d + "/result/x"); os._exit(0)',
    ],
    ['result is an empty file', 'open(d + "/result", "w"); os._exit(0)'],
    ['result is a FIFO', 'os.mkfifo(d + "/result"); os._exit(0)'],
    ['exit is a socket', 's = socket.socket(socket.AF_UNIX); s.bind(d + "/exit"); os._exit(0)'],
    ['exit is a link to itself', 'os.symlink("exit", d + "/exit"); os._exit(0)'],
    ['exit says nothing that is a code', 'open(d + "/exit", "wb").write(b"\\0\\0\\0"); os._exit(0)'],
    ['exit is huge', 'open(d + "/exit", "w").close(); os.truncate(d + "/exit", 2 ** 40); os._exit(0)'],
    ['exit cannot be read', 'os.close(os.open(d + "/exit", os.O_CREAT | os.O_WRONLY, 0)); os._exit(0)'],
    ['exit is a folder while the worker goes on', 'os.mkdir(d + "/exit"); time.sleep(600)'],
    ['its folder has no modes', 'os.chmod(d, 0); os._exit(0)'],
    ['its folder is removed', 'shutil.rmtree(d); os._exit(0)'],
    ['its folder is removed, and the worker goes on', 'shutil.rmtree(d); time.sleep(600)'],
  ])('%s: the turn fails soon, and the next one works', async (_what, code) => {
    const turn = await python('files', code);
    expect(turn.status).toBe('failed');
    expect(turn.error?.data.code).toMatch(/^(worker_crashed|agent_failed|sandbox_lost)$/);
    expect(turn.error?.data.why).toEqual(expect.any(String));
    await expectHandlerWorks('files');
  });

  test('an answer is still heard where the agent had put an empty file', async () => {
    expect(
      await python('empty', 'open(d + "/result", "w").close(); time.sleep(1); answer = "heard"'),
    ).toMatchObject({
      status: 'succeeded',
      output: 'heard',
    });
    await expectHandlerWorks('empty');
  });

  test('a lease on the exit code does not hide the end', async () => {
    const turn = await python(
      'lease',
      `import fcntl
signal.signal(signal.SIGIO, signal.SIG_IGN)
fd = os.open(d + "/exit", os.O_CREAT | os.O_RDWR, 0o600)
fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
time.sleep(600)`,
    );
    expect(turn).toMatchObject({ status: 'failed', error: { data: { code: 'agent_failed' } } });
    await expectHandlerWorks('lease');
  });

  test('an exit code keeps to its program although a folder is in its place', async () => {
    const turn = await run('sh', 'code', 'mkdir /run/holdfast/turns/$HOLDFAST_TURN/exit; exit 7');
    expect(turn).toMatchObject({ status: 'failed', exitCode: 7 });
    await expectShellWorks('code');
  });

  test('a turn whose keeper was killed has no exit code that nobody knows', async () => {
    const turn = await run('sh', 'keeper', 'kill -9 $PPID; sleep 1; exit 0');
    expect(turn).toMatchObject({
      status: 'failed',
      exitCode: null,
      error: { data: { code: 'agent_failed' } },
    });
    await expectShellWorks('keeper');
  });
});

describe('the folders of the run directory', () => {
  const damages: [string, string][] = [
    ['turns is removed', 'shutil.rmtree("/run/holdfast/turns")'],
    ['all of it is removed', 'subprocess.run("rm -rf /run/holdfast/* /run/holdfast/.[a-z]*", shell=True)'],
    [
      'turns is a link to /workspace',
      'os.rename("/run/holdfast/turns", "/run/holdfast/t"); os.symlink("/workspace", "/run/holdfast/turns")',
    ],
    ['turns is a FIFO', 'shutil.rmtree("/run/holdfast/turns"); os.mkfifo("/run/holdfast/turns")'],
    [
      'turns is another folder',
      'os.rename("/run/holdfast/turns", "/run/holdfast/t"); os.mkdir("/run/holdfast/turns")',
    ],
    ['turns has no modes', 'os.chmod("/run/holdfast/turns", 0)'],
    ['the run directory has no modes', 'os.chmod("/run/holdfast", 0)'],
    ['worker is removed', 'shutil.rmtree("/run/holdfast/worker")'],
    [
      'worker is a link to /proc',
      'shutil.rmtree("/run/holdfast/worker"); os.symlink("/proc", "/run/holdfast/worker")',
    ],
    [
      'requests of the worker is a folder',
      'os.unlink("/run/holdfast/worker/requests"); os.makedirs("/run/holdfast/worker/requests/x")',
    ],
    ['requests is removed', 'os.unlink("/run/holdfast/requests")'],
    ['requests is a folder', 'os.unlink("/run/holdfast/requests"); os.makedirs("/run/holdfast/requests/x")'],
  ];

  test.each(damages)('%s, and the worker ends: the next turn works', async (_what, code) => {
    const turn = await python('ends', `${code}; os._exit(0)`);
    expect(turn.status).toBe('failed');
    expect(turn.error?.data.code).toMatch(/^(worker_crashed|agent_failed|sandbox_lost)$/);
    await expectHandlerWorks('ends');
  });

  test.each(damages)('%s, and the worker answers: the next turn works', async (_what, code) => {
    const turn = await python('answers', code);
    if (turn.status !== 'succeeded')
      expect(turn.error?.data.code).toMatch(/^(worker_crashed|agent_failed|sandbox_lost)$/);
    await expectHandlerWorks('answers');
  });

  test.each([
    ['turns is removed', 'rm -rf /run/holdfast/turns'],
    [
      'turns is a link to /workspace',
      'mv /run/holdfast/turns /run/holdfast/t; ln -s /workspace /run/holdfast/turns',
    ],
    ['all of it is removed', 'rm -rf /run/holdfast/*'],
  ])('of a command, %s: it fails soon with the reason, and the next turn works', async (_what, code) => {
    const turn = await run('sh', 'command', `${code}; sleep 600`);
    expect(turn).toMatchObject({
      status: 'failed',
      error: { data: { code: 'sandbox_lost', why: expect.stringContaining('run directory') as string } },
    });
    await expectShellWorks('command');
  });

  test('a process that goes on removing everything is ended with its container, and the next turn works', async () => {
    const script = 'while :; do rm -rf /run/holdfast/turns /run/holdfast/worker; done';
    await run('sh', 'loop', `(${script}) >/dev/null 2>&1 & sleep 1`);
    await expectShellWorks('loop');
  });
});

describe('the runner', () => {
  test('it is stopped between two turns: the next turn gets a fresh sandbox', async () => {
    // The runner has the lowest id of those that run its script; the first process of the container only watches over it.
    const { sessionId } = await run(
      'sh',
      'stopped',
      `for p in /proc/[0-9]*; do
  p=\${p#/proc/}
  [ $p = 1 ] || case $(tr "\\0" " " </proc/$p/cmdline) in *runner.sh*) echo $p;; esac
done | sort -n | head -1 >pid
# After the turn, which the runner is to end first.
(sleep 1; kill -STOP $(cat pid); until grep -q '^State:.T' /proc/$(cat pid)/status; do sleep 0.1; done; : >stopped) >/dev/null 2>&1 &`,
    );
    await waitUntil('the runner is stopped', async () =>
      (await home.call('files/list', { session: sessionId, path: '/workspace' })).entries.some(
        ({ name }) => name === 'stopped',
      ),
    );
    await expectShellWorks('stopped');
  });
});
