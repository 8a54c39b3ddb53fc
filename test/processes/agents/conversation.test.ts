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
});
