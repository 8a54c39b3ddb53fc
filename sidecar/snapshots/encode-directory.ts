import { parseTree, TreeSplitter, type TreeEntry } from '../../snapshot-format/entries.ts';
import { EntryCursor } from '../../snapshot-format/entry-cursor.ts';
import { type CachedDirectory, nameKey } from './cached-directory.ts';
import { isDotEntry, direntLength, direntName } from './dirents.ts';

/** Encodes a directory as the bodies of its `tree` objects. `fresh`: children whose entries have changed. */
export function encodeDirectory(directory: CachedDirectory, fresh: readonly CachedDirectory[]): Buffer[] {
  return (directory.haveNamesChanged ? null : encodeChanges(directory, fresh)) ?? encodeAll(directory);
}

/** Encodes every entry again. */
function encodeAll(directory: CachedDirectory): Buffer[] {
  const before = directory.decodeEntries();
  const below = new Map(directory.children.map((child) => [nameKey(child.name), child.entry]));
  const entries: TreeEntry[] = [];
  const { dirents } = directory;
  for (let at = 0; at < dirents.length; at += direntLength(dirents, at)) {
    if (isDotEntry(dirents, at)) continue;
    const key = nameKey(direntName(dirents, at));
    const entry = below.get(key) ?? before.get(key);
    if (entry !== undefined) entries.push(entry);
  }
  entries.sort((one, other) => one.name.compare(other.name));
  const bodies: Buffer[] = [];
  const cutter = new TreeSplitter((body) => bodies.push(body));
  for (const entry of entries) cutter.add(entry);
  cutter.end();
  return bodies;
}

/** Copies unchanged entries as bytes, for a directory with unchanged names. Null if a name is missing after all. */
function encodeChanges(directory: CachedDirectory, fresh: readonly CachedDirectory[]): Buffer[] | null {
  const { encodedEntries, encodedChanges, changedEntries } = directory;
  const others = new Map<string, TreeEntry>();
  if (encodedChanges.length > 0)
    for (const entry of parseTree(encodedChanges)) others.set(nameKey(entry.name), entry);
  for (const [key, entry] of changedEntries) others.set(key, entry);
  for (const child of fresh) others.set(nameKey(child.name), child.entry);
  const bodies: Buffer[] = [];
  const cutter = new TreeSplitter((piece) => bodies.push(piece));
  const cursor = new EntryCursor(encodedEntries);
  while (cursor.next()) {
    const key = encodedEntries.toString('latin1', cursor.nameAt, cursor.nameEnd);
    const other = others.get(key);
    if (other === undefined) cutter.copy(encodedEntries, cursor);
    else {
      cutter.add(other);
      others.delete(key);
    }
  }
  cutter.end();
  return others.size === 0 ? bodies : null;
}
