import { type Frame, FrameBuilder, packRawBeside } from '../../protocol/snapshots/frames.ts';
import {
  type Hash,
  hashBehind,
  hashOf,
  type ObjectKind,
  SNAPSHOT_LIMITS,
} from '../../protocol/snapshots/objects.ts';
import { PACK } from '../../protocol/snapshots/pack-layout.ts';
import { PackWriter } from '../../protocol/snapshots/pack-writer.ts';
import { SNAPSHOT_WIRE_LIMITS } from '../../protocol/snapshots/wire.ts';
import { Compressor } from './compressor.ts';
import { keyOf } from './folder.ts';
import type { Store } from './store.ts';

/** What is collected before the store is asked for all of it together. */
const BATCH_BYTES = 4 * 2 ** 20;
/** Frames after which there is enough to do for a thread: it takes as long to start as some twenty of them. */
const FRAMES_ALONE = 3;
/** Frames that the thread has before it while it starts; what comes beyond them is compressed here. Twice as many are all that wait. */
const FRAMES_AHEAD = 12;
/**
 * The store checks a pack when it is complete, while the next one comes. So the first ones are short, that it begins soon, and none
 * is so long that its check takes long after the scan.
 */
const PACK_BYTES = { first: 2 * 2 ** 20, most: PACK.targetBytes / 2 } as const;
/** Packs that the store checks while more is read. */
const SEALS_AHEAD = 3;
/** What one `store/put` carries at most. */
export const PUT_BYTES = 4 * 2 ** 20;

/** Less is compressed sooner than handed over. */
const BEGUN_BYTES = 64 * 1024;

/** A frame of the first of those that wait, on the guess that the store has none of them. */
interface Begun {
  readonly count: number;
  readonly frame: Promise<Frame>;
}

interface Waiting {
  readonly hash: Hash;
  readonly kind: ObjectKind;
  readonly body: Buffer;
}

/** Where the objects of a scan go. */
export interface ObjectOutlet {
  /** Memory for a body that is read from somewhere; valid until the body is added. */
  room(length: number): Buffer;
  /** Takes an object; the body must not change any more, unless it lies in memory from here. */
  add(kind: ObjectKind, body: Buffer): Hash;
  /** True when `flush` should be awaited before more is added. */
  readonly isFull: boolean;
  flush(): Promise<void>;
  /** Nothing large is added from now on: what waits may be worked on meanwhile. */
  begin(): void;
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

