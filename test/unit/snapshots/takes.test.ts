import { readdirSync } from 'node:fs';
import { expect, onTestFinished, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { OBJECT_KINDS, parseHash } from '../../../protocol/snapshots/objects.ts';
import type { Engine, SideState } from '../../../supervisor/engine/port.ts';
import { EventLog } from '../../../supervisor/history/events.ts';
import { randomIds } from '../../../supervisor/sessions/ids.ts';
import { Lanes } from '../../../supervisor/sessions/lanes.ts';
import { SessionRecords } from '../../../supervisor/sessions/records.ts';
import { Freezing } from '../../../supervisor/snapshots/freezing.ts';
import { SnapshotService } from '../../../supervisor/snapshots/service.ts';
import { LineageStores } from '../../../supervisor/snapshots/store/stores.ts';
import { type TakeRequest, type Taken, Takes } from '../../../supervisor/snapshots/takes.ts';
import { Freezes } from '../../../supervisor/store/freezes.ts';
import { Operations } from '../../../supervisor/store/operations.ts';
import { Reserve } from '../../../supervisor/store/reserve.ts';
import { type SessionRow, Sessions } from '../../../supervisor/store/sessions.ts';
import { Snapshots } from '../../../supervisor/store/snapshots.ts';
import { errorOf, sessionId, sessionRow, temporaryDatabase, temporaryHome } from '../store/temporary-home.ts';
import { blobOf, objectsOf } from './small-tree.ts';
import { send, type SidecarPeer, TestSidecar } from './test-sidecar.ts';

const SESSION = sessionId(0);
const OTHER = sessionId(1);

/** An agent's container that can be frozen. A fake: it notes what it was asked. */
class TestAgent {
  state: SideState | null = 'running';
  readonly asked: string[] = [];
  failsToThaw = false;
  /** How many watch over it. */
  guards = 0;

  readonly engine = {
    capabilities: () => ({ pause: 'freezer', execAttach: true, localPaths: true, runtimes: [] }),
    observeSession: (id: string) =>
      Promise.resolve({
        sessionId: id,
        sidecar: null,
        agent:
          this.state === null
            ? null
            : {
                objectId: 'a',
                state: this.state,
                generation: 1,
                specHash: '',
                exitCode: null,
                oomKilled: false,
              },
      }),
    guardPause: () => {
      this.guards += 1;
      return { release: () => (this.guards -= 1) };
    },
    pause: () => {
      if (this.guards === 0) throw new Error('nobody would thaw it');
      this.asked.push('pause');
      this.state = 'paused';
      return Promise.resolve();
    },
    unpause: () => {
      if (this.failsToThaw)
        return Promise.reject(new HoldfastError('engine_unavailable', 'The engine does not answer'));
      this.asked.push('unpause');
      this.state = 'running';
      return Promise.resolve();
    },
  } as unknown as Engine;
}

function room() {
  const home = temporaryHome();
  const database = temporaryDatabase(home);
  const sessions = new Sessions(database);
  for (const n of [0, 1]) sessions.insert(sessionRow(n, { status: 'idle', generation: 1 }));
  const snapshots = new Snapshots(database);
  const events = new EventLog(database);
  const operations = new Operations(database);
  const stores = new LineageStores(home);
  const [sidecar, other] = [new TestSidecar(), new TestSidecar()];
  const agent = new TestAgent();
  const freezes = new Freezes(database);
  const logged: string[] = [];
  const log = { warn: (what: string) => logged.push(what) } as never;
  const freezing = new Freezing({
    engine: agent.engine,
    observations: { forget: () => undefined },
    freezes,
    log,
  });
  const takes = new Takes({
    home,
    database,
    snapshots,
    stores,
    records: new SessionRecords(database, sessions, events, Date.now),
    events,
    operations,
    freezing,
    lanes: new Lanes(),
    ids: randomIds,
    access: {
      ensure: () => Promise.resolve(),
      hold: () => () => undefined,
      dial: (id) => (id === SESSION ? sidecar : other).dial(id),
    },
    scanned: () => undefined,
    limitOf: () => null,
    now: Date.now,
  });
  const service = new SnapshotService({
    database,
    sessions,
    snapshots,
    stores,
    events,
    operations,
    takes,
    reserve: new Reserve(home),
    log,
    now: Date.now,
  });
  onTestFinished(() => service.close());
  return {
    home,
    sessions,
    snapshots,
    events,
    stores,
    freezes,
    freezing,
    agent,
    takes,
    service,
    sidecar,
    other,
    log,
    take: async (request: Partial<TakeRequest> = {}, id = SESSION): Promise<Taken> => {
      const taken = await takes.take(id, { reason: 'manual', ...request });
      if (taken === null) throw new Error('there is none');
      return taken;
    },
    session: (id = SESSION): SessionRow => service.session(id),
    told: (type: string) => events.read(SESSION, { type }).map(({ data }) => data),
    published: () => stores.use(SESSION, (store) => Promise.resolve(store.packs.length)),
  };
}

test('a snapshot is a row, an event and objects that can be read; what did not change is not sent again', async () => {
  const { sidecar, take, told, stores, snapshots } = room();
  sidecar.tree = { a: 'one', b: 'two' };
  const first = await take({ label: 'begun' });
  expect(first.created).toBe(true);
  sidecar.tree = { a: 'one', b: 'changed' };
  const second = await take({ reason: 'before-turn' });
  expect(second.row).toMatchObject({
    sessionId: SESSION,
    base: first.row.id,
    reason: 'before-turn',
    changedFiles: 3,
    frozenMs: 0,
    eventSeq: 1,
    label: null,
  });
  expect(second.row.newBytes).toBeGreaterThan(0);
  expect(sidecar.scans.map(({ base }) => base)).toEqual([null, first.row.root]);
  expect(told('snapshot.created')).toMatchObject([
    { snapshotId: first.row.id, label: 'begun', root: first.row.root },
    { snapshotId: second.row.id, reason: 'before-turn' },
  ]);
  await stores.use(SESSION, async (store) => {
    for (const text of ['one', 'two', 'changed'])
      expect((await store.read(blobOf(text), OBJECT_KINDS.blob)).toString()).toBe(text);
  });
  expect(snapshots.ofLineage(SESSION).length).toBe(2);
});

test('the next snapshot goes over the same connection, on which nothing is asked of the store in between', async () => {
  const { sidecar, take } = room();
  await take();
  const { peer } = sidecar;
  const asked = peer?.callWithBytes('store/have', { hashes: 1 }, { bytes: Buffer.alloc(32) });
  expect((await errorOf(asked ?? Promise.resolve())).code).toBe('invalid_request');
  // What its scans know it may leave when it is asked for that, not in between and not during a scan.
  const leave = (mine = peer): Promise<unknown> =>
    mine?.call('cache/put', { offset: 0 }, { bytes: Buffer.alloc(10) }) ?? Promise.resolve();
  expect((await errorOf(leave())).code).toBe('invalid_request');
  sidecar.onScan = async (_params, mine) => {
    expect((await errorOf(leave(mine))).code).toBe('invalid_request');
    return undefined;
  };
  sidecar.tree = { a: 'one' };
  expect((await take()).created).toBe(true);
  expect(sidecar.peer).toBe(peer);
});

test('where its sidecar went meanwhile the connection is made anew, also when that is found out by asking', async () => {
  const { sidecar, take } = room();
  await take();
  sidecar.peer?.close();
  sidecar.tree = { a: 'one' };
  expect((await take()).created).toBe(true);

  const { peer } = sidecar;
  sidecar.tree = { a: 'two' };
  sidecar.onScan = (_params, mine) => {
    if (mine === peer) mine.close();
    return Promise.resolve(undefined);
  };
  expect((await take()).created).toBe(true);
  expect(sidecar.peer).not.toBe(peer);

  // In the middle of an answer nobody knows what was done.
  sidecar.tree = { a: 'three' };
  sidecar.onScan = async (_params, mine) => {
    await mine.callWithBytes('store/have', { hashes: 1 }, { bytes: Buffer.alloc(32) });
    mine.close();
    return undefined;
  };
  expect((await errorOf(take())).code).toBe('connection_closed');
});

test('where nothing has changed the newest one is the answer; what a person asks for stays theirs', async () => {
  const { sidecar, take, told } = room();
  sidecar.tree = { a: 'one' };
  const before = await take({ reason: 'before-turn' });
  const again = await take({ reason: 'before-turn' });
  expect(again).toEqual({ row: before.row, created: false });
  const mine = await take({ pinned: true });
  expect(mine).toEqual({ row: { ...before.row, reason: 'manual', pinned: true }, created: false });
  expect((await take({ reason: 'before-turn' })).row.reason).toBe('manual');
  const named = await take({ label: 'named' });
  expect([named.created, named.row.root, named.row.newBytes]).toEqual([true, before.row.root, 0]);
  expect(told('snapshot.created').length).toBe(2);
});

test('a turn that ended since is a change to a person who takes one, and none to what is taken before turns', async () => {
  const { sidecar, take, events } = room();
  sidecar.tree = { a: 'one' };
  const first = await take();
  events.append(SESSION, [{ type: 'turn.ended', data: { turnId: 'turn-aaaaaaaaaaaaaaaa' } as never }]);
  expect(await take({ reason: 'before-turn' })).toEqual({ row: first.row, created: false });
  const second = await take();
  expect([second.created, second.row.root, second.row.eventSeq]).toEqual([true, first.row.root, 2]);
  expect((await take()).created).toBe(false);
});

test('asked twice with one opId there is one, and both get the first answer', async () => {
  const { sidecar, take, snapshots } = room();
  sidecar.tree = { a: 'one' };
  const [first, second] = await Promise.all([
    take({ opId: 'op-1', label: 'x' }),
    take({ opId: 'op-1', label: 'x' }),
  ]);
  sidecar.tree = { a: 'two' };
  expect(second).toEqual(first);
  expect(await take({ opId: 'op-1', label: 'x' })).toEqual(first);
  expect(snapshots.count(SESSION)).toBe(1);
});

test('a tree that moves is looked at once more while the agent stands still, with the intent on the disk', async () => {
  const { sidecar, take, agent, freezes } = room();
  sidecar.tree = { a: 'one' };
  const during: unknown[] = [];
  sidecar.onScan = ({ frozen, budgetBytes }) => {
    during.push([frozen, budgetBytes !== null, agent.state, freezes.all()]);
    return Promise.resolve({ moved: !frozen });
  };
  const { row } = await take();
  expect(during).toEqual([
    [false, false, 'running', []],
    [true, true, 'paused', [SESSION]],
  ]);
  expect([agent.asked, agent.state, freezes.all()]).toEqual([['pause', 'unpause'], 'running', []]);
  expect(agent.guards).toBe(0);
  expect(row.frozenMs).toBeGreaterThan(0);
});

test('what is too much to read at a stand is read while the agent runs, then it is frozen again', async () => {
  const { sidecar, take, agent } = room();
  sidecar.tree = { a: 'one' };
  const budgets: (number | null)[] = [];
  sidecar.onScan = ({ frozen, budgetBytes }) => {
    budgets.push(budgetBytes);
    return Promise.resolve({ moved: !frozen, complete: !frozen || agent.asked.length > 2 });
  };
  await take();
  expect(agent.asked).toEqual(['pause', 'unpause', 'pause', 'unpause']);
  expect(budgets).toEqual([null, expect.any(Number), null, expect.any(Number)]);
  sidecar.tree = { a: 'faster than it can be read' };
  sidecar.onScan = ({ frozen }) => Promise.resolve({ moved: true, complete: !frozen });
  expect((await errorOf(take())).code).toBe('conflict');
  expect(agent.state).toBe('running');
});

test('a scan that fails at a stand thaws; a thaw that fails is made up for at the next look, also by the next supervisor', async () => {
  const { sidecar, take, agent, freezes, freezing, log } = room();
  sidecar.tree = { a: 'one' };
  sidecar.onScan = ({ frozen }) =>
    frozen
      ? Promise.reject(new HoldfastError('file_unavailable', 'Broken on purpose'))
      : Promise.resolve({ moved: true });
  expect((await errorOf(take())).code).toBe('file_unavailable');
  expect([agent.state, freezes.all()]).toEqual(['running', []]);
  agent.failsToThaw = true;
  expect((await errorOf(take())).code).toBe('file_unavailable');
  expect([agent.state, freezes.all()]).toEqual(['paused', [SESSION]]);
  agent.failsToThaw = false;
  const next = new Freezing({
    engine: agent.engine,
    observations: { forget: () => undefined },
    freezes,
    log,
  });
  await next.thawLeft(OTHER);
  expect(agent.state).toBe('paused');
  await next.thawLeft(SESSION);
  expect([agent.state, freezes.all()]).toEqual(['running', []]);
  await freezing.thawLeft(SESSION);
  expect(agent.asked.filter((what) => what === 'unpause').length).toBe(2);
});

test('an agent that a person has paused is not thawed, and one that is gone not looked for', async () => {
  const { sidecar, take, agent } = room();
  sidecar.onScan = ({ frozen }) => Promise.resolve({ moved: sidecar.scans.length < 2 && !frozen });
  agent.state = 'paused';
  sidecar.tree = { a: 'one' };
  expect((await take()).row.frozenMs).toBe(0);
  expect(sidecar.scans.map(({ frozen }) => frozen)).toEqual([false, true]);
  agent.state = null;
  sidecar.scans.length = 0;
  sidecar.tree = { a: 'two' };
  expect((await take()).row.frozenMs).toBe(0);
  expect(sidecar.scans.map(({ frozen }) => frozen)).toEqual([false, false]);
  expect([agent.asked, agent.state]).toEqual([[], null]);
});

test('one that cannot be taken is an event, and what it was for goes on', async () => {
  const { sidecar, service, session, told, published } = room();
  sidecar.tree = { a: 'one' };
  sidecar.onScan = () => Promise.reject(new HoldfastError('file_unavailable', 'Broken on purpose'));
  await service.beforeTurn(session(), new AbortController().signal);
  expect(told('snapshot.failed')).toMatchObject([{ reason: 'before-turn', code: 'file_unavailable' }]);
  expect(await published()).toBe(0);
  const aborted = new AbortController();
  sidecar.onScan = () => new Promise(() => undefined);
  const waiting = service.beforeTurn(session(), aborted.signal);
  await expect.poll(() => sidecar.scans.length).toBe(2);
  aborted.abort();
  await waiting;
  expect(told('snapshot.failed').length).toBe(1);
  sidecar.onScan = () => Promise.resolve(undefined);
  await service.beforeTurn(session(), new AbortController().signal);
  expect(told('snapshot.created').length).toBe(1);
});

test('a base that cannot be read does not keep the next snapshot from being taken', async () => {
  const { sidecar, take } = room();
  sidecar.tree = { a: 'one' };
  await take();
  sidecar.tree = { a: 'two' };
  sidecar.onScan = ({ base }) =>
    base === null
      ? Promise.resolve(undefined)
      : Promise.reject(new HoldfastError('snapshot_damaged', 'A snapshot cannot be read'));
  expect((await take()).created).toBe(true);
  expect(sidecar.scans.slice(1).map(({ base }) => base)).toEqual([expect.any(String), null]);
});

test('after damage was found the sidecar is asked for everything once, and what it sends is kept though the tree is the same', async () => {
  const { sidecar, take, stores } = room();
  sidecar.tree = { a: 'one', b: 'two' };
  const { row } = await take();
  await stores.use(row.lineage, (store) => store.doubt(store.packs.map(({ name }) => name)));
  const again = await take();
  expect([again.created, again.row.id]).toEqual([false, row.id]);
  await take();
  expect(sidecar.scans.map(({ doubts }) => doubts)).toEqual([false, true, false]);
  await stores.use(row.lineage, async (store) => {
    expect(store.packs).toHaveLength(2);
    for (const [hex] of objectsOf(sidecar.tree).objects.bodies)
      expect(store.hasSound(parseHash(hex)), hex).toBe(true);
    // More damage is told of again.
    await store.doubt(store.packs.map(({ name }) => name));
  });
  await take();
  expect(sidecar.scans.at(-1)?.doubts).toBe(true);
});

const ONE = objectsOf({ secret: 'of another lineage' });

test.each([
  [
    'asks for an object of another lineage',
    async (peer: SidecarPeer) => {
      const bytes = blobOf('of another lineage');
      const { bytes: bits } = await peer.callWithBytes('store/have', { hashes: 1 }, { bytes });
      expect([...bits]).toEqual([0]);
      await peer.callWithBytes('store/read', { hashes: 1 }, { bytes });
    },
    'snapshot_damaged',
  ],
  ['names a tree of another lineage as its own', () => Promise.resolve({ root: ONE.root }), 'invalid_params'],
  ['names a tree that it never sent', () => Promise.resolve({ root: 'ab'.repeat(32) }), 'invalid_params'],
  [
    'sends a tree without what is in it',
    async (peer: SidecarPeer) => {
      const { objects, root } = objectsOf({ a: 'kept back' });
      objects.bodies.delete(blobOf('kept back').toString('hex'));
      await send(peer, 7, objects);
      return { root };
    },
    'invalid_params',
  ],
  [
    'says more hashes than it sends',
    (peer: SidecarPeer) => peer.callWithBytes('store/read', { hashes: 3 }, { bytes: blobOf('x') }),
    'invalid_params',
  ],
  [
    'goes away in the middle',
    (peer: SidecarPeer) => {
      peer.close();
      return Promise.resolve();
    },
    'connection_closed',
  ],
  ['answers with what is no answer', () => Promise.resolve({ root: '../../..' }), 'protocol_error'],
] as const)('a sidecar that %s gets nothing, stores nothing and hurts nobody', async (_what, act, code) => {
  const { sidecar, other, take, snapshots, stores, home } = room();
  other.tree = { secret: 'of another lineage' };
  const theirs = await take({}, OTHER);
  sidecar.tree = { mine: 'before' };
  const mine = await take();
  sidecar.tree = { mine: 'after' };
  sidecar.onScan = async (_params, peer) => (await act(peer)) as never;
  const error = await errorOf(take());
  expect([error.code, error.message]).toEqual([code, expect.any(String)]);
  expect(snapshots.ofLineage(SESSION)).toEqual([mine.row]);
  expect(snapshots.ofLineage(OTHER)).toEqual([theirs.row]);
  expect(readdirSync(`${home.lineage(SESSION)}/incoming`)).toEqual([]);
  await stores.use(OTHER, async (store) => {
    expect((await store.read(blobOf('of another lineage'), OBJECT_KINDS.blob)).length).toBe(18);
  });
  await stores.use(SESSION, async (store) => {
    expect((await store.read(blobOf('before'), OBJECT_KINDS.blob)).toString()).toBe('before');
    expect(store.packs.length).toBe(1);
  });
});

test('outside of a call of ours the store is closed to a sidecar', async () => {
  const { sidecar, take } = room();
  sidecar.tree = { mine: 'before' };
  let early: SidecarPeer | null = null;
  sidecar.onScan = (_params, peer) => {
    early = peer;
    return Promise.resolve(undefined);
  };
  await take();
  const { peer } = sidecar;
  expect(peer).toBe(early);
  const refused = await errorOf(
    peer?.call('store/put', { pack: 0, offset: 0 }, { bytes: Buffer.from('x') }) ?? Promise.resolve(),
  );
  expect(['connection_closed', 'invalid_request']).toContain(refused.code);
});

test('ids of snapshots are good for their own lineage only, and forged ones for nothing', async () => {
  const { sidecar, other, take, service } = room();
  sidecar.tree = { a: 'one' };
  other.tree = { a: 'one' };
  const { row } = await take();
  expect(service.find(row.id, SESSION)).toEqual(row);
  expect(() => service.find(row.id, OTHER)).toThrow(/no snapshot/);
  expect(() => service.find('snp-aaaaaaaaaaaaaaaa')).toThrow(/no snapshot/);
});

test('deleting: asks first, spares what a fork began with, and with the last one the store goes', async () => {
  const { sidecar, take, service, sessions, stores, told } = room();
  sidecar.tree = { a: 'one' };
  const { row: base } = await take();
  sidecar.tree = { a: 'two' };
  const { row: last } = await take();
  expect(() => service.delete(base.id, undefined, false)).toThrow(
    expect.objectContaining({ code: 'confirmation_required' }) as Error,
  );
  sessions.insert(sessionRow(2, { status: 'idle', lineage: SESSION, origin: base.id }));
  expect(() => service.delete(base.id, undefined, true)).toThrow(
    expect.objectContaining({ code: 'conflict' }) as Error,
  );
  service.delete(last.id, SESSION, true, 'op-d');
  service.delete(last.id, SESSION, true, 'op-d');
  expect(await stores.lineages()).toEqual([SESSION]);
  sessions.update(sessionId(2), { status: 'deleted' });
  service.delete(base.id, SESSION, true);
  await expect.poll(() => stores.lineages()).toEqual([]);
  expect(told('snapshot.deleted')).toMatchObject([{ snapshotId: last.id }, { snapshotId: base.id }]);
});

test('of a deleted session the last one, named ones and pinned ones stay, for a week', async () => {
  const { sidecar, take, service, session, sessions, snapshots, stores } = room();
  const made: string[] = [];
  for (const [n, request] of [
    { reason: 'before-turn' as const },
    { reason: 'manual' as const, label: 'mine' },
    { reason: 'before-turn' as const, pinned: true },
    { reason: 'before-turn' as const },
    { reason: 'before-delete' as const },
  ].entries()) {
    sidecar.tree = { a: `${n}` };
    made.push((await take(request)).row.id);
  }
  service.forgetSession(session());
  expect(snapshots.ofSession(SESSION).map(({ id }) => id)).toEqual([made[1], made[2], made[4]]);
  sessions.update(SESSION, { status: 'deleted', deletedAt: Date.now() - 6 * 86_400_000 });
  await service.start();
  expect(snapshots.count(SESSION)).toBe(3);
  expect(service.list(service.session(SESSION), {}).snapshots).toHaveLength(3);
  sessions.update(SESSION, { deletedAt: Date.now() - 8 * 86_400_000 });
  await service.start();
  expect(snapshots.count(SESSION)).toBe(0);
  await expect.poll(() => stores.lineages()).toEqual([]);
});

test('the tree as it is now can be read while it is looked at, and is no snapshot', async () => {
  const { sidecar, takes, snapshots } = room();
  sidecar.tree = { a: 'only now' };
  const text = await takes.now(SESSION, async (store, { root }) => {
    expect(root).toBe(objectsOf({ a: 'only now' }).root);
    return (await store.read(blobOf('only now'), OBJECT_KINDS.blob)).toString();
  });
  expect([text, snapshots.count(SESSION)]).toEqual(['only now', 0]);
});
