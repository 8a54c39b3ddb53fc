import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { randomIds } from '../../../supervisor/base/ids.ts';
import type { Log } from '../../../supervisor/base/log.ts';
import type { Engine } from '../../../supervisor/engine/port.ts';
import { checkProfile } from '../../../supervisor/profiles/read.ts';
import { PUBLIC_SOURCES } from '../../../supervisor/setup/package-sources.ts';
import { Setups, type SetupsOptions } from '../../../supervisor/setup/setups.ts';
import { SetupRows } from '../../../supervisor/store/setups.ts';
import { temporaryDatabase, temporaryHome } from '../../fixtures/store/temporary-home.ts';

const PROFILE = checkProfile(
  'name: coder\nagent: { protocol: command, command: [cat] }\nsetup: { packages: { pip: [pip] } }\n',
);

/** An engine whose workspaces are folders of a home; `failures` says what it refuses. */
function fixture() {
  const home = temporaryHome();
  const rows = new SetupRows(temporaryDatabase(home));
  const seen: string[] = [];
  const failures = { prepare: false, deleteWorkspace: false };
  const folders = (id: string) => [join(home.workspaces, id), join(home.agentHomes, id)];
  const nothing = () => Promise.resolve();
  const engine = {
    capabilities: () => ({ localPaths: true, builds: true }),
    images: {
      id: () => Promise.resolve('sha256:1'),
      identity: () => Promise.resolve('sha256:1'),
      isPrepared: () => Promise.resolve(false),
    },
    createWorkspace: ({ sessionId }: { sessionId: string }) => {
      for (const folder of folders(sessionId)) mkdirSync(folder, { recursive: true });
      return Promise.resolve();
    },
    deleteWorkspace: ({ sessionId }: { sessionId: string }) => {
      seen.push(rows.get(sessionId)?.state ?? 'none');
      if (failures.deleteWorkspace) return Promise.reject(new HoldfastError('engine_unavailable', 'gone'));
      for (const folder of folders(sessionId)) rmSync(folder, { recursive: true, force: true });
      return Promise.resolve();
    },
    prepare: ({ sandbox }: { sandbox: { sessionId: string } }) => {
      for (const folder of folders(sandbox.sessionId)) writeFileSync(join(folder, 'secret'), 'plaintext');
      return failures.prepare
        ? Promise.reject(new HoldfastError('setup_failed', 'A secret is in it'))
        : Promise.resolve({ reference: 'prepared:1', imageId: 'sha256:2', bytes: 1 });
    },
    ...{ startSidecar: nothing, startSandbox: nothing, stopAgent: nothing, removeSandbox: nothing },
    ...{ removeObject: nothing, removeBuildLeftovers: nothing },
  } as unknown as Engine;
  const log = { info: () => undefined, warn: () => undefined } as unknown as Log;
  const options = {
    ...{ home, rows, engine, log, ids: randomIds, now: Date.now },
    policies: { declare: () => undefined, withdraw: () => undefined },
    egress: { setLive: () => undefined, waitUntilReady: nothing },
    owner: () => ({ uid: 1, gid: 1 }),
    takesRequests: () => Promise.resolve(true),
    connect: () => Promise.reject(new Error('there are no commands')),
    templates: { remove: nothing, list: () => Promise.resolve([]) },
    secrets: {},
    sources: () => PUBLIC_SOURCES,
    profiles: { list: () => [] },
  } as unknown as SetupsOptions;
  const setups = new Setups(options);
  const run = () =>
    setups.ensureImage({
      ...{ profile: PROFILE, image: 'base', seed: null, build: null },
      reportProgress: () => undefined,
      signal: new AbortController().signal,
    });
  const left = (): boolean => rows.list().some(({ id }) => folders(id).some((path) => existsSync(path)));
  const states = (): string => {
    const all = rows.list().map(({ state }) => state);
    return all.join();
  };
  return { setups, run, left, states, seen, failures };
}

test('the end of a setup is recorded when nothing of it is left', async () => {
  const good = fixture();
  await good.run();
  expect([good.seen, good.states(), good.left()]).toEqual([['running'], 'done', false]);
  const bad = fixture();
  bad.failures.prepare = true;
  await expect(bad.run()).rejects.toMatchObject({ code: 'setup_failed' });
  expect([bad.seen, bad.states(), bad.left()]).toEqual([['running'], 'failed', false]);
});

test('what could not be removed is removed by the next recovery', async () => {
  for (const prepare of [true, false]) {
    const at = fixture();
    Object.assign(at.failures, { prepare, deleteWorkspace: true });
    await at.run().catch(() => undefined);
    expect([at.states(), at.left()]).toEqual([prepare ? 'running' : 'done', true]);
    await at.setups.recover();
    expect(at.left()).toBe(true);
    at.failures.deleteWorkspace = false;
    await at.setups.recover();
    expect([at.states(), at.left()]).toEqual([prepare ? 'failed' : 'done', false]);
  }
});
