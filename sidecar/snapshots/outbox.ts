import { type Frame, packRawBeside } from '../../protocol/snapshots/frames.ts';
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
import { Compressor, FRAMES_AHEAD } from './compressor.ts';
import { keyOf } from './folder.ts';
import { FrameMemory } from './frame-memory.ts';
import { BATCH_BYTES, OutboxMemory, PUT_BYTES } from './outbox-memory.ts';
import type { Store } from './store.ts';

/**
 * The store checks a pack when it is complete, while the next one comes. So the first ones and those at the end are short, that it
 * begins soon and has little left to do after the scan; in between they are a part of what was sent before, and none is very long.
 */
const PACK_BYTES = { least: 2 ** 20, most: PACK.targetBytes / 2 } as const;
const PART_OF_SENT = 1 / 4;
/** Packs that the store checks while more is read: so many, and so long together. */
const SEALS_AHEAD = { packs: 6, bytes: 2 * PACK_BYTES.most } as const;
/** Less is compressed sooner than handed over. */
const BEGUN_BYTES = 64 * 1024;

/** A frame of the first of those that wait, on the guess that the store has none of them. */
interface Begun {
  readonly count: number;
  readonly frame: Promise<Frame>;
}

/** What the store was asked for before there was time to wait for its answer. */
interface Asked {
  readonly count: number;
  readonly has: Promise<(index: number) => boolean>;
}

interface Waiting {
  readonly hash: Hash;
  readonly kind: ObjectKind;
  readonly body: Buffer;
  readonly names: readonly Hash[];
}

/** Where the objects of a scan go. */
export interface ObjectOutlet {
  /** Memory for a body that is read from somewhere, until something is added. */
  room(length: number): Buffer;
  /**
   * Takes an object; the body must not change any more, unless it lies in memory from here. `names`: some of the objects that it needs. A
   * store that lacks one of them cannot have it.
   */
  add(kind: ObjectKind, body: Buffer, names?: readonly Hash[]): Hash;
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
  readonly #memory: OutboxMemory;
  /** Of the memory for what waits. */
  #used = 0;
  /** Bytes of all that was added. */
  #added = 0;
  #waiting: Waiting[] = [];
  #waitingBytes = 0;
  #begun: Begun | null = null;
  #asked: Asked | null = null;
  readonly #compressor: Compressor;
  #frame: FrameMemory | null = null;
  /** In the order in which they were made, on their way through the compressor. */
  readonly #frames: Promise<Frame>[] = [];
  #pack = new PackWriter(PACK_BYTES.least);
  #number = 0;
  /** Bytes of the pack that were not sent yet, and where they begin. */
  #unsentLength = 0;
  #unsentFrom = 0;
  readonly #puts = new Set<Promise<void>>();
  readonly #seals = new Set<Promise<void>>();
  /** Bytes of the packs of `#seals`. */
  #sealing = 0;
  /** Little more is to come. */
  #isEnding = false;
  #failure: { readonly error: unknown } | null = null;
  newObjects = 0;
  newBytes = 0;

