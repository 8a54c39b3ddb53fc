import { HoldfastError } from '../../../protocol/errors.ts';
import { formatPath, parsePath, WORKSPACE } from '../../../protocol/paths.ts';
import { type Hash, SNAPSHOT_LIMITS } from '../../../snapshot-format/objects.ts';
import type { PathSegments } from './differences.ts';

/**
 * Where a comparison continues: the two trees, and the path to resume after. `callerState`: opaque state of the caller.
 */
export interface DiffCursor {
  readonly before: Hash;
  readonly after: Hash;
  readonly resumeAfter: PathSegments;
  readonly callerState: string;
}

const FORM = /^(?<before>[\w-]{43})(?<after>[\w-]{43})(?<rest>[\w-]{0,16})(?<path>(?:\/.*)?)$/s;

export function writeDiffCursor({ before, after, resumeAfter, callerState }: DiffCursor): string {
  const path = formatPath(resumeAfter).slice(WORKSPACE.length);
  return before.toString('base64url') + after.toString('base64url') + callerState + path;
}

/** Errors: `invalid_params` for an invalid cursor. */
export function readDiffCursor(text: string): DiffCursor {
  const { before, after, rest, path } = FORM.exec(text)?.groups ?? {};
  if (before === undefined || after === undefined || rest === undefined || path === undefined) {
    throw new HoldfastError('invalid_params', 'The cursor is not from a comparison', {
      next: 'leave it out to start from the beginning',
    });
  }
  return {
    before: hash(before),
    after: hash(after),
    callerState: rest,
    resumeAfter: parsePath(WORKSPACE + path),
  };
}

function hash(text: string): Hash {
  return Buffer.from(text, 'base64url').subarray(0, SNAPSHOT_LIMITS.hashBytes);
}
