import { describe, expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { cli, Driven } from './driver.ts';
import { type FakeHandlers, session, SESSION_ID } from './fake-supervisor.ts';
import { serve } from './served.ts';

const SNAPSHOT = 'snp-aaaaaaaaaaaaaaaa';
const filling = { snapshotId: SNAPSHOT, failed: null };
const failed = { ...filling, failed: { code: 'no_space', why: 'The disk is full' } };

describe('a session whose files are still being brought', () => {
  const made: FakeHandlers = {
    'snapshot/fork': () => ({ session: session({ filling }) }),
    'session/create': () => ({ session: session({ filling }) }),
    'workspace/wait': () => ({ session: session() }),
  };
  const makers = [
    ['snapshot', 'fork', SNAPSHOT],
    ['session', 'create', 'counter', '--from', `snapshot:${SNAPSHOT}`],
  ];

  test.each(makers)('%s %s says so, and waits only where it is told to', async (...argv) => {
    const supervisor = await serve(made);
    const { home } = supervisor;
    const said = await cli(argv, { home });
    expect(said.code).toBe(0);
    expect(said.stdout).toContain('Its files are being brought');
    expect(supervisor.methodsAsked()).not.toContain('workspace/wait');
    const waited = await cli([...argv, '--wait'], { home });
    expect(waited.stdout).not.toContain('being brought');
    expect(supervisor.methodsAsked()).toContain('workspace/wait');
  });

  test('the JSON of a fork tells it', async () => {
    const { home } = await serve(made);
    const told = { sessionId: SESSION_ID, name: 'default', missing: 0, missingPaths: [] };
    const argv = ['snapshot', 'fork', SNAPSHOT, '--json'];
    expect(JSON.parse((await cli(argv, { home })).stdout)).toEqual({ ...told, filling });
    expect(JSON.parse((await cli([...argv, '--wait'], { home })).stdout)).toEqual({ ...told, filling: null });
  });

  test('^C ends the waiting, and says that they are brought all the same', async () => {
    const asked = Promise.withResolvers<undefined>();
    const { home } = await serve({
      ...made,
      'workspace/wait': (_, { signal }) =>
        new Promise((_resolve, reject) => {
          signal.addEventListener('abort', () => reject(new HoldfastError('cancelled', 'Left')));
          asked.resolve(undefined);
        }),
    });
    const driven = new Driven(['snapshot', 'fork', SNAPSHOT, '--wait'], { home });
    await asked.promise;
    driven.signal('SIGINT');
    const { code, stdout, stderr } = await driven.finished;
    expect([code, stdout]).toEqual([130, '']);
    expect(stderr).toContain(`default is there (${SESSION_ID}), and its files are brought all the same`);
  });

  test('lists and facts say how it stands, and why', async () => {
    for (const [one, word, fact] of [
      [filling, 'being filled', `being brought from ${SNAPSHOT}`],
      [failed, 'not filled', 'could not be brought (no_space: The disk is full)'],
    ] as const) {
      const { home } = await serve({
        'session/list': () => ({ sessions: [session({ filling: one })], nextCursor: null }),
        'session/show': () => ({ session: session({ filling: one }) }),
      });
      expect((await cli(['session', 'list'], { home })).stdout).toContain(word);
      expect((await cli(['session', 'show', 'default'], { home })).stdout).toContain(fact);
    }
  });
});
