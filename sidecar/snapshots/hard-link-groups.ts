import { createHash } from 'node:crypto';
import type { TreeEntry } from '../../snapshot-format/entries.ts';
import { isMissing } from '../../snapshot-format/missing-entry.ts';
import { SNAPSHOT_LIMITS } from '../../snapshot-format/objects.ts';
import { type CachedDirectory, nameKey } from './cached-directory.ts';
import { groupOf } from './compare-entries.ts';
import { type EntryLocation, pathOf, type WalkResult } from './walk.ts';

const { linkGroupBytes } = SNAPSHOT_LIMITS;

/** Gives all names of a file the same group in their entries. `linked`: the hard links that a complete walk found. */
export function assignHardLinkGroups(linked: WalkResult['hardLinks']): void {
  const parsed = new Map<CachedDirectory, Map<string, TreeEntry>>();
  for (const names of linked.values()) {
    const group = names.length > 1 ? groupName(names) : null;
    for (const { directory, name } of names) {
      const key = nameKey(name);
      let entries = parsed.get(directory);
      if (entries === undefined) parsed.set(directory, (entries = directory.decodeEntries()));
      const entry = entries.get(key);
      if (entry === undefined || entry.type === 'directory' || isMissing(entry)) continue;
      const before = groupOf(entry);
      if (before === null ? group === null : group !== null && before.equals(group)) continue;
      directory.changedEntries.set(key, { ...entry, linkGroup: group });
      directory.isDirty = true;
    }
  }
}

/** Hash of the first path in byte order. */
function groupName(names: readonly EntryLocation[]): Buffer {
  const paths = names.map((place) => joined(pathOf(place)));
  const [first] = paths.sort((one, other) => one.compare(other));
  return createHash('sha256')
    .update(first ?? '')
    .digest()
    .subarray(0, linkGroupBytes);
}

function joined(names: readonly Buffer[]): Buffer {
  const slash = Buffer.from('/');
  return Buffer.concat(names.flatMap((name, index) => (index === 0 ? [name] : [slash, name])));
}
