import { type Frame, FrameBuilder } from '../../protocol/snapshots/frames.ts';
import { type Hash, hashOf, type ObjectKind, SNAPSHOT_LIMITS } from '../../protocol/snapshots/objects.ts';
import { PACK } from '../../protocol/snapshots/pack-layout.ts';
import { PackWriter } from '../../protocol/snapshots/pack-writer.ts';
import { SNAPSHOT_WIRE_LIMITS } from '../../protocol/snapshots/wire.ts';
import { Compressor } from './compressor.ts';
import { keyOf } from './folder.ts';
import type { Store } from './store.ts';

/** What is collected before the store is asked for all of it together. */
const BATCH_BYTES = 4 * 2 ** 20;
/** Frames that are being compressed while more is read. */
const FRAMES_AHEAD = 6;
/**
 * The store checks a pack when it is complete, while the next one comes. So the first ones are short, that it begins soon, and none
 * is so long that its check takes long after the scan.
 */
const PACK_BYTES = { first: 2 * 2 ** 20, most: PACK.targetBytes / 2 } as const;
/** Packs that the store checks while more is read. */
const SEALS_AHEAD = 3;
/** What one `store/put` carries at most. */
export const PUT_BYTES = 4 * 2 ** 20;

interface Waiting {
  readonly hash: Hash;
  readonly kind: ObjectKind;
  readonly body: Buffer;
}

/** Where the objects of a scan go. */
export interface ObjectOutlet {
  /** Memory for a body that is read from somewhere; valid until the next `flush`. */
  room(length: number): Buffer;
  /** Takes an object; the body must not change until the next `flush`. */
  add(kind: ObjectKind, body: Buffer): Hash;
  /** True when `flush` should be awaited before more is added. */
  readonly isFull: boolean;
  flush(): Promise<void>;
}

/** For a look that stores nothing. Hashes go into `made` (latin1). */
export class Nowhere implements ObjectOutlet {
  readonly isFull = false;
  readonly #made: Set<string>;
  readonly #memory = Buffer.allocUnsafeSlow(SNAPSHOT_LIMITS.objectBytes);

  constructor(made: Set<string>) {
    this.#made = made;
  }

  room(length: number): Buffer {
    return this.#memory.subarray(0, length);
  }

  add(kind: ObjectKind, body: Buffer): Hash {
    const hash = hashOf(kind, body);
    this.#made.add(keyOf(hash));
    return hash;
  }

  flush(): Promise<void> {
    return Promise.resolve();
  }
}

/** Sends the store what it does not have, as packs. What it holds in memory is bounded, and most of it is used again. */
export class Outbox implements ObjectOutlet {
  readonly #store: Store;
  readonly #asks: boolean;
  /** Hashes (latin1) that the store has or that are on their way. */
  readonly #made: Set<string>;
  /** Fresh memory for each file would be given back far later than it is needed no more. */
  readonly #memory = Buffer.allocUnsafeSlow(BATCH_BYTES + SNAPSHOT_LIMITS.objectBytes);
  #used = 0;
  #waiting: Waiting[] = [];
  #waitingBytes = 0;
  readonly #frame = new FrameBuilder();
  /** Only where there is much to do: a thread takes longer to start than a few frames. */
  #compressor: Compressor | null = null;
  /** On their way through it. */
  readonly #frames: Promise<Frame>[] = [];
  #packBytes: number = PACK_BYTES.first;
  #pack = new PackWriter(PACK_BYTES.first);
  #number = 0;
  /** Bytes of the pack that were not sent yet, and where they begin. */
  #unsent: Buffer[] = [];
  #unsentFrom = 0;
  readonly #puts = new Set<Promise<void>>();
  readonly #seals = new Set<Promise<void>>();
  #failure: { readonly error: unknown } | null = null;
  newObjects = 0;
  newBytes = 0;

  /** `asks`: the store may have others than `made` already. What is sent is added to that. */
  constructor(store: Store, asks: boolean, made: Set<string>) {
    this.#store = store;
    this.#asks = asks;
    this.#made = made;
  }

  get isFull(): boolean {
    return (
      this.#waitingBytes >= BATCH_BYTES ||
      this.#used >= BATCH_BYTES ||
      this.#waiting.length >= SNAPSHOT_WIRE_LIMITS.have
    );
  }

