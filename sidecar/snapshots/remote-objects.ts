import { zstdDecompress } from 'node:zlib';
import {
  ENCODINGS,
  FRAME,
  type FrameRecord,
  extractObject,
  parseFrameTable,
  decompressFrame,
  decompressOptions,
} from '../../snapshot-format/frames.ts';
import {
  snapshotDamaged,
  type Hash,
  type ObjectKind,
  type ObjectReader,
} from '../../snapshot-format/objects.ts';
import { SNAPSHOT_WIRE_LIMITS } from '../../snapshot-format/sidecar-calls.ts';
import { nameKey } from './cached-directory.ts';
import type { RemoteStore } from './store.ts';
import { Unpacker } from './unpacker.ts';

/** Stored and unpacked bytes that are kept, each. */
const KEPT_BYTES = 24 * 2 ** 20;
/** Stored bytes that are still to be read, above which nothing more is fetched ahead. */
const AHEAD_BYTES = 12 * 2 ** 20;
/** What a fetch ahead must be worth: each costs a round trip. */
const LEAST_AHEAD = 64;
/** Bytes that are unpacked before a thread is started for it: it takes longer to start than a few frames. */
const BEFORE_THREAD_BYTES = 48 * 2 ** 20;
/** Without that thread, handing over a shorter frame takes as long as unpacking it. */
const BESIDE_BYTES = 256 * 1024;
const NONE: ReadonlySet<string> = new Set();

interface KeptFrame {
  readonly stored: Buffer;
  /** See `encodeRecords`. */
  readonly table: Buffer;
  readonly rawLength: number;
  readonly encoding: number;
  readonly records: readonly FrameRecord[];
  raw: Buffer | null;
  /** The hash of each of its objects was found right. */
  isChecked: boolean;
  /** Settles when `raw` is there, or cannot be made beside this thread. */
  unpacking: Promise<void> | null;
  /** Reads of its objects that are expected. */
  wanted: number;
}

/**
 * Objects of the store. They come in whole frames, which are kept for a while: what was stored together is wanted together.
 * What is expected is fetched and unpacked ahead, beside the thread that reads. Everything is checked before it is given out.
 */
export class RemoteObjects implements ObjectReader {
  readonly #store: RemoteStore;
  readonly #places = new Map<string, { readonly frame: KeptFrame; readonly record: FrameRecord }>();
  /** In the order in which they came. */
  readonly #frames = new Set<KeptFrame>();
  /** Those with unpacked bytes, the one used last at the end. */
  readonly #unpacked = new Set<KeptFrame>();
  /** How often each will be read. */
  readonly #expected = new Map<string, number>();
  /** Those of them that are not here, in the order in which they will be read. */
  readonly #missing = new Set<string>();
  /** What is being fetched ahead. */
  #asked: ReadonlySet<string> = NONE;
  #ahead: Promise<void> = Promise.resolve();
  #unpacker: Unpacker | null = null;
  /** Of all frames that came, uncompressed. */
  #keptBytes = 0;
  #storedBytes = 0;
  #rawBytes = 0;

  constructor(store: RemoteStore) {
    this.#store = store;
  }

  /** Nothing more is read. */
  close(): void {
    this.#unpacker?.close();
    this.#unpacker = null;
  }

  /** Will be read soon: it is asked for together with others. */
  expect(hash: Hash): void {
    const key = nameKey(hash);
    this.#expected.set(key, (this.#expected.get(key) ?? 0) + 1);
    const place = this.#places.get(key);
    if (place === undefined) this.#missing.add(key);
    else place.frame.wanted += 1;
  }