  /**
   * `asks`: the store may have others than `made` already. What is sent is added to that. `memory`: nobody else's until this is closed.
   * `compressor`: closed with this.
   */
  constructor(
    store: Store,
    asks: boolean,
    made: Set<string>,
    memory: OutboxMemory = new OutboxMemory(),
    compressor: Compressor = new Compressor(memory),
  ) {
    this.#memory = memory;
    this.#compressor = compressor;
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

  room(length: number): Buffer {
    if (!this.#asks) return this.#frameNow().room(length);
    const { waiting } = this.#memory;
    const from = this.#used;
    if (from + length > waiting.length) return Buffer.allocUnsafe(length);
    this.#used += length;
    return waiting.subarray(from, this.#used);
  }

  add(kind: ObjectKind, body: Buffer, names: readonly Hash[] = []): Hash {
    const hash = hashBehind(kind, this.#asks ? this.#memory.waiting : this.#frameNow().bytes, body);
    const key = keyOf(hash);
    if (this.#made.has(key)) return hash;
    this.#made.add(key);
    this.#added += body.length;
    if (this.#asks) {
      this.#waiting.push({ hash, kind, body, names });
      this.#waitingBytes += body.length;
    } else this.#take({ hash, kind, body, names });
    return hash;
  }

  begin(): void {
    this.#isEnding = true;
    if (this.#waiting.length === 0 || this.#waiting.length > SNAPSHOT_WIRE_LIMITS.have) return;
    const has = this.#store.have(this.#waiting.map(({ hash }) => hash));
    has.catch(() => undefined);
    this.#asked = { count: this.#waiting.length, has };
    if (this.#frames.length > 0 || this.#waitingBytes < BEGUN_BYTES) return;
    const memory = new FrameMemory(this.#compressor.room());
    let count = 0;
    for (const { hash, kind, body } of this.#waiting) {
      if (memory.isFull) break;
      memory.add(hash, kind, body);
      count += 1;
    }
    const { raw, records: objects } = memory;
    const frame = packRawBeside(raw).then((packed) => {
      if (packed.stored !== raw) this.#compressor.giveBack(raw);
      return { ...packed, rawLength: raw.length, objects };
    });
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
    const asked = this.#asked;
    this.#asked = null;
    if (asked === null) await this.#takeMissing(batch);
    else {
      const first = batch.slice(0, asked.count);
      const has = await asked.has;
      await this.#takeFirst(first, has, begun);
      const lacking = new Set(first.filter((_, index) => !has(index)).map(({ hash }) => keyOf(hash)));
      const unknown: Waiting[] = [];
      for (const object of batch.slice(asked.count)) {
        if (object.names.some((name) => lacking.has(keyOf(name)))) {
          lacking.add(keyOf(object.hash));
          await this.#takePaced(object);
        } else unknown.push(object);
      }
      await this.#takeMissing(unknown);
    }
    // All of them are in frames now, or not needed.
    this.#used = 0;
    await this.#appendTo(FRAMES_AHEAD);
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
    this.#compressor.close();
    this.#memory.rest(this.#added);
  }

  #frameNow(): FrameMemory {
    return (this.#frame ??= new FrameMemory(this.#compressor.room()));
  }

  #take({ hash, kind, body }: Waiting): void {
    const frame = this.#frameNow();
    frame.add(hash, kind, body);
    this.newObjects += 1;
    if (!frame.isFull) return;
    // All that is there will be sent.
    if (!this.#asks) this.#compressor.start();
    this.#endFrame();
  }

  async #takePaced(object: Waiting): Promise<void> {
    this.#take(object);
    if (this.#frames.length >= 2 * FRAMES_AHEAD) await this.#appendTo(FRAMES_AHEAD);
  }

  /** Those of them that the store has not. */
  async #takeMissing(batch: readonly Waiting[]): Promise<void> {
    for (let from = 0; from < batch.length; from += SNAPSHOT_WIRE_LIMITS.have) {
      const part = batch.slice(from, from + SNAPSHOT_WIRE_LIMITS.have);
      const has = await this.#store.have(part.map(({ hash }) => hash));
      for (const [index, object] of part.entries()) if (!has(index)) await this.#takePaced(object);
    }
  }

  /** The same where the store has been asked already. */
  async #takeFirst(
    first: readonly Waiting[],
    has: (index: number) => boolean,
    begun: Begun | null,
  ): Promise<void> {
    const taken = begun === null ? 0 : this.#takeBegun(begun, has);
    for (const [index, object] of first.entries()) {
      if (index >= taken && !has(index)) await this.#takePaced(object);
    }
  }

  /** How many of the first objects are done with. None where the store has one of them: then they are compressed without it. */
  #takeBegun({ count, frame }: Begun, has: (index: number) => boolean): number {
    for (let index = 0; index < count; index += 1) if (has(index)) return 0;
    this.#endFrame();
    this.#frames.push(frame);
    this.newObjects += count;
    return count;
  }

  #endFrame(): void {
    if (this.#frame === null || this.#frame.records.length === 0) return;
    const { raw, records: objects } = this.#frame;
    this.#frame = null;
    const packed = this.#compressor.pack(raw);
    const frame = packed.then((stored) => ({ ...stored, rawLength: raw.length, objects }));
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
    const isLongEnough = this.#isEnding && this.#pack.length >= PACK_BYTES.least;
    if (this.#pack.isFull || isLongEnough) await this.#seal();
    for (const part of this.#pack.append(frame)) await this.#queue(part);
    this.#compressor.giveBack(frame.stored);
  }

  async #seal(): Promise<void> {
    const index = this.#pack.end();
    for (let from = 0; from < index.length; from += PUT_BYTES) {
      await this.#queue(index.subarray(from, from + PUT_BYTES));
    }
    await this.#put();
    while (this.#seals.size >= SEALS_AHEAD.packs || this.#sealing >= SEALS_AHEAD.bytes) {
      await Promise.race(this.#seals);
    }
    this.#throwIfFailed();
    const { length, objects } = this.#pack;
    this.#sealing += length;
    // The store takes calls in their order: it has what was put before.
    const sealed = this.#store.sealed(this.#number, length, objects).finally(() => (this.#sealing -= length));
    this.#track(this.#seals, sealed);
    this.newBytes += length;
    this.#number += 1;
    const { least, most } = PACK_BYTES;
    this.#pack = new PackWriter(Math.min(Math.max(this.newBytes * PART_OF_SENT, least), most));
    this.#unsentFrom = 0;
  }

  async #queue(bytes: Buffer): Promise<void> {
    if (this.#unsentLength + bytes.length > PUT_BYTES) await this.#put();
    this.#memory.unsent.set(bytes, this.#unsentLength);
    this.#unsentLength += bytes.length;
  }

  /** Waits only while too many are on their way. */
  async #put(): Promise<void> {
    if (this.#unsentLength === 0) return;
    while (this.#puts.size >= SNAPSHOT_WIRE_LIMITS.putsInFlight) await Promise.race(this.#puts);
    this.#throwIfFailed();
    const bytes = this.#memory.unsent.subarray(0, this.#unsentLength);
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
