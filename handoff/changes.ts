import { HoldfastError } from '../protocol/errors.ts';
import {
  HANDOFF_LIMITS,
  type HANDOFF_METHODS,
  type HandoffEntry,
  type HandoffSide,
} from '../protocol/handoff.ts';
import type { Params, Result } from '../protocol/methods.ts';
import { parsePath } from '../protocol/paths.ts';
import type { CallOptions, CallResult } from '../protocol/wire/shapes.ts';
import { fromBytes, type RawPath } from '../project/raw-path.ts';

type HandoffMethod = keyof typeof HANDOFF_METHODS;

/** The connection to a supervisor, which may be on another machine. */
export interface HandoffConnection {
  callWithBytes<M extends HandoffMethod>(
    method: M,
    params: Params<M>,
    options?: CallOptions,
  ): Promise<CallResult<Result<M>>>;
}

/** A file that differs, by its path in the workspace. */
export interface Change {
  /** Bytes of the path relative to the workspace. */
  readonly path: RawPath;
  readonly before: HandoffSide | null;
  readonly after: HandoffSide | null;
  /** Where the supervisor lists it. */
  readonly page: string | undefined;
  readonly index: number;
}

export interface ChangeList {
  readonly changes: readonly Change[];
  /** Entries whose path cannot be read, as the supervisor wrote it. */
  readonly unreadable: readonly string[];
}

export interface TreeNames {
  readonly session: string;
  readonly base: string;
  readonly target: string;
}

/** All files that differ between two trees of a session. Errors: `output_limit`. */
export async function listChanges(
  connection: HandoffConnection,
  trees: TreeNames,
  signal?: AbortSignal,
): Promise<ChangeList> {
  const changes: Change[] = [];
  const unreadable: string[] = [];
  let cursor: string | undefined;
  do {
    const params = { ...trees, ...(cursor === undefined ? {} : { cursor }) };
    const { result } = await connection.callWithBytes('handoff/changes', params, { signal });
    for (const [index, entry] of result.entries.entries()) {
      const path = readPath(entry);
      if (path === null) unreadable.push(entry.path);
      else changes.push({ path, before: entry.before, after: entry.after, page: cursor, index });
    }
    if (changes.length > HANDOFF_LIMITS.files) {
      throw new HoldfastError('output_limit', 'The handoff was not begun', {
        why: `more than ${HANDOFF_LIMITS.files} files have changed`,
        next: 'choose some of them with --paths',
      });
    }
    const next = result.nextCursor ?? undefined;
    if (next === cursor && next !== undefined)
      throw new HoldfastError('protocol_error', 'The list of changes does not advance');
    cursor = next;
  } while (cursor !== undefined);
  return { changes, unreadable };
}

/** Null for a path that is none: it is reported and left out. */
function readPath({ path }: HandoffEntry): RawPath | null {
  try {
    return parsePath(path)
      .map((name) => fromBytes(name))
      .join('/');
  } catch (error) {
    if (error instanceof HoldfastError) return null;
    throw error;
  }
}

/** What one answer has of contents that follow one another. */
export interface ContentsPart {
  readonly bytes: Uint8Array;
  /** The changes that the bytes belong to, and how many of them belong to each. */
  readonly pieces: readonly { readonly change: Change; readonly size: number }[];
}

/**
 * The contents of one side of these changes, in order, an answer at a time. Every content has exactly the size that was listed.
 * Errors: `protocol_error`.
 */
export async function* readContents(
  connection: HandoffConnection,
  trees: TreeNames,
  side: 'before' | 'after',
  changes: readonly Change[],
  signal?: AbortSignal,
): AsyncGenerator<ContentsPart, void, undefined> {
  for (const group of byPage(changes)) {
    let at = 0;
    let offset = 0;
    while (at < group.length) {
      const rest = group.slice(at);
      const page = rest[0]?.page;
      const { result, bytes } = await connection.callWithBytes(
        'handoff/contents',
        {
          ...trees,
          ...(page === undefined ? {} : { cursor: page }),
          side,
          wanted: rest.map(({ index }) => index),
          offset,
        },
        { signal },
      );
      let from = 0;
      const pieces: { change: Change; size: number }[] = [];
      const before = at * 2 ** 40 + offset;
      for (const size of result.sizes) {
        const change = group[at];
        if (change === undefined || from + size > bytes.length) throw mismatch();
        pieces.push({ change, size });
        from += size;
        offset += size;
        const whole = change[side]?.size ?? 0;
        if (offset > whole) throw mismatch();
        if (offset < whole) break;
        at += 1;
        offset = 0;
      }
      if (from !== bytes.length || at * 2 ** 40 + offset === before) throw mismatch();
      yield { bytes, pieces };
    }
  }
}

function* byPage(changes: readonly Change[]): Generator<Change[]> {
  let group: Change[] = [];
  for (const change of changes) {
    if (group.length > 0 && group[0]?.page !== change.page) {
      yield group;
      group = [];
    }
    group.push(change);
  }
  if (group.length > 0) yield group;
}

function mismatch(): HoldfastError {
  return new HoldfastError('protocol_error', 'The supervisor sent other contents than it had listed', {
    next: 'hand off again',
  });
}
