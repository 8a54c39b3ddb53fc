import { createPublicKey } from 'node:crypto';
import { readdirSync } from 'node:fs';
import { Readable } from 'node:stream';
import { zstdCompressSync, zstdDecompressSync } from 'node:zlib';
import { describe, expect, test, vi } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { parseHash } from '../../../snapshot-format/objects.ts';
import { replay, projectionMismatches } from '../../../supervisor/history/projection.ts';
import { BundleExport } from '../../../supervisor/bundles/bundle-exports.ts';
import { verifiedCheckpoint } from '../../../supervisor/bundles/bundle-checkpoint.ts';
import { openHostKey } from '../../../supervisor/manifests/host-key.ts';
import { tarHeader, tarPadding, TAR_END } from '../../../supervisor/bundles/tar.ts';
import { verifyTree } from '../../../supervisor/snapshots/verify/verify-tree.ts';
import {
  bundleHome,
  type BundleHome,
  LARGE,
  SNAPSHOT,
  sessionWithEverything,
} from '../../fixtures/bundles/bundle-home.ts';
import { SeededRandom, seedOfRun } from '../../fixtures/protocol/seeded-random.ts';
import { folder, type ModelTree, plainFile } from '../../fixtures/snapshots/model-tree.ts';
import { rejectedError, thrownError, turnId } from '../../fixtures/store/temporary-home.ts';
import { soakCount } from '../../setup/run-length.ts';

const OWNER = {};
const { signal } = new AbortController();
const EARLIER: ModelTree = new Map([
  ['', folder()],
  ['a', plainFile(Buffer.from('one'))],
]);
const NOW: ModelTree = new Map([
  ['', folder()],
  ['a', plainFile(Buffer.from('two'))],
  ['large', plainFile(Buffer.alloc(3_000_000, 'some text, '))],
]);

async function exported(at: BundleHome, session: string): Promise<Buffer> {
  const { bundle } = await at.bundles.exportSession(session, undefined, OWNER);
  const parts: Buffer[] = [];
  for (;;) {
    const { bytes, end } = await at.bundles.read(bundle, OWNER);
    parts.push(bytes);
    if (end) return Buffer.concat(parts);
  }
}

async function imported(at: BundleHome, file: Buffer, key: string, part = 50_000, opId?: string) {
  const bundle = await at.bundles.beginImport({ profile: 'counter', key }, OWNER);
  for (let from = 0; from < file.length; from += part)
    await at.bundles.append(bundle, OWNER, file.subarray(from, from + part));
  return await at.bundles.commit(bundle, OWNER, opId);
}

/** Made once: the tests that change it need no source. */
let sample: Promise<{ file: Buffer; key: string }> | null = null;

async function madeOnce(): Promise<{ file: Buffer; key: string }> {
  sample ??= made().then(({ file, key }) => ({ file, key }));
  return await sample;
}

async function made(): Promise<{ at: BundleHome; file: Buffer; key: string }> {
  const at = bundleHome();
  const { id } = await sessionWithEverything(at, NOW, EARLIER);
  return { at, file: await exported(at, id), key: at.keyId() };
}

function expectNothingOf(at: BundleHome): void {
  expect(at.sessions.all()).toEqual([]);
  expect(readdirSync(at.home.store)).toEqual([]);
  expect(readdirSync(at.home.artifacts)).toEqual([]);
  expect(at.started).toEqual([]);
}

/** The members of a bundle, to be put together differently. */
function membersOf(file: Buffer): { name: string; bytes: Buffer }[] {
  const tar = zstdDecompressSync(file);
  const members: { name: string; bytes: Buffer }[] = [];
  for (let at = 0; tar[at] !== 0;) {
    const name = tar.toString('latin1', at, tar.indexOf(0, at));
    const size = Number.parseInt(tar.toString('latin1', at + 124, at + 135), 8);
    members.push({ name, bytes: tar.subarray(at + 512, at + 512 + size) });
    at += 512 + size + tarPadding(size).length;
  }
  return members;
}

