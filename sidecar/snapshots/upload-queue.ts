import { FRAME } from '../../snapshot-format/frames.ts';
import {
  type Hash,
  hashInPlace,
  hashOf,
  type ObjectKind,
  SNAPSHOT_LIMITS,
} from '../../snapshot-format/objects.ts';
import { SNAPSHOT_WIRE_LIMITS } from '../../snapshot-format/sidecar-calls.ts';
import { Compressor } from './compressor.ts';
import { nameKey } from './cached-directory.ts';
import { FrameBuilder } from './frame-builder.ts';
import { BATCH_BYTES, UploadBuffers } from './upload-buffers.ts';
import { PackUploader } from './pack-uploader.ts';
import type { RemoteStore } from './store.ts';

/** The store is asked for so much at a time, and for a part of what came before where that is more: each question has its price. */
const ASK_BYTES = { least: FRAME.shortBytes, most: BATCH_BYTES / 2 } as const;
const PART_OF_ADDED = 1 / 4;
/** Of what a scan adds, so much goes into short frames. */
const IN_SHORT_FRAMES = 64 * 2 ** 20;
/** Objects of a scan that are known to be new to the store, above which it is asked for those that name them, too. */
const MOST_SENT = 10_000;
/** How long whoever reads may go on, ms, while answers wait to be heard. */
const TURN_MS = 0.5;

interface Waiting {
  readonly hash: Hash;
  readonly kind: ObjectKind;
  readonly body: Buffer;
  readonly names: readonly Hash[];
}

/** Where the objects of a scan go. */
export interface ObjectSink {
  /** Memory for a body that is read from somewhere, until something is added: in the same turn of the event loop. */
  allocate(length: number): Buffer;
  /**
   * Takes an object; the body must not change any more, unless it lies in memory from here. `names`: some of the objects that it needs. A
   * store that lacks one of them cannot have it.
   */
  add(kind: ObjectKind, body: Buffer, names?: readonly Hash[]): Hash;
  /** True when `flush` should be awaited before more is added. */
  readonly isFull: boolean;
  flush(): Promise<void>;
  /** Nothing large is added from now on: what waits may be worked on meanwhile. */
  startDraining(): void;
}

/** For a look that stores nothing. Hashes go into `made` (latin1). */
export class NullSink implements ObjectSink {
  readonly isFull = false;
  readonly #made: Set<string>;
  readonly #memory = Buffer.allocUnsafeSlow(SNAPSHOT_LIMITS.objectBytes);

  constructor(made: Set<string>) {
    this.#made = made;
  }

  allocate(length: number): Buffer {
    return this.#memory.subarray(0, length);
  }

  add(kind: ObjectKind, body: Buffer): Hash {
    const hash = hashOf(kind, body);
    this.#made.add(nameKey(hash));
    return hash;
  }

  flush(): Promise<void> {
    return Promise.resolve();
  }

  startDraining(): void {
    // There is nothing to do with it.
  }
}

/**
 * Sends the store what it does not have, while more is read: whoever adds awaits `flush` now and then, and the store's answers are heard
 * then. What it holds in memory is bounded, and most of it is used again.
 */
export class UploadQueue implements ObjectSink {
  readonly #store: RemoteStore;
  readonly #asks: boolean;
  /** Hashes (latin1) that the store has or that are on their way. */
  readonly #made: Set<string>;
  readonly #memory: UploadBuffers;
  readonly #sender: PackUploader;
  /** Of the memory for what waits. */
  #used = 0;
  /** Bytes of all that was added. */
  #added = 0;
  #waiting: Waiting[] = [];
  #waitingBytes = 0;
  /** Bytes of what waits, and of what the store is being asked for. */
  #heldBytes = 0;
  /** Questions that were not answered yet, one after the other. Never rejects. */
  #asking: Promise<void> = Promise.resolve();
  #questions = 0;
  /** Hashes (latin1) of what was asked for, and was not there. */
  readonly #sent = new Set<string>();
  #frame: FrameBuilder | null = null;
  #turnedAt = 0;
  #isClosed = false;
  #failure: { readonly error: unknown } | null = null;
  newObjects = 0;

  /**
   * `asks`: the store may have others than `made` already. What is sent is added to that. `memory`: nobody else's until this is closed.
   * `compressor`: closed with this.
   */
  constructor(
    store: RemoteStore,
    asks: boolean,
    made: Set<string>,
    memory: UploadBuffers = new UploadBuffers(),
    compressor: Compressor = new Compressor(memory),
  ) {
    this.#memory = memory;
    this.#sender = new PackUploader(store, memory, compressor);
    // All that is there will be sent.
    if (!asks) compressor.start();
    this.#store = store;
    this.#asks = asks;
    this.#made = made;
  }

  /** Bytes of the packs that were sent. */
  get newBytes(): number {
    return this.#sender.newBytes;
  }

