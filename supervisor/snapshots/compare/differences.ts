import type { TreeEntry } from '../../../snapshot-format/entries.ts';
import { isMissing } from '../../../snapshot-format/missing-entry.ts';
import type { ObjectReader } from '../../../snapshot-format/objects.ts';
import type { TimeSlice } from '../../../protocol/time-slice.ts';
import { DirectoryCursor, skipEqualPieces } from './directory-cursor.ts';
import { haveSameContent, isSameEntry } from './entry-equality.ts';

/** The segments of a path below the workspace, as bytes. */
export type PathSegments = readonly Buffer[];

/** Two entries at one path that differ in some attribute. At least one of them is not null. */
export interface Difference {
  readonly path: PathSegments;
  readonly before: TreeEntry | null;
  readonly after: TreeEntry | null;
}

/** One directory of the walk. */
interface Level {
  readonly path: PathSegments;
  readonly before: DirectoryCursor;
  readonly after: DirectoryCursor;
  /** The path to resume after: entries up to and including it are skipped. */
  readonly seek: PathSegments | null;
}

/**
 * All differences between two entries at `path` and below, in path order: by name, a directory before its content.
 * Objects with equal hashes are not read. Holds one piece of each directory on the way down. With `resumeAfter`, only
 * differences after that path.
 */
export async function* differences(
  reader: ObjectReader,
  { path, before, after }: Difference,
  slices: TimeSlice,
  resumeAfter: PathSegments | null = null,
): AsyncGenerator<Difference, void, undefined> {
  if (isMissing(before) || isMissing(after)) return;
  if (!isSameEntry(before, after) && resumeAfter === null) yield { path, before, after };
  const levels: Level[] = [];
  const enter = (difference: Difference, seek: PathSegments | null): void => {
    const level = below(reader, difference, seek);
    if (level !== null) levels.push(level);
  };
  enter({ path, before, after }, resumeAfter?.slice(path.length) ?? null);
  for (let level = levels.at(-1); level !== undefined; level = levels.at(-1)) {
    if (slices.isUsedUp) await slices.yieldToEventLoop();
    const difference = await next(level);
    if (difference === null) {
      levels.pop();
      continue;
    }
    // A file that could not be read on one side may or may not differ.
    if (isMissing(difference.before) || isMissing(difference.after)) continue;
    const order = level.seek === null ? 1 : orderOf(difference, level.seek);
    if (order < 0) continue;
    if (order > 0 && !isSameEntry(difference.before, difference.after)) yield difference;
    enter(difference, order === 0 ? (level.seek?.slice(1) ?? null) : null);
  }
}

/** Negative, zero or positive: the difference is before, at or after the first segment to resume after. */
function orderOf({ path }: Difference, seek: PathSegments): number {
  const [sought] = seek;
  const name = path.at(-1);
  return sought === undefined || name === undefined ? 1 : name.compare(sought);
}

/** The next level of the walk; null when both sides have the same content or no directory. */
function below(
  reader: ObjectReader,
  { path, before, after }: Difference,
  seek: PathSegments | null,
): Level | null {
  const old = before?.type === 'directory' ? before.content : null;
  const now = after?.type === 'directory' ? after.content : null;
  if (old === null && now === null) return null;
  if (before !== null && after !== null && old !== null && now !== null && haveSameContent(before, after)) {
    return null;
  }
  return {
    path,
    before: new DirectoryCursor(reader, old),
    after: new DirectoryCursor(reader, now),
    seek: seek === null || seek.length === 0 ? null : seek,
  };
}

/** The next name of a directory with its entries on both sides. */
async function next({ path, before, after }: Level): Promise<Difference | null> {
  await skipEqualPieces(before, after);
  const old = before.entry;
  const now = after.entry;
  const order = old === null ? 1 : now === null ? -1 : old.name.compare(now.name);
  const name = order <= 0 ? old?.name : now?.name;
  if (name === undefined) return null;
  if (order <= 0) before.advance();
  if (order >= 0) after.advance();
  return { path: [...path, name], before: order <= 0 ? old : null, after: order >= 0 ? now : null };
}
