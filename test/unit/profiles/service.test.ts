import { randomUUID } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { EngineStatus } from '../../../protocol/entities.ts';
import type { DeployResult } from '../../../protocol/deploy-result.ts';
import { HoldfastError } from '../../../protocol/errors.ts';
import { type DeployConnection, type DeployOptions, deployProject } from '../../../project/deploy.ts';
import type { Log } from '../../../supervisor/base/log.ts';
import type { Engine } from '../../../supervisor/engine/port.ts';
import { deployHandlers } from '../../../supervisor/rpc/handlers/deploy.ts';
import { ProfileService } from '../../../supervisor/profiles/service.ts';
import { ProfileSetups } from '../../../supervisor/profiles/profile-setups.ts';
import type { ProfileServiceOptions } from '../../../supervisor/profiles/requests.ts';
import { KeyedMutex } from '../../../supervisor/base/keyed-mutex.ts';
import { EventLog } from '../../../supervisor/history/event-log.ts';
import type { Database } from '../../../supervisor/store/database.ts';
import { EgressRules } from '../../../supervisor/store/egress-rules.ts';
import { Home } from '../../../supervisor/store/home.ts';
import { Operations } from '../../../supervisor/store/operations.ts';
import { Profiles } from '../../../supervisor/store/profiles.ts';
import { DiskReserve } from '../../../supervisor/store/reserve.ts';
import type { SessionRow } from '../../../supervisor/store/sessions.ts';
import { Sessions } from '../../../supervisor/store/sessions.ts';
import { Policies } from '../../../supervisor/egress/policies.ts';
import { temporaryDatabase } from '../../fixtures/store/temporary-home.ts';

/** An engine that fails on demand; a real one cannot. It lacks everything that profiles do not use. */
class FakeEngine {
  reachable = true;
  present = new Set(['holdfast/agent:test']);
  published: string[] = [];
  removed: string[] = [];
  failing: 'publish' | null = null;
  publishing: () => void = () => undefined;
  readonly images = {
    has: async (reference: string) => this.present.has(reference),
    pull: async (reference: string) => {
      if (!reference.startsWith('good/')) {
        throw new HoldfastError('image_not_found', `There is no image ${reference}`);
      }
      this.present.add(reference);
    },
    identity: async () => 'sha256:0',
  };
  status(): EngineStatus {
    return {
      reachable: this.reachable,
      endpoint: 'unix:///fake',
      source: 'default',
      version: null,
      apiVersion: null,
      capabilities: null,
      why: 'it is a fake one',
      next: 'make it reachable',
    };
  }
  async probe(): Promise<EngineStatus> {
    return this.status();
  }
  capabilities() {
    return {
      pause: 'freezer',
      execAttach: true,
      localPaths: false,
      runtimes: ['runc', 'runsc-debug'],
    } as const;
  }
  async publishCode(profile: string, version: number): Promise<void> {
    if (this.failing === 'publish') throw new HoldfastError('engine_error', 'It broke');
    this.published.push(`${profile}/${version}`);
    this.publishing();
  }
  async removeCode(profile: string, version: number): Promise<void> {
    this.removed.push(`${profile}/${version}`);
  }
}

const silent: Log = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {}, child: () => silent };

let folder: string;
let project: string;
let home: Home;
let database: Database;
let engine: FakeEngine;
let rows: SessionRow[];
let deleted: string[];
/** The error of deleting a session; null for success. */
let undeletable: HoldfastError | null;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-deploy-'));
  project = join(folder, 'project');
  mkdirSync(project);
  write('one');
  home = Home.open(join(folder, 'home'));
  database = temporaryDatabase(home);
  engine = new FakeEngine();
  rows = [];
  deleted = [];
  undeletable = null;
});
afterEach(() => {
  database.close();
  rmSync(folder, { recursive: true, force: true });
});

function write(body: string, more = ''): void {
  writeFileSync(
    join(project, 'holdfast.yaml'),
    `name: counter\nagent: { protocol: handler, entry: agent.py }\n${more}`,
  );
  writeFileSync(join(project, 'agent.py'), body);
}

/** The service of one supervisor; a second one simulates a restart after a crash. */
function service(): ProfileService {
  return new ProfileService(serviceOptions());
}

