import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { givenConversation } from '../../fixtures/agents/conversation.ts';
import { sessionId } from '../../fixtures/store/temporary-home.ts';
import { waitUntil } from '../../fixtures/sidecar/turns.ts';

const SESSION = sessionId(0);
const until = (holds: () => boolean): Promise<void> => waitUntil('what the test waits for', holds);

describe('a conversation with an agent', { timeout: 60_000 }, () => {
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
});
