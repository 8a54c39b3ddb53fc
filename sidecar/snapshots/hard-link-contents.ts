import type { FileEntry } from '../../snapshot-format/entries.ts';
import { areEqualFingerprints, inodeOf, linksOf } from './fingerprint.ts';

/** Reading a smaller file again is as cheap as storing it. */
const MIN_BYTES = 4 * 1024;
const LARGE_BYTES = 2 ** 20;
/**
 * Memory for each of the two kinds of files. Small files have their own share, so that many of them cannot make large
 * files be read again for each name. Filling the share of large files would take gigabytes on the disk.
 */
const SHARE_BYTES = 16 * 2 ** 20;
/** Memory per file, without extended attributes. */
const ENTRY_BYTES = 1024;

/** The entry of a file without the fields that differ between its names. */
export type HardLinkContent = Pick<FileEntry, 'mode' | 'mtimeNs' | 'xattrs' | 'size' | 'sparse' | 'content'>;

interface Remembered {
  readonly content: HardLinkContent;
  /** Fingerprint before and after the file was read. */
  readonly fingerprint: Uint32Array;
  /** Fingerprint to store for its names: `fingerprint`, or an invalidated one. */
  readonly toStore: Uint32Array;
  readonly share: 'small' | 'large';
  /** Memory that it uses. */
  readonly bytes: number;
  /** Names that the walk has not reached. */
  left: number;
}

/**
 * Contents of files with several hard links, for one walk: each inode is read once. A file whose next name shows a
 * change is read again.
 */
export class HardLinkContents {
  readonly #files = new Map<bigint, Remembered>();
  readonly #used = { small: 0, large: 0 };

  /** Starts another walk, which reads the files again. */
  clear(): void {
    this.#files.clear();
    this.#used.small = this.#used.large = 0;
  }

  /**
   * The content read under another name, if the file is unchanged. Then `fingerprint` becomes the fingerprint to store.
   * Null if the file must be read.
   */
  find(fingerprint: Uint32Array): HardLinkContent | null {
    if (linksOf(fingerprint) < 2) return null;
    const inode = inodeOf(fingerprint);
    const file = this.#files.get(inode);
    if (file === undefined) return null;
    if (!areEqualFingerprints(file.fingerprint, fingerprint)) {
      this.#delete(inode, file);
      return null;
    }
    file.left -= 1;
    if (file.left === 0) this.#delete(inode, file);
    fingerprint.set(file.toStore);
    return file.content;
  }

  /**
   * Stores the content of a file that did not change while it was read. `fingerprint`: its fingerprint. `toStore`: the
   * fingerprint to store. `bytesRead`: its data on the disk, without holes.
   */
  remember(
    fingerprint: Uint32Array,
    toStore: Uint32Array,
    bytesRead: number,
    content: HardLinkContent,
  ): void {
    const left = linksOf(fingerprint) - 1;
    if (left < 1 || bytesRead < MIN_BYTES) return;
    const share = bytesRead >= LARGE_BYTES ? 'large' : 'small';
    const bytes = content.xattrs.reduce(
      (sum, { name, value }) => sum + name.length + value.length,
      ENTRY_BYTES,
    );
    const inode = inodeOf(fingerprint);
    const before = this.#files.get(inode);
    if (before !== undefined) this.#delete(inode, before);
    if (this.#used[share] + bytes > SHARE_BYTES) return;
    this.#used[share] += bytes;
    this.#files.set(inode, {
      content,
      fingerprint: fingerprint.slice(),
      toStore: toStore.slice(),
      share,
      bytes,
      left,
    });
  }

  #delete(inode: bigint, { share, bytes }: Remembered): void {
    this.#files.delete(inode);
    this.#used[share] -= bytes;
  }
}