  get isFull(): boolean {
    if (this.#sender.isFull || this.#isHeldFull) return true;
    const isWorking = this.#questions > 0 || this.#sender.isWorking;
    return isWorking && performance.now() - this.#turnedAt > TURN_MS;
  }

  allocate(length: number): Buffer {
    if (!this.#asks) return this.#frameFor(length).allocate(length);
    const { pending } = this.#memory;
    const from = this.#used;
    if (from + length > pending.length) return Buffer.allocUnsafe(length);
    this.#used += length;
    return pending.subarray(from, this.#used);
  }

  add(kind: ObjectKind, body: Buffer, names: readonly Hash[] = []): Hash {
    const memory = this.#asks ? this.#memory.pending : this.#frameFor(body.length).bytes;
    const hash = hashInPlace(kind, memory, body);
    const key = nameKey(hash);
    if (this.#made.has(key)) return hash;
    this.#made.add(key);
    this.#added += body.length;
    if (!this.#asks) {
      this.#take({ hash, kind, body, names });
      return hash;
    }
    this.#waiting.push({ hash, kind, body, names });
    this.#waitingBytes += body.length;
    this.#heldBytes += body.length;
    const { least, most } = ASK_BYTES;
    const isEnough = this.#waitingBytes >= Math.min(Math.max(this.#added * PART_OF_ADDED, least), most);
    if (isEnough || this.#waiting.length >= SNAPSHOT_WIRE_LIMITS.have) this.#ask();
    return hash;
  }

  startDraining(): void {
    this.#sender.expectEnd();
    if (this.#asks) this.#ask(true);
    else this.#endFrame();
  }

  /** Resolves when more may be added. */
  async flush(): Promise<void> {
    if (this.#isHeldFull) {
      this.#ask();
      await this.#asking;
    }
    await this.#sender.waitForCapacity();
    // What has come meanwhile is heard.
    await new Promise(setImmediate);
    this.#turnedAt = performance.now();
    this.#throwIfFailed();
  }

  /** Everything is in the store. */
  async end(): Promise<void> {
    if (this.#asks) this.#ask(true);
    else this.#endFrame();
    await this.#asking;
    this.#throwIfFailed();
    await this.#sender.end();
  }

  /** Whatever became of it: the store is not called any more. */
  close(): void {
    this.#isClosed = true;
    this.#sender.close();
    this.#memory.trim(this.#added);
  }

  get #isHeldFull(): boolean {
    return this.#heldBytes >= BATCH_BYTES || this.#used >= BATCH_BYTES;
  }

  /** For an object of so many bytes; the one before is sent where there is no room for it. */
  #frameFor(length: number): FrameBuilder {
    if (this.#frame?.fits(length) === false) {
      if (this.#frame.records.length === 0) this.#memory.releaseFrame(this.#frame.bytes.buffer);
      else this.#sender.send(this.#frame);
      this.#frame = null;
    }
    if (this.#frame === null) {
      const target = this.#added < IN_SHORT_FRAMES ? FRAME.shortBytes : FRAME.targetBytes;
      this.#frame = new FrameBuilder(
        Buffer.from(this.#memory.acquireFrame(Math.max(length, target))),
        target,
      );
    }
    return this.#frame;
  }

  /** The store is asked for what waits, and gets what it has not. `ends`: in frames of their own, that they can be compressed now. */
  #ask(ends = false): void {
    const batch = this.#waiting;
    const bytes = this.#waitingBytes;
    this.#waiting = [];
    this.#waitingBytes = 0;
    this.#questions += 1;
    this.#asking = this.#asking.then(async () => {
      try {
        if (this.#failure === null) await this.#takeMissing(batch);
        if (ends && !this.#isClosed) this.#endFrame();
      } catch (error) {
        this.#failure ??= { error };
      }
      this.#questions -= 1;
      this.#heldBytes -= bytes;
      // All of them are in frames now, or not needed.
      if (this.#heldBytes === 0) this.#used = 0;
    });
  }

  /** Those of them that the store has not. */
  async #takeMissing(batch: readonly Waiting[]): Promise<void> {
    const unknown: Waiting[] = [];
    for (const object of batch) {
      if (object.names.some((name) => this.#sent.has(nameKey(name)))) await this.#takeNew(object);
      else unknown.push(object);
    }
    for (let from = 0; from < unknown.length; from += SNAPSHOT_WIRE_LIMITS.have) {
      this.#throwIfFailed();
      const part = unknown.slice(from, from + SNAPSHOT_WIRE_LIMITS.have);
      const has = await this.#store.have(part.map(({ hash }) => hash));
      for (const [index, object] of part.entries()) if (!has(index)) await this.#takeNew(object);
    }
  }

  async #takeNew(object: Waiting): Promise<void> {
    this.#throwIfFailed();
    if (this.#sent.size < MOST_SENT) this.#sent.add(nameKey(object.hash));
    this.#take(object);
    if (this.#sender.isFull) await this.#sender.waitForCapacity();
  }

  #take({ hash, kind, body }: Waiting): void {
    const frame = this.#frameFor(body.length);
    frame.add(hash, kind, body);
    this.newObjects += 1;
    if (frame.isFull) this.#endFrame();
  }

  #endFrame(): void {
    const frame = this.#frame;
    if (frame === null || frame.records.length === 0) return;
    this.#frame = null;
    this.#sender.send(frame);
  }

  #throwIfFailed(): void {
    if (this.#failure !== null) throw this.#failure.error;
    if (this.#isClosed) throw new Error('nothing is sent any more');
  }
}
