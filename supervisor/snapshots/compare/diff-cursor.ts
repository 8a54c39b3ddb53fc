import { HoldfastError } from '../../../protocol/errors.ts';
import { formatPath, parsePath, WORKSPACE } from '../../../protocol/paths.ts';
import { type Hash, SNAPSHOT_LIMITS } from '../../../snapshot-format/objects.ts';
import type { Names } from './differences.ts';

/** Where a comparison goes on: of which two trees, behind which path. `rest`: what the caller keeps in it. */
export interface DiffCursor {
  readonly before: Hash;
  readonly after: Hash;
  readonly behind: Names;
  readonly rest: string;
}

const FORM = /^(?<before>[\w-]{43})(?<after>[\w-]{43})(?<rest>[\w-]{0,16})(?<path>(?:\/.*)?)$/s;

export function writeDiffCursor({ before, after, behind, rest }: DiffCursor): string {
  const path = formatPath(behind).slice(WORKSPACE.length);
  return before.toString('base64url') + after.toString('base64url') + rest + path;
}

/** Errors: `invalid_params` for what is none. */
export function readDiffCursor(text: string): DiffCursor {
  const { before, after, rest, path } = FORM.exec(text)?.groups ?? {};
  if (before === undefined || after === undefined || rest === undefined || path === undefined) {
    throw new HoldfastError('invalid_params', 'The cursor is not one that a comparison gave', {
      next: 'leave it out to start from the beginning',
    });
  }
  return { before: hash(before), after: hash(after), rest, behind: parsePath(WORKSPACE + path) };
}

function hash(text: string): Hash {
  return Buffer.from(text, 'base64url').subarray(0, SNAPSHOT_LIMITS.hashBytes);
}
