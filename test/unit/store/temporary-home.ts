import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { openDatabase } from '../../../supervisor/store/database.ts';
import type { Database } from '../../../supervisor/store/database.ts';
import { Home } from '../../../supervisor/store/home.ts';
import type { SessionRow } from '../../../supervisor/store/sessions.ts';
import { type NewTurn, UNSTARTED_TURN } from '../../../supervisor/store/turns.ts';
import { HoldfastError } from '../../../protocol/errors.ts';

/** A folder that goes when the test ends. */
export function temporaryDirectory(): string {
  const directory = mkdtempSync(join(tmpdir(), 'holdfast-store-'));
  onTestFinished(() => {
    rmSync(directory, { recursive: true, force: true });
  });
  return directory;
}

export function temporaryHome(): Home {
  return Home.open(join(temporaryDirectory(), 'home'));
}

/** A database on the disk, closed when the test ends. */
export function temporaryDatabase(home = temporaryHome()): Database {
  const database = openDatabase(home);
  onTestFinished(() => {
    database.close();
  });
  return database;
}

/** A disk of its own with 24 MB; null where this process may not make one. */
export function smallDisk(): string | null {
  const directory = temporaryDirectory();
  if (spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=24m,mode=700', 'tmpfs', directory]).status !== 0)
    return null;
  onTestFinished(() => {
    execFileSync('umount', [directory]);
  });
  return directory;
}

/** `ses-` and 16 letters that say which one it is. */
export function sessionId(n: number): string {
  return `ses-${idLetters(n)}`;
}

export function turnId(n: number): string {
  return `turn-${idLetters(n)}`;
}

function idLetters(n: number): string {
  return Array.from({ length: 16 }, (_, place) =>
    String.fromCharCode(97 + (Math.floor(n / 26 ** place) % 26)),
  ).join('');
}

export function sessionRow(n: number, changes: Partial<SessionRow> = {}): SessionRow {
  return {
    id: sessionId(n),
    name: `session ${n}`,
    profile: 'counter',
    status: 'created',
    persistent: true,
    throwaway: false,
    backing: 'directory',
    uid: 1000,
    gid: 1000,
    generation: 0,
    codeVersion: null,
    createdAt: 1000 + n,
    lastActiveAt: 1000 + n,
    statusSince: 1000 + n,
    expiresAt: null,
    deletedAt: null,
    pinned: false,
    starred: false,
    archived: false,
    tags: [],
    model: null,
    about: null,
    workspaceBytes: null,
    lineage: sessionId(n),
    origin: null,
    ...changes,
  };
}

export function newTurn(n: number, changes: Partial<NewTurn> = {}): NewTurn {
  return {
    ...UNSTARTED_TURN,
    id: turnId(n),
    sessionId: sessionId(0),
    kind: 'command',
    createdAt: 2000,
    timeoutMs: 60_000,
    input: Buffer.from('hello'),
    ...changes,
  };
}

/** The error that `fn` throws, which must be one of ours. */
export function failureOf(fn: () => unknown): HoldfastError {
  try {
    fn();
  } catch (error) {
    if (error instanceof HoldfastError) return error;
    throw error;
  }
  throw new Error('it did not fail');
}

/** The error that `promise` rejects with, which must be one of ours. */
export async function errorOf(promise: Promise<unknown>): Promise<HoldfastError> {
  const error = await promise.then(
    () => null,
    (reason: unknown) => reason,
  );
  if (error instanceof HoldfastError) return error;
  throw new Error('it did not fail in a way of ours', { cause: error });
}

/** The same numbers for the same seed: mulberry32. */
export function randomFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}
