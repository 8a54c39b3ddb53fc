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

/** Limit of stored bytes and of unpacked bytes in memory, each. */
const MEMORY_BYTES = 24 * 2 ** 20;
/** Limit of stored bytes waiting to be read. Beyond it nothing is prefetched. */
const PREFETCH_BYTES = 12 * 2 ** 20;
/** A prefetch below this number of objects is not worth its round trip. */
const MIN_PREFETCH = 64;
/** Bytes to unpack before the thread is started, which takes longer than a few frames. */
const MIN_THREAD_BYTES = 48 * 2 ** 20;
/** Without the thread, passing on a shorter frame takes as long as unpacking it. */
const MIN_ASYNC_BYTES = 256 * 1024;
const NONE: ReadonlySet<string> = new Set();

interface CachedFrame {
  readonly stored: Buffer;
  /** See `encodeRecords`. */
  readonly table: Buffer;
  readonly rawLength: number;
  readonly encoding: number;
  readonly records: readonly FrameRecord[];
  raw: Buffer | null;
  /** The hashes of all its objects were verified. */
  isChecked: boolean;
  /** Settles when `raw` is there, or if it could not be unpacked on another thread. */
  unpacking: Promise<void> | null;
  /** Expected reads of its objects. */
  expectedReads: number;
}

/**
 * Objects of the store. They arrive in whole frames, which are cached, because objects stored together are usually read
 * together. Expected objects are prefetched and unpacked on other threads. Every object is verified before it is
 * returned.
 */
export class RemoteObjects implements ObjectReader {
  readonly #store: RemoteStore;
  readonly #places = new Map<string, { readonly frame: CachedFrame; readonly record: FrameRecord }>();
  /** In order of arrival. */
  readonly #frames = new Set<CachedFrame>();
  /** Frames with unpacked bytes, the most recently used last. */
  readonly #unpacked = new Set<CachedFrame>();
  /** Number of expected reads by object. */
  readonly #expected = new Map<string, number>();
  /** Expected objects that are not here, in the order of the expected reads. */
  readonly #missing = new Set<string>();
  /** Objects being prefetched. */
  #inFlight: ReadonlySet<string> = NONE;
  #prefetching: Promise<void> = Promise.resolve();
  #unpacker: Unpacker | null = null;
  /** Uncompressed bytes of all frames that arrived. */
  #receivedBytes = 0;
  #storedBytes = 0;
  #rawBytes = 0;

  constructor(store: RemoteStore) {
    this.#store = store;
  }

  /** Ends the thread. No read may follow. */
  close(): void {
    this.#unpacker?.close();
    this.#unpacker = null;
  }

  /** Announces a read, so that the object is fetched together with others. */
  expect(hash: Hash): void {
    const key = nameKey(hash);
    this.#expected.set(key, (this.#expected.get(key) ?? 0) + 1);
    const place = this.#places.get(key);
    if (place === undefined) this.#missing.add(key);
    else place.frame.expectedReads += 1;
  }