function bundleOf(members: readonly { name: string; bytes: Buffer }[], end: Buffer = TAR_END): Buffer {
  const parts = members.flatMap(({ name, bytes }) => [
    tarHeader(name, bytes.length),
    bytes,
    tarPadding(bytes.length),
  ]);
  return zstdCompressSync(Buffer.concat([...parts, end]));
}

test('another home gets files, history, outputs, memory, review and base', async () => {
  const { at, file, key } = await made();
  const other = bundleHome();
  const { sessionId, snapshotId, signedBy } = await imported(other, file, key);
  expect(signedBy).toEqual({ keyId: key, home: at.home.id, own: false });
  const row = other.sessions.find(sessionId);
  expect(row).toMatchObject({ name: 'session 0', tags: ['blue'], pinned: true, lineage: sessionId });
  expect(row).toMatchObject({ began: 'import', origin: null });
  expect(await other.events.verify(sessionId)).toMatchObject({ ok: true });
  const turns = other.turns.listBySession(sessionId).reverse();
  expect(turns.map(({ status }) => status)).toEqual(['succeeded', 'succeeded']);
  expect(turns.map(({ id }) => id)).not.toContain(turnId(0));
  const history = other.events.read(sessionId);
  expect(projectionMismatches(replay(history), row, turns)).toEqual([]);
  const [first] = turns;
  expect(other.turns.getOrThrow(first?.id ?? '').input.toString()).toBe('prompt 0');
  expect(other.output.read(first?.id ?? '', 'stdout', 0, 100).toString()).toBe('hello 0\n');
  const large = other.output.read(first?.id ?? '', 'stderr', 0, 2 ** 20);
  expect(large.equals(Buffer.concat([LARGE, Buffer.from('0')]))).toBe(true);
  const [memory] = other.events.read(sessionId, { type: 'memory.changed' });
  const { sha256 } = (memory?.data as { content: { sha256: string } }).content;
  expect(other.contents.read(sessionId, sha256, 0, 100).part.toString()).toBe('what it remembers');

  const snapshot = other.snapshots.getOrThrow(snapshotId);
  const source = at.snapshots.getOrThrow(SNAPSHOT);
  expect(snapshot).toMatchObject({ root: source.root, stateRoot: source.stateRoot, sessionId });
  const review = other.reviewRows.findOpen(sessionId);
  expect(review).toMatchObject({
    targetSnapshot: snapshotId,
    revision: 4,
    baseSpec: `turn:${turns[1]?.id ?? ''}`,
  });
  expect(other.reviewRows.decisions(review?.id ?? '')).toMatchObject([
    { path: 'a', state: { whole: 'accept' } },
  ]);
  expect(other.commentRows.list(sessionId)).toMatchObject([{ text: 'why?', turnId: null }]);
  const [opened] = other.events.read(sessionId, { type: 'review.opened' });
  expect(opened?.data).toMatchObject({ reviewId: review?.id, snapshotId });
  expect(other.baseTrees.find(row)).toMatchObject({ isExact: true, folder: 'sub/', root: source.stateRoot });
  for (const root of [source.root, source.stateRoot ?? '']) {
    const whole = await other.stores.use(sessionId, (store) => verifyTree(store, parseHash(root)));
    expect(whole).toMatchObject({ ok: true, damages: [] });
  }
  expect(other.restoreIntents.pendingHydration(sessionId)).toBe(snapshotId);
  expect(other.started).toEqual([sessionId]);

  // And on to a third one.
  const third = bundleHome();
  const again = await imported(third, await exported(other, sessionId), other.keyId());
  expect(third.turns.listBySession(again.sessionId)).toHaveLength(2);
  expect(third.reviewRows.findOpen(again.sessionId)).toMatchObject({ revision: 4 });
});

