import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { givenConversation } from '../../fixtures/agents/conversation.ts';
import { waitUntil } from '../../fixtures/sidecar/turns.ts';

const until = (holds: () => boolean): Promise<void> => waitUntil('what the test waits for', holds);

describe('a conversation with an agent', { timeout: 60_000 }, () => {
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
