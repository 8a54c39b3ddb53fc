import { describe, expect, test, vi } from 'vitest';
import { decide } from '../../../supervisor/egress/decide.ts';
import type { SnapshotRow } from '../../../supervisor/store/snapshots.ts';
import { givenTools } from '../../fixtures/tools/tools.ts';
import { sessionId, turnId } from '../../fixtures/store/temporary-home.ts';

const TOOLS = [
  ...['session_info', 'snapshot_create', 'snapshot_list', 'snapshot_diff', 'memory_read', 'memory_write'],
  ...['history_search', 'egress_request'],
];
const SNAPSHOT = 'snp-aaaaaaaaaaaaaaaa';

describe('the tools of an agent', () => {
  test('are listed, in any order of messages: no message needs an earlier one', async () => {
    const { send } = givenTools();
    const listed = await send('{"jsonrpc":"2.0","id":"a","method":"tools/list"}');
    const tools = (listed?.result?.['tools'] ?? []) as {
      name: string;
      inputSchema: { properties: object };
    }[];
    expect(tools.map(({ name }) => name)).toEqual(TOOLS);
    // No tool can name a session, a rule, or a person's approval.
    const inputs = new Set(tools.flatMap(({ inputSchema }) => Object.keys(inputSchema.properties)));
    expect([...inputs].toSorted()).toEqual(
      ['from', 'host', 'ifVersion', 'label', 'limit', 'path', 'reason', 'text', 'to'].toSorted(),
    );
    const opened = await send(
      '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}',
    );
    expect(opened?.result).toMatchObject({ protocolVersion: '2025-06-18', serverInfo: { name: 'holdfast' } });
    expect(await send('{"jsonrpc":"2.0","method":"notifications/initialized"}')).toBeNull();
  });

  test('what is no message is refused', async () => {
    const { send } = givenTools();
    const deep = `${'['.repeat(9000)}${']'.repeat(9000)}`;
    for (const line of [
      'hello',
      '[]',
      '{"jsonrpc":"2.0","id":1,"result":{}}',
      '{"jsonrpc":"2.0","id":{},"method":"ping"}',
      '{"jsonrpc":"2.0","id":1.5,"method":"ping"}',
      '{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}',
      '{"jsonrpc":"2.0","id":1,"method":"ping","error":{}}',
      `{"jsonrpc":"2.0","id":1,"method":"ping","params":${deep}}`,
    ])
      expect(await send(line)).toMatchObject({ id: null, error: { code: -32_600 } });
  });

  test('the memory is marked as written by the agent, and earlier versions stay', async () => {
    const { call, sessionMemory } = givenTools();
    const session = sessionId(0);
    sessionMemory.set(session, { text: 'use tabs', author: 'person' });
    expect((await call('memory_read')).text).toContain('"author":"person"');
    expect(await call('memory_write', { text: 'use spaces', ifVersion: 0 })).toMatchObject({ failed: true });
    expect((await call('memory_write', { text: 'use spaces', ifVersion: 1 })).failed).toBe(false);
    expect(sessionMemory.history(session, {}).versions.map(({ author }) => author)).toEqual([
      'agent',
      'person',
    ]);
    expect(sessionMemory.show(session, 1)?.text).toBe('use tabs');
    expect(await call('memory_write', { text: 'x'.repeat(8193) })).toMatchObject({ failed: true });
    expect(sessionMemory.show(session)?.version).toBe(2);
  });

  test('are those of the session from whose sandbox the call comes, whatever it says', async () => {
    const { call, sessionMemory } = givenTools();
    sessionMemory.set(sessionId(0), { text: 'secret of zero', author: 'person' });
    expect((await call('memory_read', {}, 1)).text).not.toContain('secret');
    const told = await call('memory_write', { text: 'mine', session: sessionId(0) }, 1);
    expect(told).toMatchObject({ failed: true, text: expect.stringContaining('session') as string });
    expect(sessionMemory.show(sessionId(0))?.version).toBe(1);
    expect((await call('history_search', { text: 'secret' }, 1)).text).toBe('{"results":[]}');
    expect((await call('session_info', {}, 1)).text).toContain(sessionId(1));
  });

  test('compare snapshots of the session only: not those of a fork that shares its store', async () => {
    const diff = vi.fn();
    const { call } = givenTools({
      snapshots: {
        snapshotService: {
          // A fake: the real one finds every snapshot of the lineage.
          find: () => ({ id: SNAPSHOT, sessionId: sessionId(1) }) as SnapshotRow,
          findSession: vi.fn(),
          list: vi.fn(),
          view: vi.fn(),
        },
        comparisons: { diff },
      },
    });
    expect(await call('snapshot_diff', { from: SNAPSHOT })).toMatchObject({
      failed: true,
      text: expect.stringContaining('There is no snapshot') as string,
    });
    expect(diff).not.toHaveBeenCalled();
  });

  test('are answered as often as their rate says, and again later', async () => {
    const { call, clock } = givenTools();
    const write = (nth: number) => call('memory_write', { text: `number ${nth}` });
    for (let nth = 0; nth < 10; nth++) expect((await write(nth)).failed).toBe(false);
    expect(await write(10)).toMatchObject({ failed: true, text: expect.stringContaining('30 s') as string });
    // Another session has its own, and a new sandbox of this one does not start at zero.
    expect((await call('memory_write', { text: 'x' }, 1)).failed).toBe(false);
    clock.pass(30_000);
    expect((await write(11)).failed).toBe(false);
    expect((await write(12)).failed).toBe(true);
  });
});