function serviceOptions(): ProfileServiceOptions {
  return {
    home,
    database,
    profiles: new Profiles(database),
    operations: new Operations(database),
    engine: engine as unknown as Engine,
    sessions: {
      sessionsOf: (profile) => rows.filter((row) => row.profile === profile),
      deleteSession: async (id) => {
        if (undeletable !== null) throw undeletable;
        deleted.push(id);
        rows = rows.filter((row) => row.id !== id);
      },
    },
    secretScope: (_profile, name) => (name === 'OPENAI_API_KEY' ? 'all' : null),
    forgetProfile: (profile) => policies().forgetProfile(profile),
    reserve: new DiskReserve(home),
    setups: {
      ensureImage: async ({ image }) => image,
      runAgain: async ({ profile, recordUse }) => {
        recordUse?.(`prepared-for:${profile.name}`);
        return 'setup-a';
      },
      recover: async () => undefined,
      prune: async () => undefined,
    },
    fillWorkspace: async () => undefined,
    log: silent,
    defaultImage: 'holdfast/agent:test',
    mutex: new KeyedMutex(),
    now: () => 1_000_000,
  };
}
const policies = () =>
  new Policies({
    database,
    rules: new EgressRules(database),
    profiles: new Profiles(database),
    sessions: new Sessions(database),
    events: new EventLog(database),
    now: () => 1_000_000,
  });
const deploy = (by = service(), opId: string = randomUUID(), signal = new AbortController().signal) =>
  deployFrom(by, project, opId, signal);

/** Deploys as a client of this service does. */
function deployFrom(
  by: ProfileService,
  directory: string,
  opId: string = randomUUID(),
  signal = new AbortController().signal,
  onDestinations?: DeployOptions['onDestinations'],
): Promise<DeployResult> {
  const peer = { closed: new Promise<void>(() => undefined) };
  const handlers = deployHandlers<typeof peer>({ profiles: by, onDeployed: () => undefined });
  const call = (method: keyof typeof handlers, params: never, options: { readonly bytes?: Uint8Array }) =>
    handlers[method](params, {
      peer,
      signal,
      progress: () => undefined,
      bytes: Buffer.from(options.bytes ?? []),
    } as never);
  const connection = { call } as unknown as DeployConnection;
  const options = { directory, home: home.root, opId, signal, attempts: 1, onDestinations };
  return deployProject(connection, options);
}
const versions = () =>
  readdirSync(join(home.deploys, 'counter'))
    .filter((name) => !name.endsWith('.source.jsonl'))
    .sort();
const session = (id: string, name: string) => ({ id, name, profile: 'counter' }) as SessionRow;

describe('a project that sends a secret for all profiles to a host of its own choice', () => {
  const KEYED = { secret: 'OPENAI_API_KEY', host: 'collect.example', by: 'sessions' };
  const keyed = (hosts: readonly string[]): void => {
    const credentials = hosts.map((host) => `{ host: ${host}, secret: OPENAI_API_KEY, as: bearer }`);
    writeFileSync(
      join(project, 'holdfast.yaml'),
      `name: counter\nagent: { protocol: handler, entry: agent.py }\ncredentials: [${credentials.join(', ')}]\n`,
    );
  };
  const agreeing = (asked: unknown[]) => (list: readonly unknown[]) => {
    asked.push(list);
    return Promise.resolve();
  };

  test('is deployed once a person has agreed, and later without asking', async () => {
    const by = service();
    keyed(['collect.example', 'api.openai.com']);
    await expect(deploy(by)).rejects.toMatchObject({
      code: 'confirmation_required',
      details: { destinations: [KEYED] },
    });
    expect(by.list()).toEqual([]);
    const asked: unknown[] = [];
    await deployFrom(by, project, 'agreed', undefined, agreeing(asked));
    expect(asked).toEqual([[KEYED]]);
    writeFileSync(join(project, 'agent.py'), 'two');
    expect(await deploy(by)).toMatchObject({ replaced: true });
    // Another host is another question, and what was agreed to is no part of it.
    keyed(['collect.example', 'other.example']);
    await deployFrom(by, project, 'again', undefined, agreeing(asked));
    expect(asked[1]).toEqual([{ ...KEYED, host: 'other.example' }]);
  });

  test('is not where the person declines, or the file changes between the question and the deploy', async () => {
    const by = service();
    keyed(['collect.example']);
    const declined = new Error('no');
    await expect(deployFrom(by, project, 'no', undefined, () => Promise.reject(declined))).rejects.toBe(
      declined,
    );
    const swap = (): Promise<void> => {
      keyed(['thief.example']);
      return Promise.resolve();
    };
    await expect(deployFrom(by, project, 'swapped', undefined, swap)).rejects.toMatchObject({
      code: 'confirmation_required',
      details: { destinations: [{ ...KEYED, host: 'thief.example' }] },
    });
    expect(by.list()).toEqual([]);
  });
});