  begin(): void {
    // There is nothing to do with it.
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
  #begun: Begun | null = null;
  readonly #frame = new FrameBuilder();
  /** Only where there is much to do. */
  #compressor: Compressor | null = null;
  #framesMade = 0;
  /** In the order in which they were made, on their way through it. */
  readonly #frames: Promise<Frame>[] = [];
  #packBytes: number = PACK_BYTES.first;
  #pack = new PackWriter(PACK_BYTES.first);
  #number = 0;
  /** Bytes of the pack that were not sent yet, and where they begin. */
  readonly #unsent = Buffer.allocUnsafeSlow(PUT_BYTES);
  #unsentLength = 0;
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
      this.#waiting.length >= SNAPSHOT_WIRE_LIMITS.have ||
      this.#frames.length >= 2 * FRAMES_AHEAD
    );
  }

  /** Before it lies a byte that is needed for hashing. */
  room(length: number): Buffer {
    if (this.#used + 1 + length > this.#memory.length) return Buffer.allocUnsafe(length);
    const from = this.#used + 1;
    this.#used = from + length;
    return this.#memory.subarray(from, this.#used);
  }

  add(kind: ObjectKind, body: Buffer): Hash {
    const isOurs = body.buffer === this.#memory.buffer;
    const hash = isOurs ? hashBehind(kind, this.#memory, body) : hashOf(kind, body);
    const key = keyOf(hash);
    if (this.#made.has(key)) {
      this.#reuse();
      return hash;
    }
    this.#made.add(key);
    if (this.#asks) {
      this.#waiting.push({ hash, kind, body });
      this.#waitingBytes += body.length;
    } else this.#take({ hash, kind, body });
    return hash;
  }

  begin(): void {
    if (this.#begun !== null || this.#compressor !== null || this.#waitingBytes < BEGUN_BYTES) return;
    const builder = new FrameBuilder();
    let count = 0;
    for (const { hash, kind, body } of this.#waiting) {
      if (!builder.add(hash, kind, body)) break;
      count += 1;
    }
    const raw = Buffer.allocUnsafeSlow(builder.rawLength);
    const objects = builder.take(raw);
    const frame = packRawBeside(raw).then((packed) => ({ ...packed, rawLength: raw.length, objects }));
    // Its failure is met when its turn comes.
    frame.catch(() => undefined);
    this.#begun = { count, frame };
  }

  /** Resolves when more may be added. */
  async flush(): Promise<void> {
    const batch = this.#waiting;
    this.#waiting = [];
    this.#waitingBytes = 0;
    const begun = this.#begun;
    this.#begun = null;
    for (let from = 0; from < batch.length; from += SNAPSHOT_WIRE_LIMITS.have) {
      const part = batch.slice(from, from + SNAPSHOT_WIRE_LIMITS.have);
      const has = await this.#store.have(part.map(({ hash }) => hash));
      const taken = from === 0 && begun !== null ? this.#takeBegun(begun, has) : 0;
      for (const [index, object] of part.entries()) {
        if (index < taken || has(index)) continue;
        this.#take(object);
        if (this.#frames.length >= 2 * FRAMES_AHEAD) await this.#appendTo(FRAMES_AHEAD);
      }
    }
    // A frame in the making still looks into the memory.
    if (this.#used >= BATCH_BYTES || batch.length > 0) this.#endFrame();
    await this.#appendTo(FRAMES_AHEAD);
    this.#reuse();
  }

  /** Everything is in the store. */
  async end(): Promise<void> {
    await this.flush();
    this.#endFrame();
    await this.#appendTo(0);
    if (this.#pack.length > 0) await this.#seal();
    await Promise.all(this.#seals);
    this.#throwIfFailed();
  }

  /** Whatever became of it: nothing more is compressed. */
  close(): void {
    this.#compressor?.close();
    this.#compressor = null;
  }

  /** A frame is ended as soon as it has enough: nothing else looks into the memory then. */
  #take({ hash, kind, body }: Waiting): void {
    if (!this.#frame.add(hash, kind, body)) {
      this.#endFrame();
      this.#frame.add(hash, kind, body);
    }
    this.newObjects += 1;
    if (this.#frame.isFull) this.#endFrame();
    this.#reuse();
  }

  /** How many of the first objects are done with. None where the store has one of them: then they are compressed without it. */
  #takeBegun({ count, frame }: Begun, has: (index: number) => boolean): number {
    for (let index = 0; index < count; index += 1) if (has(index)) return 0;
    this.#endFrame();
    this.#framesMade += 1;
    this.#frames.push(frame);
    this.newObjects += count;
    return count;
  }

  /** From its beginning, where nobody looks into the memory any more. */
  #reuse(): void {
    if (this.#frame.isEmpty && this.#waiting.length === 0) this.#used = 0;
  }

  /** Frames are compressed beside this thread where there are many. */
  #endFrame(): void {
    if (this.#frame.isEmpty) return;
    this.#framesMade += 1;
    if (this.#framesMade > FRAMES_ALONE) this.#compressor ??= Compressor.start();
    const compressor = this.#compressor;
    if (compressor === null || (!compressor.isReady && compressor.waiting >= FRAMES_AHEAD)) {
      this.#frames.push(Promise.resolve(this.#frame.finish()));
      return;
    }
    const raw = compressor.room();
    const { rawLength } = this.#frame;
    const objects = this.#frame.take(raw);
    const packed = compressor.pack(raw.subarray(0, rawLength));
    const frame = packed.then((stored) => ({ ...stored, rawLength, objects }));
    // Its failure is met when its turn comes.
    frame.catch(() => undefined);
    this.#frames.push(frame);
  }

  /** In the order in which they were made, until so many are left. */
  async #appendTo(left: number): Promise<void> {
    for (let next = this.#next(left); next !== undefined; next = this.#next(left))
      await this.#append(await next);
  }

  #next(left: number): Promise<Frame> | undefined {
    return this.#frames.length > left ? this.#frames.shift() : undefined;
  }

  async #append(frame: Frame): Promise<void> {
    if (this.#pack.isFull) await this.#seal();
    for (const part of this.#pack.append(frame)) await this.#queue(part);
    this.#compressor?.giveBack(frame.stored);
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
    if (this.#unsentLength + bytes.length > PUT_BYTES) await this.#put();
    this.#unsent.set(bytes, this.#unsentLength);
    this.#unsentLength += bytes.length;
  }

  /** Waits only while too many are on their way. */
  async #put(): Promise<void> {
    if (this.#unsentLength === 0) return;
    while (this.#puts.size >= SNAPSHOT_WIRE_LIMITS.putsInFlight) await Promise.race(this.#puts);
    this.#throwIfFailed();
    const bytes = this.#unsent.subarray(0, this.#unsentLength);
    this.#track(this.#puts, this.#store.put(this.#number, this.#unsentFrom, bytes));
    this.#unsentFrom += this.#unsentLength;
    this.#unsentLength = 0;
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