test('a history that was cut brings its signed checkpoint, and begins there', async () => {
  const { at } = await made();
  const id = 'ses-aaaaaaaaaaaaaaaa';
  const { seq, events: removed } = await at.historyCuts.cut(at.sessions.find(id), { keep: 4 }, signal);
  // The first turn.
  expect(removed).toBe(5);
  const file = await exported(at, id);
  const other = bundleHome();
  const { sessionId } = await imported(other, file, at.keyId());
  const history = other.events.read(sessionId);
  expect(history.find(({ type }) => type === 'session.imported')?.data).toMatchObject({
    checkpoint: { seq, removed, madeAt: '1970-01-01T00:00:05.000Z' },
  });
  // It is a whole history of its own.
  expect(history.map((event) => event.seq)).toEqual(history.map((_, place) => place + 1));
  expect(await other.events.verify(sessionId)).toMatchObject({ ok: true });
  expect(other.checkpoints.verify(sessionId)).toBeNull();
  const turns = other.turns.listBySession(sessionId).reverse();
  expect(turns.map(({ id: turn }) => other.turns.getOrThrow(turn).input.toString())).toEqual(['prompt 1']);
  expect(projectionMismatches(replay(history), other.sessions.find(sessionId), turns)).toEqual([]);
  expect(other.events.read(sessionId, { type: 'memory.changed' })).toHaveLength(1);
  // And on to a third one.
  const third = bundleHome();
  const next = await imported(third, await exported(other, sessionId), other.keyId());
  expect(await third.events.verify(next.sessionId)).toMatchObject({ ok: true });
});

describe('the checkpoint of a bundle is refused', () => {
  const seqs = (...all: number[]) => all.map((seq) => ({ seq }));
  const given = async () => {
    const { at } = await made();
    const session = 'ses-aaaaaaaaaaaaaaaa';
    const { seq } = await at.historyCuts.cut(at.sessions.find(session), { keep: 4 }, signal);
    const { publicKey } = openHostKey(at.home.hostKey);
    const context = { publicKey: createPublicKey(publicKey), home: at.home.id, session };
    const { kept } = at.checkpoints.verify(session) ?? { kept: 0 };
    const before = seqs(...Array.from({ length: kept }, (_, n) => n + 1));
    return { at, seq, before, context, text: at.checkpoints.envelope(session) ?? '' };
  };

  test('unless its signature, its session and where the events begin are right', async () => {
    const { seq, before, context, text } = await given();
    const events = [...before, ...seqs(seq + 1, seq + 2)];
    expect(verifiedCheckpoint(text, { ...context, events })).toMatchObject({ seq });
    const other = openHostKey(bundleHome().home.hostKey).publicKey;
    const refused: [string, Partial<Parameters<typeof verifiedCheckpoint>[1]>, string][] = [
      [text, { publicKey: createPublicKey(other) }, 'another key signed it'],
      [text.replace('"payload":"e', '"payload":"f'), {}, 'its signature does not match'],
      [text, { session: 'ses-bbbbbbbbbbbbbbbb' }, 'of another session'],
      [text, { home: '0'.repeat(16) }, 'of another session'],
      [text, { events: [...before, ...seqs(seq + 2, seq + 3)] }, 'does not begin where'],
      [text, { events: [...before, ...seqs(seq + 1, seq + 3)] }, 'does not begin where'],
      [text, { events: seqs(seq + 1, seq + 2) }, 'does not begin where'],
    ];
    for (const [envelope, change, why] of refused) {
      const error = thrownError(() => verifiedCheckpoint(envelope, { ...context, events, ...change }));
      expect([error.code, error.why]).toEqual(['snapshot_damaged', expect.stringContaining(why)]);
    }
  });
});

test('of a snapshot there is what was there then; its own home takes it back under another id', async () => {
  const { at } = await made();
  const { bundle } = await at.bundles.exportSnapshot(SNAPSHOT, OWNER);
  const { bytes, end } = await at.bundles.read(bundle, OWNER);
  expect(end).toBe(true);
  at.sessions.update('ses-aaaaaaaaaaaaaaaa', { name: 'the first' });
  const { sessionId, signedBy } = await imported(at, bytes, at.keyId());
  expect(signedBy.own).toBe(true);
  expect(at.reviewRows.findOpen(sessionId)).toBeNull();
  expect(at.events.read(sessionId, { type: 'review.opened' })).toEqual([]);
  expect(at.events.read(sessionId, { type: 'memory.changed' })).toHaveLength(1);
});

