import type { DirectoryEntry, TreeEntry } from '../../snapshot-format/entries.ts';
import type { CachedDirectory } from './cached-directory.ts';
import { nameKey } from './cached-directory.ts';
import { groupOf, haveSameAttributes, haveSameContent } from './compare-entries.ts';
import type { EntryLocation } from './walk.ts';

type Linkable = Exclude<TreeEntry, DirectoryEntry>;

/** A file of the workspace with several hard links, as the last scan found it. */
export interface PresentFile extends EntryLocation {
  readonly inode: bigint;
  readonly entry: Linkable;
}

/** Files of the workspace by their hard link group in a snapshot. */
export class HardLinks {
  readonly #linked: ReadonlyMap<bigint, readonly EntryLocation[]>;
  #groups: Map<string, PresentFile> | null = null;

  constructor(linked: ReadonlyMap<bigint, readonly EntryLocation[]>) {
    this.#linked = linked;
  }

  /**
   * A file that already has the content of this group. `exactly`: also its attributes, because nothing else will be
   * changed. Null if it must be created.
   */
  find(entry: Linkable, exactly: boolean): PresentFile | null {
    if (entry.linkGroup === null) return null;
    this.#groups ??= this.#collect();
    const found = this.#groups.get(nameKey(entry.linkGroup));
    if (found === undefined || !haveSameContent(found.entry, entry)) return null;
    return exactly && !haveSameAttributes(found.entry, entry) ? null : found;
  }

  #collect(): Map<string, PresentFile> {
    const groups = new Map<string, PresentFile>();
    const parsed = new Map<CachedDirectory, Map<string, TreeEntry>>();
    for (const [inode, names] of this.#linked) {
      const [first] = names;
      if (first === undefined || names.length === 1) continue;
      let entries = parsed.get(first.directory);
      if (entries === undefined) parsed.set(first.directory, (entries = first.directory.decodeEntries()));
      const entry = entries.get(nameKey(first.name));
      if (entry === undefined || entry.type === 'directory') continue;
      const group = groupOf(entry);
      if (group !== null) groups.set(nameKey(group), { ...first, inode, entry });
    }
    return groups;
  }
}
