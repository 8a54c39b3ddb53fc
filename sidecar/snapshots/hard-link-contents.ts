import type { FileEntry } from '../../snapshot-format/entries.ts';
import { areEqualFingerprints, inodeOf, linksOf } from './fingerprint.ts';

/** Reading a smaller file again costs no more than remembering it. */
const WORTH_BYTES = 4 * 1024;
const LARGE_BYTES = 2 ** 20;
/**
 * Memory for files of each kind. Small files have a share of their own: whoever fills it with them does not have a large file read again
 * for each of its names. To fill the share of the large ones takes gigabytes of data on the disk.
 */
const SHARE_BYTES = 16 * 2 ** 20;
/** What one file takes without its extended attributes. */
const ENTRY_BYTES = 1024;

/** What was read of one file, without what its names differ in. */
export type HardLinkContent = Pick<FileEntry, 'mode' | 'mtimeNs' | 'xattrs' | 'size' | 'sparse' | 'content'>;

interface Remembered {
  readonly content: HardLinkContent;
  /** What the file looked like before and after it was read. */
  readonly facts: Uint32Array;
  /** What its names are to be known by: `facts`, unless the file is to be read again by the next scan. */
  readonly known: Uint32Array;
  readonly share: 'small' | 'large';
  /** Memory that it takes. */
  readonly bytes: number;
  /** Names that the walk has still to meet. */
  left: number;
}

/**
 * The content of files with several names, for one walk: each inode is read once, whatever number of names it has. A file that looks
 * different at its next name has changed in between and is read again.
 */
export class HardLinkContents {
  readonly #files = new Map<bigint, Remembered>();
  readonly #used = { small: 0, large: 0 };

  /** Begins another walk: what the walk before has read is read again. */
  clear(): void {
    this.#files.clear();
    this.#used.small = this.#used.large = 0;
  }

  /** What was read under another name of the file that looks like `facts`, which become what this name is known by. Null: read it. */
  find(facts: Uint32Array): HardLinkContent | null {
    if (linksOf(facts) < 2) return null;
    const inode = inodeOf(facts);
    const file = this.#files.get(inode);
    if (file === undefined) return null;
    if (!areEqualFingerprints(file.facts, facts)) {
      this.#forget(inode, file);
      return null;
    }
    file.left -= 1;
    if (file.left === 0) this.#forget(inode, file);
    facts.set(file.known);
    return file.content;
  }

  /**
   * Remembers what was read of a file that did not change meanwhile. `facts`: what it looks like. `known`: what it is known by.
   * `bytesRead`: its data on the disk, without holes.
   */
  remember(facts: Uint32Array, known: Uint32Array, bytesRead: number, content: HardLinkContent): void {
    const left = linksOf(facts) - 1;
    if (left < 1 || bytesRead < WORTH_BYTES) return;
    const share = bytesRead >= LARGE_BYTES ? 'large' : 'small';
    const bytes = content.xattrs.reduce(
      (sum, { name, value }) => sum + name.length + value.length,
      ENTRY_BYTES,
    );
    const inode = inodeOf(facts);
    const before = this.#files.get(inode);
    if (before !== undefined) this.#forget(inode, before);
    if (this.#used[share] + bytes > SHARE_BYTES) return;
    this.#used[share] += bytes;
    this.#files.set(inode, { content, facts: facts.slice(), known: known.slice(), share, bytes, left });
  }

  #forget(inode: bigint, { share, bytes }: Remembered): void {
    this.#files.delete(inode);
    this.#used[share] -= bytes;
  }
}
