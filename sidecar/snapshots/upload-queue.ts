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

/** Bytes per question to the store. The number grows with the bytes added, because each question costs a round trip. */
const ASK_BYTES = { least: FRAME.shortBytes, most: BATCH_BYTES / 2 } as const;
const ASK_SHARE = 1 / 4;
/** Bytes of a scan that go into short frames. */
const SHORT_FRAME_BYTES = 64 * 2 ** 20;
/**
 * Limit of the objects remembered as new to the store. Beyond it, the store is asked about objects that refer to them
 * too.
 */
const MAX_NEW_HASHES = 10_000;
/** How long the reader may continue while answers wait to be handled, ms. */
const READER_SLICE_MS = 0.5;

interface Waiting {
  readonly hash: Hash;
  readonly kind: ObjectKind;
  readonly body: Buffer;
  readonly names: readonly Hash[];
}

/** Receives the objects of a scan. */
export interface ObjectSink {
  /** Memory for a body. Valid until something is added, in the same turn of the event loop. */
  allocate(length: number): Buffer;
  /**
   * Adds an object. Its body must not change afterwards, unless it is in memory from `allocate`. `names`: some of the
   * objects that it refers to. A store that lacks one of them cannot have this object.
   */
  add(kind: ObjectKind, body: Buffer, names?: readonly Hash[]): Hash;
  /** If true, `flush` must be awaited before more is added. */
  readonly isFull: boolean;
  flush(): Promise<void>;
  /** Nothing large will be added, so what is queued can be sent. */
  startDraining(): void;
}

/** For a scan that stores nothing. Adds hashes to `known` (latin1). */
export class NullSink implements ObjectSink {
  readonly isFull = false;
  readonly #known: Set<string>;
  readonly #buffers = Buffer.allocUnsafeSlow(SNAPSHOT_LIMITS.objectBytes);

  constructor(known: Set<string>) {
    this.#known = known;
  }

  allocate(length: number): Buffer {
    return this.#buffers.subarray(0, length);
  }

  add(kind: ObjectKind, body: Buffer): Hash {
    const hash = hashOf(kind, body);
    this.#known.add(nameKey(hash));
    return hash;
  }

  flush(): Promise<void> {
    return Promise.resolve();
  }

  startDraining(): void {
    // Nothing is queued.
  }
}

/**
 * Uploads the objects that the store lacks while more files are read. The reader awaits `flush` from time to time, and
 * the store's answers are handled then. Its memory is bounded and mostly reused.
 */
export class UploadQueue implements ObjectSink {
  readonly #store: RemoteStore;
  readonly #asks: boolean;
  /** Hashes (latin1) that the store has or that are being uploaded. */
  readonly #known: Set<string>;
  readonly #buffers: UploadBuffers;
  readonly #sender: PackUploader;
  /** Used bytes of the pending buffer. */
  #pendingLength = 0;
  /** Bytes of all added objects. */
  #added = 0;
  #waiting: Waiting[] = [];
  #waitingBytes = 0;
  /** Bytes that are queued, or that the store is being asked about. */
  #queuedBytes = 0;
  /** Questions to the store that are not answered, one after the other. Never rejects. */
  #asking: Promise<void> = Promise.resolve();
  #questions = 0;
  /** Hashes (latin1) of objects that the store lacked. */
  readonly #newHashes = new Set<string>();
  #frame: FrameBuilder | null = null;
  #yieldedAt = 0;
  #isClosed = false;
  #failure: { readonly error: unknown } | null = null;
  newObjects = 0;

  /**
   * `asks`: the store may have more objects than `known`. Uploaded hashes are added to `known`. `memory` is reserved
   * until this is closed. `compressor` is closed with this.
   */
  constructor(
    store: RemoteStore,
    asks: boolean,
    known: Set<string>,
    memory: UploadBuffers = new UploadBuffers(),
    compressor: Compressor = new Compressor(memory),
  ) {
    this.#buffers = memory;
    this.#sender = new PackUploader(store, memory, compressor);
    // Everything will be uploaded.
    if (!asks) compressor.start();
    this.#store = store;
    this.#asks = asks;
    this.#known = known;
  }

  /** Bytes of all uploaded packs. */
  get newBytes(): number {
    return this.#sender.newBytes;
  }

