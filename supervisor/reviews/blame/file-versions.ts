import { BLAME_LIMITS } from '../../../protocol/blame.ts';
import { HoldfastError } from '../../../protocol/errors.ts';
import { parsePath } from '../../../protocol/paths.ts';
import type { FileEntry } from '../../../snapshot-format/entries.ts';
import { type ObjectReader, parseHash } from '../../../snapshot-format/objects.ts';
import { contentKey } from '../../snapshots/compare/renames.ts';
import { resolveEntry } from '../../snapshots/files/resolve.ts';
import { fileBytes } from '../../snapshots/patch/text-comparison.ts';

/** A file in a stored state. */
export interface StoredVersion {
  readonly is: 'file';
  /** The same for the same content. */
  readonly key: string;
  readonly entry: FileEntry;
}

/** What a path held. `absent`: nothing with lines. `unknown`: it cannot be said. */
export type FileVersion = StoredVersion | { readonly is: 'absent' } | { readonly is: 'unknown' };

/** What a path held in a tree. Links are followed as the agent's kernel would. */
export async function versionAt(reader: ObjectReader, root: string, path: string): Promise<FileVersion> {
  try {
    const entry = await resolveEntry(reader, parseHash(root), parsePath(path), path, true);
    if (entry.type !== 'file') return { is: 'absent' };
    return entry.size > BLAME_LIMITS.bytes
      ? { is: 'unknown' }
      : { is: 'file', key: contentKey(entry), entry };
  } catch (error) {
    if (!(error instanceof HoldfastError)) throw error;
    if (error.code === 'file_not_found' || error.code === 'file_not_a_directory') return { is: 'absent' };
    // It could not be read into the snapshot, or the snapshot is damaged: other states may know more.
    if (error.code === 'file_unavailable' || error.code === 'snapshot_damaged') return { is: 'unknown' };
    throw error;
  }
}

/** The bytes of a version; null if they are damaged. */
export async function bytesOf(reader: ObjectReader, entry: FileEntry): Promise<Buffer | null> {
  try {
    return await fileBytes(reader, entry);
  } catch (error) {
    if (error instanceof HoldfastError && error.code === 'snapshot_damaged') return null;
    throw error;
  }
}
