import type { Change } from '../../../protocol/snapshots.ts';
import type { TreeEntry } from '../../../snapshot-format/entries.ts';
import type { ContentRef } from '../../../snapshot-format/content-ref.ts';

type Kind = Exclude<Change['kind'], 'renamed'>;

/** The kind of change of an entry; null when every attribute is equal. */
export function changeKind(before: TreeEntry | null, after: TreeEntry | null): Kind | null {
  if (before === null) return after === null ? null : 'added';
  if (after === null) return 'deleted';
  if (before.type !== after.type) return 'typechange';
  const sameContent = haveSameContent(before, after);
  // Changes inside a directory are reported at their own paths.
  if (!sameContent && before.type !== 'directory') return 'modified';
  return haveSameAttributes(before, after, sameContent) ? null : 'mode';
}

export function isSameEntry(before: TreeEntry | null, after: TreeEntry | null): boolean {
  return changeKind(before, after) === null;
}

/**
 * Whether two entries of one type have the same content. Files with equal bytes but different holes count as different,
 * because telling would mean reading both.
 */
export function haveSameContent(before: TreeEntry, after: TreeEntry): boolean {
  if (before.type === 'file' && after.type === 'file') {
    return (
      before.size === after.size && before.sparse === after.sparse && isSameRef(before.content, after.content)
    );
  }
  if (before.type === 'directory' && after.type === 'directory') {
    return isSameRef(before.content, after.content);
  }
  if (before.type === 'symlink' && after.type === 'symlink') return before.target.equals(after.target);
  return before.type === after.type;
}

function haveSameAttributes(before: TreeEntry, after: TreeEntry, sameContent: boolean): boolean {
  if (before.mode !== after.mode) return false;
  // A changed entry also changes the mtime of its directory, so that alone is not reported.
  if (before.mtimeNs !== after.mtimeNs && (before.type !== 'directory' || sameContent)) return false;
  if (
    before.type !== 'directory' &&
    after.type !== 'directory' &&
    !isSameLinkGroup(before.linkGroup, after.linkGroup)
  ) {
    return false;
  }
  return (
    before.xattrs.length === after.xattrs.length &&
    before.xattrs.every(({ name, value }, index) => {
      const other = after.xattrs[index];
      return other !== undefined && name.equals(other.name) && value.equals(other.value);
    })
  );
}

function isSameLinkGroup(one: Buffer | null, other: Buffer | null): boolean {
  return one === null || other === null ? one === other : one.equals(other);
}

function isSameRef(one: ContentRef, other: ContentRef): boolean {
  return (
    one.depth === other.depth &&
    one.items.length === other.items.length &&
    one.items.every(({ index, hash }, at) => {
      const item = other.items[at];
      return item?.index === index && hash.equals(item.hash);
    })
  );
}