test('messages of any kind have a rate, for each session', async () => {
  const { send, clock, limits } = givenTools();
  const noted = '{"jsonrpc":"2.0","method":"notifications/initialized"}';
  const ping = '{"jsonrpc":"2.0","id":7,"method":"ping"}';
  for (let nth = 0; nth < limits.messages.burst; nth += 1) expect(await send(noted)).toBeNull();
  const [refused, dropped, ofOther] = await Promise.all([send(ping), send(noted), send(ping, 1)]);
  expect(refused).toMatchObject({ id: 7, error: { message: expect.stringContaining('Too many') as string } });
  expect(dropped).toBeNull();
  expect(ofOther).toMatchObject({ id: 7, result: {} });
  clock.pass(limits.messages.everyMs);
  expect(await send(ping)).toMatchObject({ id: 7, result: {} });
});

test('no answer is longer than a bound, also those that no tool gave', async () => {
  const { agentTools, limits } = givenTools();
  const input = Object.fromEntries(Array.from({ length: 7900 }, (_, nth) => [nth.toString(36), 0]));
  const params = { name: 'memory_read', arguments: input };
  const line = Buffer.from(JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params }));
  expect(line.length).toBeLessThan(limits.messageBytes);
  const answer = await agentTools.answer(sessionId(0), line, new AbortController().signal);
  expect(answer?.length).toBeLessThan(1000);
  expect(JSON.parse(answer ?? '')).toMatchObject({
    id: 1,
    error: { message: expect.stringContaining('the answer has more than') as string },
  });
});

