import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import type { TestContext } from 'vitest';
import { surveyHost } from '../../../hosts/connector/connect-host.ts';
import { HAS_SCRIPT, Sitting } from '../../fixtures/cli/sitting.ts';
import { NearMachine, farPath } from '../../fixtures/hosts/near-machine.ts';
import { ASKS_CODES } from '../../fixtures/hosts/one-time-codes.ts';
import { SSHD, SshServer } from '../../fixtures/hosts/ssh-server.ts';

/** On a busy machine the end of a supervisor there takes long. */
const CLEAN_UP_MS = 60_000;
/** A one-time code is asked for with PAM's own word. */
const PROMPT = /\(\S+@127\.0\.0\.1\) Password: ?$/;

/** A machine that wants a code after the key. */
async function machines(
  onTestFinished: TestContext['onTestFinished'],
  codes: readonly string[],
  { stopsFar = true } = {},
) {
  const server = await SshServer.start(SSHD ?? '', { codes, environment: farPath() });
  const near = new NearMachine(server);
  onTestFinished(async () => {
    await near.dispose({ stopsFar });
    await server.stop();
  }, CLEAN_UP_MS);
  return {
    near,
    tried: () => server.codes?.tried,
    sit: (...args: string[]): Sitting => {
      const sitting = new Sitting(near.environment, args);
      onTestFinished(() => sitting.kill());
      return sitting;
    },
  };
}

describe
  .skipIf(SSHD === undefined || !ASKS_CODES || !HAS_SCRIPT)
  .concurrent(
    'a host that asks for a one-time code (needs sshd, root, PAM, mount namespaces and script)',
    { timeout: 150_000 },
    () => {
      test('asks on the terminal without showing the code, again after a wrong one, and then no more', async ({
        onTestFinished,
      }) => {
        const { near, sit, tried } = await machines(onTestFinished, ['314159']);
        const sitting = sit('profiles', '--host', 'far');
        await sitting.shows('far: (');
        await sitting.shows('Password: ');
        // The line of the progress is not drawn over the question while a person looks for the code.
        await sleep(1000);
        expect(sitting.text).toMatch(/Password: $/);
        sitting.type('271828\r');
        await sitting.shows('far: Asked again, the last answer may be wrong: (');
        sitting.type('314159\r');
        expect(await sitting.ended, sitting.text).toBe(0);
        expect(sitting.text).not.toMatch(/271828|314159/);
        expect(tried()).toEqual(['271828', '314159']);
        // The login is shared: a second one would need another code.
        expect(await near.run('profiles', '--host', 'far', '--json')).toMatchObject({
          code: 0,
          stdout: '{"profiles":[]}\n',
        });
        expect(tried()).toHaveLength(2);
      });

      test('that was used before is refused, and the person gets one sentence after the last try', async ({
        expect,
        onTestFinished,
      }) => {
        const { near, sit, tried } = await machines(onTestFinished, ['314159']);
        const survey = await surveyHost(near.options({ ask: () => Promise.resolve('314159') }));
        expect(survey['system']).toBe('Linux');
        await near.run('supervisor', 'stop', '--host', 'far');
        await near.disconnect();
        const sitting = sit('profiles', '--host', 'far');
        // As often as ssh asks (NumberOfPasswordPrompts).
        for (let n = 1; n <= 3; n += 1) {
          await expect.poll(() => sitting.text.split('Password:').length, { timeout: 60_000 }).toBe(n + 1);
          sitting.type('314159\r');
        }
        expect(await sitting.ended).toBe(1);
        expect(sitting.text).toMatch(
          /error permission_denied: far \(ssh:\/\/\S+\) cannot be reached; it accepts none of your keys, passwords and codes/,
        );
        expect(tried()).toHaveLength(4);
      });

      test('is asked for by one of several clients that wait, in words that name the machine', async ({
        onTestFinished,
      }) => {
        const { near, tried } = await machines(onTestFinished, ['314159'], { stopsFar: false });
        const asked: { text: string; isSecret: boolean }[] = [];
        const ask = (question: { text: string; isSecret: boolean }): Promise<string> => {
          asked.push(question);
          return Promise.resolve('314159');
        };
        await Promise.all([1, 2, 3].map(() => surveyHost(near.options({ ask }))));
        expect(asked).toEqual([{ text: expect.stringMatching(PROMPT) as string, isSecret: true }]);
        expect(tried()).toEqual(['314159']);
      });

      test('gets no empty code where nobody can be asked, or where the person does not answer', async ({
        onTestFinished,
      }) => {
        const { near, sit, tried } = await machines(onTestFinished, ['314159'], { stopsFar: false });
        const { code, stderr } = await near.run('profiles', '--host', 'far');
        expect(code).toBe(1);
        expect(stderr).toMatch(
          /^error permission_denied: far \(\S+\) cannot be reached; it asks for a password or a code, and nobody can be asked here; run the command on a terminal/,
        );
        const asked: string[] = [];
        const ask = ({ text }: { text: string }): Promise<null> => {
          asked.push(text);
          return Promise.resolve(null);
        };
        await expect(surveyHost(near.options({ ask }))).rejects.toMatchObject({ code: 'cancelled' });
        expect(asked).toHaveLength(1);
        // Ctrl+D on the empty line.
        const sitting = sit('profiles', '--host', 'far');
        await sitting.shows('Password: ');
        sitting.type('\u0004');
        expect(await sitting.ended).not.toBe(0);
        expect(sitting.text).toContain('Connecting to far was cancelled');
        expect(tried()).toEqual([]);
      });
    },
  );
