// What the command line tells a person to type next can be typed as it is.
import { describe, expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import type { Review, ReviewFile } from '../../../protocol/review.ts';
import { runToEnd } from '../../fixtures/cli/cli-run.ts';
import {
  profile,
  session,
  SESSION_ID,
  turn,
  TURN_ID,
  turnHandlers,
} from '../../fixtures/cli/fake-supervisor.ts';
import { startFakeSupervisor } from '../../fixtures/cli/start-fake-supervisor.ts';

const at = '2026-03-01T11:58:00.000Z';
const root = 'a'.repeat(64);

function review(counts: Partial<Review['counts']>): Review {
  return {
    ...{ id: 'rev-aaaaaaaaaaaaaaaa', sessionId: SESSION_ID, createdAt: at, updatedAt: at, revision: 1 },
    base: { spec: 'last', snapshotId: null, root },
    target: { snapshotId: 'snp-aaaaaaaaaaaaaaaa', root },
    accepted: null,
    counts: { files: 2, toReview: 0, accepted: 0, rejected: 0, partial: 0, ...counts },
  };
}

function reviewFile(path: string, changes: Partial<ReviewFile> = {}): ReviewFile {
  return {
    ...{ path, id: 'b'.repeat(24), kind: 'added', type: 'file', state: 'to-review', again: false },
    ...{ oldBytes: null, newBytes: 3, oldMode: null, newMode: 0o644, byHunk: true, below: 0, risks: [] },
    ...changes,
  };
}

describe('the advice of an error', () => {
  test('names the session as the person did, and the turn', async () => {
    const { home } = await startFakeSupervisor({
      'review/open': () => {
        throw new HoldfastError('not_found', 'No snapshot yet', {
          next: 'see `holdfast snapshot list SESSION`, where SESSION is its name',
        });
      },
    });
    const { code, stderr } = await runToEnd(['review', 'my app/first one'], { home });
    expect(code).toBe(1);
    expect(stderr).toBe(
      "error not_found: No snapshot yet; see `holdfast snapshot list 'my app/first one'`, where SESSION is its name\n",
    );
  });

  test('of a failed turn names that turn and its session', async () => {
    const failed = turn({
      status: 'failed',
      error: {
        message: 'The agent refused the prompt',
        data: {
          code: 'agent_failed',
          next: 'see `holdfast turn show TURN` and `holdfast session events SESSION`',
        },
      },
    });
    const { home } = await startFakeSupervisor(turnHandlers(failed));
    const { stderr } = await runToEnd(['run', 'counter', '{}'], { home });
    expect(stderr).toContain(
      `see \`holdfast turn show ${TURN_ID}\` and \`holdfast session events ${SESSION_ID}\``,
    );
  });
});

describe('a hint', () => {
  test('names the session so that another profile may have one of the same name', async () => {
    const named = session({ name: 'default', profile: 'counter' });
    const { home } = await startFakeSupervisor({
      'profile/list': () => ({ profiles: [profile()] }),
      'session/create': () => ({ session: named }),
      'session/resume': () => ({
        session: named,
        undo: null,
        sandbox: { reused: false, case: 'reattach' },
        timings: { dispatchMs: 300 },
      }),
    });
    expect((await runToEnd(['session', 'resume', 'counter/default'], { home })).stderr).toContain(
      'holdfast exec counter/default -- ls -la',
    );
    expect((await runToEnd(['session', 'create', 'counter'], { home })).stderr).toContain(
      "holdfast prompt counter/default '…'",
    );
  });

  test.each([
    [{ toReview: 1, accepted: 1 }, 'Read them: holdfast review diff counter/default'],
    [{ accepted: 2 }, 'Bring what you accepted into your repository: holdfast handoff counter/default'],
    [{ rejected: 2 }, null],
  ])('of a review with %j: %s', async (counts, expected) => {
    const { home } = await startFakeSupervisor({
      'review/open': () => ({ review: review(counts) }),
      'review/files': () => ({
        review: review(counts),
        files: [reviewFile('/workspace/a')],
        nextCursor: null,
      }),
    });
    const { code, stderr } = await runToEnd(['review', 'counter/default'], { home });
    expect(code).toBe(0);
    expect(stderr.includes('holdfast ')).toBe(expected !== null);
    if (expected !== null) expect(stderr).toContain(expected);
  });
});

describe('hunks', () => {
  test('what is no id of a hunk is said so, with the command that shows them', async () => {
    const { home } = await startFakeSupervisor({
      'review/files': () => ({
        review: review({}),
        files: [reviewFile('/workspace/a.js')],
        nextCursor: null,
      }),
    });
    const of = (word: string) => runToEnd(['review', 'reject', 'counter/default', word], { home });
    const { code, stderr } = await of('a.js:8f8d');
    expect(code).toBe(2);
    expect(stderr).toContain('a.js:8f8d does not name a hunk');
    expect(stderr).toContain('`holdfast review diff counter/default a.js`');
    expect((await of('b.js:8f8d')).stderr).toContain('is not part of the review');
  });

  test('a new folder has no lines and no size', async () => {
    const file = reviewFile('/workspace/made', { type: 'directory', newBytes: null, byHunk: false });
    const { home } = await startFakeSupervisor({
      'review/files': () => ({ review: review({}), files: [file], nextCursor: null }),
      'review/file': () => ({ file, hunks: [] }),
    });
    const { stdout } = await runToEnd(['review', 'diff', 'counter/default'], { home });
    expect(stdout).toContain('a folder, decided as a whole');
  });
});
