import { onTestFinished } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import type { Engine, SideState } from '../../../supervisor/engine/port.ts';
import { EventLog } from '../../../supervisor/history/events.ts';
import { Changes } from '../../../supervisor/sessions/changes.ts';
import { randomIds } from '../../../supervisor/sessions/ids.ts';
import { Lanes } from '../../../supervisor/sessions/lanes.ts';
import { SessionRecords } from '../../../supervisor/sessions/records.ts';
import { Freezing } from '../../../supervisor/snapshots/freezing.ts';
import { SnapshotService } from '../../../supervisor/snapshots/service.ts';
import { LineageStores } from '../../../supervisor/snapshots/store/stores.ts';
import { type TakeRequest, type Taken, Takes } from '../../../supervisor/snapshots/takes.ts';
import { TurnSnapshots } from '../../../supervisor/snapshots/turn-snapshots.ts';
import { Freezes } from '../../../supervisor/store/freezes.ts';
import { Operations } from '../../../supervisor/store/operations.ts';
import { Reserve } from '../../../supervisor/store/reserve.ts';
import { type SessionRow, Sessions } from '../../../supervisor/store/sessions.ts';
import { Snapshots } from '../../../supervisor/store/snapshots.ts';
import { Turns } from '../../../supervisor/store/turns.ts';
import {
  newTurn,
  sessionId,
  sessionRow,
  temporaryDatabase,
  temporaryHome,
  turnId,
} from '../store/temporary-home.ts';
import { TestSidecar } from './test-sidecar.ts';

export const SESSION = sessionId(0);
export const OTHER = sessionId(1);

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

/** All that takes snapshots of two sessions, each a lineage of its own, with a sidecar each that a test plays. */
export function room(given: { readonly startAfterMs?: number; readonly beforeDeleteMs?: number } = {}) {
  const home = temporaryHome();
  const database = temporaryDatabase(home);
  const sessions = new Sessions(database);
  for (const n of [0, 1]) sessions.insert(sessionRow(n, { status: 'idle', generation: 1 }));
  const turns = new Turns(database);
  for (const n of [0, 1, 2]) turns.insert(newTurn(n, { sessionId: SESSION }));
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
    turns,
    operations,
    takes,
    reserve: new Reserve(home),
    log,
    beforeDeleteMs: given.beforeDeleteMs,
    now: Date.now,
  });
  const required = { is: false };
  const changes = new Changes();
  const options = {
    takes,
    turns,
    events,
    changes,
    isRequired: () => required.is,
    log,
    startAfterMs: given.startAfterMs,
  };
  const beforeTurns = new TurnSnapshots(options);
  onTestFinished(() => beforeTurns.close());
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
    turns,
    beforeTurns,
    /** As the next supervisor has them. */
    nextBeforeTurns: () => new TurnSnapshots(options),
    required,
    /** Settles when the nth turn may begin. */
    before: (n: number, signal = new AbortController().signal) =>
      beforeTurns.before(service.session(SESSION), turnId(n), signal),
    turnSnapshot: (n: number) => turns.existing(turnId(n)).snapshot,
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
