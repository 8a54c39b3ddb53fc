import { createHash } from 'node:crypto';
import { crc32 } from 'node:zlib';
import { FRAME, type FrameRecord, extractObject, decompressFrame } from './frames.ts';
import { snapshotDamaged, type Hash, isObjectKind, type ObjectKind, SNAPSHOT_LIMITS } from './objects.ts';
import { PACK } from './pack-layout.ts';

const { frameBytes, objectBytes, footerBytes } = PACK;
const { hashBytes } = SNAPSHOT_LIMITS;

/** A stored file. `read` returns exactly `length` bytes, or throws. */
export interface PackFile {
  readonly size: number;
  read(offset: number, length: number): Promise<Buffer>;
}

/** A frame's position in its pack. */
export interface PackFrame {
  readonly offset: number;
  readonly storedLength: number;
  readonly rawLength: number;
  readonly encoding: number;
  readonly checksum: number;
}

export interface PackObject extends FrameRecord {
  /** Index of its frame. */
  readonly frame: number;
}

/**
 * The index of a pack. Searches the encoded bytes directly: about 50 bytes of memory per object. Immutable.
 */
export class PackIndex {
  readonly frames: number;
  readonly objects: number;
  /** Size of the file, index included. */
  readonly size: number;
  readonly #frames: Buffer;
  readonly #objects: Buffer;

  private constructor(frames: Buffer, objects: Buffer, size: number) {
    this.#frames = frames;
    this.#objects = objects;
    this.frames = frames.length / frameBytes;
    this.objects = objects.length / objectBytes;
    this.size = size;
  }

  /** Reads and checks the index of a file. Throws `snapshot_damaged` and read errors. */
  static async read(file: PackFile): Promise<PackIndex> {
    const { size } = file;
    if (size > PACK.maxBytes || size < PACK.magic.length + footerBytes) {
      throw snapshotDamaged('a pack has an impossible length');
    }
    const [magic, footer] = await Promise.all([
      file.read(0, PACK.magic.length),
      file.read(size - footerBytes, footerBytes),
    ]);
    if (!magic.equals(PACK.magic) || !footer.subarray(48).equals(PACK.endMagic)) {
      throw snapshotDamaged('a pack has the wrong magic bytes');
    }
    const position = Number(footer.readBigUInt64LE(0));
    const frames = footer.readUInt32LE(8);
    const objects = footer.readUInt32LE(12);
    const length = frames * frameBytes + objects * objectBytes;
    if (
      frames === 0 ||
      frames > PACK.maxFrames ||
      objects === 0 ||
      objects > PACK.maxObjects ||
      position + length + footerBytes !== size
    ) {
      throw snapshotDamaged("a pack's footer does not match its index");
    }
    const tables = await file.read(position, length);
    const hash = createHash('sha256').update(tables).update(footer.subarray(0, 16)).digest();
    if (!hash.equals(footer.subarray(16, 48)))
      throw snapshotDamaged("the bytes of a pack's index have changed");
    const index = new PackIndex(
      tables.subarray(0, frames * frameBytes),
      tables.subarray(frames * frameBytes),
      size,
    );
    index.#check(position);
    return index;
  }

  /** Rebuilds an index from the result of `encode` in another thread, which has already checked it. */
  static fromCheckedTables(tables: Buffer, frames: number, size: number): PackIndex {
    return new PackIndex(tables.subarray(0, frames * frameBytes), tables.subarray(frames * frameBytes), size);
  }

