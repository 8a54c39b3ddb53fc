import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { givenConversation } from '../../fixtures/agents/conversation.ts';
import { waitUntil } from '../../fixtures/sidecar/turns.ts';

const until = (holds: () => boolean): Promise<void> => waitUntil('what the test waits for', holds);

describe('a conversation with an agent', { timeout: 60_000 }, () => {
  test('a permission waits for a person, is answered once, and the agent receives it', async () => {
    const given = givenConversation();
    const turn = await given.prompt('permission npm test', 'say done');
    await until(() => given.waitingPermissions().length === 1);
    const [permission] = given.waitingPermissions();
    expect(permission).toMatchObject({ kind: 'execute', title: 'Run npm test', answeredAt: null, by: null });
    const id = permission?.id ?? '';
    expect(() => given.permissions.answer(id, 'nonsense', 'cli', undefined)).toThrow(
      'does not take the answer',
    );
    const answered = given.permissions.answer(id, 'allow_always', 'cli', 'op-answer-1');
    expect(answered).toMatchObject({ answer: { id: 'always' }, by: { kind: 'client', name: 'cli' } });
    expect(given.permissions.answer(id, 'allow_always', 'cli', 'op-answer-1').answer?.id).toBe('always');
    expect(() => given.permissions.answer(id, 'reject_once', 'other', undefined)).toThrow(
      'was answered before',
    );
    expect((await given.outcome(turn)).status).toBe('succeeded');
    expect(given.said(turn)).toBe('[npm test: always]done');
    expect(given.read('permission.answered', turn)).toHaveLength(1);
  });

  test('the profile as it was deployed last answers, whoever answered before', async () => {
    const profile: { permissions: 'ask' | 'allow' } = { permissions: 'allow' };
    const given = givenConversation(profile);
    const first = await given.prompt('permission one', 'say done');
    expect((await given.outcome(first)).status).toBe('succeeded');

    profile.permissions = 'ask';
    const second = await given.prompt('permission two', 'say done');
    await until(() => given.waitingPermissions().length === 1);
    // A redeploy in the middle of a turn counts from the next one.
    profile.permissions = 'allow';
    given.permissions.answer(given.waitingPermissions()[0]?.id ?? '', 'reject_once', 'cli', undefined);
    expect((await given.outcome(second)).status).toBe('succeeded');

    const third = await given.prompt('permission three', 'say done');
    expect((await given.outcome(third)).status).toBe('succeeded');
    expect(given.read('permission.answered').map(({ by }) => by.kind)).toEqual([
      ...['profile', 'client', 'profile'],
    ]);
  });

  test('a permission survives the supervisor: answered before or after the next one reads on', async () => {
    for (const isAnsweredFirst of [true, false]) {
      const given = givenConversation();
      const turn = await given.prompt('permission make', 'say done');
      await until(() => given.waitingPermissions().length === 1);
      const id = given.waitingPermissions()[0]?.id ?? '';
      await given.restart();
      if (isAnsweredFirst) given.permissions.answer(id, 'reject_once', 'cli', undefined);
      await given.resume(turn);
      if (!isAnsweredFirst) given.permissions.answer(id, 'reject_once', 'cli', undefined);
      expect((await given.outcome(turn)).status).toBe('succeeded');
      expect(given.said(turn)).toBe('[make: no]done');
      expect(given.read('permission.asked', turn)).toHaveLength(1);
      expect(given.channel.started).toHaveLength(1);
    }
  });

  test('a supervisor that is killed again and again: everything is there once, and the prompt was sent once', async () => {
    const given = givenConversation();
    const turn = await given.prompt(
      ...Array.from({ length: 30 }, (_, nth) => [`say ${nth},`, 'sleep 20']).flat(),
    );
    for (let nth = 0; nth < 12; nth++) {
      await sleep(60);
      await given.restart();
      await given.resume(turn);
    }
    expect((await given.outcome(turn)).status).toBe('succeeded');
    expect(given.said(turn)).toBe(Array.from({ length: 30 }, (_, nth) => `${nth},`).join(''));
    expect(given.channel.input.match(/session\/prompt/g)).toHaveLength(1);
    expect(given.channel.started).toHaveLength(1);
  });

  test('many permissions at once: some wait, the others are rejected', async () => {
    const given = givenConversation();
    const turn = await given.prompt('permissions 40');
    await until(() => given.waitingPermissions().length === 32);
    await sleep(100);
    for (const { id } of given.waitingPermissions())
      given.permissions.answer(id, 'allow_once', 'cli', undefined);
    await given.outcome(turn);
    const said = given.said(turn).split(',');
    expect(said.filter((one) => one === 'once')).toHaveLength(32);
    expect(said.filter((one) => one === 'no')).toHaveLength(8);
    expect(given.notices(turn)).toEqual(['too_many_permissions']);
  });

  test('two options of one kind, double ids and unknown kinds: the option that was chosen is sent', async () => {
    const given = givenConversation();
    const turn = await given.prompt('duplicates');
    await until(() => given.waitingPermissions().length === 1);
    const [permission] = given.waitingPermissions();
    expect(permission?.options.map(({ id }) => id)).toEqual(['first', 'second']);
    given.permissions.answer(permission?.id ?? '', 'second', 'cli', undefined);
    await given.outcome(turn);
    expect(given.said(turn)).toBe('second');
  });

  test('an update of its call does not take a permission away; the agent itself may', async () => {
    const given = givenConversation();
    const turn = await given.prompt('erase');
    await until(() => given.waitingPermissions().length === 1);
    await sleep(100);
    given.permissions.answer(given.waitingPermissions()[0]?.id ?? '', 'allow_once', 'cli', undefined);
    await given.outcome(turn);
    expect(given.said(turn)).toBe('once');
    const other = await given.prompt('withdraw');
    await given.outcome(other);
    expect(given.said(other)).toBe('withdrawn -32800');
    expect(given.waitingPermissions()).toEqual([]);
  });

  test('the profile answers: allow, or by rules', async () => {
    const allowing = givenConversation({ permissions: 'allow' });
    const turn = await allowing.prompt('permission rm -rf x');
    await allowing.outcome(turn);
    expect(allowing.said(turn)).toBe('[rm -rf x: once]');
    const ruled = givenConversation({
      permissions: {
        rules: [
          { answer: 'reject', command: 'rm *' },
          { answer: 'allow', kind: 'execute', command: 'npm *' },
        ],
      },
    });
    const second = await ruled.prompt('permission rm x', 'permission npm test', 'permission npm test; rm x');
    await until(() => ruled.waitingPermissions().length === 1);
    ruled.permissions.answer(ruled.waitingPermissions()[0]?.id ?? '', 'reject_once', 'cli', undefined);
    await ruled.outcome(second);
    expect(ruled.said(second)).toBe('[rm x: no][npm test: once][npm test; rm x: no]');
    expect(ruled.read('permission.answered', second)[0]?.by).toEqual({ kind: 'rule', name: 'reject rm *' });
  });
});