  get isFull(): boolean {
    if (this.#sender.isFull || this.#isQueueFull) return true;
    const isWorking = this.#questions > 0 || this.#sender.isWorking;
    return isWorking && performance.now() - this.#yieldedAt > READER_SLICE_MS;
  }

  allocate(length: number): Buffer {
    if (!this.#asks) return this.#frameFor(length).allocate(length);
    const { pending } = this.#buffers;
    const from = this.#pendingLength;
    if (from + length > pending.length) return Buffer.allocUnsafe(length);
    this.#pendingLength += length;
    return pending.subarray(from, this.#pendingLength);
  }

  add(kind: ObjectKind, body: Buffer, names: readonly Hash[] = []): Hash {
    const memory = this.#asks ? this.#buffers.pending : this.#frameFor(body.length).bytes;
    const hash = hashInPlace(kind, memory, body);
    const key = nameKey(hash);
    if (this.#known.has(key)) return hash;
    this.#known.add(key);
    this.#added += body.length;
    if (!this.#asks) {
      this.#addToFrame({ hash, kind, body, names });
      return hash;
    }
    this.#waiting.push({ hash, kind, body, names });
    this.#waitingBytes += body.length;
    this.#queuedBytes += body.length;
    const { least, most } = ASK_BYTES;
    const isEnough = this.#waitingBytes >= Math.min(Math.max(this.#added * ASK_SHARE, least), most);
    if (isEnough || this.#waiting.length >= SNAPSHOT_WIRE_LIMITS.have) this.#ask();
    return hash;
  }

  startDraining(): void {
    this.#sender.expectEnd();
    if (this.#asks) this.#ask(true);
    else this.#endFrame();
  }

  /** Resolves when more can be added. */
  async flush(): Promise<void> {
    if (this.#isQueueFull) {
      this.#ask();
      await this.#asking;
    }
    await this.#sender.waitForCapacity();
    // Lets pending answers be handled.
    await new Promise(setImmediate);
    this.#yieldedAt = performance.now();
    this.#throwIfFailed();
  }

  /** Resolves when everything is in the store. */
  async end(): Promise<void> {
    if (this.#asks) this.#ask(true);
    else this.#endFrame();
    await this.#asking;
    this.#throwIfFailed();
    await this.#sender.end();
  }

  /** Stops calling the store, in whatever state the upload is. */
  close(): void {
    this.#isClosed = true;
    this.#sender.close();
    this.#buffers.trim(this.#added);
  }

  get #isQueueFull(): boolean {
    return this.#queuedBytes >= BATCH_BYTES || this.#pendingLength >= BATCH_BYTES;
  }

  /** A frame for an object of this length. A frame without space for it is sent first. */
  #frameFor(length: number): FrameBuilder {
    if (this.#frame?.fits(length) === false) {
      if (this.#frame.records.length === 0) this.#buffers.releaseFrame(this.#frame.bytes.buffer);
      else this.#sender.send(this.#frame);
      this.#frame = null;
    }
    if (this.#frame === null) {
      const target = this.#added < SHORT_FRAME_BYTES ? FRAME.shortBytes : FRAME.targetBytes;
      this.#frame = new FrameBuilder(
        Buffer.from(this.#buffers.acquireFrame(Math.max(length, target))),
        target,
      );
    }
    return this.#frame;
  }

  /**
   * Asks the store about the queued objects and uploads those that it lacks. `ends`: in frames of their own, which can
   * be compressed now.
   */
  #ask(ends = false): void {
    const batch = this.#waiting;
    const bytes = this.#waitingBytes;
    this.#waiting = [];
    this.#waitingBytes = 0;
    this.#questions += 1;
    this.#asking = this.#asking.then(async () => {
      try {
        if (this.#failure === null) await this.#uploadMissing(batch);
        if (ends && !this.#isClosed) this.#endFrame();
      } catch (error) {
        this.#failure ??= { error };
      }
      this.#questions -= 1;
      this.#queuedBytes -= bytes;
      // All of them are in frames, or not needed.
      if (this.#queuedBytes === 0) this.#pendingLength = 0;
    });
  }

  /** Uploads the objects that the store lacks. */
  async #uploadMissing(batch: readonly Waiting[]): Promise<void> {
    const unknown: Waiting[] = [];
    for (const object of batch) {
      if (object.names.some((name) => this.#newHashes.has(nameKey(name)))) await this.#upload(object);
      else unknown.push(object);
    }
    for (let from = 0; from < unknown.length; from += SNAPSHOT_WIRE_LIMITS.have) {
      this.#throwIfFailed();
      const part = unknown.slice(from, from + SNAPSHOT_WIRE_LIMITS.have);
      const has = await this.#store.have(part.map(({ hash }) => hash));
      for (const [index, object] of part.entries()) if (!has(index)) await this.#upload(object);
    }
  }

  async #upload(object: Waiting): Promise<void> {
    this.#throwIfFailed();
    if (this.#newHashes.size < MAX_NEW_HASHES) this.#newHashes.add(nameKey(object.hash));
    this.#addToFrame(object);
    if (this.#sender.isFull) await this.#sender.waitForCapacity();
  }

  #addToFrame({ hash, kind, body }: Waiting): void {
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
    if (this.#isClosed) throw new Error('the upload is closed');
  }
}
