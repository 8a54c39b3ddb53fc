import type { DirectoryEntry, TreeEntry } from '../../snapshot-format/entries.ts';

/** What there is in the place of something new. */
export type Existing = 'nothing' | 'file' | 'folder';

/** One step of a restore, in the order in which they are taken. Each goes on from the directory that was entered last. */
export type RestoreStep =
  /** Into a directory that stays. `inode`: the one that was looked at. */
  | { readonly step: 'enter'; readonly name: Buffer; readonly inode: bigint }
  /** Out of it, and its own attributes; null: those that it has. */
  | { readonly step: 'leave'; readonly entry: DirectoryEntry | null }
  | { readonly step: 'remove'; readonly name: Buffer; readonly present: Existing }
  /** `staged`: its name in the staging folder. */
  | {
      readonly step: 'place';
      readonly entry: TreeEntry;
      readonly staged: Buffer;
      readonly present: Existing;
    }
  /** Attributes of what stays, which is no directory. */
  | { readonly step: 'dress'; readonly entry: TreeEntry; readonly inode: bigint };
