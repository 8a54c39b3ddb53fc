import { ByteWriter } from '../../snapshot-format/bytes.ts';
import { type DirectoryEntry, parseTree, type TreeEntry, writeEntry } from '../../snapshot-format/entries.ts';
import { EMPTY_CONTENT_REF } from '../../snapshot-format/content-ref.ts';
import { FINGERPRINT_WORDS, inodeOf } from './fingerprint.ts';
import { isDotEntry, direntLength, direntName, encodeDirent, TYPE_DIRECTORY } from './dirents.ts';

const NOTHING = Buffer.alloc(0);

/**
 * What a scan knows of one directory: what its names looked like, and the entries that were made of them. Both are kept as
 * bytes, some 150 a name, because there may be a million of them.
 */
export class CachedDirectory {
  parent: CachedDirectory | null;
  /** Empty for the top one. */
  name: Buffer;
  /** Of the directory itself. */
  readonly fingerprint = new Uint32Array(FINGERPRINT_WORDS);
  /** All its names as the system listed them. */
  dirents: Buffer = NOTHING;
  /** The system says of each name whether it is a directory. */
  hasKnownTypes = true;
  /** Facts of each name that is no directory, in the order of `records`; zeros for a directory. */
  fingerprints = new Uint32Array(0);
  /** In the order of `records`. */
  children: CachedDirectory[] = [];
  /** Entries as they were encoded last, in byte order of their names. */
  encodedEntries: Buffer = NOTHING;
  /** Entries that are not as in `body`, encoded like those. */
  encodedChanges: Buffer = NOTHING;
  /** Entries that are as in neither, by name (latin1). */
  readonly changedEntries = new Map<string, TreeEntry>();
  /** `body` is not what the directory has. */
  isDirty = true;
  /** `records` has other names than `body`, or that is not known. */
  haveNamesChanged = true;
  /** `entry` is not as it was encoded in the directory above. */
  hasEntryChanged = true;
  /** As it stands in the directory above; its content is right where nothing below is dirty. */
  entry: DirectoryEntry;

  constructor(parent: CachedDirectory | null, name: Buffer) {
    this.parent = parent;
    this.name = name;
    this.entry = { type: 'directory', name, mode: 0, mtimeNs: 0n, xattrs: [], content: EMPTY_CONTENT_REF };
  }

  /** Names from the top one, which has none, to this. */
  path(): Buffer[] {
    const names: Buffer[] = [];
    if (this.parent === null) return names;
    names.push(this.name);
    for (let above = this.parent; above.parent !== null; above = above.parent) names.push(above.name);
    return names.reverse();
  }

  /** `child` is in it from now on, with what is known of it. What else has changed in it the next look finds. */
  addChild(child: CachedDirectory): void {
    child.parent = this;
    const others = this.children.filter(({ name }) => !name.equals(child.name));
    // A name that is listed twice is known as it was listed last.
    this.dirents = Buffer.concat([
      this.dirents,
      encodeDirent(inodeOf(child.fingerprint), TYPE_DIRECTORY, child.name),
    ]);
    const stats = new Uint32Array(this.fingerprints.length + FINGERPRINT_WORDS);
    stats.set(this.fingerprints);
    this.fingerprints = stats;
    this.children = [...others, child];
    // It is to be listed anew in any case.
    this.hasKnownTypes = false;
    this.isDirty = true;
    this.haveNamesChanged = true;
  }

  /** As if the name had never been listed. */
  removeName(name: Buffer): void {
    const { dirents, fingerprints } = this;
    const kept: Buffer[] = [];
    const keptStats: Uint32Array[] = [];
    let index = 0;
    for (let at = 0; at < dirents.length; at += direntLength(dirents, at)) {
      const isOurs = isDotEntry(dirents, at);
      if (isOurs || !direntName(dirents, at).equals(name)) {
        kept.push(dirents.subarray(at, at + direntLength(dirents, at)));
        if (!isOurs) keptStats.push(fingerprints.subarray(index, index + FINGERPRINT_WORDS));
      }
      if (!isOurs) index += FINGERPRINT_WORDS;
    }
    this.dirents = Buffer.concat(kept);
    this.fingerprints = new Uint32Array(keptStats.length * FINGERPRINT_WORDS);
    keptStats.forEach((facts, at) => this.fingerprints.set(facts, at * FINGERPRINT_WORDS));
    this.children = this.children.filter((below) => !below.name.equals(name));
    this.changedEntries.delete(nameKey(name));
    this.isDirty = true;
    this.haveNamesChanged = true;
  }

  /** All that is known of its names, by name (latin1); also of some that are gone. Parsed anew at each call. */
  decodeEntries(): Map<string, TreeEntry> {
    const entries = new Map<string, TreeEntry>();
    for (const bytes of [this.encodedEntries, this.encodedChanges]) {
      if (bytes.length > 0) for (const entry of parseTree(bytes)) entries.set(nameKey(entry.name), entry);
    }
    for (const [key, entry] of this.changedEntries) entries.set(key, entry);
    return entries;
  }

  /** Keeps `changed` as bytes: entries take ten times as much. */
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

  /** This folder and all below it, each before those in it. */
  *withDescendants(): Generator<CachedDirectory, void, undefined> {
    const waiting: CachedDirectory[] = [this];
    for (let folder = waiting.pop(); folder !== undefined; folder = waiting.pop()) {
      yield folder;
      waiting.push(...folder.children);
    }
  }
}

/** A copy in memory of its own: a small one would else keep the whole piece alive that it was cut from. */
export function detachedCopy(bytes: Uint8Array): Buffer {
  const copy = Buffer.allocUnsafeSlow(bytes.length);
  copy.set(bytes);
  return copy;
}

/** A name as text that any bytes survive. */
export function nameKey(name: Buffer): string {
  return name.toString('latin1');
}
