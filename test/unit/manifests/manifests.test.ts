import { chmodSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { describe, expect, test, vi } from 'vitest';
import { readPublicKey } from '../../../protocol/envelope.ts';
import { HoldfastError } from '../../../protocol/errors.ts';
import type { EventEntry } from '../../../protocol/events.ts';
import { ENVELOPE_CHARACTERS, MANIFEST_LIMITS } from '../../../protocol/manifest.ts';
import { verifyManifest } from '../../../protocol/manifest-verification.ts';
import { randomIds } from '../../../supervisor/base/ids.ts';
import type { Log } from '../../../supervisor/base/log.ts';
import { Artifacts } from '../../../supervisor/history/artifacts.ts';
import { Contents } from '../../../supervisor/history/contents.ts';
import { EventLog } from '../../../supervisor/history/event-log.ts';
import { AutomaticManifests } from '../../../supervisor/manifests/automatic-manifests.ts';
import { summarizeHistory } from '../../../supervisor/manifests/history-summary.ts';
import { openHostKey } from '../../../supervisor/manifests/host-key.ts';
import { Manifests } from '../../../supervisor/manifests/manifests.ts';
import { MANIFEST_COPY_BYTES } from '../../../sidecar/wire.ts';
import type { Database } from '../../../supervisor/store/database.ts';
import { Home } from '../../../supervisor/store/home.ts';
import { KeptManifestRows } from '../../../supervisor/store/kept-manifests.ts';
import { ReviewRows } from '../../../supervisor/store/reviews.ts';
import { type SessionRow, Sessions } from '../../../supervisor/store/sessions.ts';
import { Snapshots } from '../../../supervisor/store/snapshots.ts';
import { keyPair, manifest, signed, statement } from '../../fixtures/manifest.ts';
import {
  sessionRow,
  temporaryDatabase,
  temporaryHome,
  thrownError,
  turnId,
} from '../../fixtures/store/temporary-home.ts';

const HASH = 'ab'.repeat(32);
const errors: unknown[] = [];
const copies: Buffer[] = [];
const PORTS = { total: 1, complete: true, listed: [{ address: '0.0.0.0', port: 3000 }] };
const log: Log = {
  ...{ debug: () => {}, info: () => {}, warn: () => {}, child: () => log },
  error: (_what, fields) => errors.push(fields),
};

const made = {
  session: 'work',
  handoff: 'hand-aaaaaaaaaaaaaaaa',
  manifest: 'man-aaaaaaaaaaaaaaaa',
  step: 'made' as const,
  base: HASH,
  target: HASH,
  snapshot: 'snp-aaaaaaaaaaaaaaaa',
  to: 'branch' as const,
  commit: 'c'.repeat(40),
  tree: 'd'.repeat(40),
  branch: 'holdfast/work',
  files: 3,
  released: 1,
  quarantined: 2,
  review: null,
};
const { session: _session, handoff: handoffId, manifest: manifestId, step: _step, ...handedOver } = made;

const egress = (decision: 'allowed' | 'denied' | 'ended', host: string, bytesOut = 0): EventEntry => ({
  type: 'egress',
  data: {
    ...{
      decision,
      host,
      port: 443,
      method: 'CONNECT',
      rule: null,
      from: null,
      reason: null,
      address: null,
    },
    ...{ count: 1, firstAt: '2026-03-01T11:00:00.000Z', lastAt: '2026-03-01T11:00:00.000Z' },
    ...{ bytesOut, bytesIn: bytesOut * 2, allow: null },
  },
});
const queued = (n: number): EventEntry => ({
  type: 'turn.queued',
  data: {
    ...{ turnId: turnId(n), kind: 'acp', inputBytes: 2, preview: 'hi', timeoutMs: 1000 },
    content: { sha256: HASH, bytes: 2, mediaType: 'text/plain' },
  },
});

const edited = (n: number, sha256: string): EventEntry => ({
  type: 'turn.edited',
  data: {
    ...{ turnId: turnId(n), inputBytes: 3, preview: 'hey' },
    content: { sha256, bytes: 3, mediaType: 'text/plain' },
  },
});

function given() {
  let time = 0;
  const home = temporaryHome();
  const database = temporaryDatabase(home);
  const row = sessionRow(0, { name: 'work' });
  new Sessions(database).insert(row);
  const events = new EventLog(database);
  const contents = new Contents(database, new Artifacts(home));
  const manifests = new Manifests({
    ...{ home, events, contents, ids: randomIds, log },
    profiles: { get: () => null },
    snapshots: new Snapshots(database),
    memoryVersion: () => 4,
    baseOf: () => ({
      root: HASH,
      origin: { root: '/home/me', prefix: '', head: 'e'.repeat(40), branch: 'main', remote: null },
      folder: '',
      isExact: true,
    }),
    kept: new KeptManifestRows(database),
    reviewRows: new ReviewRows(database),
    openPorts: () => Promise.resolve(PORTS),
    writeAgentCopy: (_session, copy) => {
      copies.push(copy);
      return Promise.resolve();
    },
    setupOf: (_profile, image) => (image === 'prepared' ? { key: 'k1', imageId: null } : null),
    changesBetween: () =>
      Promise.resolve({ paths: Array.from({ length: 300 }, (_, n) => `/workspace/${n}`), complete: false }),
    now: () => (time += 1000),
  });
  return { home, database, row, events, contents, manifests };
}

const check = (name: string, exitCode: number): EventEntry => ({
  type: 'check.ended',
  data: {
    ...{ checkId: 'chk-aaaaaaaaaaaaaaaa', name, command: 'npm run it', of: 'workspace', tree: HASH },
    ...{ review: null, exitCode, ms: 5, outputBytes: 0 },
    content: { sha256: HASH, bytes: 0, mediaType: 'text/plain' },
  },
});

const startedSandbox = (image: string): EventEntry => ({
  type: 'sandbox.started',
  data: { generation: 1, case: 'create', image, imageIdentity: null, codeVersion: 1 },
});

const createdSnapshot = (snapshotId: string): EventEntry => ({
  type: 'snapshot.created',
  data: {
    ...{ snapshotId, reason: 'manual', label: null, root: HASH },
    ...{ files: 1, bytes: 1, changedFiles: 1, newBytes: 1, frozenMs: 0 },
  },
});

function insertSnapshot(database: Database, row: SessionRow, id: string): void {
  new Snapshots(database).insert({
    ...{ id, sessionId: row.id, lineage: row.lineage, createdAt: 5, reason: 'manual', label: null },
    ...{ pinned: false, base: null, root: HASH, stateRoot: null, files: 1, directories: 1, bytes: 1 },
    ...{ changedFiles: 1, changedBytes: 1, newBytes: 1, scanMs: 1, frozenMs: 0, eventSeq: 0 },
    ...{ duringTurn: false, missing: 0, missingPaths: [] },
  });
}

function automaticManifests(
  database: Database,
  events: EventLog,
  manifests: Manifests,
  warnings: unknown[] = [],
): AutomaticManifests {
  const warn: Log['warn'] = (_what, fields) => void warnings.push(fields);
  return new AutomaticManifests({
    ...{ events, manifests, sessions: new Sessions(database), log: { ...log, warn } },
  });
}

async function until(isSo: () => boolean): Promise<void> {
  await vi.waitUntil(isSo, { timeout: 60_000, interval: 1 });
}

function opened(manifests: Manifests, envelope: unknown) {
  const key = readPublicKey(manifests.key().publicKey);
  if (key === null) throw new Error('no key');
  const verified = verifyManifest(JSON.stringify(envelope), key);
  if (!verified.valid) throw new Error(verified.why);
  return verified.statement;
}

describe('the manifest of a session', () => {
  test('names the prompt that an edited turn had in the end', async () => {
    const { row, events, manifests } = given();
    const [first, last] = ['1'.repeat(64), '2'.repeat(64)];
    events.append(row.id, [queued(1), queued(2), edited(2, first), edited(2, last)]);
    const { turns } = opened(manifests, await manifests.show(row)).predicate;
    expect(turns.listed.map(({ prompt }) => prompt)).toEqual([
      { sha256: last, bytes: 3 },
      { sha256: HASH, bytes: 2 },
    ]);
  });

  test('says what its history says', async () => {
    const { row, events, manifests } = given();
    events.append(row.id, [
      queued(1),
      egress('denied', 'evil.example'),
      egress('denied', 'evil.example'),
      egress('allowed', 'api.example'),
      egress('ended', 'api.example', 50),
      { type: 'agent.option', data: { turnId: turnId(1), option: 'model', value: 'small', by: 'agent' } },
      { type: 'agent.option', data: { turnId: turnId(1), option: 'model', value: 'large', by: 'agent' } },
      queued(2),
      { type: 'handoff.approved', data: { handoffId, manifestId, ...handedOver } },
    ]);
    const { predicate, subject } = opened(manifests, await manifests.show(row));
    expect(predicate).toMatchObject({
      reason: 'now',
      memory: 4,
      base: { commit: 'e'.repeat(40), branch: 'main', exact: true },
      history: { ...events.head(row.id), first: 1 },
      turns: {
        total: 2,
        listed: [
          { id: turnId(2), status: null },
          { id: turnId(1), model: 'large' },
        ],
      },
      egress: {
        ...{ hosts: 2, allowed: 1, denied: 2, bytesOut: 50, bytesIn: 100 },
        listed: [{ host: 'api.example' }, { host: 'evil.example', denied: 2 }],
      },
      handoffs: { total: 1, listed: [{ step: 'approved', released: 1, quarantined: 2 }] },
    });
    expect(JSON.stringify(predicate)).not.toContain('/home/me');
    expect(subject).toEqual([{ name: 'history', digest: { holdfastEvents: events.head(row.id).hash } }]);
  });

  test('lists a bounded part of a long history, and counts the rest', async () => {
    const { row, events, manifests } = given();
    const nasty = '\u0001'.repeat(500);
    events.append(
      row.id,
      Array.from({ length: 600 }, (_, n): EventEntry[] => [
        queued(n),
        egress('denied', `${n}.example`),
        { type: 'agent.option', data: { turnId: turnId(n), option: 'model', value: nasty, by: 'agent' } },
        { type: 'handoff.undone', data: { handoffId, manifestId, ...handedOver } },
      ]).flat(),
    );
    const envelope = await manifests.show(row);
    expect(JSON.stringify(envelope).length).toBeLessThan(ENVELOPE_CHARACTERS);
    const { turns, egress: hosts, handoffs } = opened(manifests, envelope).predicate;
    expect([turns.total, hosts.hosts, handoffs.total]).toEqual([600, 600, 600]);
    expect([turns.listed.length, hosts.listed.length, handoffs.listed.length]).toEqual([
      MANIFEST_LIMITS.turns,
      MANIFEST_LIMITS.hosts,
      MANIFEST_LIMITS.handoffs,
    ]);
    expect(turns.listed[0]?.id).toBe(turnId(599));
  });

  test('has checks, permissions, the review, changed files and the setup', async () => {
    const { row, events, database, manifests } = given();
    const snapshotId = 'snp-aaaaaaaaaaaaaaaa';
    insertSnapshot(database, row, snapshotId);
    const rows = new ReviewRows(database);
    rows.insert({
      ...{ id: 'rev-aaaaaaaaaaaaaaaa', sessionId: row.id, lineage: row.lineage, createdAt: 1, updatedAt: 1 },
      ...{ endedAt: null, baseSpec: 'start', baseSnapshot: null, baseRoot: HASH, acceptedRoot: null },
      ...{ targetSnapshot: snapshotId, targetRoot: HASH, revision: 0 },
    });
    const decided = (path: string, whole: 'accept' | 'reject' | null): void =>
      rows.decide('rev-aaaaaaaaaaaaaaaa', path, '0'.repeat(24), {
        whole,
        mode: null,
        text: null,
        again: false,
      });
    decided('/workspace/a', 'accept');
    decided('/workspace/b', 'reject');
    decided('/workspace/c', 'reject');
    decided('/workspace/d', null);
    const ids = { permissionId: 'perm-aaaaaaaaaaaaaaaa', turnId: turnId(1) };
    const option = { id: 'no', name: 'No', kind: 'reject_once' as const };
    events.append(row.id, [
      startedSandbox('prepared'),
      check('lint', 0),
      check('test', 2),
      { type: 'permission.answered', data: { ...ids, option, by: { kind: 'client', name: 'cli' } } },
      { type: 'permission.answered', data: { ...ids, option: null, by: { kind: 'turn', name: null } } },
    ]);
    const { predicate } = opened(manifests, await manifests.show(row));
    expect(predicate).toMatchObject({
      checks: {
        total: 2,
        listed: [
          { name: 'test', exitCode: 2, tree: HASH },
          { name: 'lint', exitCode: 0 },
        ],
      },
      permissions: { asked: 0, allowed: 0, rejected: 1 },
      review: { accepted: 1, rejected: 2, partly: 1, ended: false },
      changes: { counted: 300, complete: false },
      setup: { key: 'k1' },
    });
    expect(predicate.changes?.listed).toHaveLength(MANIFEST_LIMITS.changes);
    expect(JSON.stringify(predicate)).not.toContain('npm run');
  });

  test('of an earlier version still says what it said', () => {
    const { privateKey, publicKey } = keyPair();
    const { checks: _c, permissions: _p, review: _r, changes: _d, setup: _s, ...earlier } = manifest();
    const verified = verifyManifest(signed(privateKey, { ...statement(), predicate: earlier }), publicKey);
    expect(verified).toMatchObject({ valid: true, statement: { predicate: { memory: 2, checks: null } } });
  });

  test('has nothing of what another home wrote, and says which one that was', async () => {
    const { row, events, manifests } = given();
    const [home, keyId] = ['c'.repeat(26), 'd'.repeat(64)];
    const { name, profile, persistent, backing, uid, gid } = row;
    const theirs = events.append(row.id, [queued(1), check('lint', 0), startedSandbox('theirs')]);
    const from = { home, keyId, from: row.id, snapshotId: 'snp-aaaaaaaaaaaaaaaa', eventSeq: 9 };
    const imported: EventEntry = {
      type: 'session.imported',
      data: { ...from, name, profile, persistent, backing, uid, gid },
    };
    events.append(row.id, [imported, queued(2)]);
    const { predicate } = opened(manifests, await manifests.show(row));
    expect(predicate).toMatchObject({
      ...{ image: null, turns: { total: 1 }, checks: { total: 0 }, history: { first: 5 } },
      importedFrom: { home, keyId, eventSeq: 9 },
    });
    const [, , started] = theirs;
    if (started === undefined) throw new Error('no event');
    await manifests.keep(row, { reason: 'resume', snapshotId: null, head: started });
    expect(manifests.list(row).manifests).toEqual([]);
  });

  test('names open ports, and its copy for the agent has nothing of the installation or of decisions', async () => {
    const { row, events, manifests, home } = given();
    const [, started] = events.append(row.id, [queued(1), startedSandbox('plain')]);
    if (started === undefined) throw new Error('no event');
    events.append(row.id, [check('lint', 1), ...Array.from({ length: 60 }, (_, n) => queued(n + 2))]);
    expect(opened(manifests, await manifests.show(row)).predicate.ports).toEqual(PORTS);
    copies.length = 0;
    await manifests.keep(row, { reason: 'resume', snapshotId: null, head: { ...events.head(row.id) } });
    const [copy] = copies;
    const text = copy?.toString() ?? '';
    expect(JSON.parse(text)).toMatchObject({
      ...{ reason: 'resume', ports: PORTS, session: { id: row.id } },
      base: { commit: 'e'.repeat(40) },
    });
    expect(text.length).toBeLessThan(MANIFEST_COPY_BYTES / 4);
    for (const hidden of [home.id, home.root, '/home/me', 'remote', 'permissions', 'review', 'handoffs'])
      expect(text).not.toContain(hidden);
  });

  test('stops when its time is up, and says how far it came', async () => {
    const { row, events } = given();
    events.append(
      row.id,
      Array.from({ length: 1200 }, (_, n) => queued(n)),
    );
    let calls = 0;
    const summary = await summarizeHistory({
      ...{ events, sessionId: row.id, head: events.head(row.id) },
      clock: () => (calls++ < 2 ? 0 : MANIFEST_LIMITS.readMs),
    });
    expect(summary.history).toMatchObject({ seq: 1200, first: 701 });
    expect(summary.turns.total).toBe(500);
  });
});

describe('the manifest of a handoff', () => {
  test('is kept with the handoff, under the id that its commit names', async () => {
    const { row, events, database, manifests } = given();
    const keep = await manifests.prepare(row, made);
    expect(thrownError(() => manifests.showKept(row, manifestId)).code).toBe('not_found');
    database.transaction(keep);
    const { subject, predicate } = opened(manifests, manifests.showKept(row, manifestId));
    expect(predicate).toMatchObject({ id: manifestId, reason: 'handoff', handoff: handoffId });
    expect(subject).toEqual([
      { name: 'tree', digest: { gitTree: made.tree } },
      { name: 'commit', digest: { gitCommit: made.commit } },
    ]);
    expect(events.read(row.id, { type: 'manifest.made' })).toHaveLength(1);
    expect(thrownError(() => manifests.showKept(row, 'man-bbbbbbbbbbbbbbbb')).code).toBe('not_found');
  });

  test('a key that cannot be used does not stop the handoff', async () => {
    const { home, row, events, database, manifests } = given();
    writeFileSync(home.hostKey, 'no key', { mode: 0o600 });
    errors.length = 0;
    database.transaction(await manifests.prepare(row, made));
    expect(events.read(row.id)).toEqual([]);
    expect(errors).toHaveLength(1);
  });
});

describe('manifests that nobody asked for', () => {
  test('are made of each snapshot and each resume, as of that event, and kept', async () => {
    const { row, database, events, manifests } = given();
    const automatic = automaticManifests(database, events, manifests);
    insertSnapshot(database, row, 'snp-bbbbbbbbbbbbbbbb');
    const [started, , created] = events.append(row.id, [
      startedSandbox('agent'),
      queued(1),
      createdSnapshot('snp-bbbbbbbbbbbbbbbb'),
      queued(2),
    ]);
    // Nothing of it runs before the caller goes on.
    expect(manifests.list(row).manifests).toEqual([]);
    await until(() => manifests.list(row).manifests.length === 2);
    await automatic.close();
    const { manifests: kept } = manifests.list(row);
    expect(kept).toMatchObject([
      { reason: 'snapshot', snapshot: 'snp-bbbbbbbbbbbbbbbb' },
      { reason: 'resume', snapshot: null },
    ]);
    const [ofSnapshot, ofResume] = kept.map(({ id }) => opened(manifests, manifests.showKept(row, id)));
    expect(ofSnapshot?.predicate).toMatchObject({
      reason: 'snapshot',
      snapshot: { id: 'snp-bbbbbbbbbbbbbbbb' },
      history: { seq: created?.seq, hash: created?.hash },
      turns: { total: 1 },
    });
    expect(ofResume?.predicate).toMatchObject({
      history: { seq: started?.seq, hash: started?.hash },
      turns: { total: 0 },
    });
  });

  test('are bounded for each session, beside those of handoffs, and go with it', async () => {
    const { row, database, manifests } = given();
    database.transaction(await manifests.prepare(row, made));
    const rows = new KeptManifestRows(database);
    const id = (n: number): string => turnId(n).replace('turn-', 'man-');
    const keep = (n: number, text: string): void =>
      rows.insert(row.id, { id: id(n), reason: 'resume', snapshotId: null, madeAt: 5000 + n }, text);
    for (let n = 0; n < 60; n += 1) keep(n, '{}');
    expect(manifests.list(row).manifests).toHaveLength(51);
    expect(manifests.list(row).manifests).toContainEqual(
      expect.objectContaining({ reason: 'handoff', id: manifestId }),
    );
    expect(rows.find(row.id, id(9))).toBe(null);
    expect(rows.find(row.id, id(10))).toBe('{}');
    for (let n = 60; n < 70; n += 1) keep(n, 'x'.repeat(2 ** 20));
    expect(rows.listOf(row.id)).toHaveLength(4);
    keep(70, 'x'.repeat(5 * 2 ** 20));
    expect(rows.listOf(row.id)).toHaveLength(1);
    rows.removeOfSession(row.id);
    expect(manifests.list(row).manifests).toHaveLength(1);
  });

  test('are not kept of a session that was deleted meanwhile', () => {
    const { row, database } = given();
    const rows = new KeptManifestRows(database);
    database.run("UPDATE sessions SET status = 'deleted' WHERE id = ?", row.id);
    rows.insert(row.id, { id: 'man-aaaaaaaaaaaaaaaa', reason: 'resume', snapshotId: null, madeAt: 1 }, '{}');
    expect(rows.listOf(row.id)).toEqual([]);
  });

  test('of a session whose row is damaged are a line in the log, and stop no others', async () => {
    const { row, events, manifests } = given();
    const warnings: unknown[] = [];
    const sessions = {
      get: vi
        .fn<(id: string) => SessionRow | null>(() => row)
        .mockImplementationOnce(() => {
          throw new HoldfastError('home_damaged', 'The row is damaged');
        }),
    };
    const warn: Log['warn'] = (_what, fields) => void warnings.push(fields);
    const automatic = new AutomaticManifests({ events, manifests, sessions, log: { ...log, warn } });
    events.append(row.id, [startedSandbox('one'), startedSandbox('two')]);
    await until(() => manifests.list(row).manifests.length === 1);
    expect(warnings).toMatchObject([{ session: row.id, reason: 'resume' }]);
    await automatic.close();
  });

  test('that cannot be made stop no others', async () => {
    const { home, row, database, events, manifests } = given();
    const warnings: unknown[] = [];
    const automatic = automaticManifests(database, events, manifests, warnings);
    writeFileSync(home.hostKey, 'no key', { mode: 0o600 });
    events.append(row.id, [startedSandbox('agent')]);
    await until(() => warnings.length === 1);
    rmSync(home.hostKey);
    events.append(row.id, [startedSandbox('agent')]);
    await until(() => manifests.list(row).manifests.length === 1);
    await automatic.close();
  });
});

describe('the host key', () => {
  test('is created once, for its owner alone, and is the same for the next supervisor', () => {
    const home = temporaryHome();
    const first = openHostKey(home.hostKey);
    expect(statSync(home.hostKey).mode & 0o777).toBe(0o600);
    expect(openHostKey(Home.open(home.root).hostKey)).toMatchObject({ keyId: first.keyId });
    expect(first.publicKey).toMatch(/^-----BEGIN PUBLIC KEY-----/);
    expect(readdirSync(home.root).filter((name) => name.includes('host-key'))).toEqual(['host-key']);
  });

  test('is never replaced, and not used if it is damaged or others can read it', () => {
    const home = temporaryHome();
    openHostKey(home.hostKey);
    chmodSync(home.hostKey, 0o640);
    expect(thrownError(() => openHostKey(home.hostKey)).code).toBe('home_damaged');
    chmodSync(home.hostKey, 0o600);
    const text = readFileSync(home.hostKey, 'utf8');
    for (const damaged of ['', text.slice(0, 60), 'x'.repeat(5000)]) {
      writeFileSync(home.hostKey, damaged);
      expect(thrownError(() => openHostKey(home.hostKey)).code).toBe('home_damaged');
      expect(readFileSync(home.hostKey, 'utf8')).toBe(damaged);
    }
  });
});
