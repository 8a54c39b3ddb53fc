import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Turn } from '../../../protocol/entities.ts';
import { turnOutput } from '../../faults/harness/expectations.ts';
import type { FaultHome } from '../../faults/harness/fault-home.ts';
import { waitForTurn, waitUntil, useFaultFixture } from '../../faults/harness/fault-fixture.ts';
import { handlerProject, shellProject } from '../../setup/profiles.ts';

/** A turn that is given up long before its own timeout, and long before the test's. */
const SOON_MS = 100_000;
const fixture = useFaultFixture((end) => afterAll(end));
let home: FaultHome;

beforeAll(async () => {
  home = await fixture.createHome();
  await home.start();
  await fixture.deploy(home, shellProject('sh'));
  await fixture.deploy(
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

/** Runs Python in the handler of a session. */
type RunPython = (code: string) => Promise<Turn>;
/** Runs a script in the command agent of a session. */
type RunShell = (script: string) => Promise<Turn>;

/** Names of sessions that no test uses at the moment. Tests run at the same time, each with a session of its own. */
const free = { py: new Array<string>(), sh: new Array<string>() };
let sessions = 0;

/** Lends the attack a session that earlier attacks may have had; the session must work after each of them. */
async function withSession(profile: 'py' | 'sh', work: (name: string) => Promise<void>): Promise<void> {
  const name = free[profile].pop() ?? `session-${(sessions += 1)}`;
  try {
    await work(name);
  } finally {
    free[profile].push(name);
  }
}

/** Attacks from a handler. Afterwards the next turn of the session works, without anybody's help. */
function withHandler(attack: (python: RunPython) => Promise<void>): Promise<void> {
  return withSession('py', async (name) => {
    const python: RunPython = (code) => run('py', name, JSON.stringify({ code }));
    await attack(python);
    expect(await python('answer = 6 * 7')).toMatchObject({ status: 'succeeded', output: 42 });
  });
}

/** Attacks from a command. Afterwards the next turn of the session works, without anybody's help. */
function withShell(attack: (shell: RunShell) => Promise<void>): Promise<void> {
  return withSession('sh', async (name) => {
    const shell: RunShell = (script) => run('sh', name, script);
    await attack(shell);
    const turn = await shell('echo works; exit 0');
    expect(turn).toMatchObject({ status: 'succeeded', exitCode: 0, error: null });
    expect((await turnOutput(home, turn.turnId, 'stdout')).toString()).toBe('works\n');
  });
}

// First, because it takes longest: a turn that nobody takes is given up after half a minute.
describe.concurrent('the runner', () => {
  test('it is stopped between two turns: the next turn gets a fresh sandbox', () =>
    withShell(async (shell) => {
      // The runner has the lowest id of those that run its script; the first process of the container only watches over it.
      const { sessionId } = await shell(`rm -f stopped
for p in /proc/[0-9]*; do
  p=\${p#/proc/}
  [ $p = 1 ] || case $(tr "\\0" " " </proc/$p/cmdline) in *runner.sh*) echo $p;; esac
done | sort -n | head -1 >pid
# After the turn, which the runner is to end first.
(sleep 1; kill -STOP $(cat pid); until grep -q '^State:.T' /proc/$(cat pid)/status; do sleep 0.1; done; : >stopped) >/dev/null 2>&1 &`);
      await waitUntil('the runner is stopped', async () =>
        (await home.call('files/list', { session: sessionId, path: '/workspace' })).entries.some(
          ({ name }) => name === 'stopped',
        ),
      );
    }));
});

describe.concurrent('the files in which a turn reports its end', () => {
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
  ])('%s: the turn fails soon, and the next one works', (_what, code) =>
    withHandler(async (python) => {
      const turn = await python(code);
      expect(turn.status).toBe('failed');
      expect(turn.error?.data.code).toMatch(/^(worker_crashed|agent_failed|sandbox_lost)$/);
      expect(turn.error?.data.why).toEqual(expect.any(String));
    }),
  );

  test('an answer is received where the agent had put an empty file', () =>
    withHandler(async (python) => {
      const turn = await python('open(d + "/result", "w").close(); time.sleep(1); answer = "heard"');
      expect(turn).toMatchObject({ status: 'succeeded', output: 'heard' });
    }));

  test('a lease on the exit code does not hide the end', () =>
    withHandler(async (python) => {
      const turn = await python(`import fcntl
signal.signal(signal.SIGIO, signal.SIG_IGN)
fd = os.open(d + "/exit", os.O_CREAT | os.O_RDWR, 0o600)
fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
time.sleep(600)`);
      expect(turn).toMatchObject({ status: 'failed', error: { data: { code: 'agent_failed' } } });
    }));

  test('an exit code keeps to its program although a folder is in its place', () =>
    withShell(async (shell) => {
      const turn = await shell('mkdir /run/holdfast/turns/$HOLDFAST_TURN/exit; exit 7');
      expect(turn).toMatchObject({ status: 'failed', exitCode: 7 });
    }));

  test('a turn whose keeper was killed has no exit code that nobody knows', () =>
    withShell(async (shell) => {
      const turn = await shell('kill -9 $PPID; sleep 1; exit 0');
      expect(turn).toMatchObject({
        status: 'failed',
        exitCode: null,
        error: { data: { code: 'agent_failed' } },
      });
    }));
});

describe.concurrent('the folders of the run directory', () => {
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

  test.each(damages)('%s, and the worker ends: the next turn works', (_what, code) =>
    withHandler(async (python) => {
      const turn = await python(`${code}; os._exit(0)`);
      expect(turn.status).toBe('failed');
      expect(turn.error?.data.code).toMatch(/^(worker_crashed|agent_failed|sandbox_lost)$/);
    }),
  );

  test.each(damages)('%s, and the worker answers: the next turn works', (_what, code) =>
    withHandler(async (python) => {
      const turn = await python(code);
      if (turn.status !== 'succeeded')
        expect(turn.error?.data.code).toMatch(/^(worker_crashed|agent_failed|sandbox_lost)$/);
    }),
  );

  test.each([
    ['turns is removed', 'rm -rf /run/holdfast/turns'],
    [
      'turns is a link to /workspace',
      'mv /run/holdfast/turns /run/holdfast/t; ln -s /workspace /run/holdfast/turns',
    ],
    ['all of it is removed', 'rm -rf /run/holdfast/*'],
  ])('of a command, %s: it fails soon with the reason, and the next turn works', (_what, code) =>
    withShell(async (shell) => {
      const turn = await shell(`${code}; sleep 600`);
      expect(turn).toMatchObject({
        status: 'failed',
        error: { data: { code: 'sandbox_lost', why: expect.stringContaining('run directory') as string } },
      });
    }),
  );

  test('a process that keeps removing everything is ended with its container, and the next turn works', () =>
    withShell(async (shell) => {
      const script = 'while :; do rm -rf /run/holdfast/turns /run/holdfast/worker; done';
      await shell(`(${script}) >/dev/null 2>&1 & sleep 1`);
    }));
});
