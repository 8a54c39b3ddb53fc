import { EMPTY_CONTENT_REF } from '../../snapshot-format/content-ref.ts';
import type { FileEntry, TreeEntry } from '../../snapshot-format/entries.ts';
import type { ObjectReader } from '../../snapshot-format/objects.ts';
import type { DecisionState } from '../store/reviews.ts';
import type { TreeEdit } from './accepted-tree.ts';
import { acceptedText } from './line-decisions.ts';
import type { ReviewUnit } from './review-units.ts';
import { fileBytes } from '../snapshots/patch/text-comparison.ts';

/** Reads objects and stores a file with new content and the attributes of `model`. */
export interface EditedFiles extends ObjectReader {
  file(content: Buffer, model: FileEntry): FileEntry;
}

/** The edits that turn the base of a review into its accepted tree. Of a path without a decision there are none. */
export async function acceptedEdits(
  units: readonly ReviewUnit[],
  decisions: ReadonlyMap<string, DecisionState>,
  files: EditedFiles,
): Promise<TreeEdit[]> {
  const edits: TreeEdit[] = [];
  for (const unit of units) {
    const state = decisions.get(unit.key);
    if (state === undefined) continue;
    if (state.whole === 'accept') edits.push(...editsOf(unit));
    else if (state.whole === null) {
      const entry = await partlyAccepted(unit, state, files);
      if (entry !== null) edits.push({ path: unit.path, entry });
    }
  }
  return edits;
}

/** The edits of a unit that is accepted as a whole. */
function editsOf({ path, kind, before, after, origin }: ReviewUnit): TreeEdit[] {
  const isFolder = (entry: TreeEntry | null): boolean => entry === null || entry.type === 'directory';
  if (kind !== 'typechange' && isFolder(before) && isFolder(after)) {
    const entry = after?.type === 'directory' ? { ...after, content: EMPTY_CONTENT_REF } : null;
    return [{ path, entry, folderOnly: true }];
  }
  const edit = { path, entry: after };
  return origin === null ? [edit] : [edit, { path: origin.path, entry: null }];
}

/** The entry of a file of which some lines, or its mode, are accepted; null where nothing is. */
export async function partlyAccepted(
  { before, after }: ReviewUnit,
  { text, mode }: DecisionState,
  files: EditedFiles,
): Promise<FileEntry | null> {
  if (before?.type !== 'file' || after?.type !== 'file') return null;
  const isMode = mode === 'accept';
  const isText = text !== null && text.accepted.removed.length + text.accepted.added.length > 0;
  if (!isMode && !isText) return null;
  const attributes = isMode ? after : before;
  const model = { ...before, mode: attributes.mode, xattrs: attributes.xattrs, mtimeNs: after.mtimeNs };
  if (!isText) return model;
  const content = acceptedText(await fileBytes(files, before), await fileBytes(files, after), text);
  return files.file(content, model);
}