  /** A copy of the tables in a separate buffer. */
  encode(): Buffer {
    const tables = Buffer.allocUnsafeSlow(this.#frames.length + this.#objects.length);
    tables.set(this.#frames);
    tables.set(this.#objects, this.#frames.length);
    return tables;
  }

  /** Null when the pack has no such object. */
  find(hash: Hash): PackObject | null {
    const index = this.indexOf(hash);
    return index === -1 ? null : this.object(index);
  }

  /** The index in the order of hashes; -1 when the pack has no such object. */
  indexOf(hash: Hash): number {
    let low = 0;
    let high = this.objects - 1;
    while (low <= high) {
      const middle = (low + high) >>> 1;
      const at = middle * objectBytes;
      const order = hash.compare(this.#objects, at, at + hashBytes);
      if (order === 0) return middle;
      if (order < 0) high = middle - 1;
      else low = middle + 1;
    }
    return -1;
  }

  /** The first four bytes of an object's hash. */
  prefixOf(index: number): number {
    return this.#objects.readUInt32LE(index * objectBytes);
  }

  /** Whether the `index`-th object has this hash. */
  hasHashAt(index: number, hash: Hash): boolean {
    const at = index * objectBytes;
    return hash.compare(this.#objects, at, at + hashBytes) === 0;
  }

  hashAt(index: number): Hash {
    const at = index * objectBytes;
    return this.#objects.subarray(at, at + hashBytes);
  }

  kindAt(index: number): number {
    return this.#objects.readUInt32LE(index * objectBytes + 44);
  }

  /** The `index`-th object in the order of hashes. */
  object(index: number): PackObject {
    const at = index * objectBytes;
    const table = this.#objects;
    const kind = table.readUInt32LE(at + 44);
    if (!isObjectKind(kind)) throw snapshotDamaged('an object of an unknown kind');
    return {
      hash: table.subarray(at, at + hashBytes),
      frame: table.readUInt32LE(at + 32),
      offset: table.readUInt32LE(at + 36),
      length: table.readUInt32LE(at + 40),
      kind,
    };
  }

  frame(index: number): PackFrame {
    const at = index * frameBytes;
    const table = this.#frames;
    return {
      offset: Number(table.readBigUInt64LE(at)),
      storedLength: table.readUInt32LE(at + 8),
      rawLength: table.readUInt32LE(at + 12),
      encoding: table.readUInt32LE(at + 16),
      checksum: table.readUInt32LE(at + 20),
    };
  }

  /** Uncompressed bytes of all frames. */
  get rawBytes(): number {
    let bytes = 0;
    for (let index = 0; index < this.frames; index += 1) bytes += this.frame(index).rawLength;
    return bytes;
  }

  /** Objects by frame, in the order of their offsets, for copying or sending whole frames. */
  objectsByFrame(): PackObject[][] {
    const groups: PackObject[][] = Array.from({ length: this.frames }, () => []);
    for (let index = 0; index < this.objects; index += 1) {
      const object = this.object(index);
      groups[object.frame]?.push(object);
    }
    for (const group of groups) group.sort((one, other) => one.offset - other.offset);
    return groups;
  }

  /** The checksum was right, so this fails only for an index that was written wrongly. */
  #check(position: number): void {
    let end: number = PACK.magic.length;
    const objectCounts = new Uint32Array(this.frames);
    for (let index = 0; index < this.frames; index += 1) {
      const { offset, storedLength, rawLength } = this.frame(index);
      if (offset !== end || rawLength > FRAME.maxBytes || storedLength > FRAME.maxBytes) {
        throw snapshotDamaged("a pack's frames do not lie one after the other");
      }
      end = offset + storedLength;
    }
    if (end !== position) throw snapshotDamaged("a pack's frames do not reach its index");
    for (let index = 0; index < this.objects; index += 1) {
      const at = index * objectBytes;
      const { frame, offset, length } = this.object(index);
      const count = (objectCounts[frame] ?? FRAME.maxObjects) + 1;
      if (frame >= this.frames || count > FRAME.maxObjects) throw snapshotDamaged('an object is in no frame');
      objectCounts[frame] = count;
      if (length > SNAPSHOT_LIMITS.objectBytes || offset + length > this.frame(frame).rawLength) {
        throw snapshotDamaged('an object lies outside its frame');
      }
      if (
        index > 0 &&
        this.#objects.compare(
          this.#objects,
          at - objectBytes,
          at - objectBytes + hashBytes,
          at,
          at + hashBytes,
        ) <= 0
      ) {
        throw snapshotDamaged("a pack's objects are out of order");
      }
    }
  }
}

/** The stored bytes of one frame, checked. */
export async function readStoredFrame(file: PackFile, frame: PackFrame): Promise<Buffer> {
  const stored = await file.read(frame.offset, frame.storedLength);
  if (crc32(stored) !== frame.checksum) throw snapshotDamaged('the bytes of a frame have changed');
  return stored;
}

/** The uncompressed bytes of one frame. */
export async function readFrame(file: PackFile, frame: PackFrame): Promise<Buffer> {
  return decompressFrame(frame.encoding, frame.rawLength, await readStoredFrame(file, frame));
}

/** One object with its hash checked. Throws `snapshot_damaged`, also for an object of another kind. */
export async function readObject(
  file: PackFile,
  index: PackIndex,
  object: PackObject,
  kind: ObjectKind,
): Promise<Buffer> {
  if (object.kind !== kind) {
    throw snapshotDamaged('an object is of another kind', { object: object.hash.toString('hex') });
  }
  return extractObject(await readFrame(file, index.frame(object.frame)), object);
}
