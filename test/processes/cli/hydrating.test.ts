import { describe, expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { runToEnd, CliRun } from '../../fixtures/cli/cli-run.ts';
import { type FakeHandlers, session, SESSION_ID } from '../../fixtures/cli/fake-supervisor.ts';
import { startFakeSupervisor } from '../../fixtures/cli/start-fake-supervisor.ts';

const SNAPSHOT = 'snp-aaaaaaaaaaaaaaaa';
const hydration = { snapshotId: SNAPSHOT, failed: null };
const failed = { ...hydration, failed: { code: 'no_space', why: 'The disk is full' } };

describe('a session whose workspace is being hydrated', () => {
  const made: FakeHandlers = {
    'snapshot/fork': () => ({ session: session({ hydration }) }),
    'session/create': () => ({ session: session({ hydration }) }),
    'workspace/wait': () => ({ session: session() }),
  };
  const makers = [
    ['snapshot', 'fork', SNAPSHOT],
    ['session', 'create', 'counter', '--from', `snapshot:${SNAPSHOT}`],
  ];

  test.each(makers)('%s %s reports it, and waits only with --wait', async (...argv) => {
    const supervisor = await startFakeSupervisor(made);
    const { home } = supervisor;
    const said = await runToEnd(argv, { home });
    expect(said.code).toBe(0);
    expect(said.stdout).toContain('Its files are being copied');
    expect(supervisor.requestedMethods()).not.toContain('workspace/wait');
    const waited = await runToEnd([...argv, '--wait'], { home });
    expect(waited.stdout).not.toContain('being copied');
    expect(supervisor.requestedMethods()).toContain('workspace/wait');
  });

  test('the JSON document of a fork contains it', async () => {
    const { home } = await startFakeSupervisor(made);
    const told = { sessionId: SESSION_ID, name: 'default', missing: 0, missingPaths: [] };
    const argv = ['snapshot', 'fork', SNAPSHOT, '--json'];
    expect(JSON.parse((await runToEnd(argv, { home })).stdout)).toEqual({ ...told, hydration });
    expect(JSON.parse((await runToEnd([...argv, '--wait'], { home })).stdout)).toEqual({
      ...told,
      hydration: null,
    });
  });

  test('^C ends the wait and reports that copying continues', async () => {
    const asked = Promise.withResolvers<undefined>();
    const { home } = await startFakeSupervisor({
      ...made,
      'workspace/wait': (_, { signal }) =>
        new Promise((_resolve, reject) => {
          signal.addEventListener('abort', () => reject(new HoldfastError('cancelled', 'Left')));
          asked.resolve(undefined);
        }),
    });
    const driven = new CliRun(['snapshot', 'fork', SNAPSHOT, '--wait'], { home });
    await asked.promise;
    driven.signal('SIGINT');
    const { code, stdout, stderr } = await driven.result;
    expect([code, stdout]).toEqual([130, '']);
    expect(stderr).toContain(
      `default was created (${SESSION_ID}). Its files are still being copied in the background`,
    );
  });

  test('session list and session show report the state and the failure', async () => {
    for (const [one, word, fact] of [
      [hydration, 'copying files', `being copied from ${SNAPSHOT}`],
      [failed, 'copying failed', `copying from ${SNAPSHOT} failed (no_space: The disk is full)`],
    ] as const) {
      const { home } = await startFakeSupervisor({
        'session/list': () => ({ sessions: [session({ hydration: one })], nextCursor: null }),
        'session/show': () => ({ session: session({ hydration: one }) }),
      });
      expect((await runToEnd(['session', 'list'], { home })).stdout).toContain(word);
      expect((await runToEnd(['session', 'show', 'default'], { home })).stdout).toContain(fact);
    }
  });
});
