import type { FileEntry, TreeEntry } from './entries.ts';
import { EMPTY_CONTENT_REF } from './content-ref.ts';

/**
 * The extended attribute that marks a file which could not be read. No real file has it in a tree, because scans keep
 * only attributes whose names begin with `user.`.
 */
const MARK = Buffer.from('holdfast.missing');

/** The entry for a regular file that exists but could not be read. Only the name differs between such entries. */
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

/** Whether the entry stands for a file that could not be read. */
export function isMissing(entry: TreeEntry | null): boolean {
  return entry?.type === 'file' && entry.xattrs.some(({ name }) => name.equals(MARK));
}
