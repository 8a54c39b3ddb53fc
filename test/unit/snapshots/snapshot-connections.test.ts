import { readdirSync } from 'node:fs';
import { expect, test } from 'vitest';
import { OBJECT_KINDS } from '../../../snapshot-format/objects.ts';
import { rejectedError } from '../../fixtures/store/temporary-home.ts';
import { blobOf, objectsOf } from '../../fixtures/snapshots/small-tree.ts';
import { sendPack, type SidecarPeer } from '../../fixtures/snapshots/fake-sidecar.ts';
import { OTHER, snapshotFixture, SESSION } from '../../fixtures/snapshots/snapshot-fixture.ts';

test('the next snapshot reuses the connection, which cannot access the store in between', async () => {
  const { sidecar, take } = snapshotFixture();
  await take();
  const { peer } = sidecar;
  const asked = peer?.callWithBytes('store/have', { hashes: 1 }, { bytes: Buffer.alloc(32) });
  expect((await rejectedError(asked ?? Promise.resolve())).code).toBe('invalid_request');
  // What its scans know it may leave when it is asked for that, not in between and not during a scan.
  const leave = (mine = peer): Promise<unknown> =>
    mine?.call('cache/put', { offset: 0 }, { bytes: Buffer.alloc(10) }) ?? Promise.resolve();
  expect((await rejectedError(leave())).code).toBe('invalid_request');
  sidecar.onScan = async (_params, mine) => {
    expect((await rejectedError(leave(mine))).code).toBe('invalid_request');
    return undefined;
  };
  sidecar.tree = { a: 'one' };
  expect((await take()).created).toBe(true);
  expect(sidecar.peer).toBe(peer);
});

test('after the sidecar has exited a new connection is opened, also if the exit is noticed only by a call', async () => {
  const { sidecar, take } = snapshotFixture();
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
  expect((await rejectedError(take())).code).toBe('connection_closed');
});

const ONE = objectsOf({ secret: 'of another lineage' });

test('a restore that is cancelled ends when the sidecar has answered: until then files may change', async () => {
  const { sidecar, stores, snapshotCreation } = snapshotFixture();
  const controller = new AbortController();
  const begun = Promise.withResolvers<undefined>();
  const end = Promise.withResolvers<undefined>();
  const seen: string[] = [];
  sidecar.onRestore = async ({ signal }) => {
    signal.addEventListener('abort', () => seen.push('asked to end'));
    begun.resolve(undefined);
    await end.promise;
    seen.push('last change');
    return { created: 1, replaced: 0, removed: 0, touched: 0, bytes: 0 };
  };
  const params = { root: ONE.root, path: null, dryRun: false, scannedRoot: null, state: null };
  const restoring = stores.use(SESSION, (store) =>
    snapshotCreation.withConnection(SESSION, (connection) =>
      connection.restore(params, store, { signal: controller.signal }),
    ),
  );
  void restoring.finally(() => seen.push('settled'));
  await begun.promise;
  controller.abort();
  await expect.poll(() => seen).toEqual(['asked to end']);
  end.resolve(undefined);
  expect(await restoring).toMatchObject({ created: 1 });
  expect(seen).toEqual(['asked to end', 'last change', 'settled']);
});

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
    'sends a tree without its contents',
    async (peer: SidecarPeer) => {
      const { objects, root } = objectsOf({ a: 'kept back' });
      objects.bodies.delete(blobOf('kept back').toString('hex'));
      await sendPack(peer, 7, objects);
      return { root };
    },
    'invalid_params',
  ],
  [
    'states more hashes than it sends',
    (peer: SidecarPeer) => peer.callWithBytes('store/read', { hashes: 3 }, { bytes: blobOf('x') }),
    'invalid_params',
  ],
  [
    'disconnects during the scan',
    (peer: SidecarPeer) => {
      peer.close();
      return Promise.resolve();
    },
    'connection_closed',
  ],
  ['sends an invalid answer', () => Promise.resolve({ root: '../../..' }), 'protocol_error'],
] as const)('a sidecar that %s gets nothing, stores nothing and does no harm', async (_what, act, code) => {
  const { sidecar, other, take, snapshots, stores, home } = snapshotFixture();
  other.tree = { secret: 'of another lineage' };
  const theirs = await take({}, OTHER);
  sidecar.tree = { mine: 'before' };
  const mine = await take();
  sidecar.tree = { mine: 'after' };
  sidecar.onScan = async (_params, peer) => (await act(peer)) as never;
  const error = await rejectedError(take());
  expect([error.code, error.message]).toEqual([code, expect.any(String)]);
  expect(snapshots.listByLineage(SESSION)).toEqual([mine.row]);
  expect(snapshots.listByLineage(OTHER)).toEqual([theirs.row]);
  expect(readdirSync(`${home.lineage(SESSION)}/incoming`)).toEqual([]);
  await stores.use(OTHER, async (store) => {
    expect((await store.read(blobOf('of another lineage'), OBJECT_KINDS.blob)).length).toBe(18);
  });
  await stores.use(SESSION, async (store) => {
    expect((await store.read(blobOf('before'), OBJECT_KINDS.blob)).toString()).toBe('before');
    expect(store.packs.length).toBe(1);
  });
});

test('outside of a call the sidecar cannot access the store', async () => {
  const { sidecar, take } = snapshotFixture();
  sidecar.tree = { mine: 'before' };
  let early: SidecarPeer | null = null;
  sidecar.onScan = (_params, peer) => {
    early = peer;
    return Promise.resolve(undefined);
  };
  await take();
  const { peer } = sidecar;
  expect(peer).toBe(early);
  const refused = await rejectedError(
    peer?.call('store/put', { pack: 0, offset: 0 }, { bytes: Buffer.from('x') }) ?? Promise.resolve(),
  );
  expect(['connection_closed', 'invalid_request']).toContain(refused.code);
});
