import { ByteWriter } from '../../snapshot-format/bytes.ts';
import { type DirectoryEntry, parseTree, type TreeEntry, writeEntry } from '../../snapshot-format/entries.ts';
import { EMPTY_REF } from '../../snapshot-format/refs.ts';
import { FACT_WORDS, inodeOf } from './facts.ts';
import { isLeftOut, recordLength, recordName, recordOf, TYPE_DIRECTORY } from './records.ts';

const NOTHING = Buffer.alloc(0);

/**
 * What a scan knows of one directory: what its names looked like, and the entries that were made of them. Both are kept as
 * bytes, some 150 a name, because there may be a million of them.
 */
export class Folder {
  parent: Folder | null;
  /** Empty for the top one. */
  name: Buffer;
  /** Of the directory itself. */
  readonly facts = new Uint32Array(FACT_WORDS);
  /** All its names as the system listed them. */
  records: Buffer = NOTHING;
  /** The system says of each name whether it is a directory. */
  isTyped = true;
  /** Facts of each name that is no directory, in the order of `records`; zeros for a directory. */
  stats = new Uint32Array(0);
  /** In the order of `records`. */
  folders: Folder[] = [];
  /** Entries as they were encoded last, in byte order of their names. */
  body: Buffer = NOTHING;
  /** Entries that are not as in `body`, encoded like those. */
  pending: Buffer = NOTHING;
  /** Entries that are as in neither, by name (latin1). */
  readonly changed = new Map<string, TreeEntry>();
  /** `body` is not what the directory has. */
  isDirty = true;
  /** `records` has other names than `body`, or that is not known. */
  areNamesNew = true;
  /** `entry` is not as it was encoded in the directory above. */
  isEntryNew = true;
  /** As it stands in the directory above; its content is right where nothing below is dirty. */
  entry: DirectoryEntry;

  constructor(parent: Folder | null, name: Buffer) {
    this.parent = parent;
    this.name = name;
    this.entry = { type: 'directory', name, mode: 0, mtimeNs: 0n, xattrs: [], content: EMPTY_REF };
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
  adopt(child: Folder): void {
    child.parent = this;
    const others = this.folders.filter(({ name }) => !name.equals(child.name));
    // A name that is listed twice is known as it was listed last.
    this.records = Buffer.concat([this.records, recordOf(inodeOf(child.facts), TYPE_DIRECTORY, child.name)]);
    const stats = new Uint32Array(this.stats.length + FACT_WORDS);
    stats.set(this.stats);
    this.stats = stats;
    this.folders = [...others, child];
    // It is to be listed anew in any case.
    this.isTyped = false;
    this.isDirty = true;
    this.areNamesNew = true;
  }

  /** As if the name had never been listed. */
  forget(name: Buffer): void {
    const { records, stats } = this;
    const kept: Buffer[] = [];
    const keptStats: Uint32Array[] = [];
    let index = 0;
    for (let at = 0; at < records.length; at += recordLength(records, at)) {
      const isOurs = isLeftOut(records, at);
      if (isOurs || !recordName(records, at).equals(name)) {
        kept.push(records.subarray(at, at + recordLength(records, at)));
        if (!isOurs) keptStats.push(stats.subarray(index, index + FACT_WORDS));
      }
      if (!isOurs) index += FACT_WORDS;
    }
    this.records = Buffer.concat(kept);
    this.stats = new Uint32Array(keptStats.length * FACT_WORDS);
    keptStats.forEach((facts, at) => this.stats.set(facts, at * FACT_WORDS));
    this.folders = this.folders.filter((below) => !below.name.equals(name));
    this.changed.delete(keyOf(name));
    this.isDirty = true;
    this.areNamesNew = true;
  }

  /** All that is known of its names, by name (latin1); also of some that are gone. Parsed anew at each call. */
  encoded(): Map<string, TreeEntry> {
    const entries = new Map<string, TreeEntry>();
    for (const bytes of [this.body, this.pending]) {
      if (bytes.length > 0) for (const entry of parseTree(bytes)) entries.set(keyOf(entry.name), entry);
    }
    for (const [key, entry] of this.changed) entries.set(key, entry);
    return entries;
  }

  /** Keeps `changed` as bytes: entries take ten times as much. */
  compact(): void {
    if (this.changed.size === 0) return;
    const entries = new Map<string, TreeEntry>();
    if (this.pending.length > 0) {
      for (const entry of parseTree(this.pending)) entries.set(keyOf(entry.name), entry);
    }
    for (const [key, entry] of this.changed) entries.set(key, entry);
    const out = new ByteWriter(entries.size * 128);
    for (const entry of [...entries.values()].sort((one, other) => one.name.compare(other.name))) {
      writeEntry(out, entry);
    }
    this.pending = ownCopy(out.view());
    this.changed.clear();
  }

  /** This folder and all below it, each before those in it. */
  *all(): Generator<Folder, void, undefined> {
    const waiting: Folder[] = [this];
    for (let folder = waiting.pop(); folder !== undefined; folder = waiting.pop()) {
      yield folder;
      waiting.push(...folder.folders);
    }
  }
}

/** A copy in memory of its own: a small one would else keep the whole piece alive that it was cut from. */
export function ownCopy(bytes: Uint8Array): Buffer {
  const copy = Buffer.allocUnsafeSlow(bytes.length);
  copy.set(bytes);
  return copy;
}

/** A name as text that any bytes survive. */
export function keyOf(name: Buffer): string {
  return name.toString('latin1');
}
