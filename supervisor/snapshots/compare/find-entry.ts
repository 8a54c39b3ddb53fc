import {
  type DirectoryEntry,
  entriesOf,
  parseRoot,
  type TreeEntry,
} from '../../../snapshot-format/entries.ts';
import { type Hash, OBJECT_KINDS, type ObjectReader } from '../../../snapshot-format/objects.ts';
import type { PathSegments } from './differences.ts';

/** The entry of a tree at a path; null when there is none. Symbolic links are not followed. */
export async function findEntry(
  reader: ObjectReader,
  root: Hash,
  path: PathSegments,
): Promise<TreeEntry | null> {
  let found: TreeEntry = parseRoot(await reader.read(root, OBJECT_KINDS.root));
  for (const name of path) {
    if (found.type !== 'directory') return null;
    const child: TreeEntry | null = await findChild(reader, found, name);
    if (child === null) return null;
    found = child;
  }
  return found;
}

/** The entry with this name; null when there is none. */
export async function findChild(
  reader: ObjectReader,
  directory: DirectoryEntry,
  name: Buffer,
): Promise<TreeEntry | null> {
  for await (const entry of entriesOf(reader, directory)) {
    const order = entry.name.compare(name);
    if (order === 0) return entry;
    if (order > 0) return null;
  }
  return null;
}