  /** Starts fetching expected objects, as far as memory allows. */
  prefetch(): void {
    if (this.#inFlight.size > 0 || this.#missing.size === 0 || this.#wantedBytes() > PREFETCH_BYTES) return;
    const keys = this.#keysToFetch(null);
    this.#inFlight = new Set(keys);
    this.#prefetching = this.#fetch(keys).then(
      () => {
        this.#inFlight = NONE;
        if (this.#missing.size >= MIN_PREFETCH) this.prefetch();
      },
      // The failure is reported when the object is read.
      () => {
        this.#inFlight = NONE;
      },
    );
  }

  /** As `read`, but null if the object is not here yet. */
  readIfAvailable(hash: Hash, kind: ObjectKind): Buffer | null {
    const key = nameKey(hash);
    const frame = this.#places.get(key)?.frame;
    if (frame?.unpacking !== null) return null;
    if (frame.raw === null && frame.rawLength >= MIN_ASYNC_BYTES) return null;
    return this.#verified(key, hash, kind, frame.raw ?? this.#unpack(frame));
  }

  async read(hash: Hash, kind: ObjectKind): Promise<Buffer> {
    await this.fetch(hash);
    const key = nameKey(hash);
    const place = this.#places.get(key);
    if (place === undefined)
      throw snapshotDamaged('the store sent other objects', { object: hash.toString('hex') });
    return this.#verified(key, hash, kind, place.frame.raw ?? this.#unpack(place.frame));
  }

  /** Resolves when the object can be read without waiting, or will be found damaged. */
  async fetch(hash: Hash): Promise<void> {
    const key = nameKey(hash);
    if (!this.#places.has(key) && this.#inFlight.has(key)) await this.#prefetching;
    if (!this.#places.has(key)) await this.#fetch(this.#keysToFetch(key));
    const frame = this.#places.get(key)?.frame;
    if (frame === undefined) return;
    await frame.unpacking;
    if (frame.raw === null) this.#unpack(frame);
  }

  /** Verifies and returns an object, and counts one expected read less. */
  #verified(key: string, hash: Hash, kind: ObjectKind, raw: Buffer): Buffer {
    const place = this.#places.get(key);
    if (place?.record.kind !== kind) {
      throw snapshotDamaged('an object has the wrong kind', { object: hash.toString('hex') });
    }
    const { frame, record } = place;
    const left = this.#expected.get(key);
    if (left !== undefined) {
      frame.expectedReads -= 1;
      if (frame.expectedReads === 0) this.#unpackAhead();
      if (left > 1) this.#expected.set(key, left - 1);
      else this.#expected.delete(key);
    }
    // Marks the frame as most recently used.
    if (this.#unpacked.delete(frame)) this.#unpacked.add(frame);
    const { offset, length } = record;
    return frame.isChecked ? raw.subarray(offset, offset + length) : extractObject(raw, record);
  }

  /** `first`, and the missing objects that are not in flight. */
  #keysToFetch(first: string | null): string[] {
    const keys: string[] = first === null ? [] : [first];
    for (const key of this.#missing) {
      if (keys.length === SNAPSHOT_WIRE_LIMITS.read) break;
      if (key !== first && !this.#inFlight.has(key)) keys.push(key);
    }
    return keys;
  }

  /** Fetches the first object, and others that are in the same frames. */
  async #fetch(keys: readonly string[]): Promise<void> {
    this.#addFrames(await this.#store.read(keys.map((key) => Buffer.from(key, 'latin1'))));
  }

  #addFrames({ frames, bytes }: Awaited<ReturnType<RemoteStore['read']>>): void {
    this.#evict(bytes.length);
    let at = 0;
    for (const { objects, stored, raw, encoding } of frames) {
      const table = objects * FRAME.recordBytes;
      if (at + table + stored > bytes.length)
        throw snapshotDamaged('the store sent fewer bytes than announced');
      const records = parseFrameTable(bytes.subarray(at, at + table), raw);
      const from = at;
      at += table;
      const frame: CachedFrame = {
        stored: bytes.subarray(at, at + stored),
        table: bytes.subarray(from, at),
        isChecked: false,
        rawLength: raw,
        encoding,
        records,
        raw: null,
        unpacking: null,
        expectedReads: 0,
      };
      at += stored;
      this.#frames.add(frame);
      this.#storedBytes += stored;
      this.#receivedBytes += raw;
      for (const record of records) {
        const key = nameKey(record.hash);
        const before = this.#places.get(key)?.frame;
        const expectedReads = this.#expected.get(key) ?? 0;
        if (before !== undefined) before.expectedReads -= expectedReads;
        frame.expectedReads += expectedReads;
        this.#places.set(key, { frame, record });
        this.#missing.delete(key);
      }
    }
    this.#unpackAhead();
  }

  #wantedBytes(): number {
    let bytes = 0;
    for (const { expectedReads, stored } of this.#frames) if (expectedReads > 0) bytes += stored.length;
    return bytes;
  }

  /** Evicts frames without expected reads first. */
  #evict(bytes: number): void {
    for (const onlyUnwanted of [true, false]) {
      for (const frame of this.#frames) {
        if (this.#storedBytes + bytes <= MEMORY_BYTES) return;
        if (frame.unpacking === null && !(onlyUnwanted && frame.expectedReads > 0)) this.#drop(frame);
      }
    }
  }

  #drop(frame: CachedFrame): void {
    this.#frames.delete(frame);
    this.#storedBytes -= frame.stored.length;
    this.#dropRaw(frame);
    for (const { hash } of frame.records) {
      const key = nameKey(hash);
      if (this.#places.get(key)?.frame !== frame) continue;
      this.#places.delete(key);
      if (this.#expected.has(key)) this.#missing.add(key);
    }
  }

  /** Unpacks expected frames on other processors, as far as memory allows. */
  #unpackAhead(): void {
    for (const frame of this.#frames) {
      if (frame.expectedReads === 0 || frame.raw !== null || frame.unpacking !== null) continue;
      if (frame.encoding !== ENCODINGS.zstd || frame.rawLength > FRAME.maxBytes) continue;
      if (frame.rawLength < MIN_ASYNC_BYTES && this.#receivedBytes < MIN_THREAD_BYTES) continue;
      if (!this.#hasCapacityFor(frame.rawLength)) return;
      this.#rawBytes += frame.rawLength;
      frame.unpacking = this.#unpackAsync(frame).then((raw) => {
        frame.unpacking = null;
        this.#rawBytes -= frame.rawLength;
        // If the frame is damaged, `#unpack` reports it to the reader.
        if (raw?.length === frame.rawLength) this.#setRaw(frame, raw);
      });
    }
  }

  async #unpackAsync(frame: CachedFrame): Promise<Buffer | null> {
    if (this.#receivedBytes >= MIN_THREAD_BYTES) this.#unpacker ??= Unpacker.start();
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

  #hasCapacityFor(bytes: number): boolean {
    for (const frame of this.#unpacked) {
      if (this.#rawBytes + bytes <= MEMORY_BYTES) return true;
      if (frame.expectedReads === 0) this.#dropRaw(frame);
    }
    return this.#rawBytes + bytes <= MEMORY_BYTES;
  }

  #unpack(frame: CachedFrame): Buffer {
    const raw = decompressFrame(frame.encoding, frame.rawLength, frame.stored);
    for (const other of this.#unpacked) {
      if (this.#rawBytes + raw.length <= MEMORY_BYTES) break;
      this.#dropRaw(other);
    }
    this.#setRaw(frame, raw);
    this.#unpackAhead();
    return raw;
  }

  #setRaw(frame: CachedFrame, raw: Buffer): void {
    frame.raw = raw;
    this.#rawBytes += raw.length;
    this.#unpacked.add(frame);
  }

  #dropRaw(frame: CachedFrame): void {
    this.#unpacked.delete(frame);
    if (frame.raw === null) return;
    this.#rawBytes -= frame.raw.length;
    frame.raw = null;
  }
}
