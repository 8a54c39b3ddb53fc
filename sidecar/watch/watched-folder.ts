import { type BigIntStats, constants, type FSWatcher, fstatSync, openSync } from 'node:fs';
import { Directory } from '../files/directory.ts';
import { O_PATH } from '../files/resolver.ts';

/** A folder of a watched tree. Names are latin1 strings, one character per byte. */
export interface WatchedFolder {
  readonly parent: WatchedFolder | null;
  readonly name: string;
  /** Device and inode, to notice that another folder has taken its name. */
  identity: string;
  /** Null if it is polled. */
  watcher: FSWatcher | null;
  /** Its entries by name, or null if the budget does not allow them. The value changes when a polled entry does. */
  entries: Map<string, string> | null;
  /** Of a polled folder without `entries`: changes when a name is created or removed. */
  timestamps: string;
  readonly children: Map<string, WatchedFolder>;
  isRemoved: boolean;
}

export function newFolder(parent: WatchedFolder | null, name: string, identity: string): WatchedFolder {
  return {
    parent,
    name,
    identity,
    watcher: null,
    entries: null,
    timestamps: '',
    children: new Map(),
    isRemoved: false,
  };
}

export function identityOf({ dev, ino }: BigIntStats): string {
  return `${dev}:${ino}`;
}

/** Changes when the entry does. */
export function signatureOf({ ino, mtimeNs, ctimeNs, size }: BigIntStats): string {
  return `${ino}:${mtimeNs}:${ctimeNs}:${size}`;
}

/** Changes when a name in the folder is created or removed. */
export function timestampsOf({ fd }: Directory): string {
  const { mtimeNs, ctimeNs } = fstatSync(fd, { bigint: true });
  return `${mtimeNs}:${ctimeNs}`;
}

/** Names on the path from the watched folder to this one. */
export function namesOf(folder: WatchedFolder): string[] {
  const names: string[] = [];
  for (let at = folder; at.parent !== null; at = at.parent) names.push(at.name);
  return names.reverse();
}

/**
 * Opens folders through the descriptors of their parents, never through a link. The last one stays open, so its entries
 * cost one call each at any depth.
 */
export class FolderOpener {
  readonly #root: Directory;
  #last: { readonly folder: WatchedFolder; readonly directory: Directory } | null = null;

  constructor(root: Directory) {
    this.#root = root;
  }

  /** Opens a folder for reading. It stays open until the next call. Errors: those of the system. */
  open(folder: WatchedFolder): Directory {
    if (this.#last?.folder === folder) return this.#last.directory;
    const opened =
      folder.parent !== null && this.#last?.folder === folder.parent
        ? this.#last.directory.openDirectory(Buffer.from(folder.name, 'latin1'))
        : this.#walk(folder);
    this.close();
    this.#last = { folder, directory: opened };
    return opened;
  }

  close(): void {
    this.#last?.directory.close();
    this.#last = null;
  }

  #walk(folder: WatchedFolder): Directory {
    let at = Directory.fromFd(openSync(this.#root.selfPath, O_PATH | constants.O_DIRECTORY));
    try {
      for (const name of namesOf(folder)) {
        const { O_DIRECTORY, O_NOFOLLOW } = constants;
        const next = Directory.fromFd(
          openSync(at.pathOf(Buffer.from(name, 'latin1')), O_PATH | O_DIRECTORY | O_NOFOLLOW),
        );
        at.close();
        at = next;
      }
      return Directory.open(at.selfPath);
    } finally {
      at.close();
    }
  }
}
