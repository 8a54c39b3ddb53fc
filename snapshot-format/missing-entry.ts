import type { FileEntry, TreeEntry } from './entries.ts';
import { EMPTY_CONTENT_REF } from './content-ref.ts';

/**
 * Marks the entry of a file that could not be read. No file of a workspace has such an attribute: scans keep those of users alone, whose
 * names begin with `user.`.
 */
const MARK = Buffer.from('holdfast.missing');

/** Stands in a tree for a regular file that was there and could not be read. The same for all of them but for the name. */
export function missingEntry(name: Buffer): FileEntry {
  return {
    name,
    mode: 0,
    mtimeNs: 0n,
    xattrs: [{ name: MARK, value: Buffer.alloc(0) }],
    linkGroup: null,
    type: 'file',
    size: 0,
    sparse: false,
    content: EMPTY_CONTENT_REF,
  };
}

/** The tree does not know what is at this path, only that something is. */
export function isMissing(entry: TreeEntry | null): boolean {
  return entry?.type === 'file' && entry.xattrs.some(({ name }) => name.equals(MARK));
}