describe('deploy', () => {
  test('creates immutable versions, keeps the current one, and recognizes equal files', async () => {
    const by = service();
    expect(await deploy(by)).toMatchObject({
      replaced: false,
      unchanged: false,
      profile: { name: 'counter', version: 1, files: 2 },
    });
    expect(await deploy(by)).toMatchObject({ replaced: false, unchanged: true, profile: { version: 1 } });
    write('two');
    expect(await deploy(by)).toMatchObject({ replaced: true, unchanged: false, profile: { version: 2 } });
    expect(readFileSync(join(home.deploy('counter', 2), 'agent.py'), 'utf8')).toBe('two');
    expect(versions()).toEqual(['2']);
    expect(existsSync(home.deployedSource('counter', 1))).toBe(false);
    expect(engine.published).toEqual(['counter/1', 'counter/2']);
  });

  test('says which secrets of its credentials are not set', async () => {
    write('one', 'credentials: [openai, anthropic]\n');
    const { warnings } = await deploy();
    expect(warnings).toEqual([
      'The secret ANTHROPIC_API_KEY is not set, and requests to api.anthropic.com are refused until it is: `holdfast secret set ANTHROPIC_API_KEY`',
    ]);
  });

  test('stays as it is when its setup makes another image', async () => {
    const by = service();
    await deploy(by);
    const signal = new AbortController().signal;
    const request = { reportProgress: () => undefined, onOutput: () => undefined, signal };
    const setups = new ProfileSetups(serviceOptions());
    expect(await setups.run('counter', request)).toBe('setup-a');
    expect(by.get('counter')).toMatchObject({ version: 1, incarnation: 1, image: 'prepared-for:counter' });
    expect(versions()).toEqual(['1']);
    await expect(setups.run('nobody', request)).rejects.toMatchObject({ code: 'not_found' });
  });

  test('records the blobs of its files, for every version that is kept', async () => {
    const by = service();
    await deploy(by);
    const files = [
      { path: 'agent.py', blob: '43dd47ea691c90a5fa7827892c70241913351963', head: null },
      { path: 'holdfast.yaml', blob: expect.any(String) as string, head: null },
    ];
    const source = { profile: 'counter', version: 1, origin: null, files, nextCursor: null };
    expect(await by.readSource({ profile: 'counter' })).toEqual(source);
    write('two');
    await deploy(by);
    expect((await by.readSource({ profile: 'counter' })).version).toBe(2);
    await expect(by.readSource({ profile: 'counter', version: 1 })).rejects.toMatchObject({
      code: 'not_found',
    });
    await expect(by.readSource({ profile: 'none' })).rejects.toMatchObject({ code: 'not_found' });
  });

  test('keeps the code of a version that a session’s sandbox uses', async () => {
    const by = service();
    await deploy(by);
    const row = {
      name: 'default',
      profile: 'counter',
      status: 'idle',
      persistent: true,
      throwaway: false,
      backing: 'volume',
    } as const;
    const times = {
      createdAt: 1,
      lastActiveAt: 1,
      statusSince: 1,
      expiresAt: null,
      deletedAt: null,
    } as const;
    const labels = {
      pinned: false,
      starred: false,
      archived: false,
      tags: [],
      model: null,
      about: null,
      workspaceBytes: null,
      lineage: 'ses-aaaaaaaaaaaaaaaa',
      origin: null,
      began: 'new' as const,
      author: null,
    };
    const sessions = new Sessions(database);
    const id = 'ses-aaaaaaaaaaaaaaaa';
    sessions.insert({
      id,
      ...row,
      ...times,
      ...labels,
      uid: 1,
      gid: 1,
      generation: 1,
      homeGeneration: 1,
      codeVersion: 1,
      image: null,
    });
    write('two');
    await deploy(by);
    expect(versions()).toEqual(['1', '2']);
    sessions.update(id, { codeVersion: 2 });
    write('three');
    await deploy(by);
    expect(versions()).toEqual(['2', '3']);
  });

  test('repeated with one opId gives the first result, whatever the folder contains by then', async () => {
    const by = service();
    const first = await deploy(by, 'op-first-1');
    write('two');
    expect(await deploy(by, 'op-first-1')).toEqual(first);
    expect(versions()).toEqual(['1']);
  });

  test.each<[string, () => void, string]>([
    ['a broken profile', () => writeFileSync(join(project, 'holdfast.yaml'), 'name: ['), 'profile_invalid'],
    ['an entry that is not there', () => rmSync(join(project, 'agent.py')), 'profile_invalid'],
    [
      'an entry outside',
      () =>
        writeFileSync(
          join(project, 'holdfast.yaml'),
          'name: counter\nagent: { protocol: handler, entry: ../x.py }',
        ),
      'profile_invalid',
    ],
    ['an image that is nowhere', () => write('two', 'image: bad/image\n'), 'image_not_found'],
    ['the default image missing', () => (engine.present = new Set()), 'image_not_found'],
    ['gVisor, which the engine has', () => write('two', 'runtime: runsc-debug\n'), 'not_supported'],
    ['a runtime the engine has not', () => write('two', 'runtime: runsc\n'), 'not_supported'],
    [
      'a directory where the engine sees none',
      () => write('two', 'workspace: { backing: directory }\n'),
      'not_supported',
    ],
    ['an engine that is gone', () => (engine.reachable = false), 'engine_unavailable'],
    ['an engine that fails half way', () => (engine.failing = 'publish'), 'engine_error'],
  ])('%s: refused, and the profile is unchanged', async (_, break_, code) => {
    const by = service();
    await deploy(by);
    write('two');
    break_();
    await expect(deploy(by)).rejects.toMatchObject({ code });
    expect(by.get('counter').version).toBe(1);
    expect(versions()).toEqual(['1']);
    expect(new Operations(database).pending()).toEqual([]);
  });

  test('an image that is missing is pulled', async () => {
    write('one', 'image: good/image:1\n');
    expect(await deploy()).toMatchObject({ profile: { image: 'good/image:1' } });
  });

  test('that is cancelled leaves nothing and may be repeated with the same opId', async () => {
    const by = service();
    const gone = new HoldfastError('connection_closed', 'The client has gone');
    await expect(deploy(by, 'op-again-1', AbortSignal.abort(gone))).rejects.toMatchObject({
      code: 'connection_closed',
    });
    expect(existsSync(join(home.deploys, 'counter'))).toBe(false);
    expect(await deploy(by, 'op-again-1')).toMatchObject({ profile: { version: 1 } });
  });

  test('from inside the home, where agents write, is refused', async () => {
    const inside = join(home.workspaces, 'ses-aaaaaaaaaaaaaaaa');
    mkdirSync(inside);
    writeFileSync(join(inside, 'holdfast.yaml'), 'name: x\nagent: { protocol: command, command: [sh] }');
    await expect(deployFrom(service(), inside)).rejects.toMatchObject({
      code: 'profile_invalid',
      why: expect.stringContaining('in the home') as string,
    });
    await expect(deployFrom(service(), home.root)).rejects.toMatchObject({ code: 'profile_invalid' });
  });

  test('of one profile runs after a concurrent one', async () => {
    const by = service();
    const both = await Promise.all([deploy(by, 'op-both-1'), deploy(by, 'op-both-2')]);
    // Either may read its folder first; the other finds nothing to do.
    expect(both.map(({ profile }) => profile.version)).toEqual([1, 1]);
    expect(both.filter(({ unchanged }) => unchanged)).toHaveLength(1);
  });

  test('after a crash is rolled back by the next supervisor; its opId starts again', async () => {
    const operations = new Operations(database);
    await deploy();
    const begun = operations.begin({ opId: 'op-crash-1', kind: 'profile/deploy', sessionId: null, data: {} });
    if (!('operation' in begun)) throw new Error('asked before');
    operations.recordStep(begun.operation, 'numbered', { profile: 'counter', version: 2 });
    mkdirSync(home.deploy('counter', 2));
    mkdirSync(`${home.deploy('counter', 2)}.tmp`);
    mkdirSync(home.deployedGitHistory('counter', 2));
    const next = service();
    await next.recover();
    expect(versions()).toEqual(['1']);
    expect(engine.removed).toContain('counter/2');
    write('two');
    expect(await deploy(next, 'op-crash-1')).toMatchObject({ profile: { version: 2 }, replaced: true });
  });

  test('after a crash is rolled back without touching the code of a later deploy', async () => {
    const operations = new Operations(database);
    await deploy();
    const begun = operations.begin({ kind: 'profile/deploy', sessionId: null, data: {} });
    if (!('operation' in begun)) throw new Error('asked before');
    const version = new Profiles(database).reserveVersion('counter', 1);
    operations.recordStep(begun.operation, 'numbered', { profile: 'counter', version, reserved: true });
    const next = service();
    write('two');
    let recovered = Promise.resolve();
    engine.publishing = () => {
      recovered = next.recover();
    };
    const deployed = await deploy(next);
    await recovered;
    expect([version, deployed.profile.version]).toEqual([2, 3]);
    expect([versions(), engine.removed]).toEqual([['3'], ['counter/1', 'counter/2']]);
    expect(operations.pending()).toEqual([]);
  });

  test('recovery ignores operations of this supervisor', async () => {
    const by = service();
    const running = deploy(by);
    await by.recover();
    expect((await running).profile.version).toBe(1);
    expect(versions()).toEqual(['1']);
  });
});

