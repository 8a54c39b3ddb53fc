import { expect, test } from 'vitest';
import { randomIds } from '../../../supervisor/base/ids.ts';
import { SessionRecords } from '../../../supervisor/history/session-records.ts';
import { NewSessionRows } from '../../../supervisor/sessions/new-session-rows.ts';
import { SessionCreation } from '../../../supervisor/sessions/session-creation.ts';
import { sessionView } from '../../../supervisor/sessions/session-view.ts';
import { EgressRules } from '../../../supervisor/store/egress-rules.ts';
import { snapshotFixture } from '../../fixtures/snapshots/snapshot-fixture.ts';

async function given() {
  const base = snapshotFixture();
  base.sidecar.tree = { a: 'one' };
  const { row: from } = await base.take();
  const egressRules = new EgressRules(base.database);
  const put = (scope: 'once' | 'session' | 'profile', effect: 'allow' | 'deny', host: string) =>
    egressRules.put({ scope, owner: from.sessionId, host, effect, tcp: false, ech: false, addedAt: 7 });
  put('session', 'deny', 'a.test');
  put('session', 'allow', 'b.test');
  put('once', 'allow', 'c.test');
  put('session', 'deny', '*.d.test');
  const creation = new SessionCreation({
    ...base,
    egressRules,
    rows: new NewSessionRows({
      ...{ ...base, ids: randomIds, now: Date.now, account: 'ada' },
      engine: { capabilities: () => ({ localPaths: true }) } as never,
    }),
    spares: { find: () => null, take: () => undefined },
    records: new SessionRecords(base.database, base.sessions, base.events, Date.now),
    profiles: undefined as never,
    // Fakes: no workspace is made here.
    engine: undefined as never,
    seeding: { recordIntent: () => undefined },
    restoreIntents: { recordHydration: () => undefined },
    log: undefined as never,
  });
  const profile = { name: base.session().profile, config: { persistence: 'persistent' } } as never;
  return { creation, profile, from, egressRules };
}

test('a session that begins with a snapshot is denied what the session of the snapshot is denied', async () => {
  const { creation, profile, from, egressRules } = await given();
  const fork = creation.insert(profile, { throwaway: true, from });
  const rulesOf = (id: string) =>
    egressRules.listFor(id, 'none').map(({ scope, effect, host }) => [scope, effect, host]);
  expect(rulesOf(fork.id)).toEqual([
    ['session', 'deny', 'a.test'],
    ['session', 'deny', '*.d.test'],
  ]);
  expect(rulesOf(creation.insert(profile, { throwaway: false }).id)).toEqual([]);
  expect(rulesOf(from.sessionId)).toHaveLength(4);
});

test('a session says how it began, of which lineage it is, and who created it', async () => {
  const { creation, profile, from } = await given();
  const derived = {
    ...{ hydration: null, move: null, engineReachable: true, runningTurn: null, queuedTurns: 0 },
    ...{ waiting: 0, lastPrompt: null, lastSeq: 1 },
  };
  const own = sessionView(creation.insert(profile, { throwaway: false }), derived);
  expect(own).toMatchObject({ author: 'ada', lineage: own.id, origin: { kind: 'new', snapshotId: null } });
  expect(sessionView(creation.insert(profile, { throwaway: false, from }), derived)).toMatchObject({
    author: 'ada',
    lineage: from.lineage,
    origin: { kind: 'snapshot', snapshotId: from.id },
  });
});