describe('a host that an agent asks for', () => {
  const wanted = { host: 'API.example.com', reason: 'to fetch\n\u202edata' };
  const isAllowed = ({ policies }: ReturnType<typeof givenTools>, host = 'api.example.com') =>
    decide(policies.rulesOf(sessionId(0)), host, 443).allowed;
  const asked = async (tools: ReturnType<typeof givenTools>, many = 1) => {
    await vi.waitFor(() => expect(tools.waiting().permissions).toHaveLength(many));
    return tools.waiting().permissions[many - 1]?.id ?? '';
  };

  test('opens when a person allows it, and the call continues', async () => {
    const tools = givenTools();
    const call = tools.call('egress_request', wanted);
    const id = await asked(tools);
    expect(tools.waiting().permissions[0]).toMatchObject({
      kind: 'fetch',
      turnId: turnId(0),
      title: 'Open the network to api.example.com. The agent says: to fetch data',
    });
    expect(isAllowed(tools)).toBe(false);
    tools.permissions.answer(id, 'allow_always', 'cli', undefined);
    expect(await call).toMatchObject({
      failed: false,
      text: expect.stringContaining('this session') as string,
    });
    expect(isAllowed(tools)).toBe(true);
    expect(isAllowed(tools, 'other.example.com')).toBe(false);
    expect((await tools.call('egress_request', wanted)).text).toContain('allowed already');
    const changed = tools.events.read(sessionId(0), { limit: 100, type: 'policy.changed' });
    expect(changed.map(({ data }) => data)).toEqual([
      { action: 'allow', host: 'api.example.com', scope: 'session' },
    ]);
  });

  test('stays closed when a person rejects it, and is not asked for again in the turn', async () => {
    const tools = givenTools();
    const call = tools.call('egress_request', wanted);
    tools.permissions.answer(await asked(tools), 'reject_once', 'cli', undefined);
    expect(await call).toMatchObject({ failed: true, text: expect.stringContaining('rejected') as string });
    expect((await tools.call('egress_request', wanted)).failed).toBe(true);
    expect(tools.waiting().permissions).toEqual([]);
    expect(isAllowed(tools)).toBe(false);
  });

  test('is asked once, however often it is called, and the answer reaches every call', async () => {
    const tools = givenTools();
    const calls = [tools.call('egress_request', wanted), tools.call('egress_request', wanted)];
    const id = await asked(tools);
    tools.permissions.answer(id, 'allow_once', 'cli', undefined);
    for (const call of calls) expect((await call).text).toContain('the next connection');
    expect(tools.permissionRows.listHosts(turnId(0))).toHaveLength(1);
  });

  test('a question ends with its turn, and cannot be answered afterwards', async () => {
    const tools = givenTools();
    const call = tools.call('egress_request', wanted);
    const id = await asked(tools);
    tools.permissions.closeOf(turnId(0));
    expect(await call).toMatchObject({ failed: true });
    expect(() => tools.permissions.answer(id, 'allow_always', 'cli', undefined)).toThrow(/answered before/);
    expect(isAllowed(tools)).toBe(false);
  });

  test('belongs to a turn: without one nobody is asked', async () => {
    const tools = givenTools();
    expect(await tools.call('egress_request', wanted, 1)).toMatchObject({
      failed: true,
      text: expect.stringContaining('no turn runs') as string,
    });
    expect(tools.waiting().permissions).toEqual([]);
  });

  test('is one host, in plain words', async () => {
    const tools = givenTools();
    const local = [
      'localhost',
      '127.0.0.1',
      'host.holdfast.internal',
      '0.0.0.0:8080',
      `${'a'.repeat(60)}.${'b'.repeat(60)}.example`,
      '0.1.2.3',
      '[::]:8080',
    ];
    for (const host of ['*.example.com', '*', 'http://example.com/', 'a b', ...local])
      expect((await tools.call('egress_request', { host, reason: 'x' })).failed).toBe(true);
    expect(tools.waiting().permissions).toEqual([]);
  });

  test('that a person denied is not asked for', async () => {
    const tools = givenTools();
    tools.policies.setRule(sessionId(0), 'deny', 'api.example.com', 'session');
    expect((await tools.call('egress_request', wanted)).text).toContain('a rule denies it');
    expect(tools.waiting().permissions).toEqual([]);
  });

  test('a port of the own machine is named as such', async () => {
    const tools = givenTools();
    void tools.call('egress_request', { host: 'host.holdfast.internal:8080', reason: 'x' });
    await asked(tools);
    expect(tools.waiting().permissions[0]?.title).toContain('a port of your own machine');
    tools.permissions.closeOf(turnId(0));
  });

  test('an address that is not public is named as such', async () => {
    const tools = givenTools();
    const hosts = ['10.1.2.3:5432', '172.17.0.1:5432', '169.254.169.254:80', '[fd00::1]:22'];
    const calls = hosts.map((host) => tools.call('egress_request', { host, reason: 'a public service' }));
    await asked(tools, 4);
    expect(tools.waiting().permissions.map(({ title }) => title)).toEqual(
      hosts.map(
        (host) =>
          `Open the network to ${host}, an address of your own machine or network. The agent says: a public service`,
      ),
    );
    tools.permissions.closeOf(turnId(0));
    await Promise.all(calls);
  });

  test('four questions wait at a time', async () => {
    const tools = givenTools();
    const calls = [0, 1, 2, 3].map((nth) =>
      tools.call('egress_request', { host: `h${nth}.example.com`, reason: 'x' }),
    );
    await asked(tools, 4);
    expect((await tools.call('egress_request', { host: 'h4.example.com', reason: 'x' })).failed).toBe(true);
    expect(tools.waiting().permissions).toHaveLength(4);
    tools.permissions.closeOf(turnId(0));
    await Promise.all(calls);
  });
});
