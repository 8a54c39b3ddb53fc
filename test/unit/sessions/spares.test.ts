import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { BackgroundWork } from '../../../supervisor/base/background-work.ts';
import { randomIds } from '../../../supervisor/base/ids.ts';
import { NewSessionRows } from '../../../supervisor/sessions/new-session-rows.ts';
import { Spares } from '../../../supervisor/sessions/spares.ts';
import { Operations } from '../../../supervisor/store/operations.ts';
import type { ProfileRow } from '../../../supervisor/store/profiles.ts';
import { Sessions } from '../../../supervisor/store/sessions.ts';
import { temporaryDatabase } from '../../fixtures/store/temporary-home.ts';

const MINUTE = 60_000;

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** Spares of a database, on an engine that a test can break. */
function given(database = temporaryDatabase()) {
  const operations = new Operations(database);
  const sessions = new Sessions(database);
  const profiles = new Map<string, ProfileRow>();
  /** Sandboxes that exist on the engine, and the files of those that were filled. */
  const engine = { running: new Set<string>(), filled: new Set<string>(), works: true, bytes: 0 };
  const log = { info: () => undefined, warn: () => undefined } as never;
  const background = new BackgroundWork(log);
  const act = (change: () => void) => async (): Promise<void> => {
    await Promise.resolve();
    if (!engine.works) throw new Error('the engine is away');
    change();
  };
  const rows = new NewSessionRows({
    ...{ sessions, ids: randomIds, account: 'ada', now: Date.now },
    engine: { capabilities: () => ({ localPaths: true }) } as never,
  });
  const spares = new Spares({
    ...{ database, operations, rows, background, log },
    profiles: { get: (name) => profiles.get(name) ?? null },
    engine: {
      createWorkspace: act(() => undefined),
      startSidecar: ({ sessionId }) => act(() => void engine.running.add(sessionId))(),
      removeSandbox: (id) => act(() => void engine.running.delete(id))(),
      deleteWorkspace: ({ sessionId }) => act(() => expect(engine.filled).not.toContain(sessionId))(),
      status: () => ({ reachable: true }) as never,
    },
    seeding: {
      fillAhead: async ({ id }, { version, image }) => {
        await act(() => void engine.filled.add(id))();
        return { version, image, files: 1, bytes: 1 };
      },
    },
    sidecars: { acquireLease: () => () => undefined },
    connect: (id) =>
      Promise.resolve({
        clearWorkspace: () => Promise.resolve({ files: Number(engine.filled.delete(id)), bytes: 0 }),
        clearHome: () => Promise.resolve({ files: 0, bytes: 0 }),
        close: () => undefined,
      }) as never,
    isPrepared: ({ image }) => image.startsWith('prepared'),
    templateBytes: () => engine.bytes,
  });
  const profile = (name: string, more: Partial<ProfileRow> = {}): ProfileRow => {
    const config = {
      name,
      agent: { protocol: 'command', command: ['sh'] },
      persistence: 'persistent',
      env: {},
    };
    const row = { name, version: 1, image: 'prepared', config, ...more } as unknown as ProfileRow;
    profiles.set(name, row);
    return row;
  };
  const started = async (name: string): Promise<void> => {
    spares.makeSoon(name);
    await vi.advanceTimersByTimeAsync(1000);
    await background.settled();
  };
  return { database, operations, sessions, spares, engine, background, profiles, profile, started };
}

describe('what is made ahead for the next session', () => {
  test('is of a prepared profile, one at a time, and has a uid that no session gets', async () => {
    const { spares, engine, profile, started, sessions } = given();
    const made = profile('made');
    await started('made');
    await started('made');
    expect(engine.running.size).toBe(1);
    const spare = spares.find(made);
    expect([...engine.filled]).toEqual([spare?.row.id]);
    expect(spares.has(spare?.row.id ?? '')).toBe(true);
    if (process.getuid?.() === 0) expect(sessions.allocateUid()).not.toBe(spare?.row.uid);
    const plain = profile('plain', { image: 'alpine' });
    await started('plain');
    expect(spares.find(plain)).toBeNull();
    engine.bytes = 2 ** 30 + 1;
    const large = profile('large');
    await started('large');
    expect(spares.find(large)).toBeNull();
    await spares.close();
  });

  test('is taken once, with the transaction that creates its session', async () => {
    const { database, spares, profile, started } = given();
    const made = profile('made');
    await started('made');
    const spare = spares.find(made);
    if (spare === null) throw new Error('there is no spare');
    const failed = (): void => {
      spares.take(spare);
      expect(spares.find(made)).toBeNull();
      throw new Error('the name is in use');
    };
    expect(() => database.transaction(failed)).toThrow('in use');
    expect(spares.find(made)).toBe(spare);
    database.transaction(() => spares.take(spare));
    expect([spares.find(made), spares.has(spare.row.id)]).toEqual([null, false]);
    await spares.close();
  });

  test('goes after ten minutes, with another version, when two others came, and with the supervisor', async () => {
    const { spares, engine, profile, started, background } = given();
    profile('old');
    await started('old');
    await vi.advanceTimersByTimeAsync(10 * MINUTE);
    await background.settled();
    expect([engine.running.size, engine.filled.size]).toEqual([0, 0]);
    const first = profile('first');
    for (const name of ['first', 'second', 'third']) {
      profile(name);
      await started(name);
    }
    expect([engine.running.size, spares.find(first)]).toEqual([2, null]);
    const newer = profile('third', { version: 2 });
    expect(spares.find(newer)).toBeNull();
    spares.removeOutdated('third');
    await background.settled();
    expect(engine.running.size).toBe(1);
    await spares.close();
    expect([engine.running.size, engine.filled.size]).toEqual([0, 0]);
  });

  test('is removed by the next supervisor, or once the engine is back', async () => {
    const { database, operations, engine, spares, profile, started } = given();
    profile('made');
    engine.works = false;
    await started('made');
    const left = operations.pending();
    expect(left).toHaveLength(1);
    engine.works = true;
    await spares.recover();
    expect(operations.pending()).toEqual([]);
    await started('made');
    const [id = ''] = engine.running;
    // This supervisor is killed; the next one knows nothing but what is stored.
    const next = given(database);
    next.engine.running.add(id);
    next.engine.filled.add(id);
    expect(next.spares.has(id)).toBe(true);
    await next.spares.recover();
    expect([next.engine.running.size, next.engine.filled.size, next.spares.has(id)]).toEqual([0, 0, false]);
  });

  test('is removed with the next one where its removal failed, and counts until then', async () => {
    const { operations, engine, spares, profile, started, background } = given();
    for (const name of ['first', 'second']) {
      profile(name);
      await started(name);
    }
    profile('third');
    engine.works = false;
    // Three removals fail: both after ten minutes, and that of the first as the third is to be made.
    await vi.advanceTimersByTimeAsync(10 * MINUTE);
    await background.settled();
    await started('third');
    expect(operations.pending()).toHaveLength(2);
    expect(engine.running.size).toBe(2);
    engine.works = true;
    await started('third');
    const [left, ...more] = operations.pending();
    expect([[...engine.running], [...engine.filled], more]).toEqual([
      [left?.sessionId],
      [left?.sessionId],
      [],
    ]);
    engine.works = false;
    await vi.advanceTimersByTimeAsync(10 * MINUTE);
    await background.settled();
    expect(operations.pending()).toHaveLength(1);
    engine.works = true;
    await spares.close();
    expect([engine.running.size, engine.filled.size, operations.pending()]).toEqual([0, 0, []]);
  });
});
