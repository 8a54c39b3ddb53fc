import type { SessionRow } from '../supervisor/store/sessions.ts';

/** `ses-` and 16 letters derived from a number. */
export const sessionId = (n: number): string =>
  `ses-${Array.from({ length: 16 }, (_, place) => String.fromCharCode(97 + (Math.floor(n / 26 ** place) % 26))).join('')}`;

/** A session that was used and stopped. */
export function benchSession(n: number): SessionRow {
  return {
    id: sessionId(n),
    name: `session ${n}`,
    profile: 'counter',
    status: 'resumable',
    persistent: true,
    throwaway: false,
    backing: 'directory',
    uid: 200_000 + n,
    gid: 200_000 + n,
    generation: 3,
    homeGeneration: 3,
    codeVersion: 2,
    image: null,
    createdAt: 1_700_000_000_000 + n,
    lastActiveAt: 1_700_000_000_000 + ((n * 7919) % 1009),
    statusSince: 1_700_000_000_000,
    expiresAt: 1_800_000_000_000,
    deletedAt: null,
    pinned: n % 7 === 0,
    starred: false,
    archived: false,
    tags: ['bench', `t${n % 10}`],
    model: null,
    about: 'Count to a number that is greater than the one before',
    workspaceBytes: 4096 * n,
    lineage: sessionId(n),
    origin: null,
    began: 'new',
    author: null,
  };
}