describe('undeploy', () => {
  test('asks for confirmation and says what it would delete', async () => {
    const by = service();
    await deploy(by);
    rows = [session('ses-1', 'default'), session('ses-2', 'other')];
    await expect(by.undeploy('counter', { force: false })).rejects.toMatchObject({
      code: 'confirmation_required',
      why: expect.stringContaining(
        '2 sessions with their workspaces would be deleted for good: default, other',
      ) as string,
    });
    expect(deleted).toEqual([]);
  });

  test('deletes sessions, profile and code; version numbers are never reused', async () => {
    const by = service();
    await deploy(by);
    rows = [session('ses-1', 'default'), session('ses-2', 'other')];
    expect(await by.undeploy('counter', { force: true })).toEqual({ sessionsDeleted: 2 });
    expect([deleted, by.list(), versions()]).toEqual([['ses-1', 'ses-2'], [], []]);
    expect((await deploy(by)).profile.version).toBe(2);
  });

  test('deletes the rules added for the profile, and no others', async () => {
    const by = service();
    await deploy(by);
    const rules = new EgressRules(database);
    const carries = { tcp: false, ech: false };
    const rule = {
      ...({ scope: 'profile', host: 'api.example.com', effect: 'allow', addedAt: 1 } as const),
      ...carries,
    };
    rules.put({ ...rule, owner: 'counter' });
    rules.put({ ...rule, owner: 'other' });
    await by.undeploy('counter', { force: true });
    expect(rules.listFor('ses-1', 'counter')).toEqual([]);
    expect(rules.listFor('ses-1', 'other')).toHaveLength(1);
  });

  test('of an unknown profile gives not_found, and repeated with its opId the first result', async () => {
    const by = service();
    await expect(by.undeploy('counter', { force: true })).rejects.toMatchObject({ code: 'not_found' });
    await deploy(by);
    const first = await by.undeploy('counter', { force: true, opId: 'op-undeploy' });
    expect(await by.undeploy('counter', { force: true, opId: 'op-undeploy' })).toEqual(first);
  });

  test('after a crash is finished by the next supervisor', async () => {
    await deploy();
    rows = [session('ses-2', 'left')];
    const operations = new Operations(database);
    const begun = operations.begin({
      opId: 'op-undeploy',
      kind: 'profile/undeploy',
      sessionId: null,
      data: { profile: 'counter', incarnation: 1, sessionsDeleted: 1 },
    });
    expect('operation' in begun).toBe(true);
    const next = service();
    await next.recover();
    expect([deleted, next.list(), versions()]).toEqual([['ses-2'], [], []]);
    expect(await next.undeploy('counter', { force: true, opId: 'op-undeploy' })).toEqual({
      sessionsDeleted: 2,
    });
  });

  test.each([
    ['for good', 'engine_error', 'op-failed-1'],
    ['because the engine is away', 'engine_unavailable', undefined],
  ] as const)('that failed %s is never resumed and can be repeated', async (_, code, opId) => {
    const by = service();
    await deploy(by);
    rows = [session('ses-1', 'default'), session('ses-2', 'other')];
    undeletable = new HoldfastError(code, 'The session was not deleted');
    await expect(by.undeploy('counter', { force: true, opId })).rejects.toMatchObject({ code });
    undeletable = null;
    await by.recover();
    await service().recover();
    expect(new Operations(database).pending()).toEqual([]);
    expect([deleted, by.list().length]).toEqual([[], 1]);
    // The current deployment of the name must not be affected either.
    write('two');
    await deploy(by);
    await service().recover();
    expect([deleted, by.get('counter').version]).toEqual([[], 2]);
    expect(await by.undeploy('counter', { force: true })).toEqual({ sessionsDeleted: 2 });
  });

  const cutOff = (data: { profile: string; incarnation?: number }) =>
    new Operations(database).begin({ kind: 'profile/undeploy', sessionId: null, data });

  test.each([
    ['before it was resumed', 'write'],
    ['before it was resumed, with the same files', 'leave'],
  ])('after a crash and another deploy %s keeps the profile', async (_, how) => {
    await deploy();
    rows = [session('ses-1', 'default')];
    cutOff({ profile: 'counter', incarnation: 1 });
    const next = service();
    if (how === 'write') write('two');
    await deploy(next);
    await next.recover();
    await service().recover();
    expect([deleted, next.list().length, new Operations(database).pending()]).toEqual([[], 1, []]);
  });

  test('after a crash never deletes another deployment of the name', async () => {
    const by = service();
    await deploy(by);
    await by.undeploy('counter', { force: true });
    await deploy(by);
    rows = [session('ses-1', 'default')];
    cutOff({ profile: 'counter', incarnation: 1 });
    await by.recover();
    expect([deleted, by.list().length, new Operations(database).pending()]).toEqual([[], 1, []]);
  });

  test('of an earlier version that did not record the deployment deletes nothing', async () => {
    const by = service();
    await deploy(by);
    rows = [session('ses-1', 'default')];
    cutOff({ profile: 'counter' });
    await by.recover();
    expect([deleted, by.list().length, new Operations(database).pending()]).toEqual([[], 1, []]);
  });

  test('after a crash waits for an unreachable engine and for nothing else', async () => {
    const by = service();
    await deploy(by);
    rows = [session('ses-1', 'default')];
    cutOff({ profile: 'counter', incarnation: 1 });
    undeletable = new HoldfastError('engine_unavailable', 'There is no engine');
    await by.recover();
    expect(new Operations(database).pending()).toHaveLength(1);
    undeletable = new HoldfastError('engine_error', 'It broke');
    await by.recover();
    expect(new Operations(database).pending()).toEqual([]);
    undeletable = null;
    await by.recover();
    expect([deleted, by.list().length]).toEqual([[], 1]);
  });

  test('that a running deploy overtakes deletes nothing', async () => {
    const by = service();
    await deploy(by);
    rows = [session('ses-1', 'default'), session('ses-2', 'other')];
    let undeployed: Promise<unknown> | undefined;
    engine.publishing = () => {
      undeployed ??= by.undeploy('counter', { force: true }).catch((error: unknown) => error);
    };
    write('two');
    await deploy(by);
    expect(await undeployed).toMatchObject({ code: expect.not.stringMatching('internal') as string });
    expect([deleted, by.list().length]).toEqual([[], 1]);
  });

  test('requested twice at once deletes once', async () => {
    const by = service();
    await deploy(by);
    rows = [session('ses-1', 'default')];
    const both = await Promise.all([
      by.undeploy('counter', { force: true }),
      by.undeploy('counter', { force: true }),
    ]);
    expect([both.map(({ sessionsDeleted }) => sessionsDeleted), deleted]).toEqual([[1, 0], ['ses-1']]);
  });
});