  /** Begins to bring what is expected, as far as there is room for it. */
  prefetch(): void {
    if (this.#asked.size > 0 || this.#missing.size === 0 || this.#wantedBytes() > AHEAD_BYTES) return;
    const keys = this.#next(null);
    this.#asked = new Set(keys);
    this.#ahead = this.#fetch(keys).then(
      () => {
        this.#asked = NONE;
        if (this.#missing.size >= LEAST_AHEAD) this.prefetch();
      },
      // Whoever reads what did not come meets the failure.
      () => {
        this.#asked = NONE;
      },
    );
  }

  /** What `read` gives, where it is here and can be had at once; else null. */
  readIfAvailable(hash: Hash, kind: ObjectKind): Buffer | null {
    const key = nameKey(hash);
    const frame = this.#places.get(key)?.frame;
    if (frame?.unpacking !== null) return null;
    if (frame.raw === null && frame.rawLength >= BESIDE_BYTES) return null;
    return this.#given(key, hash, kind, frame.raw ?? this.#unpack(frame));
  }

  async read(hash: Hash, kind: ObjectKind): Promise<Buffer> {
    await this.fetch(hash);
    const key = nameKey(hash);
    const place = this.#places.get(key);
    if (place === undefined)
      throw snapshotDamaged('the store sent something else', { object: hash.toString('hex') });
    return this.#given(key, hash, kind, place.frame.raw ?? this.#unpack(place.frame));
  }

  /** Resolves when the object can be read without waiting, or will be found damaged. */
  async fetch(hash: Hash): Promise<void> {
    const key = nameKey(hash);
    if (!this.#places.has(key) && this.#asked.has(key)) await this.#ahead;
    if (!this.#places.has(key)) await this.#fetch(this.#next(key));
    const frame = this.#places.get(key)?.frame;
    if (frame === undefined) return;
    await frame.unpacking;
    if (frame.raw === null) this.#unpack(frame);
  }

  /** Checked, and expected once less. */
  #given(key: string, hash: Hash, kind: ObjectKind, raw: Buffer): Buffer {
    const place = this.#places.get(key);
    if (place?.record.kind !== kind) {
      throw snapshotDamaged('an object is of another kind', { object: hash.toString('hex') });
    }
    const { frame, record } = place;
    const left = this.#expected.get(key);
    if (left !== undefined) {
      frame.wanted -= 1;
      if (frame.wanted === 0) this.#unpackAhead();
      if (left > 1) this.#expected.set(key, left - 1);
      else this.#expected.delete(key);
    }
    // The one that was used last goes last.
    if (this.#unpacked.delete(frame)) this.#unpacked.add(frame);
    const { offset, length } = record;
    return frame.isChecked ? raw.subarray(offset, offset + length) : extractObject(raw, record);
  }

  /** `first`, and what is missing and not on its way. */
  #next(first: string | null): string[] {
    const keys: string[] = first === null ? [] : [first];
    for (const key of this.#missing) {
      if (keys.length === SNAPSHOT_WIRE_LIMITS.read) break;
      if (key !== first && !this.#asked.has(key)) keys.push(key);
    }
    return keys;
  }

  /** The first of them, and as many others as come along. */
  async #fetch(keys: readonly string[]): Promise<void> {
    this.#keep(await this.#store.read(keys.map((key) => Buffer.from(key, 'latin1'))));
  }

  #keep({ frames, bytes }: Awaited<ReturnType<RemoteStore['read']>>): void {
    this.#makeRoom(bytes.length);
    let at = 0;
    for (const { objects, stored, raw, encoding } of frames) {
      const table = objects * FRAME.recordBytes;
      if (at + table + stored > bytes.length) throw snapshotDamaged('the store sent less than it says');
      const records = parseFrameTable(bytes.subarray(at, at + table), raw);
      const from = at;
      at += table;
      const frame: KeptFrame = {
        stored: bytes.subarray(at, at + stored),
        table: bytes.subarray(from, at),
        isChecked: false,
        rawLength: raw,
        encoding,
        records,
        raw: null,
        unpacking: null,
        wanted: 0,
      };
      at += stored;
      this.#frames.add(frame);
      this.#storedBytes += stored;
      this.#keptBytes += raw;
      for (const record of records) {
        const key = nameKey(record.hash);
        const before = this.#places.get(key)?.frame;
        const wanted = this.#expected.get(key) ?? 0;
        if (before !== undefined) before.wanted -= wanted;
        frame.wanted += wanted;
        this.#places.set(key, { frame, record });
        this.#missing.delete(key);
      }
    }
    this.#unpackAhead();
  }

  #wantedBytes(): number {
    let bytes = 0;
    for (const { wanted, stored } of this.#frames) if (wanted > 0) bytes += stored.length;
    return bytes;
  }

  /** First goes what nobody expects. */
  #makeRoom(bytes: number): void {
    for (const onlyUnwanted of [true, false]) {
      for (const frame of this.#frames) {
        if (this.#storedBytes + bytes <= KEPT_BYTES) return;
        if (frame.unpacking === null && !(onlyUnwanted && frame.wanted > 0)) this.#drop(frame);
      }
    }
  }

  #drop(frame: KeptFrame): void {
    this.#frames.delete(frame);
    this.#storedBytes -= frame.stored.length;
    this.#forgetRaw(frame);
    for (const { hash } of frame.records) {
      const key = nameKey(hash);
      if (this.#places.get(key)?.frame !== frame) continue;
      this.#places.delete(key);
      if (this.#expected.has(key)) this.#missing.add(key);
    }
  }

  /** Unpacks what is wanted on other processors, as far as there is room. */
  #unpackAhead(): void {
    for (const frame of this.#frames) {
      if (frame.wanted === 0 || frame.raw !== null || frame.unpacking !== null) continue;
      if (frame.encoding !== ENCODINGS.zstd || frame.rawLength > FRAME.maxBytes) continue;
      if (frame.rawLength < BESIDE_BYTES && this.#keptBytes < BEFORE_THREAD_BYTES) continue;
      if (!this.#hasRoomFor(frame.rawLength)) return;
      this.#rawBytes += frame.rawLength;
      frame.unpacking = this.#unpackBeside(frame).then((raw) => {
        frame.unpacking = null;
        this.#rawBytes -= frame.rawLength;
        // What is not as it should be is told by `#unpack`, to whoever reads it.
        if (raw?.length === frame.rawLength) this.#keepRaw(frame, raw);
      });
    }
  }

  async #unpackBeside(frame: KeptFrame): Promise<Buffer | null> {
    if (this.#keptBytes >= BEFORE_THREAD_BYTES) this.#unpacker ??= Unpacker.start();
    if (this.#unpacker !== null) {
      const raw = await this.#unpacker.unpack(frame);
      frame.isChecked = raw !== null;
      return raw;
    }
    return await new Promise((resolve) => {
      zstdDecompress(frame.stored, decompressOptions(frame.rawLength), (error, raw) => {
        resolve(error === null ? raw : null);
      });
    });
  }

  #hasRoomFor(bytes: number): boolean {
    for (const frame of this.#unpacked) {
      if (this.#rawBytes + bytes <= KEPT_BYTES) return true;
      if (frame.wanted === 0) this.#forgetRaw(frame);
    }
    return this.#rawBytes + bytes <= KEPT_BYTES;
  }

  #unpack(frame: KeptFrame): Buffer {
    const raw = decompressFrame(frame.encoding, frame.rawLength, frame.stored);
    for (const other of this.#unpacked) {
      if (this.#rawBytes + raw.length <= KEPT_BYTES) break;
      this.#forgetRaw(other);
    }
    this.#keepRaw(frame, raw);
    this.#unpackAhead();
    return raw;
  }

  #keepRaw(frame: KeptFrame, raw: Buffer): void {
    frame.raw = raw;
    this.#rawBytes += raw.length;
    this.#unpacked.add(frame);
  }

  #forgetRaw(frame: KeptFrame): void {
    this.#unpacked.delete(frame);
    if (frame.raw === null) return;
    this.#rawBytes -= frame.raw.length;
    frame.raw = null;
  }
}
