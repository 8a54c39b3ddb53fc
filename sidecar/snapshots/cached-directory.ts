import { ByteWriter } from '../../snapshot-format/bytes.ts';
import { type DirectoryEntry, parseTree, type TreeEntry, writeEntry } from '../../snapshot-format/entries.ts';
import { EMPTY_CONTENT_REF } from '../../snapshot-format/content-ref.ts';
import { FINGERPRINT_WORDS, inodeOf } from './fingerprint.ts';
import { isDotEntry, direntLength, direntName, encodeDirent, TYPE_DIRECTORY } from './dirents.ts';

const NOTHING = Buffer.alloc(0);

/**
 * The state of one directory as the last scan found it: fingerprints of its names, and the entries made from them. Both
 * are stored as bytes, about 150 per name, because there may be a million names.
 */
export class CachedDirectory {
  parent: CachedDirectory | null;
  /** Empty for the top directory. */
  name: Buffer;
  /** Fingerprint of the directory itself. */
  readonly fingerprint = new Uint32Array(FINGERPRINT_WORDS);
  /** All names as the system listed them. */
  dirents: Buffer = NOTHING;
  /** The system reports for each name whether it is a directory. */
  hasKnownTypes = true;
  /** Fingerprint of each name in the order of `dirents`; zeros for a directory. */
  fingerprints = new Uint32Array(0);
  /** In the order of `dirents`. */
  children: CachedDirectory[] = [];
  /** Entries as encoded last, in byte order of their names. */
  encodedEntries: Buffer = NOTHING;
  /** Encoded entries that differ from `encodedEntries`. */
  encodedChanges: Buffer = NOTHING;
  /** Entries that are newer than both encodings, by name (latin1). */
  readonly changedEntries = new Map<string, TreeEntry>();
  /** `encodedEntries` is out of date. */
  isDirty = true;
  /** `dirents` may have other names than `encodedEntries`. */
  haveNamesChanged = true;
  /** `entry` differs from the one encoded in the parent. */
  hasEntryChanged = true;
  /** The entry of this directory in its parent. Its content is current if nothing below is dirty. */
  entry: DirectoryEntry;

  constructor(parent: CachedDirectory | null, name: Buffer) {
    this.parent = parent;
    this.name = name;
    this.entry = { type: 'directory', name, mode: 0, mtimeNs: 0n, xattrs: [], content: EMPTY_CONTENT_REF };
  }

  /** Names from the top directory, which has none, to this one. */
  path(): Buffer[] {
    const names: Buffer[] = [];
    if (this.parent === null) return names;
    names.push(this.name);
    for (let above = this.parent; above.parent !== null; above = above.parent) names.push(above.name);
    return names.reverse();
  }

  /** Adds a child with its known state. The next scan finds any other change in this directory. */
  addChild(child: CachedDirectory): void {
    child.parent = this;
    const others = this.children.filter(({ name }) => !name.equals(child.name));
    // Of a name that is listed twice, the last one counts.
    this.dirents = Buffer.concat([
      this.dirents,
      encodeDirent(inodeOf(child.fingerprint), TYPE_DIRECTORY, child.name),
    ]);
    const fingerprints = new Uint32Array(this.fingerprints.length + FINGERPRINT_WORDS);
    fingerprints.set(this.fingerprints);
    this.fingerprints = fingerprints;
    this.children = [...others, child];
    // Forces the next scan to list it again.
    this.hasKnownTypes = false;
    this.isDirty = true;
    this.haveNamesChanged = true;
  }

  /** Removes a name as if it had never been listed. */
  removeName(name: Buffer): void {
    const { dirents, fingerprints } = this;
    const retainedDirents: Buffer[] = [];
    const retained: Uint32Array[] = [];
    let index = 0;
    for (let at = 0; at < dirents.length; at += direntLength(dirents, at)) {
      const isOurs = isDotEntry(dirents, at);
      if (isOurs || !direntName(dirents, at).equals(name)) {
        retainedDirents.push(dirents.subarray(at, at + direntLength(dirents, at)));
        if (!isOurs) retained.push(fingerprints.subarray(index, index + FINGERPRINT_WORDS));
      }
      if (!isOurs) index += FINGERPRINT_WORDS;
    }
    this.dirents = Buffer.concat(retainedDirents);
    this.fingerprints = new Uint32Array(retained.length * FINGERPRINT_WORDS);
    retained.forEach((fingerprint, at) => this.fingerprints.set(fingerprint, at * FINGERPRINT_WORDS));
    this.children = this.children.filter((below) => !below.name.equals(name));
    this.changedEntries.delete(nameKey(name));
    this.isDirty = true;
    this.haveNamesChanged = true;
  }

  /** All known entries by name (latin1), including some of removed names. Decodes them again at each call. */
  decodeEntries(): Map<string, TreeEntry> {
    const entries = new Map<string, TreeEntry>();
    for (const bytes of [this.encodedEntries, this.encodedChanges]) {
      if (bytes.length > 0) for (const entry of parseTree(bytes)) entries.set(nameKey(entry.name), entry);
    }
    for (const [key, entry] of this.changedEntries) entries.set(key, entry);
    return entries;
  }

  /** Encodes `changedEntries`, which take ten times as much memory. */
  encodeChanges(): void {
    if (this.changedEntries.size === 0) return;
    const entries = new Map<string, TreeEntry>();
    if (this.encodedChanges.length > 0) {
      for (const entry of parseTree(this.encodedChanges)) entries.set(nameKey(entry.name), entry);
    }
    for (const [key, entry] of this.changedEntries) entries.set(key, entry);
    const out = new ByteWriter(entries.size * 128);
    for (const entry of [...entries.values()].sort((one, other) => one.name.compare(other.name))) {
      writeEntry(out, entry);
    }
    this.encodedChanges = detachedCopy(out.view());
    this.changedEntries.clear();
  }

  /** This directory and everything below it. A directory comes before its children. */
  *withDescendants(): Generator<CachedDirectory, void, undefined> {
    const waiting: CachedDirectory[] = [this];
    for (let directory = waiting.pop(); directory !== undefined; directory = waiting.pop()) {
      yield directory;
      waiting.push(...directory.children);
    }
  }
}

/** A copy with memory of its own. A small view would retain the whole buffer that it was cut from. */
export function detachedCopy(bytes: Uint8Array): Buffer {
  const copy = Buffer.allocUnsafeSlow(bytes.length);
  copy.set(bytes);
  return copy;
}

/** A name as a string that preserves its bytes. */
export function nameKey(name: Buffer): string {
  return name.toString('latin1');
}
