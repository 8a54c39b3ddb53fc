import {
  FRAME,
  type FrameRecord,
  objectInFrame,
  parseRecords,
  unpackFrame,
} from '../../protocol/snapshots/frames.ts';
import { damaged, type Hash, type ObjectKind, type ObjectReader } from '../../protocol/snapshots/objects.ts';
import { SNAPSHOT_WIRE_LIMITS } from '../../protocol/snapshots/wire.ts';
import { keyOf } from './folder.ts';
import type { Store } from './store.ts';

/** Stored and unpacked bytes that are kept, each. */
const KEPT_BYTES = 24 * 2 ** 20;

interface KeptFrame {
  readonly stored: Buffer;
  readonly rawLength: number;
  readonly encoding: number;
  readonly records: readonly FrameRecord[];
  raw: Buffer | null;
}

/**
 * Objects of the store. They come in whole frames, which are kept for a while: what was stored together is wanted together.
 * Everything is checked before it is given out.
 */
export class RemoteObjects implements ObjectReader {
  readonly #store: Store;
  readonly #places = new Map<string, { readonly frame: KeptFrame; readonly record: FrameRecord }>();
  /** In the order in which they came. */
  readonly #frames = new Set<KeptFrame>();
  /** Those with unpacked bytes, the one used last at the end. */
  readonly #unpacked = new Set<KeptFrame>();
  readonly #expected = new Set<string>();
  #storedBytes = 0;
  #rawBytes = 0;

  constructor(store: Store) {
    this.#store = store;
  }

  /** Will be read soon: it is asked for together with others. */
  expect(hash: Hash): void {
    this.#expected.add(keyOf(hash));
  }

  async read(hash: Hash, kind: ObjectKind): Promise<Buffer> {
    const key = keyOf(hash);
    this.#expected.delete(key);
    if (!this.#places.has(key)) await this.#fetch(hash, key);
    const place = this.#places.get(key);
    if (place === undefined) throw damaged('the store sent something else', { object: hash.toString('hex') });
    const { frame, record } = place;
    if (record.kind !== kind) throw damaged('an object is of another kind', { object: hash.toString('hex') });
    return objectInFrame(this.#rawOf(frame), record);
  }

  async #fetch(hash: Hash, key: string): Promise<void> {
    const hashes = [hash];
    for (const other of this.#expected) {
      if (hashes.length === SNAPSHOT_WIRE_LIMITS.read) break;
      if (other !== key && !this.#places.has(other)) hashes.push(Buffer.from(other, 'latin1'));
    }
    const { frames, bytes } = await this.#store.read(hashes);
    this.#makeRoom(bytes.length);
    let at = 0;
    for (const { objects, stored, raw, encoding } of frames) {
      const table = objects * FRAME.recordBytes;
      if (at + table + stored > bytes.length) throw damaged('the store sent less than it says');
      const records = parseRecords(bytes.subarray(at, at + table), raw);
      at += table;
      const frame: KeptFrame = {
        stored: bytes.subarray(at, at + stored),
        rawLength: raw,
        encoding,
        records,
        raw: null,
      };
      at += stored;
      this.#frames.add(frame);
      this.#storedBytes += stored;
      for (const record of records) this.#places.set(keyOf(record.hash), { frame, record });
    }
  }

  #makeRoom(bytes: number): void {
    for (const frame of this.#frames) {
      if (this.#storedBytes + bytes <= KEPT_BYTES) return;
      this.#frames.delete(frame);
      this.#storedBytes -= frame.stored.length;
      this.#forgetRaw(frame);
      for (const { hash } of frame.records) {
        const key = keyOf(hash);
        if (this.#places.get(key)?.frame === frame) this.#places.delete(key);
      }
    }
  }

  #rawOf(frame: KeptFrame): Buffer {
    if (frame.raw === null) {
      frame.raw = unpackFrame(frame.encoding, frame.rawLength, frame.stored);
      this.#rawBytes += frame.raw.length;
    }
    this.#unpacked.delete(frame);
    this.#unpacked.add(frame);
    for (const other of this.#unpacked) {
      if (this.#rawBytes <= KEPT_BYTES || other === frame) break;
      this.#forgetRaw(other);
    }
    return frame.raw;
  }

  #forgetRaw(frame: KeptFrame): void {
    this.#unpacked.delete(frame);
    if (frame.raw === null) return;
    this.#rawBytes -= frame.raw.length;
    frame.raw = null;
  }
}
