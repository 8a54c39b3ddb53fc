import type { DirectoryEntry, TreeEntry } from '../../snapshot-format/entries.ts';

/** What exists at the target of a new entry. */
export type Existing = 'nothing' | 'file' | 'folder';

/** One step of a restore. Steps are applied in order, each in the directory that was entered last. */
export type RestoreStep =
  /** Enters an existing directory. `inode`: the one that the scan found. */
  | { readonly step: 'enter'; readonly name: Buffer; readonly inode: bigint }
  /** Leaves it and sets its attributes; null leaves them as they are. */
  | { readonly step: 'leave'; readonly entry: DirectoryEntry | null }
  | { readonly step: 'remove'; readonly name: Buffer; readonly present: Existing }
  /** `staged`: its name in the staging directory. */
  | {
      readonly step: 'place';
      readonly entry: TreeEntry;
      readonly staged: Buffer;
      readonly present: Existing;
    }
  /** Sets the attributes of an existing entry that is not a directory. */
  | { readonly step: 'dress'; readonly entry: TreeEntry; readonly inode: bigint };