test('the key of another home is named, and needs a yes', async () => {
  const { file, key } = await madeOnce();
  const other = bundleHome();
  const bundle = await other.bundles.beginImport({ profile: 'counter' }, OWNER);
  const error = await rejectedError(
    (async () => {
      await other.bundles.append(bundle, OWNER, file);
      await other.bundles.commit(bundle, OWNER, undefined);
    })(),
  );
  expect(error).toMatchObject({ code: 'confirmation_required', details: { keyId: key } });
  expectNothingOf(other);
});

test('the key is checked before anything but the first part is read', async () => {
  const { file, key } = await madeOnce();
  const other = bundleHome();
  const [head] = membersOf(file);
  if (head === undefined) throw new Error('no first part');
  const garbage = { name: 'session.json', bytes: Buffer.alloc(2 ** 20, '[') };
  const error = await rejectedError(imported(other, bundleOf([head, garbage]), other.keyId()));
  expect(error).toMatchObject({ code: 'confirmation_required', details: { keyId: key } });
  expectNothingOf(other);
});

test('a history that was too long is exported after a cut', async () => {
  const { at } = await made();
  const id = 'ses-aaaaaaaaaaaaaaaa';
  at.events.append(
    id,
    Array.from({ length: 20_001 }, () => ({ type: 'session.updated', data: { pinned: true } })),
  );
  await at.historyCuts.cut(at.sessions.find(id), { keep: 10 }, signal);
  const other = bundleHome();
  const { sessionId } = await imported(other, await exported(at, id), at.keyId());
  expect(await other.events.verify(sessionId)).toMatchObject({ ok: true });
});

describe('what no import would take is not exported', () => {
  test.each<[string, (at: BundleHome, id: string) => void, RegExp]>([
    [
      'events',
      (at, id) =>
        at.events.append(
          id,
          Array.from({ length: 20_001 }, () => ({ type: 'session.updated', data: { pinned: true } })),
        ),
      /too many events/,
    ],
    [
      'comments',
      (at, id) =>
        at.database.transaction(() => {
          const [comment] = at.commentRows.list(id);
          for (let n = 0; n < 2001 && comment !== undefined; n += 1)
            at.commentRows.insert({ ...comment, id: `cmt-${String(n).padStart(16, 'a')}` });
        }),
      /comments/,
    ],
  ])('too many %s', async (_, add, why) => {
    const at = bundleHome();
    const { id } = await sessionWithEverything(at, NOW, EARLIER);
    add(at, id);
    const error = await rejectedError(at.bundles.exportSession(id, undefined, OWNER));
    expect(error.code).toBe('not_supported');
    expect(error.why).toMatch(why);
    // The lock of the lineage is free.
    await at.stores.useExclusively(id, () => Promise.resolve());
  });
});

test('a repeated commit gives the first session, and the name has to be free', async () => {
  const { file, key } = await madeOnce();
  const other = bundleHome();
  const first = await imported(other, file, key, 2 ** 20, 'op-1234567');
  expect(await other.bundles.commit('0'.repeat(32), OWNER, 'op-1234567')).toEqual(first);
  const error = await rejectedError(imported(other, file, key));
  expect(error.message).toContain('session 0');
  expect(other.sessions.all()).toHaveLength(1);
  expect(readdirSync(other.home.store)).toEqual([first.sessionId]);
  expect(readdirSync(other.home.artifacts)).toEqual([first.sessionId]);
});

test('a client that leaves takes what it sent along, and nobody else may use its import', async () => {
  const { file, key } = await madeOnce();
  const other = bundleHome();
  const bundle = await other.bundles.beginImport({ profile: 'counter', key }, OWNER);
  await other.bundles.append(bundle, OWNER, file.subarray(0, file.length - 100));
  expect(await rejectedError(other.bundles.append(bundle, {}, file))).toMatchObject({ code: 'interrupted' });
  await other.bundles.abort(bundle, {});
  await other.bundles.abort(bundle, OWNER);
  expectNothingOf(other);
});

