import { describe, expect, test } from 'vitest';
import type { SnapshotReason } from '../../../protocol/snapshot-reasons.ts';
import type { Session } from '../../../protocol/entities.ts';
import { homeSessions, needOf } from '../../../extension/home/home-sessions.ts';
import { questionOf } from '../../../extension/home/questions.ts';
import { lastMessage } from '../../../extension/home/last-message.ts';
import type { Permission } from '../../../protocol/permissions.ts';
import { HOME_REQUESTS, MAX_HOME_SESSIONS, TO_HOME } from '../../../webview/home-messages.ts';
import { item, message, permission, prompt } from '../../editor/session-page/conversations.ts';
import { session } from './a-session.ts';

const LETTERS = 'abcdefghijklmnopqrstuvwxyz';
const TURN = 'turn-aaaaaaaaaaaaaaaa';
const ended = (id: number, more: Partial<Parameters<typeof item<'end'>>[2]> = {}) =>
  item(id, 'end', { status: 'succeeded', exitCode: 0, error: null, turnMs: 1, ...more });

describe('what a session needs', () => {
  const failed = { code: 'internal', why: 'x' };
  const hydration = { snapshotId: 'snp-aaaaaaaaaaaaaaaa', failed: null };
  test.each<[string, Partial<Session>, number, string]>([
    ['an answer comes first', { waiting: 1, runningTurn: TURN }, 2, 'waiting'],
    ['a turn that runs', { runningTurn: TURN }, 1, 'running'],
    ['a turn in the queue', { queuedTurns: 1 }, 1, 'running'],
    ['a turn that ended unseen', {}, 1, 'waiting'],
    ['files on their way', { hydration }, 0, 'running'],
    ['files that did not come', { hydration: { ...hydration, failed } }, 0, 'earlier'],
    ['paused', { status: 'paused' }, 0, 'paused'],
    ['stopped', { status: 'resumable' }, 0, 'earlier'],
  ])('%s', (_, more, unread, need) => {
    expect(needOf(session(more), unread)).toBe(need);
  });

  test('orders them, leaves out the archive, and bounds number and length', () => {
    const many = Array.from({ length: MAX_HOME_SESSIONS + 5 }, (_, n) =>
      session({ id: `ses-${'a'.repeat(14)}${LETTERS.charAt(n / 26)}${LETTERS.charAt(n % 26)}` }),
    );
    const asks = session({
      ...{ id: 'ses-zzzzzzzzzzzzzzzz', name: 'n'.repeat(5000), lastPrompt: 'p'.repeat(5000) },
      ...{ waiting: 1, runningTurn: TURN },
    });
    const archived = session({ id: 'ses-yyyyyyyyyyyyyyyy', archived: true, waiting: 1 });
    const { shown, left } = homeSessions(
      [...many, archived, asks],
      () => 0,
      () => 'local',
    );
    expect(left).toBe(6);
    expect([...shown.keys()][0]).toBe(asks.id);
    expect(shown.get(asks.id)).toMatchObject({ need: 'waiting', reason: 'asks', host: 'local' });
    expect(shown.get(archived.id)).toBeUndefined();
    TO_HOME.sessions.parse({ isSnapshot: true, changed: [...shown.values()], removed: [], left });
  });
});

describe('the last words of a session', () => {
  test('are the newest answer, output or result, never a thought', () => {
    expect(
      lastMessage([
        prompt(1, 'go'),
        message(2, 'first'),
        message(3, ' second \n'),
        message(4, 'hm', 'thought'),
      ]),
    ).toEqual({ words: 'second', asks: null, isFailure: false, changedFiles: null });
    expect(lastMessage([prompt(1, '{}'), ended(2, { text: '{"count":1}' })]).words).toBe('{"count":1}');
    expect(
      lastMessage([prompt(1, 'ls'), message(2, 'a\n', 'stdout'), ended(3, { text: 'null' })]).words,
    ).toBe('a');
  });

  test('are those of the last turn alone', () => {
    const items = [prompt(1, 'go'), message(2, 'done'), ended(3), prompt(4, 'again')];
    expect(lastMessage(items).words).toBeNull();
    expect(lastMessage([]).words).toBeNull();
  });

  test('say how a turn failed, and what it asks until it is answered', () => {
    const error = { code: 'agent_failed', message: 'exit code 2', traceback: null };
    expect(
      lastMessage([prompt(1, 'go'), message(2, 'x'), ended(3, { status: 'failed', error })]),
    ).toMatchObject({
      words: 'exit code 2',
      isFailure: true,
    });
    expect(lastMessage([prompt(1, 'go'), permission(2)]).asks).toBe('npm install --save-dev fast-check');
    const answered = { ...permission(2), by: { kind: 'client', name: null } } as ReturnType<
      typeof permission
    >;
    expect(lastMessage([prompt(1, 'go'), answered]).asks).toBeNull();
  });

  test('count the files of a snapshot that was taken since, and not of the one before the turn', () => {
    const snapshot = (id: number, reason: SnapshotReason, changedFiles: number) =>
      item(id, 'mark', {
        ...{ mark: 'snapshot', snapshotId: 'snp-aaaaaaaaaaaaaaaa', label: null },
        ...{ reason, changedFiles },
      } as never);
    for (const reason of ['start', 'after-setup', 'before-turn'] as const)
      expect(lastMessage([prompt(1, 'go'), snapshot(2, reason, 7)]).changedFiles).toBeNull();
    expect(lastMessage([prompt(1, 'go'), snapshot(2, 'after-turn', 3)]).changedFiles).toBe(3);
    expect(
      lastMessage([prompt(1, 'go'), snapshot(2, 'before-turn', 7), snapshot(3, 'before-review', 2)])
        .changedFiles,
    ).toBe(2);
  });

  test('have a bound, whatever an agent wrote', () => {
    for (const text of ['word '.repeat(10_000), 'x'.repeat(100_000), '\u{1F600}'.repeat(10_000)]) {
      const found = lastMessage([prompt(1, 'go'), message(2, text)]);
      expect(HOME_REQUESTS.words.result.parse(found).words?.startsWith('…')).toBe(true);
    }
  });
});

test('a question has as many answers as an agent can offer, and those that reject are among them', () => {
  const option = (n: number) => ({
    id: `${n}`,
    name: 'Go on',
    kind: n === 0 ? ('reject_once' as const) : ('allow_always' as const),
  });
  const asked: Permission = {
    ...{ id: 'perm-aaaaaaaaaaaaaaaa', sessionId: 'ses-aaaaaaaaaaaaaaaa', sessionName: 's', profile: 'p' },
    ...{ turnId: TURN, kind: 'execute', title: 'npm install', locations: [], askedAt: 0 },
    ...{ options: Array.from({ length: 16 }, (_, n) => option(n)), answeredAt: null, answer: null, by: null },
  };
  const question = questionOf(asked);
  expect(question.answers).toHaveLength(16);
  expect(question.answers.at(-1)).toEqual({
    ...{ id: '0', label: 'Go on', effect: 'rejects it this time', isAllowing: false },
  });
  const words = { words: null, asks: null, questions: [question], isFailure: false, changedFiles: null };
  expect(HOME_REQUESTS.words.result.parse(words).questions).toEqual([question]);
});
