import { formatPath, parsePath } from '../../protocol/paths.ts';
import { REVIEW_LIMITS } from '../../protocol/review.ts';
import { parseHash } from '../../snapshot-format/objects.ts';
import { findEntry } from '../snapshots/compare/find-entry.ts';
import { type ReadPart, SnapshotFiles } from '../snapshots/files/snapshot-files.ts';
import type { LineageStore } from '../snapshots/store/lineage-store.ts';
import { acceptedEdits } from './accepted-edits.ts';
import { editTree } from './accepted-tree.ts';
import { acceptedText } from './line-decisions.ts';
import type { OpenReview } from './reviews.ts';
import { NewObjects } from './store-objects.ts';
import { fileBytes } from '../snapshots/patch/text-comparison.ts';

/**
 * A file as the accepted tree has it, also while that is not stored. Errors: the `file_*` codes.
 */
export async function readAccepted(
  open: OpenReview,
  store: LineageStore,
  { path, offset }: { readonly path: string; readonly offset: number },
  signal?: AbortSignal,
): Promise<Pick<ReadPart, 'size' | 'bytes'>> {
  const { row, compared, decisions } = open;
  const partly = await textOfPart(open, store, path);
  if (partly !== null)
    return { size: partly.length, bytes: partly.subarray(offset, offset + REVIEW_LIMITS.textBytes) };
  const stored = row.acceptedRoot ?? (await rootOfPlain(open, store, path));
  if (stored !== null) return await new SnapshotFiles(store, parseHash(stored)).read(path, { offset });
  // Links, renames and folders that became something else make a path that of another change: only the tree itself is right.
  const objects = new NewObjects(store);
  const root = await editTree(
    parseHash(row.baseRoot),
    parseHash(row.targetRoot),
    await acceptedEdits(compared.units, decisions, objects),
    { reader: objects, sink: objects.add, signal },
  );
  return await new SnapshotFiles(objects, root).read(path, { offset });
}

/** The text of a file that is accepted in part; null for any other path. */
async function textOfPart(
  { compared, decisions }: OpenReview,
  store: LineageStore,
  path: string,
): Promise<Buffer | null> {
  const text = decisions.get(path)?.text ?? null;
  const { before, after } = compared.byKey.get(path) ?? {};
  if (text === null || before?.type !== 'file' || after?.type !== 'file') return null;
  return acceptedText(await fileBytes(store, before), await fileBytes(store, after), text);
}

/** The tree that has the file as the accepted one has it, where that is plain to see; null where it may not be. */
async function rootOfPlain(
  { row, compared, decisions }: OpenReview,
  store: LineageStore,
  path: string,
): Promise<string | null> {
  const unit = compared.byKey.get(path);
  if (unit !== undefined) {
    const isFile = [unit.before, unit.after].every((entry) => entry === null || entry.type === 'file');
    const whole = decisions.get(path)?.whole;
    if (!isFile) return null;
    return whole === 'accept' ? row.targetRoot : row.baseRoot;
  }
  const names = parsePath(path);
  if (names.some((_, length) => compared.byKey.has(formatPath(names.slice(0, length))))) return null;
  if (compared.units.some(({ origin }) => origin !== null && formatPath(origin.path) === path)) return null;
  const entry = await findEntry(store, parseHash(row.baseRoot), names);
  return entry?.type === 'file' ? row.baseRoot : null;
}