test('what cannot be removed leaves no lock behind', async () => {
  const { file, key } = await madeOnce();
  const other = bundleHome();
  const bundle = await other.bundles.beginImport({ profile: 'counter', key }, OWNER);
  await other.bundles.append(bundle, OWNER, file.subarray(0, file.length - 100));
  await vi.waitUntil(() => readdirSync(other.home.artifacts).length > 0, { timeout: 60_000 });
  const [sessionId = ''] = readdirSync(other.home.artifacts);
  vi.spyOn(other.artifacts, 'remove').mockImplementationOnce(() => {
    throw new HoldfastError('internal', 'not now');
  });
  expect((await rejectedError(other.bundles.abort(bundle, OWNER))).code).toBe('internal');
  await other.stores.useExclusively(sessionId, () => Promise.resolve());
  expect(other.imports.isArriving(sessionId)).toBe(false);
});

describe('a bundle that is not as it was made', () => {
  const remake =
    (change: (members: { name: string; bytes: Buffer }[]) => { name: string; bytes: Buffer }[]) =>
    async () => {
      const { file, key } = await madeOnce();
      return { file: bundleOf(change(membersOf(file))), key };
    };
  const edit = (name: RegExp, change: (text: string) => string) =>
    remake((members) =>
      members.map((one) =>
        name.test(one.name) ? { ...one, bytes: Buffer.from(change(one.bytes.toString('utf8'))) } : one,
      ),
    );

  test.each<[string, () => Promise<{ file: Buffer; key: string }>, RegExp]>([
    ['unchanged parts in another order', remake((all) => all.toReversed()), /where it belongs/],
    ['without its history', remake((all) => all.filter(({ name }) => name !== 'events.jsonl')), /belongs/],
    ['without its signature', remake((all) => all.slice(0, -1)), /no signature/],
    [
      'a part twice',
      remake(([first, ...rest]) => (first === undefined ? [] : [first, first, ...rest])),
      /belongs/,
    ],
    [
      'a content twice',
      remake((all) => all.flatMap((one) => (one.name.startsWith('contents/') ? [one, one] : [one]))),
      /belongs/,
    ],
    [
      'without a content',
      remake((all) => all.filter(({ name }, at) => !name.startsWith('contents/') || at > 3)),
      /signature|does not hold/,
    ],
    ['without its packs', remake((all) => all.filter(({ name }) => !name.startsWith('packs/'))), /signature/],
    ['another name', edit(/session\.json/, (text) => text.replace('session 0', 'session 1')), /signature/],
    ['another event', edit(/events/, (text) => text.replace('"exitCode":0', '"exitCode":1')), /signature/],
    [
      'an unknown event',
      edit(/events/, (text) => text.replace('memory.changed', 'memory.chonged')),
      /newer version/,
    ],
    [
      'an invalid event',
      edit(/events/, (text) => text.replace('"exitCode":0', '"exitCode":"no"')),
      /not valid/,
    ],
    [
      'a path that leads out',
      remake((all) => [...all.slice(0, 3), { name: 'contents/x', bytes: Buffer.alloc(1) }]),
      /no bundle has/,
    ],
    [
      'more values than a parser should see',
      remake(([head, session, ...rest]) => {
        const bad = Buffer.from(`{"reviews":[${'1,'.repeat(500_000)}1]}`);
        return head === undefined || session === undefined ? [] : [head, { ...session, bytes: bad }, ...rest];
      }),
      /too many values/,
    ],
    [
      'a large first part',
      remake(([head, ...rest]) =>
        head === undefined ? [] : [{ ...head, bytes: Buffer.alloc(5000, ' ') }, ...rest],
      ),
      /too large/,
    ],
    [
      'deep nesting',
      edit(/events/, (text) => `{"seq":1,"at":1,"type":"x","data":${'['.repeat(9999)}${text}`),
      /too deep/,
    ],
  ])('%s: is refused, and leaves nothing', async (_, make, why) => {
    const { file, key } = await make();
    const other = bundleHome();
    const error = await rejectedError(imported(other, file, key));
    expect(error.code).toBe('snapshot_damaged');
    expect(error.why).toMatch(why);
    expectNothingOf(other);
  });

  test.each<[string, (file: Buffer) => Buffer]>([
    ['cut off', (file) => file.subarray(0, file.length - 20)],
    ['cut off early', (file) => file.subarray(0, 300)],
    ['empty', () => Buffer.alloc(0)],
    ['no archive', () => Buffer.from('hello')],
    ['followed by more', (file) => bundleOf(membersOf(file), Buffer.alloc(4096))],
    ['not compressed', (file) => zstdDecompressSync(file)],
    ['a link', (file) => relinked(file, '2')],
    ['a device', (file) => relinked(file, '3')],
    [
      'a bomb',
      () => zstdCompressSync(Buffer.concat([tarHeader('bundle.json', 4), Buffer.alloc(100 * 2 ** 20)])),
    ],
  ])('%s: is refused, and leaves nothing', async (_, change) => {
    const { file, key } = await madeOnce();
    const other = bundleHome();
    expect(await rejectedError(imported(other, change(file), key))).toMatchObject({
      code: 'snapshot_damaged',
    });
    expectNothingOf(other);
  });

  test('any byte changed: it is refused, and leaves nothing', async () => {
    const random = new SeededRandom(seedOfRun('a changed bundle'));
    const { file, key } = await madeOnce();
    const tar = zstdDecompressSync(file);
    const other = bundleHome();
    for (let attempt = 0; attempt < soakCount(20, 3000); attempt += 1) {
      const bytes = Buffer.from(tar);
      const at = random.below(bytes.length);
      bytes[at] = (bytes[at] ?? 0) ^ (1 << random.below(8));
      const error = await rejectedError(imported(other, zstdCompressSync(bytes), key, 2 ** 20));
      expect(['snapshot_damaged', 'confirmation_required']).toContain(error.code);
      expectNothingOf(other);
    }
  });
});

