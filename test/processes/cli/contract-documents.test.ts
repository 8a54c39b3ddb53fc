import { describe, expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { runToEnd } from '../../fixtures/cli/cli-run.ts';
import {
  type FakeHandlers,
  session,
  SESSION_ID,
  turn,
  TURN_ID,
  turnHandlers,
} from '../../fixtures/cli/fake-supervisor.ts';
import { startFakeSupervisor } from '../../fixtures/cli/start-fake-supervisor.ts';

const SNAPSHOT = 'snp-aaaaaaaaaaaaaaaa';
const snapshot = {
  id: SNAPSHOT,
  sessionId: SESSION_ID,
  createdAt: '2026-03-01T11:00:00.000Z',
  reason: 'manual' as const,
  label: null,
  pinned: false,
  base: null,
  files: 2,
  directories: 1,
  bytes: 10,
  changedFiles: 1,
  changedBytes: 5,
  newBytes: 7,
  scanMs: 3,
  frozenMs: 0,
  eventSeq: 4,
  turn: null,
  duringTurn: false,
  missing: 0,
  missingPaths: [],
};
const totals = {
  added: 0,
  modified: 0,
  deleted: 0,
  renamed: 1,
  mode: 0,
  typechange: 0,
  directories: 0,
  bytes: 0,
};
const handlers: FakeHandlers = {
  ...turnHandlers(turn()),
  'session/list': () => ({ sessions: [session()], nextCursor: null }),
  'snapshot/create': () => ({ ...snapshot, created: true }),
  'snapshot/diff': () => ({
    changes: [
      {
        path: 'b',
        oldPath: 'a',
        kind: 'renamed' as const,
        type: 'file' as const,
        oldBytes: 1,
        newBytes: 1,
        oldMode: 0o644,
        newMode: 0o644,
      },
    ],
    totals,
    nextCursor: null,
    caveats: [],
  }),
  'snapshot/fork': () => ({ session: session() }),
  'workspace/info': () => ({
    sessionId: SESSION_ID,
    path: '/srv/w',
    volume: null,
    bytes: 5,
    files: 1,
    directories: 1,
    limit: null,
    lastUsedAt: '2026-03-01T11:57:00.000Z',
    snapshots: { snapshots: 0, bytes: 0, uniqueBytes: 0 },
  }),
  'files/list': () => ({
    entries: [
      {
        name: 'f',
        type: 'file' as const,
        size: 1,
        mtimeMs: 1,
        mtimeNs: '1000000',
        mode: 0o644,
        link: null,
        linkType: null,
      },
    ],
    nextCursor: null,
  }),
  'supervisor/status': () => ({
    pid: 7,
    version: '0.1.0',
    build: 'b',
    home: '/h',
    startedAt: '2026-03-01T11:00:00.000Z',
    epoch: 1,
    rssBytes: 1,
    connections: 1,
    engine: {
      reachable: false,
      endpoint: 'unix:///var/run/docker.sock',
      source: 'default' as const,
      version: null,
      apiVersion: null,
      capabilities: null,
      why: null,
      next: null,
    },
    sessions: {
      created: 0,
      active: 0,
      idle: 0,
      paused: 0,
      resumable: 0,
      expired: 0,
      deleted: 0,
      total: 0,
      live: 0,
    },
    turns: { running: 0, queued: 0 },
    logFile: '/h/logs/supervisor.log',
  }),
};

/** The keys of a document and of what is inside of it: `sessions.0.id`. */
function keysIn(value: unknown, path = ''): string[] {
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([key, inner]) => {
    const at = path === '' ? key : `${path}.${key}`;
    return [at, ...keysIn(inner, at)];
  });
}

/** What scripts and other programs read. Documents may have more keys, but never fewer. */
describe('the contract of --json', () => {
  const below = (path: string, ...keys: string[]): string[] => keys.map((key) => `${path}.${key}`);

  test.each<[string, string[]]>([
    [
      'session list',
      [
        ...below('sessions.0', 'id', 'name', 'profile', 'status', 'persistent', 'createdAt', 'lastActiveAt'),
        ...below('sessions.0', 'pinned', 'starred', 'archived', 'tags', 'workspaceBytes'),
        'nextCursor',
      ],
    ],
    [
      'run counter {}',
      [
        ...['sessionId', 'turnId', 'status', 'output', 'sandbox.reused', 'sandbox.case'],
        ...below('timings', 'dispatchMs', 'turnMs'),
      ],
    ],
    [
      'snapshot create default',
      ['id', 'sessionId', 'files', 'bytes', 'changedFiles', 'newBytes', 'scanMs', 'frozenMs'],
    ],
    [`snapshot diff ${SNAPSHOT} now`, below('changes.0', 'path', 'kind', 'oldPath')],
    [`snapshot fork ${SNAPSHOT}`, ['sessionId', 'name']],
    ['workspace info default', ['path', 'bytes', 'files', 'limit', 'lastUsedAt']],
    ['workspace ls default', below('entries.0', 'name', 'type', 'size', 'mtimeMs', 'mode')],
    ['supervisor status', ['pid', 'version', 'home', 'engine', 'sessions']],
  ])('%s', async (line, keys) => {
    const { home } = await startFakeSupervisor(handlers);
    const { code, stdout, stderr } = await runToEnd([...line.split(' '), '--json'], { home });
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(keysIn(JSON.parse(stdout))).toEqual(expect.arrayContaining(keys));
  });

  test("a handler's output is the JSON value that it returned", async () => {
    const { home } = await startFakeSupervisor(handlers);
    const { stdout } = await runToEnd(['run', 'counter', '{}', '--json'], { home });
    expect(JSON.parse(stdout)).toMatchObject({ turnId: TURN_ID, output: { count: 1 } });
  });
});

describe('the contract of exit codes', () => {
  test.each<[number, string, Partial<FakeHandlers>]>([
    [0, 'session list', {}],
    [
      1,
      'session show nobody',
      {
        'session/show': () => {
          throw new HoldfastError('not_found', 'There is no session nobody');
        },
      },
    ],
    [2, 'session show', {}],
    [130, `turn wait ${TURN_ID}`, turnHandlers(turn({ status: 'cancelled', output: null }))],
  ])('%d: %s', async (expected, line, changed) => {
    const { home } = await startFakeSupervisor({ ...handlers, ...changed });
    const { code, stderr } = await runToEnd(line.split(' '), { home });
    expect(code).toBe(expected);
    if (expected !== 0) expect(stderr).toMatch(/^error [a-z_]+: /);
  });
});
