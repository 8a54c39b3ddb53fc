import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { givenConversation } from '../../fixtures/agents/conversation.ts';
import { sessionId } from '../../fixtures/store/temporary-home.ts';
import { waitUntil } from '../../fixtures/sidecar/turns.ts';

const SESSION = sessionId(0);
const until = (holds: () => boolean): Promise<void> => waitUntil('what the test waits for', holds);

describe('a conversation with an agent', { timeout: 60_000 }, () => {
  test('what the agent says and does becomes events, in order, each once', async () => {
    const given = givenConversation();
    const turn = await given.prompt(
      'think hm',
      'say Hello',
      'say  there',
      'tool a.txt',
      'plan one,two',
      'usage 1200',
      'say done',
    );
    expect(await given.outcome(turn)).toEqual({ status: 'succeeded', error: null });
    expect(given.said(turn, 'thought')).toBe('hm');
    expect(
      given
        .read('agent.message', turn)
        .map(({ role, message, content }) => [role, message, given.text(content)]),
    ).toEqual([
      ['thought', 1, 'hm'],
      ['agent', 2, 'Hello there'],
      ['agent', 3, 'done'],
    ]);
    expect(given.live.join('')).toBe('hmHello theredone');
    const tool = given.read('agent.tool', turn).at(-1);
    expect(tool).toMatchObject({ call: 'a.txt', kind: 'edit', status: 'completed', title: 'Tool a.txt' });
    expect(tool?.locations).toEqual([{ path: '/workspace/a.txt', line: 3 }]);
    expect(JSON.parse(given.text(tool?.content ?? null))).toMatchObject({
      content: [{ type: 'diff', newText: 'new' }],
    });
    const plan: unknown = JSON.parse(given.text(given.read('agent.plan', turn)[0]?.content ?? null));
    expect(plan).toMatchObject([{ content: 'one' }, { content: 'two' }]);
    expect(given.read('agent.usage', turn)[0]).toMatchObject({
      contextUsed: 1200,
      cost: { amount: 0.5, currency: 'USD' },
    });
    expect(given.connected(turn)).toMatchObject({
      name: 'Scripted',
      version: '1.0.0',
      how: 'new',
      why: null,
    });
    expect(
      (await given.events.verify(given.events.read('ses-aaaaaaaaaaaaaaaa')[0]?.sessionId ?? '')).ok,
    ).toBe(true);
  });

  test('the process stays for the next turn, and keeps its memory', async () => {
    const given = givenConversation();
    await given.outcome(await given.prompt('say one'));
    const second = await given.prompt('count');
    await given.outcome(second);
    expect(given.said(second)).toBe('prompt 2');
    expect(given.connected(second)?.how).toBe('warm');
    expect(given.channel.started).toHaveLength(1);
  });

  test('a new sandbox: the agent resumes, loads, or gets the conversation; a replay is not stored', async () => {
    for (const [flags, how] of [
      [['--resume', '--load'], 'resumed'],
      [['--load'], 'loaded'],
      [[], 'handover'],
    ] as const) {
      const given = givenConversation({ flags });
      await given.outcome(await given.prompt('say first'));
      await given.replaceSandbox();
      const second = await given.prompt('recall');
      expect((await given.outcome(second)).status).toBe('succeeded');
      expect(given.connected(second)?.how).toBe(how);
      const said = given.said(second);
      expect(said).toContain(how === 'handover' ? 'told: THE STORY SO FAR|recall' : 'say first|recall');
      expect(said).not.toContain('replayed');
    }
  });

  test('an agent that lost its memory gets the conversation, and the event says why', async () => {
    const given = givenConversation({ flags: ['--load', '--resume'] });
    await given.outcome(await given.prompt('say first'));
    await given.replaceSandbox();
    given.withFlags('--load', '--resume', '--state', '/tmp/nowhere-at-all');
    const second = await given.prompt('say ok');
    expect((await given.outcome(second)).status).toBe('succeeded');
    expect(given.connected(second)?.how).toBe('handover');
  });

  test('the model of the session is set, and mode and model are set again after a load', async () => {
    const given = givenConversation({ flags: ['--load'], model: 'large' });
    const first = await given.prompt('model', 'mode plan');
    await given.outcome(first);
    expect(given.said(first)).toBe('large/default');
    await given.replaceSandbox();
    const second = await given.prompt('model');
    await given.outcome(second);
    expect(given.said(second)).toBe('large/plan');
    const missing = givenConversation({ model: 'gigantic' });
    const turn = await missing.prompt('model');
    await missing.outcome(turn);
    expect(missing.said(turn)).toBe('small/default');
    expect(missing.notices(turn)).toEqual(['model_unavailable']);
  });

  test('mode and model are chosen between turns, over a restart and a load, and until the agent changes them', async () => {
    const given = givenConversation({ flags: ['--load'] });
    expect(given.choices.list(SESSION)).toEqual({ known: false, settings: [] });
    expect(() => given.choices.set(SESSION, 'mode', 'plan', 'cli')).toThrow('cannot be chosen yet');
    await given.outcome(await given.prompt('say hello'));
    const offered = (id: string) => given.choices.list(SESSION).settings.find((setting) => setting.id === id);
    expect(offered('mode')).toMatchObject({ value: 'default', chosen: null, category: 'mode' });
    expect(offered('mode')?.values.map(({ value }) => value)).toContain('plan');

    expect(given.choices.set(SESSION, 'mode', 'plan', 'vscode')).toMatchObject({ chosen: 'plan' });
    expect(given.choices.set(SESSION, 'model', 'large', 'cli')).toMatchObject({ chosen: 'large' });
    // The same choice once more, while it waits, is none.
    given.choices.set(SESSION, 'mode', 'plan', 'vscode');
    expect(given.read('agent.chosen')).toEqual([
      { option: 'mode', value: 'plan', by: { kind: 'client', name: 'vscode' } },
      { option: 'model', value: 'large', by: { kind: 'client', name: 'cli' } },
    ]);
    await given.restart();
    await given.replaceSandbox();
    expect(offered('mode')).toMatchObject({ value: 'default', chosen: 'plan' });
    const second = await given.prompt('model', 'mode default');
    await given.outcome(second);
    expect(given.said(second)).toBe('large/plan');
    expect(given.connected(second)?.how).toBe('loaded');
    expect(given.read('agent.option').filter(({ by }) => by === 'person')).toMatchObject([
      { option: 'model', value: 'large' },
      { option: 'mode', value: 'plan' },
    ]);

    // The agent left the mode itself: that counts, also for the next process, until a person chooses again.
    expect(offered('mode')).toMatchObject({ value: 'default', chosen: null });
    const third = await given.prompt('model');
    await given.outcome(third);
    await given.replaceSandbox();
    const fourth = await given.prompt('model');
    await given.outcome(fourth);
    expect([given.said(third), given.said(fourth)]).toEqual(['large/default', 'large/default']);
    expect(given.choices.set(SESSION, 'mode', 'plan', 'cli')).toMatchObject({ chosen: 'plan' });
    const fifth = await given.prompt('model');
    await given.outcome(fifth);
    expect(given.connected(fifth)?.how).toBe('warm');
    expect(given.said(fifth)).toBe('large/plan');
    expect((await given.events.verify(SESSION)).ok).toBe(true);
  });

  test('a choice reaches the agent while its turn runs, over a restart too, and once', async () => {
    for (const flags of [['--load'], ['--load', '--modes']] as const) {
      const given = givenConversation({ flags });
      await given.outcome(await given.prompt('say hello'));
      const mode = () => given.choices.list(SESSION).settings.find(({ id }) => id === 'mode');
      const turn = await given.prompt('permission one', 'model', 'permission two', 'model', 'mode default');
      const allow = async () => {
        await until(() => given.waitingPermissions().length === 1);
        given.permissions.answer(given.waitingPermissions()[0]?.id ?? '', 'allow_once', 'cli', undefined);
      };
      await until(() => given.waitingPermissions().length === 1);
      given.choices.set(SESSION, 'mode', 'plan', 'cli');
      await until(() => mode()?.value === 'plan' && mode()?.chosen === null);
      await allow();
      await until(() => given.waitingPermissions()[0]?.title === 'Run two');
      expect(given.said(turn)).toContain('small/plan');

      // Chosen while no supervisor reads: the next one asks the agent.
      await given.conversations.detach();
      given.choices.set(SESSION, 'mode', 'default', 'cli');
      await given.restart();
      await given.resume(turn);
      await until(() => mode()?.value === 'default' && mode()?.chosen === null);
      given.choices.set(SESSION, 'mode', 'plan', 'cli');
      await until(() => mode()?.value === 'plan');
      await allow();
      expect(await given.outcome(turn)).toEqual({ status: 'succeeded', error: null });
      expect(given.said(turn)).toMatch(/small\/plan.*small\/plan/s);
      expect(given.notices(turn)).toEqual([]);

      // The agent has left the mode itself since: that counts, and it is loaded with it.
      const third = await given.prompt('model');
      await given.outcome(third);
      await given.replaceSandbox();
      const fourth = await given.prompt('model');
      await given.outcome(fourth);
      expect([given.said(third), given.said(fourth)]).toEqual(['small/default', 'small/default']);
      expect((await given.events.verify(SESSION)).ok).toBe(true);
    }
  });

  test('a model is chosen while a turn runs; an agent that dies before it answers is asked again', async () => {
    const given = givenConversation({ flags: ['--load'] });
    await given.outcome(await given.prompt('say hello'));
    const turn = await given.prompt('permission one', 'model', 'permission two', 'die 3');
    await until(() => given.waitingPermissions().length === 1);
    given.choices.set(SESSION, 'model', 'large', 'cli');
    await until(() => given.choices.list(SESSION).settings[0]?.value === 'large');
    given.permissions.answer(given.waitingPermissions()[0]?.id ?? '', 'allow_once', 'cli', undefined);
    await until(() => given.waitingPermissions()[0]?.title === 'Run two');
    expect(given.said(turn)).toContain('large/default');
    given.permissions.answer(given.waitingPermissions()[0]?.id ?? '', 'allow_once', 'cli', undefined);
    given.choices.set(SESSION, 'mode', 'plan', 'cli');
    expect((await given.outcome(turn)).status).toBe('failed');
    const next = await given.prompt('model');
    await given.outcome(next);
    expect(given.said(next)).toContain('large/plan');
  });

  test('an agent that begins a new conversation is set to what was chosen', async () => {
    const given = givenConversation();
    await given.outcome(await given.prompt('say hello'));
    given.choices.set(SESSION, 'mode', 'plan', 'cli');
    await given.outcome(await given.prompt('say ok'));
    await given.replaceSandbox();
    const third = await given.prompt('model');
    await given.outcome(third);
    expect(given.connected(third)?.how).toBe('handover');
    expect(given.said(third)).toContain('small/plan');
  });

  test('what the agent does not offer is refused', async () => {
    const given = givenConversation();
    await given.outcome(await given.prompt('say hello'));
    const codeOf = (option: string, value: string) => {
      try {
        given.choices.set(SESSION, option, value, 'cli');
        return 'none';
      } catch (error) {
        return HoldfastError.from(error).code;
      }
    };
    expect([codeOf('mode', 'root'), codeOf('colour', 'red'), codeOf('model', '')]).toEqual(
      Array(3).fill('not_supported'),
    );
    expect(given.read('agent.chosen')).toEqual([]);
  });

  test('a turn that has used its budget waits for a person, over a restart, and continues or stops', async () => {
    const given = givenConversation({ permissions: 'allow', budget: { tokens: 1000, cost: null } });
    const first = await given.prompt('usage 1200', 'sleep 60000', 'say never');
    await until(() => given.waitingPermissions().length === 1);
    const [question] = given.waitingPermissions();
    expect(question?.title).toBe('The turn has used 1,200 tokens of 1,000. Go on?');
    expect(question?.options.map(({ id }) => id)).toEqual(['more', 'unlimited', 'stop']);
    await given.restart();
    await given.resume(first);
    given.permissions.answer(question?.id ?? '', 'allow_once', 'cli', undefined);
    expect(await given.outcome(first)).toEqual({ status: 'succeeded', error: null });
    expect(given.read('agent.connected', first)).toHaveLength(1);

    const second = await given.prompt('recall', 'usage 2300', 'sleep 60000');
    await until(() => given.waitingPermissions().length === 1);
    expect(given.said(second)).toMatch(/never\|Go on where you stopped[^|]*\|recall/s);
    given.permissions.answer(given.waitingPermissions()[0]?.id ?? '', 'reject_once', 'cli', undefined);
    expect((await given.outcome(second)).error?.message).toBe('The turn was stopped at its budget');

    // The budget is that of a turn, and the process stays.
    const third = await given.prompt('usage 3200', 'count');
    expect((await given.outcome(third)).status).toBe('succeeded');
    expect(given.connected(third)?.how).toBe('warm');
    expect((await given.events.verify(SESSION)).ok).toBe(true);
  });

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

  test('cancel: the agent is asked first, and its waiting permissions are cancelled', async () => {
    const given = givenConversation();
    const turn = await given.prompt('say begun', 'permission make', 'sleep 60000');
    await until(() => given.waitingPermissions().length === 1);
    await given.cancel(turn);
    expect(await given.outcome(turn)).toMatchObject({ status: 'cancelled' });
    expect(given.waitingPermissions()).toEqual([]);
    expect(given.read('permission.answered', turn)[0]).toMatchObject({ option: null, by: { kind: 'turn' } });
    const next = await given.prompt('say again');
    await given.outcome(next);
    expect(given.said(next)).toBe('again');
  });

  test('a turn that is cancelled before its prompt was sent is joined after a restart, and never sends it', async () => {
    const given = givenConversation();
    const turn = await given.prompt('say something');
    await given.restart();
    expect(given.conversations.hasBegun(SESSION, turn)).toBe(true);
    await given.resume(turn, true);
    expect(await given.outcome(turn)).toMatchObject({ status: 'cancelled' });
    expect(given.conversations.hasBegun(SESSION, turn)).toBe(false);
    expect(given.channel.input).not.toContain('session/prompt');
    const next = await given.prompt('say again');
    await given.outcome(next);
    expect(given.said(next)).toBe('again');
  });

  test('a turn that is cancelled after its prompt was sent is cancelled as it is joined', async () => {
    const given = givenConversation();
    const turn = await given.prompt('say begun', 'sleep 60000');
    await until(() => given.live.length > 0);
    await given.restart();
    await given.resume(turn, true);
    expect(await given.outcome(turn)).toMatchObject({ status: 'cancelled' });
    expect(given.said(turn)).toBe('begun');
    expect(given.channel.input.match(/session\/prompt/g)).toHaveLength(1);
  });

  test('an agent that does not hear a cancel is killed, and the next prompt starts another', async () => {
    const given = givenConversation({ flags: ['--deaf', '--stubborn'] });
    const turn = await given.prompt('say begun', 'sleep 60000');
    await until(() => given.live.length > 0);
    for (
      let nth = 0;
      nth < 50 && given.conversations.outcomeOf('ses-aaaaaaaaaaaaaaaa', turn) === null;
      nth++
    ) {
      await given.cancel(turn);
      await sleep(200);
    }
    expect(await given.outcome(turn)).toMatchObject({ status: 'cancelled' });
    expect(given.said(turn)).toBe('begun');
    const next = await given.prompt('say again');
    expect((await given.outcome(next)).status).toBe('succeeded');
    expect(given.channel.started).toHaveLength(2);
  });

  test.for(['initialize', 'new', 'prompt', 'permission'])('an agent that dies at %s', async (step) => {
    const given = givenConversation({ flags: ['--die-at', step] });
    const turn = await given.prompt('say x', 'permission make');
    expect(await given.outcome(turn)).toMatchObject({
      status: 'failed',
      error: { data: { code: 'agent_failed' } },
    });
    given.withFlags();
    const next = await given.prompt('say well');
    await given.outcome(next);
    expect(given.said(next)).toBe('well');
    // Nothing of the dead ones is left.
    expect(await given.channel.list()).toHaveLength(1);
  });

  test.for([
    ['load', 'loaded'],
    ['resume', 'resumed'],
  ] as const)(
    'an agent that dies at %s: a next prompt works, from its own memory or from ours',
    async ([step, how]) => {
      const given = givenConversation({ flags: [`--${step}`] });
      await given.outcome(await given.prompt('say first'));
      await given.replaceSandbox();
      const dieAt = join(given.state, 'die-at');
      const dies = async () => {
        expect(await given.outcome(await given.prompt('say x'))).toMatchObject({
          status: 'failed',
          error: { data: { code: 'agent_failed' } },
        });
        await given.restart();
      };
      const recalled = async () => {
        const turn = await given.prompt('recall');
        expect((await given.outcome(turn)).status).toBe('succeeded');
        return [given.connected(turn)?.how, given.connected(turn)?.why, given.said(turn)];
      };
      // By accident: it still has its memory.
      writeFileSync(dieAt, step);
      await dies();
      rmSync(dieAt);
      expect(await recalled()).toEqual([how, null, 'say first|recall']);
      // Of its memory, as it would with every prompt: it is told the conversation.
      await given.replaceSandbox();
      writeFileSync(dieAt, step);
      await dies();
      await dies();
      expect(await recalled()).toEqual([
        'handover',
        'the agent ended 2 times while it loaded it',
        'told: THE STORY SO FAR|recall',
      ]);
      await given.replaceSandbox();
      rmSync(dieAt);
      expect((await recalled())[0]).toBe(how);
    },
  );

  test('turns that are cancelled while the agent loads its memory cost nothing of it', async () => {
    const given = givenConversation({ flags: ['--load'] });
    await given.outcome(await given.prompt('say first'));
    await given.replaceSandbox();
    const hold = join(given.state, 'hold-load');
    writeFileSync(hold, '');
    const cancels = async () => {
      const { length } = given.channel.started;
      const turn = await given.prompt('say x');
      await until(() => given.channel.started.length > length);
      // It has been asked to load by then.
      await sleep(500);
      await given.cancel(turn);
      expect((await given.outcome(turn)).status).toBe('cancelled');
    };
    for (let nth = 0; nth < 3; nth++) await cancels();
    const { length } = given.channel.started;
    // The last one goes on, and has loaded when the next prompt comes.
    rmSync(hold);
    await sleep(500);
    const next = await given.prompt('recall');
    expect((await given.outcome(next)).status).toBe('succeeded');
    expect(given.connected(next)).toMatchObject({ how: 'loaded', why: null });
    expect(given.said(next)).toBe('say first|recall');
    expect(given.channel.started).toHaveLength(length);
  });

  test('70 turns whose agent dies leave nothing behind', { timeout: 120_000 }, async () => {
    const given = givenConversation();
    for (let nth = 0; nth < 70; nth++) {
      const turn = await given.prompt(`stderr bye ${nth}`, 'sleep 20', 'die 7');
      expect(await given.outcome(turn)).toMatchObject({
        status: 'failed',
        error: { data: { why: expect.stringContaining('exit code 7') as string } },
      });
    }
    expect(await given.channel.list()).toEqual([]);
    expect(given.turns.getOrThrow(await given.prompt('say ok')).stderrBytes).toBe(0);
  });

  test('a process that dies between turns is replaced before the prompt', async () => {
    const given = givenConversation({ flags: ['--resume'] });
    await given.outcome(await given.prompt('say one'));
    await given.channel.kill(given.channel.started[0] ?? '', 0);
    await sleep(200);
    const turn = await given.prompt('count');
    expect((await given.outcome(turn)).status).toBe('succeeded');
    expect(given.said(turn)).toBe('prompt 2');
    expect(given.connected(turn)?.how).toBe('resumed');
  });

  test('garbage, unknown messages and wrong ids are survived and reported', async () => {
    const given = givenConversation();
    const turn = await given.prompt('garbage', 'say well', 'file x', 'terminal', 'orphan o1');
    expect((await given.outcome(turn)).status).toBe('succeeded');
    expect(given.said(turn)).toContain('wellfs -32601terminal -32601');
    expect(new Set(given.notices(turn))).toEqual(
      new Set([
        'not_json',
        'not_a_message',
        'unknown_answer',
        'bad_id',
        'bad_update',
        'other_conversation',
        'update:something_new',
        'notification:session/unheard',
        'request:fs/write_text_file',
        'request:terminal/create',
      ]),
    );
  });

  test('an agent that asks and never reads the answers is ended', async () => {
    const given = givenConversation();
    const turn = await given.prompt('say begun', 'deluge');
    expect(await given.outcome(turn)).toMatchObject({
      status: 'failed',
      error: { message: 'The agent does not read its input', data: { code: 'agent_failed' } },
    });
    expect(given.said(turn)).toBe('begun');
    expect(given.rows.countInput('ses-aaaaaaaaaaaaaaaa', 0)).toEqual({ messages: 0, bytes: 0 });
    expect(await given.channel.list()).toEqual([]);
    const next = await given.prompt('say well');
    await given.outcome(next);
    expect(given.said(next)).toBe('well');
  });

  test('messages that are too long, too deep or too wide are left out', async () => {
    const given = givenConversation();
    const turn = await given.prompt('say a', `huge ${100 * 2 ** 20}`, 'say b', 'deep', 'wide', 'say c');
    expect((await given.outcome(turn)).status).toBe('succeeded');
    expect(given.said(turn)).toBe('abc');
    expect(given.notices(turn)).toEqual(['message_skipped', 'message_skipped', 'message_skipped']);
    expect(given.read('agent.notice', turn)[0]?.text).toContain('it is too long');
  });

  test('thousands of small updates of one call are few events', async () => {
    const given = givenConversation();
    const turn = await given.prompt('tiny 3000', 'say done');
    await given.outcome(turn);
    const events = given.read('agent.tool', turn);
    expect(events.length).toBeLessThan(40);
    expect(JSON.parse(given.text(events.at(-1)?.content ?? null))).toEqual({ rawOutput: 'x'.repeat(3000) });
    expect(events.at(-1)?.status).toBe('completed');
  });

  test('an agent that says more than it may is over its limit', async () => {
    const given = givenConversation({ outputLimit: 20_000 });
    const turn = await given.prompt('chunks 20000 some words of no interest ', 'sleep 60000');
    await until(() => given.isOverLimit(turn));
    await given.cancel(turn);
    await given.outcome(turn);
    const stored = given
      .read('agent.message', turn)
      .reduce((sum, { content }) => sum + (content?.bytes ?? 0), 0);
    expect(stored).toBeLessThan(1_000_000);
  });

  test('what comes after the end belongs to no turn', async () => {
    const given = givenConversation();
    const first = await given.prompt('say one', 'late straggler', 'say two', '\nafterwards');
    await given.outcome(first);
    await sleep(600);
    const second = await given.prompt('say three');
    await given.outcome(second);
    expect(given.said(first)).toBe('onetwo');
    expect(given.said(second)).toBe('three');
  });

  test('how an agent says that it stopped is the outcome of the turn', async () => {
    const given = givenConversation();
    for (const [line, status, message] of [
      ['stop max_tokens', 'failed', 'stopped before'],
      ['stop refusal', 'failed', 'stopped before'],
      ['stop cancelled', 'cancelled', 'ended its turn'],
      ['stop something_else', 'succeeded', null],
      ['error -32603 it broke', 'failed', 'it broke'],
      ['error -32000 login', 'failed', 'login'],
    ] as const) {
      const outcome = await given.outcome(await given.prompt(line));
      expect(outcome.status).toBe(status);
      if (message !== null) expect(outcome.error?.message).toContain(message);
    }
  });

  test('an agent that is not there, or not signed in, says so', async () => {
    const given = givenConversation({ flags: ['--no-auth'] });
    const turn = await given.prompt('say x');
    expect((await given.outcome(turn)).error?.data.why).toBe('it is not signed in');
  });

  test('an agent that refused to begin is started again by the next prompt', async () => {
    const given = givenConversation({ flags: ['--no-auth'] });
    await given.outcome(await given.prompt('say x'));
    given.withFlags();
    const command = await given.prompt('say signed in');
    expect((await given.outcome(command)).status).toBe('succeeded');
    // The same command line: only the agent's own state is another.
    const same = givenConversation({ flags: ['--no-auth'] });
    for (let nth = 1; nth <= 2; nth++) {
      const turn = await same.prompt('say x');
      expect((await same.outcome(turn)).error?.data.why).toBe('it is not signed in');
      expect(same.channel.started).toHaveLength(nth);
    }
  });

  test('a process that ended between turns with a message for it on the way is replaced', async () => {
    const given = givenConversation();
    await given.outcome(await given.prompt('say one'));
    const row = given.rows.get('ses-aaaaaaaaaaaaaaaa');
    given.rows.addInput('ses-aaaaaaaaaaaaaaaa', row?.inputOffset ?? 0, Buffer.from('{}\n'));
    await given.restart();
    await given.channel.kill(given.channel.started[0] ?? '', 0);
    await sleep(300);
    const next = await given.prompt('say well');
    expect((await given.outcome(next)).status).toBe('succeeded');
    expect(given.said(next)).toBe('well');
  });

  test('an agent that only logs is read: its errors are stored and acknowledged', async () => {
    const given = givenConversation();
    const turn = await given.prompt('sleep 1500', 'stderr a log', 'sleep 60000');
    const deadline = Date.now() + 40_000;
    // A read of standard output waits for 20 s at most.
    while ((await given.channel.status(given.channel.started[0] ?? '')).stderr.start === 0) {
      expect(Date.now()).toBeLessThan(deadline);
      await sleep(200);
    }
    expect(given.turns.getOrThrow(turn).stderrBytes).toBeGreaterThan(0);
    await given.cancel(turn);
  });

  test('a message that cannot be stored is left out, and nothing else is lost', async () => {
    let failures = 0;
    const given = givenConversation({
      onSave: ({ commit }) => {
        const isPoison = commit.events.some(({ bytes }) => bytes?.includes('POISON') === true);
        if (!isPoison) return;
        failures += 1;
        throw new HoldfastError('internal', 'The database refused an operation');
      },
    });
    const turn = await given.prompt('say a', 'think POISON', 'say b', 'say c');
    expect((await given.outcome(turn)).status).toBe('succeeded');
    expect(given.said(turn)).toBe('abc');
    expect(given.notices(turn)).toEqual(['message_skipped']);
    expect(failures).toBe(2);
    const next = await given.prompt('count');
    await given.outcome(next);
    expect(given.said(next)).toBe('prompt 2');
  });

  test('on a full disk the conversation waits, and continues where it was', async () => {
    let isFull = false;
    const given = givenConversation({
      onSave: () => {
        if (isFull) throw new HoldfastError('no_space', 'The disk is full');
      },
    });
    const turn = await given.prompt('say a', 'sleep 300', 'say b', 'sleep 300', 'say c');
    await until(() => given.live.length > 0);
    isFull = true;
    await sleep(1500);
    expect(given.conversations.storeFailure('ses-aaaaaaaaaaaaaaaa')?.code).toBe('no_space');
    isFull = false;
    expect((await given.outcome(turn)).status).toBe('succeeded');
    expect(given.said(turn)).toBe('abc');
    expect(given.live.join('')).toBe('abc');
  });

  test('output that a full disk kept from being stored is not acknowledged at the end of its turn', async () => {
    let isFull = false;
    const given = givenConversation({
      onSave: () => {
        if (isFull) throw new HoldfastError('no_space', 'The disk is full');
      },
    });
    const turn = await given.prompt('say a', 'stderr b', 'sleep 300', 'say c');
    await until(() => given.live.length > 0);
    isFull = true;
    await until(() => given.conversations.outcomeOf('ses-aaaaaaaaaaaaaaaa', turn) !== null);
    await until(() => given.conversations.storeFailure('ses-aaaaaaaaaaaaaaaa') !== null);
    await given.restart();
    isFull = false;
    await given.resume(turn);
    expect((await given.outcome(turn)).status).toBe('succeeded');
    expect(given.said(turn)).toBe('ac');
    expect(given.turns.getOrThrow(turn).stderrBytes).toBe(2);
  });

  test('the end of a turn is stored with the last of what its agent said, or not at all', async () => {
    const given = givenConversation();
    const turn = await given.prompt('say a');
    await until(() => given.conversations.outcomeOf('ses-aaaaaaaaaaaaaaaa', turn) !== null);
    const failure = new HoldfastError('no_space', 'The disk is full');
    const fail = () => {
      throw failure;
    };
    for (let nth = 0; nth < 2; nth++) await expect(given.end(turn, fail)).rejects.toBe(failure);
    // The supervisor is killed, and the turn is still the one that was prompted.
    await given.restart();
    await given.resume(turn);
    expect((await given.outcome(turn)).status).toBe('succeeded');
    expect(given.said(turn)).toBe('a');
    expect(given.channel.input.match(/session\/prompt/g)).toHaveLength(1);
    let ends = 0;
    const second = await given.prompt('say b');
    await until(() => given.conversations.outcomeOf('ses-aaaaaaaaaaaaaaaa', second) !== null);
    await expect(given.end(second, fail)).rejects.toBe(failure);
    await given.end(second, () => {
      ends += 1;
    });
    expect(ends).toBe(1);
    const third = await given.prompt('count');
    await given.outcome(third);
    expect([given.said(second), given.said(third)]).toEqual(['b', 'prompt 3']);
  });

  test('lost connections to the sidecar change nothing', async () => {
    const given = givenConversation();
    const turn = await given.prompt('say a', 'sleep 200', 'say b');
    for (let nth = 0; nth < 6; nth++) {
      given.channel.failures.push(new HoldfastError('connection_closed', 'gone'));
      await sleep(60);
    }
    expect((await given.outcome(turn)).status).toBe('succeeded');
    expect(given.said(turn)).toBe('ab');
    expect(given.channel.input.match(/session\/prompt/g)).toHaveLength(1);
  });
});