/** The first member as something else than a file, with a correct checksum. */
function relinked(file: Buffer, type: string): Buffer {
  const tar = zstdDecompressSync(file);
  tar.write(type, 156, 'latin1');
  tar.fill(' ', 148, 156);
  const sum = tar.subarray(0, 512).reduce((total, byte) => total + byte, 0);
  tar.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
  return zstdCompressSync(tar);
}

test('what a review accepted is not believed, and one that ended comes from the own home alone', async () => {
  const at = bundleHome();
  const { id } = await sessionWithEverything(at, NOW, EARLIER);
  const root = at.snapshots.getOrThrow(SNAPSHOT).root;
  const open = at.reviewRows.findOpen(id);
  if (open === null) throw new Error('no review');
  at.reviewRows.update(open.id, { acceptedRoot: root });
  at.reviewRows.insert({ ...open, id: 'rev-bbbbbbbbbbbbbbbb', endedAt: 3, acceptedRoot: root });
  const file = await exported(at, id);
  const other = bundleHome();
  const theirs = await imported(other, file, at.keyId());
  expect(other.reviewRows.findOpen(theirs.sessionId)?.acceptedRoot).toBeNull();
  expect(other.reviewRows.newestEnded(theirs.sessionId)).toBeNull();
  at.sessions.update(id, { name: 'the first' });
  const own = await imported(at, file, at.keyId());
  expect(at.reviewRows.findOpen(own.sessionId)?.acceptedRoot).toBeNull();
  expect(at.reviewRows.newestEnded(own.sessionId)?.acceptedRoot).toBe(root);
});

test('an export that is read too slowly releases the lock, and says so', async () => {
  const released = Promise.withResolvers<null>();
  const slow = new BundleExport(Readable.from([Buffer.alloc(1)]), () => released.resolve(null), 1);
  await released.promise;
  expect(await rejectedError(slow.read())).toMatchObject({ code: 'timeout' });
  await slow.close();
});

test('an export that nobody reads on ends with its client', async () => {
  const { at } = await made();
  const { bundle } = await at.bundles.exportSession('ses-aaaaaaaaaaaaaaaa', undefined, OWNER);
  await at.bundles.abort(bundle, OWNER);
  await expect(at.bundles.read(bundle, OWNER)).rejects.toThrow(HoldfastError);
  // The lock of the lineage is free again.
  await at.stores.useExclusively('ses-aaaaaaaaaaaaaaaa', () => Promise.resolve());
});