  room(length: number): Buffer {
    if (this.#used + length > this.#memory.length) return Buffer.allocUnsafe(length);
    const bytes = this.#memory.subarray(this.#used, this.#used + length);
    this.#used += length;
    return bytes;
  }

  add(kind: ObjectKind, body: Buffer): Hash {
    const hash = hashOf(kind, body);
    const key = keyOf(hash);
    if (this.#made.has(key)) return hash;
    this.#made.add(key);
    this.#waiting.push({ hash, kind, body });
    this.#waitingBytes += body.length;
    return hash;
  }

  /** Resolves when more may be added; what was added has then been taken up by the store or is on its way. */
  async flush(): Promise<void> {
    const batch = this.#waiting;
    if (this.#waitingBytes >= BATCH_BYTES) this.#compressor ??= Compressor.start();
    this.#waiting = [];
    this.#waitingBytes = 0;
    for (let from = 0; from < batch.length; from += SNAPSHOT_WIRE_LIMITS.have) {
      const part = batch.slice(from, from + SNAPSHOT_WIRE_LIMITS.have);
      const has = this.#asks ? await this.#store.have(part.map(({ hash }) => hash)) : () => false;
      for (const [index, object] of part.entries()) {
        if (has(index)) continue;
        if (!this.#frame.add(object.hash, object.kind, object.body)) {
          await this.#send();
          this.#frame.add(object.hash, object.kind, object.body);
        }
        this.newObjects += 1;
      }
    }
    // A frame in the making still looks into the memory.
    if (!this.#frame.isEmpty) await this.#send();
    this.#used = 0;
  }

  /** Everything is in the store. */
  async end(): Promise<void> {
    await this.flush();
    while (this.#frames.length > 0) await this.#appendNext();
    if (this.#pack.length > 0) await this.#seal();
    await Promise.all(this.#seals);
    this.#throwIfFailed();
  }

  /** Whatever became of it: nothing more is compressed. */
  close(): void {
    this.#compressor?.close();
    this.#compressor = null;
  }

  /** Frames are compressed beside this thread where there are many, and laid down in the order in which they were made. */
  async #send(): Promise<void> {
    if (this.#compressor === null) {
      await this.#append(this.#frame.finish());
      return;
    }
    const raw = this.#compressor.room();
    const rawLength = this.#frame.rawLength;
    const objects = this.#frame.take(raw);
    this.#frames.push(
      this.#compressor.pack(raw, rawLength).then((packed) => ({ ...packed, rawLength, objects })),
    );
    // Its failure is met when its turn comes.
    this.#frames.at(-1)?.catch(() => undefined);
    if (this.#frames.length > FRAMES_AHEAD) await this.#appendNext();
  }

  async #appendNext(): Promise<void> {
    const next = this.#frames.shift();
    if (next !== undefined) await this.#append(await next);
  }

  async #append(frame: Frame): Promise<void> {
    if (this.#pack.isFull) await this.#seal();
    for (const part of this.#pack.append(frame)) await this.#queue(part);
  }

  async #seal(): Promise<void> {
    const index = this.#pack.end();
    for (let from = 0; from < index.length; from += PUT_BYTES) {
      await this.#queue(index.subarray(from, from + PUT_BYTES));
    }
    await this.#put();
    while (this.#seals.size >= SEALS_AHEAD) await Promise.race(this.#seals);
    this.#throwIfFailed();
    const { length, objects } = this.#pack;
    // The store takes calls in their order: it has what was put before.
    this.#track(this.#seals, this.#store.sealed(this.#number, length, objects));
    this.newBytes += length;
    this.#number += 1;
    this.#packBytes = Math.min(this.#packBytes * 2, PACK_BYTES.most);
    this.#pack = new PackWriter(this.#packBytes);
    this.#unsentFrom = 0;
  }

  async #queue(bytes: Buffer): Promise<void> {
    if (lengthOf(this.#unsent) + bytes.length > PUT_BYTES) await this.#put();
    this.#unsent.push(bytes);
  }

  /** Waits only while too many are on their way. */
  async #put(): Promise<void> {
    const parts = this.#unsent;
    const offset = this.#unsentFrom;
    if (parts.length === 0) return;
    this.#unsent = [];
    this.#unsentFrom += lengthOf(parts);
    while (this.#puts.size >= SNAPSHOT_WIRE_LIMITS.putsInFlight) await Promise.race(this.#puts);
    this.#throwIfFailed();
    this.#track(this.#puts, this.#store.put(this.#number, offset, parts));
  }

  /** Its failure is met at the next step, at the latest at the end. */
  #track(group: Set<Promise<void>>, call: Promise<void>): void {
    const settled = call.catch((error: unknown) => {
      this.#failure ??= { error };
    });
    const counted = settled.finally(() => group.delete(counted));
    group.add(counted);
  }

  #throwIfFailed(): void {
    if (this.#failure !== null) throw this.#failure.error;
  }
}

function lengthOf(parts: readonly Buffer[]): number {
  return parts.reduce((sum, part) => sum + part.length, 0);
}
