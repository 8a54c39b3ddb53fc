import { randomBytes } from 'node:crypto';
import { rmSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import type { Envelope } from '../../../protocol/manifest.ts';
import { randomIds } from '../../../supervisor/base/ids.ts';
import { type HostKey, openHostKey } from '../../../supervisor/manifests/host-key.ts';
import { Arrivals } from '../../../supervisor/moves/arrivals.ts';
import { Departures } from '../../../supervisor/moves/departures.ts';
import { readStep, signStep } from '../../../supervisor/moves/move-statements.ts';
import { guardHeldSessions } from '../../../supervisor/rpc/held-sessions.ts';
import { SessionGate } from '../../../supervisor/sessions/session-gate.ts';
import { MoveRows } from '../../../supervisor/store/moves.ts';
import { bundleHome, SNAPSHOT, sessionWithEverything } from '../../fixtures/bundles/bundle-home.ts';
import { folder, type ModelTree, plainFile } from '../../fixtures/snapshots/model-tree.ts';
import { rejectedError } from '../../fixtures/store/temporary-home.ts';

const OWNER = {};
const TREE: ModelTree = new Map([
  ['', folder()],
  ['a', plainFile(Buffer.from('one'))],
]);

/** A home that takes part in moves: with real rows, stores and signatures, and without an engine. */
function movingHome() {
  const at = bundleHome();
  const rows = new MoveRows(at.database);
  const gate = new SessionGate(rows);
  const key = (): HostKey => openHostKey(at.home.hostKey);
  const deleted: string[] = [];
  /** Names that two sessions have. */
  const twins = new Set<string>();
  const work = { live: 0, deletionFails: false };
  const own = { ...at, rows, gate, key, ids: randomIds, log: { warn: () => undefined } };
  const removal = {
    deleteSession: (id: string): Promise<void> => {
      if (work.deletionFails) return Promise.reject(new HoldfastError('engine_unavailable', 'no engine'));
      at.database.transaction(() => {
        at.sessions.update(id, { status: 'deleted', deletedAt: 1 });
        departures.handleDeleted(id);
        arrivals.handleDeleted(id);
      });
      deleted.push(id);
      return Promise.resolve();
    },
  };
  const departures: Departures = new Departures({
    ...own,
    removal,
    permissionRows: { countWaitingOf: () => 0 },
    activeWork: {
      requireIdle: () => {
        if (work.live > 0) throw new Error('it runs');
      },
    },
    sessionService: {
      find: (reference: string) => {
        if (twins.has(reference)) throw new HoldfastError('ambiguous_name', 'two sessions have it');
        return at.sessions.find(reference);
      },
      stop: (row: never) => Promise.resolve(row),
    },
    snapshotService: {
      create: () => Promise.resolve({ row: at.snapshots.getOrThrow(SNAPSHOT), created: false }),
      find: (id: string) => at.snapshots.getOrThrow(id),
    },
  } as never);
  const arrivals: Arrivals = new Arrivals({
    ...own,
    removal,
    profiles: { getOrThrow: () => ({ name: 'counter' }) },
    hydration: { start: (id: string) => void at.started.push(id) },
    view: (row: { id: string; name: string }) => row,
    onActive: () => undefined,
  } as never);
  return { ...at, rows, gate, key, departures, arrivals, deleted, work, twins };
}
type MovingHome = ReturnType<typeof movingHome>;

function place(at: MovingHome) {
  return { home: at.home.id, publicKey: at.key().publicKey, name: 'far' };
}

/** The session, held by its home for the target. */
async function begun(source: MovingHome, target: MovingHome) {
  const { id } = await sessionWithEverything(source, TREE, TREE);
  const departure = await source.departures.begin(id, place(target));
  const { offer, publicKey, profile, name, move } = departure;
  return { id, move, request: { offer, publicKey, profile, name: name || 'moved' } };
}

async function bytesOf(source: MovingHome, move: string): Promise<Buffer> {
  const bundle = await source.departures.export(move, OWNER);
  const parts: Buffer[] = [];
  for (;;) {
    const { bytes, end } = await source.bundles.read(bundle, OWNER);
    parts.push(bytes);
    if (end) return Buffer.concat(parts);
  }
}

type Request = Parameters<Arrivals['status']>[0];

async function bring(target: MovingHome, request: Request, file: Buffer): Promise<string> {
  const bundle = await target.arrivals.begin({ ...request, from: 'near' }, OWNER);
  await target.bundles.append(bundle, OWNER, file);
  return (await target.bundles.commit(bundle, OWNER, undefined)).sessionId;
}

/** The session has arrived, and nobody has let go of it. */
async function arrived() {
  const [source, target] = [movingHome(), movingHome()];
  const { id, move, request } = await begun(source, target);
  const there = await bring(target, request, await bytesOf(source, move));
  const { acceptance } = target.arrivals.status(request);
  if (acceptance === null) throw new Error('what has arrived is accepted');
  return { source, target, id, there, move, request, acceptance };
}

function signed(envelope: Envelope | null): Envelope {
  if (envelope === null) throw new Error('the step was not signed');
  return envelope;
}

const isHeld = (at: Pick<MovingHome, 'gate'>, id: string): boolean => at.gate.stateOf(id) !== null;

test('a session is held at its source, then at both homes, and lives at the target alone', async () => {
  const { source, target, id, there, move, acceptance } = await arrived();
  expect(source.gate.stateOf(id)).toMatchObject({ state: 'leaving', with: { name: 'far' } });
  expect(target.gate.stateOf(there)).toMatchObject({ state: 'arriving', with: { name: 'near' } });
  expect(target.started).toEqual([]);
  expect(() => source.gate.requireOpen(id, 'mine')).toThrow('cannot be used now');
  const { receipt } = await source.departures.release(move, acceptance);
  expect(isHeld(source, id)).toBe(true);
  const { activation } = await target.arrivals.activate(move, signed(receipt));
  expect(isHeld(target, there)).toBe(false);
  expect(target.started).toEqual([there]);
  await source.departures.finish(move, signed(activation));
  expect(source.deleted).toEqual([id]);
  expect(source.gate.movedError(id)).toMatchObject({ details: { movedTo: { session: there } } });
});

test('each step again gives the same, and a session that moved back is another one', async () => {
  const { source, target, id, there, move, request, acceptance } = await arrived();
  const again = await source.departures.begin(id, place(target));
  expect(again.move).toBe(move);
  const { receipt } = await source.departures.release(move, acceptance);
  expect((await source.departures.release(move, acceptance)).receipt).toEqual(receipt);
  expect((await source.departures.begin(id, place(target))).receipt).toEqual(receipt);
  await target.arrivals.activate(move, signed(receipt));
  const { activation, state } = await target.arrivals.activate(move, signed(receipt));
  expect(state).toBe('active');
  expect(target.started).toEqual([there]);
  await source.departures.finish(move, signed(activation));
  await source.departures.finish(move, signed(activation));
  expect(source.deleted).toEqual([id]);
  // The bundle again is no second session.
  await expect(target.arrivals.begin({ ...request, from: 'near' }, OWNER)).rejects.toMatchObject({
    code: 'already_exists',
  });
  // And the receipt of what was deleted since brings nothing back.
  target.sessions.update(there, { status: 'deleted', deletedAt: 1 });
  expect(await target.arrivals.activate(move, signed(receipt))).toMatchObject({ session: null });
});

test('what was given up lives at its source, and can never live at the target', async () => {
  const { source, target, id, there, move, acceptance } = await arrived();
  const { withdrawal } = await source.departures.abort(id);
  expect(isHeld(source, id)).toBe(false);
  await expect(source.departures.release(move, acceptance)).rejects.toMatchObject({ code: 'conflict' });
  expect((await source.departures.abort(id)).withdrawal).toEqual(withdrawal);
  expect(await target.arrivals.discard(move, withdrawal)).toBe(true);
  expect(target.deleted).toEqual([there]);
  expect(await target.arrivals.discard(move, withdrawal)).toBe(false);
  // Another attempt is another move.
  const next = await source.departures.begin(id, place(target));
  expect(next.move).not.toBe(move);
});

test('what was given up stays held at the target until it is deleted', async () => {
  const { source, target, id, there, move, request, acceptance } = await arrived();
  const accepted = readStep(acceptance, target.key().publicKey, 'acceptance');
  const { withdrawal } = await source.departures.abort(id);
  target.work.deletionFails = true;
  await expect(target.arrivals.discard(move, withdrawal)).rejects.toMatchObject({
    code: 'engine_unavailable',
  });
  expect(isHeld(source, id)).toBe(false);
  expect(target.gate.stateOf(there)?.state).toBe('arriving');
  // Nobody is told to let go of it, and a source that signs both steps brings nothing to life.
  expect(target.arrivals.status(request).acceptance).toBeNull();
  const receipt = signStep({ ...accepted, step: 'receipt' }, source.key());
  await expect(target.arrivals.activate(move, receipt)).rejects.toMatchObject({ code: 'conflict' });
  target.work.deletionFails = false;
  expect(await target.arrivals.discard(move, withdrawal)).toBe(true);
  expect(target.deleted).toEqual([there]);
  expect(target.rows.target(move)?.state).toBe('discarded');
});

test('a clock that was put back hides no move that began later', async () => {
  const { source, target, id, move, request } = await arrived();
  await source.departures.abort(id);
  const next = await source.departures.begin(id, place(target));
  expect(next.move).not.toBe(move);
  source.database.run('UPDATE moves SET createdAt = 1, updatedAt = 1 WHERE id = ?', next.move);
  expect(request.offer).not.toEqual(next.offer);
  expect((await source.departures.abort(id)).move).toBe(next.move);
  expect(isHeld(source, id)).toBe(false);
});

test('a name that two sessions have is not that of one that has left', async () => {
  const { source, target, move, acceptance } = await arrived();
  const { receipt } = await source.departures.release(move, acceptance);
  const { activation } = await target.arrivals.activate(move, signed(receipt));
  await source.departures.finish(move, signed(activation));
  const name = 'shared';
  source.database.run('UPDATE moves SET name = ? WHERE id = ?', name, move);
  source.twins.add(name);
  await expect(source.departures.begin(name, place(target))).rejects.toMatchObject({
    code: 'ambiguous_name',
  });
  source.twins.delete(name);
  expect((await source.departures.begin(name, place(target))).move).toBe(move);
});

test('a replaced key of the source keeps nobody from giving a move up', async () => {
  const { source, id } = await arrived();
  rmSync(source.home.hostKey);
  await source.departures.abort(id);
  expect(isHeld(source, id)).toBe(false);
});

test('a replaced key of the target keeps nobody from what was released', async () => {
  const { source, target, id, there, move, request, acceptance } = await arrived();
  await source.departures.release(move, acceptance);
  rmSync(target.home.hostKey);
  const { receipt } = await source.departures.begin(id, place(target));
  expect(target.arrivals.status(request).state).toBe('arriving');
  await target.arrivals.activate(move, signed(receipt));
  expect(isHeld(target, there)).toBe(false);
});

test('what is left at the source of a target whose key was replaced goes by force, and the move has ended', async () => {
  const { source, target, id, move, acceptance } = await arrived();
  const { receipt } = await source.departures.release(move, acceptance);
  rmSync(target.home.hostKey);
  const { activation } = await target.arrivals.activate(move, signed(receipt));
  await expect(source.departures.finish(move, signed(activation))).rejects.toMatchObject({
    code: 'permission_denied',
  });
  const asked: unknown[] = [];
  const remove = guardHeldSessions(
    { 'session/delete': (params: unknown) => void asked.push(params) } as never,
    { gate: source.gate, find: (reference) => source.sessions.find(reference) },
  )['session/delete'] as (params: unknown, context: unknown) => unknown;
  await expect(remove({ session: id, force: false }, {})).rejects.toMatchObject({ code: 'not_found' });
  await remove({ session: id, force: true }, {});
  expect(asked).toEqual([{ session: id, force: true }]);
  source.sessions.update(id, { status: 'deleted', deletedAt: 1 });
  // The same move again ends without a proof, and the receipt still leads to the session.
  expect(await source.departures.finish(move, signed(activation))).toMatchObject({ sessionId: id, receipt });
  expect(await source.departures.begin(id, place(target))).toMatchObject({ move, receipt });
});

test('what was released is not aborted, and what lives is not discarded', async () => {
  const { source, target, id, move, acceptance, there } = await arrived();
  const { receipt } = await source.departures.release(move, acceptance);
  await expect(source.departures.abort(id)).rejects.toMatchObject({ code: 'conflict' });
  await target.arrivals.activate(move, signed(receipt));
  const offered = readStep(
    (await source.departures.begin(id, place(target))).offer,
    source.key().publicKey,
    'offer',
  );
  const late = signStep({ ...offered, step: 'withdrawal' }, source.key());
  await expect(target.arrivals.discard(move, late)).rejects.toMatchObject({ code: 'conflict' });
  expect(target.sessions.get(there)?.status).not.toBe('deleted');
});

test('the bytes of a move continue over another connection, at both homes', async () => {
  const [source, target] = [movingHome(), movingHome()];
  const { request, move } = await begun(source, target);
  const [first, second] = [{}, {}];
  const leaving = await source.departures.export(move, first);
  const read = await source.bundles.read(leaving, first);
  // What was read may not have arrived: it comes again.
  source.bundles.leave(leaving, first);
  expect(await source.bundles.resume(leaving, second)).toBe(0);
  expect(await source.bundles.read(leaving, second)).toEqual(read);
  await expect(source.bundles.read(leaving, first)).rejects.toMatchObject({ code: 'interrupted' });

  const half = Math.floor(read.bytes.length / 2);
  const arriving = await target.arrivals.begin({ ...request, from: 'near' }, first);
  await target.bundles.append(arriving, first, read.bytes.subarray(0, half));
  // The end of the first connection has not been seen yet.
  expect(await target.bundles.resume(arriving, second)).toBe(half);
  target.bundles.leave(arriving, first);
  await target.bundles.append(arriving, second, read.bytes.subarray(half));
  expect(read.end).toBe(true);
  const { sessionId } = await target.bundles.commit(arriving, second, undefined);
  expect(target.arrivals.status(request)).toMatchObject({ state: 'arriving', session: { id: sessionId } });
  await expect(target.bundles.resume(arriving, second)).rejects.toMatchObject({ code: 'interrupted' });
});

test('a move whose client does not come back gives its place to others', async () => {
  const [source, target] = [movingHome(), movingHome()];
  const { request, move } = await begun(source, target);
  const bundles: string[] = [];
  for (let n = 0; n < 3; n += 1) {
    const owner = {};
    const bundle = await target.arrivals.begin({ ...request, from: 'near' }, owner);
    target.bundles.leave(bundle, owner);
    bundles.push(bundle);
  }
  await expect(target.bundles.resume(bundles[0] ?? '', {})).rejects.toMatchObject({ code: 'interrupted' });
  expect(await target.bundles.resume(bundles[2] ?? '', {})).toBe(0);
  await source.departures.export(move, {});
  await Promise.all([source, target].map((at) => at.bundles.close()));
});

describe('a hostile home or client', () => {
  test('cannot let a session live with anything but the receipt of its move', async () => {
    const { source, target, there, move, request, acceptance } = await arrived();
    const stranger = openHostKey(`${source.home.hostKey}-2`);
    const accepted = readStep(acceptance, target.key().publicKey, 'acceptance');
    const good = { ...accepted, step: 'receipt' as const };
    const bad: readonly Envelope[] = [
      request.offer,
      acceptance,
      signStep(good, stranger),
      signStep(good, target.key()),
      signStep({ ...good, step: 'activation' }, source.key()),
      signStep({ ...good, bundle: randomBytes(32).toString('hex') }, source.key()),
      signStep({ ...good, move: 'mov-aaaaaaaaaaaaaaaa' }, source.key()),
      signStep({ ...good, to: { ...good.to, session: 'ses-zzzzzzzzzzzzzzzz' } }, source.key()),
      signStep({ ...good, from: { ...good.from, session: 'ses-zzzzzzzzzzzzzzzz' } }, source.key()),
    ];
    for (const one of bad) {
      await expect(target.arrivals.activate(move, one)).rejects.toMatchObject({ code: 'permission_denied' });
      expect(isHeld(target, there)).toBe(true);
    }
    await target.arrivals.activate(move, signStep(good, source.key()));
    expect(isHeld(target, there)).toBe(false);
  });

  test('cannot make a home release a session without the acceptance of a bundle that it made', async () => {
    const { source, target, id, move, request, acceptance } = await arrived();
    const accepted = readStep(acceptance, target.key().publicKey, 'acceptance');
    const bad: readonly Envelope[] = [
      request.offer,
      signStep(accepted, source.key()),
      signStep({ ...accepted, bundle: null }, target.key()),
      signStep({ ...accepted, bundle: 'a'.repeat(64) }, target.key()),
      signStep({ ...accepted, to: { ...accepted.to, session: null } }, target.key()),
      signStep({ ...accepted, move: 'mov-aaaaaaaaaaaaaaaa' }, target.key()),
    ];
    for (const one of bad)
      await expect(source.departures.release(move, one)).rejects.toMatchObject({ code: 'permission_denied' });
    expect(source.gate.stateOf(id)?.state).toBe('leaving');
  });

  test('cannot bring another session, or bring it to another home', async () => {
    const [source, target, third] = [movingHome(), movingHome(), movingHome()];
    const { move, request } = await begun(source, target);
    const file = await bytesOf(source, move);
    await expect(third.arrivals.begin({ ...request, from: 'near' }, OWNER)).rejects.toMatchObject({
      code: 'permission_denied',
    });
    const offered = readStep(request.offer, source.key().publicKey, 'offer');
    const other = signStep(
      { ...offered, from: { ...offered.from, session: 'ses-zzzzzzzzzzzzzzzz' } },
      source.key(),
    );
    const refusal = await rejectedError(bring(target, { ...request, offer: other }, file));
    expect(refusal.code).toBe('permission_denied');
    expect(target.sessions.all()).toEqual([]);
    // A bundle that another home signed is none of this move.
    const stolen = { ...request, offer: signStep(offered, third.key()), publicKey: third.key().publicKey };
    expect((await rejectedError(bring(target, stolen, file))).code).toBe('confirmation_required');
    expect(target.sessions.all()).toEqual([]);
    expect(target.rows.target(move)).toBeNull();
  });

  test('cannot move a session to two homes', async () => {
    const { source, id } = await arrived();
    await expect(source.departures.begin(id, place(movingHome()))).rejects.toMatchObject({
      code: 'conflict',
    });
  });

  test('cannot speak about the move of another source with its id', async () => {
    const { target, request, there } = await arrived();
    const hostile = movingHome();
    const offered = readStep(request.offer, request.publicKey, 'offer');
    const forged = {
      ...request,
      offer: signStep({ ...offered, from: { ...offered.from, home: hostile.home.id } }, hostile.key()),
      publicKey: hostile.key().publicKey,
    };
    expect(() => target.arrivals.status(forged)).toThrow('not valid');
    expect(isHeld(target, there)).toBe(true);
  });
});

describe('the gate', () => {
  test('waits for requests that began, and refuses those that come', async () => {
    const at = movingHome();
    const { promise, resolve } = Promise.withResolvers<string>();
    const running = at.gate.use('ses-1', 'mine', () => promise);
    let isClosed = false;
    const closing = at.gate.close('ses-1', 'mine').then((open) => {
      isClosed = true;
      return open;
    });
    await expect(at.gate.use('ses-1', 'mine', () => 'late')).rejects.toMatchObject({ code: 'conflict' });
    expect(isClosed).toBe(false);
    resolve('done');
    expect(await running).toBe('done');
    const open = await closing;
    expect(() => at.gate.requireOpen('ses-1', 'mine')).toThrow('cannot be used now');
    open();
    expect(await at.gate.use('ses-1', 'mine', () => 'again')).toBe('again');
  });

  test('a session with work is not held, and can be used as before', async () => {
    const [source, target] = [movingHome(), movingHome()];
    const { id } = await sessionWithEverything(source, TREE, TREE);
    source.work.live = 1;
    await expect(source.departures.begin(id, place(target))).rejects.toThrow('it runs');
    expect(isHeld(source, id)).toBe(false);
    source.gate.requireOpen(id, 'mine');
  });
});
