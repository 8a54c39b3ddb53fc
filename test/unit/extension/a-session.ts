import type { Session } from '../../../protocol/entities.ts';

/** One that is idle and has nothing to tell. */
export function session(more: Partial<Session>): Session {
  return {
    id: 'ses-aaaaaaaaaaaaaaaa',
    name: 'default',
    profile: 'counter',
    status: 'idle',
    persistent: true,
    autoRemove: false,
    createdAt: '2026-01-01T00:00:00.000Z',
    author: 'ada',
    lineage: 'ses-aaaaaaaaaaaaaaaa',
    origin: { kind: 'new', snapshotId: null },
    lastActiveAt: '2026-01-01T00:00:00.000Z',
    expiresAt: null,
    pinned: false,
    starred: false,
    archived: false,
    tags: [],
    model: null,
    workspaceBytes: null,
    backing: 'directory',
    hydration: null,
    move: null,
    engineReachable: true,
    runningTurn: null,
    queuedTurns: 0,
    waiting: 0,
    about: null,
    lastPrompt: null,
    lastSeq: 1,
    ...more,
  };
}
