import { parseTree, TreeSplitter, type TreeEntry } from '../../snapshot-format/entries.ts';
import { EntryCursor } from '../../snapshot-format/entry-cursor.ts';
import { type CachedDirectory, nameKey } from './cached-directory.ts';
import { isDotEntry, direntLength, direntName } from './dirents.ts';

/** The bodies of a folder's `tree` objects. `fresh`: folders in it whose entries are not as they were encoded last. */
export function encodeDirectory(folder: CachedDirectory, fresh: readonly CachedDirectory[]): Buffer[] {
  return (folder.haveNamesChanged ? null : withChanges(folder, fresh)) ?? anew(folder);
}

/** The pieces of a folder of which every name is made anew or parsed. */
function anew(folder: CachedDirectory): Buffer[] {
  const before = folder.decodeEntries();
  const below = new Map(folder.children.map((child) => [nameKey(child.name), child.entry]));
  const entries: TreeEntry[] = [];
  const { dirents } = folder;
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

/** The same for one that has the names that it had: what has not changed is copied. Null where a name is missing after all. */
function withChanges(folder: CachedDirectory, fresh: readonly CachedDirectory[]): Buffer[] | null {
  const { encodedEntries, encodedChanges, changedEntries } = folder;
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
