import type { ExtendedAttribute, TreeEntry } from '../../snapshot-format/entries.ts';
import type { ContentRef } from '../../snapshot-format/content-ref.ts';

/** Equal except for the name. */
export function areSameEntries(one: TreeEntry, other: TreeEntry): boolean {
  return haveSameContent(one, other) && haveSameGroup(one, other) && haveSameAttributes(one, other);
}

/** The same type and content; for a directory, the same tree. */
export function haveSameContent(one: TreeEntry, other: TreeEntry): boolean {
  switch (one.type) {
    case 'file':
      return (
        other.type === 'file' &&
        one.size === other.size &&
        one.sparse === other.sparse &&
        areSameRefs(one.content, other.content)
      );
    case 'directory':
      return other.type === 'directory' && areSameRefs(one.content, other.content);
    case 'symlink':
      return other.type === 'symlink' && one.target.equals(other.target);
    case 'fifo':
    case 'socket':
      return other.type === one.type;
  }
}

export function haveSameGroup(one: TreeEntry, other: TreeEntry): boolean {
  const group = groupOf(one);
  const otherGroup = groupOf(other);
  return group === null || otherGroup === null ? group === otherGroup : group.equals(otherGroup);
}

/** Equal in everything that can be changed in place. */
export function haveSameAttributes(one: TreeEntry, other: TreeEntry): boolean {
  return one.mtimeNs === other.mtimeNs && one.mode === other.mode && areSameXattrs(one.xattrs, other.xattrs);
}

export function groupOf(entry: TreeEntry): Buffer | null {
  return entry.type === 'directory' ? null : entry.linkGroup;
}

export function areSameXattrs(
  one: readonly ExtendedAttribute[],
  other: readonly ExtendedAttribute[],
): boolean {
  if (one.length !== other.length) return false;
  return one.every(({ name, value }, at) => {
    const twin = other[at];
    return twin?.name.equals(name) === true && twin.value.equals(value);
  });
}

function areSameRefs(one: ContentRef, other: ContentRef): boolean {
  if (one.depth !== other.depth || one.items.length !== other.items.length) return false;
  return one.items.every(({ index, hash }, at) => {
    const twin = other.items[at];
    return twin?.index === index && twin.hash.equals(hash);
  });
}
