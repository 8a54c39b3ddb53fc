import { parseTree, TreeCutter, type TreeEntry } from '../../snapshot-format/entries.ts';
import { EntryCursor } from '../../snapshot-format/entry-cursor.ts';
import { type Folder, keyOf } from './folder.ts';
import { isLeftOut, recordLength, recordName } from './records.ts';

/** The bodies of a folder's `tree` objects. `fresh`: folders in it whose entries are not as they were encoded last. */
export function piecesOf(folder: Folder, fresh: readonly Folder[]): Buffer[] {
  return (folder.areNamesNew ? null : withChanges(folder, fresh)) ?? anew(folder);
}

/** The pieces of a folder of which every name is made anew or parsed. */
function anew(folder: Folder): Buffer[] {
  const before = folder.encoded();
  const below = new Map(folder.folders.map((child) => [keyOf(child.name), child.entry]));
  const entries: TreeEntry[] = [];
  const { records } = folder;
  for (let at = 0; at < records.length; at += recordLength(records, at)) {
    if (isLeftOut(records, at)) continue;
    const key = keyOf(recordName(records, at));
    const entry = below.get(key) ?? before.get(key);
    if (entry !== undefined) entries.push(entry);
  }
  entries.sort((one, other) => one.name.compare(other.name));
  const bodies: Buffer[] = [];
  const cutter = new TreeCutter((body) => bodies.push(body));
  for (const entry of entries) cutter.add(entry);
  cutter.end();
  return bodies;
}

/** The same for one that has the names that it had: what has not changed is copied. Null where a name is missing after all. */
function withChanges(folder: Folder, fresh: readonly Folder[]): Buffer[] | null {
  const { body, pending, changed } = folder;
  const others = new Map<string, TreeEntry>();
  if (pending.length > 0) for (const entry of parseTree(pending)) others.set(keyOf(entry.name), entry);
  for (const [key, entry] of changed) others.set(key, entry);
  for (const child of fresh) others.set(keyOf(child.name), child.entry);
  const bodies: Buffer[] = [];
  const cutter = new TreeCutter((piece) => bodies.push(piece));
  const cursor = new EntryCursor(body);
  while (cursor.next()) {
    const key = body.toString('latin1', cursor.nameAt, cursor.nameEnd);
    const other = others.get(key);
    if (other === undefined) cutter.copy(body, cursor);
    else {
      cutter.add(other);
      others.delete(key);
    }
  }
  cutter.end();
  return others.size === 0 ? bodies : null;
}
