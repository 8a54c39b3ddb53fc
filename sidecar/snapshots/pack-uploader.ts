import type { Frame } from '../../snapshot-format/frames.ts';
import { releaseBuffer } from '../../snapshot-format/release-buffer.ts';
import { PACK } from '../../snapshot-format/pack-layout.ts';
import { PackWriter } from '../../snapshot-format/pack-writer.ts';
import { SNAPSHOT_WIRE_LIMITS } from '../../snapshot-format/sidecar-calls.ts';
import type { Compressor } from './compressor.ts';
import type { FrameBuilder } from './frame-builder.ts';
import { type UploadBuffers, PUT_BYTES } from './upload-buffers.ts';
import type { RemoteStore } from './store.ts';

/**
 * The store checks each complete pack while the next one arrives. The first and last packs are short, so that checking
 * starts early and little is left after the scan. Those in between grow with the data sent, up to a limit.
 */
const PACK_BYTES = { least: 2 ** 20, most: PACK.targetBytes / 2 } as const;
const PACK_SHARE = 1 / 4;
/** Limits of the packs that the store may be checking while more is read. */
const SEALS_AHEAD = { packs: 6, bytes: 2 * PACK_BYTES.most } as const;
/** Limits of uncompressed frames in flight: `most` stops the reader, and `again` lets it continue. */
const IN_FLIGHT = { most: 6 * 2 ** 20, again: 4 * 2 ** 20 } as const;

/** Compresses frames beside the reading thread, appends them to packs in order, and uploads the packs. */
export class PackUploader {
  readonly #store: RemoteStore;
  readonly #buffers: UploadBuffers;
  readonly #compressor: Pick<Compressor, 'compress' | 'close'>;
  /** In the order of creation. */
  readonly #frames: Promise<Frame>[] = [];
  /** Uncompressed bytes of these frames, and of the one being appended. */
  #inFlight = 0;
  #running: Promise<void> | null = null;
  #progress = Promise.withResolvers<undefined>();
  #pack = new PackWriter(PACK_BYTES.least);
  #number = 0;
  /** Bytes of the pack that were not uploaded, and their offset. */
  #unsentLength = 0;
  #unsentFrom = 0;
  readonly #puts = new Set<Promise<void>>();
  readonly #seals = new Set<Promise<void>>();
  /** Total bytes of the packs in `#seals`. */
  #sealing = 0;
  #isEnding = false;
  #isClosed = false;
  #failure: { readonly error: unknown } | null = null;
  /** Bytes of all uploaded packs. */
  newBytes = 0;

  /** `compressor` is closed with this. */
  constructor(store: RemoteStore, memory: UploadBuffers, compressor: Pick<Compressor, 'compress' | 'close'>) {
    this.#store = store;
    this.#compressor = compressor;
    this.#buffers = memory;
  }

  /** If true, `waitForCapacity` must be awaited before the next frame. */
  get isFull(): boolean {
    return this.#inFlight >= IN_FLIGHT.most;
  }

  /** Frames are being compressed or uploaded. */
  get isWorking(): boolean {
    return this.#inFlight > 0;
  }

  /** Takes ownership of the frame and its memory. */
  send(frame: FrameBuilder): void {
    const compressed = this.#compress(frame);
    // The failure is handled when the frame is appended.
    compressed.catch(() => undefined);
    this.#frames.push(compressed);
    this.#inFlight += frame.raw.length;
    this.#running ??= this.#run();
  }

  /** Resolves when more frames can be taken. */
  async waitForCapacity(): Promise<void> {
    while (this.#inFlight > IN_FLIGHT.again && this.#failure === null && !this.#isClosed) {
      await this.#progress.promise;
    }
    this.#throwIfFailed();
  }

  /** Little more will be added. */
  expectEnd(): void {
    this.#isEnding = true;
  }

  /** Resolves when everything is in the store. */
  async end(): Promise<void> {
    await this.#running;
    this.#throwIfFailed();
    if (this.#pack.length > 0) await this.#seal();
    await Promise.all(this.#seals);
    this.#throwIfFailed();
  }

  /** Stops calling the store, in whatever state the upload is. */
  close(): void {
    this.#isClosed = true;
    this.#compressor.close();
    this.#notifyProgress();
  }

  async #compress({ raw, records: objects }: FrameBuilder): Promise<Frame> {
    return { ...(await this.#compressor.compress(raw)), rawLength: raw.length, objects };
  }

  /** Never rejects. */
  async #run(): Promise<void> {
    try {
      for (let next = this.#frames.shift(); next !== undefined; next = this.#frames.shift()) {
        const frame = await next;
        if (this.#isClosed || this.#failure !== null) return;
        await this.#append(frame);
        this.#buffers.releaseFrame(frame.stored.buffer);
        releaseBuffer(frame.stored);
        this.#inFlight -= frame.rawLength;
        this.#notifyProgress();
      }
    } catch (error) {
      this.#failure ??= { error };
      this.#notifyProgress();
    } finally {
      this.#running = null;
    }
  }

  #notifyProgress(): void {
    this.#progress.resolve(undefined);
    this.#progress = Promise.withResolvers();
  }

  async #append(frame: Frame): Promise<void> {
    const isLongEnough = this.#isEnding && this.#pack.length >= PACK_BYTES.least;
    if (this.#pack.isFull || isLongEnough) await this.#seal();
    for (const part of this.#pack.append(frame)) await this.#queue(part);
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
    // The store handles calls in order, so it has received the earlier bytes.
    const sealed = this.#store.sealed(this.#number, length, objects).finally(() => (this.#sealing -= length));
    this.#track(this.#seals, sealed);
    this.newBytes += length;
    this.#number += 1;
    const { least, most } = PACK_BYTES;
    this.#pack = new PackWriter(Math.min(Math.max(this.newBytes * PACK_SHARE, least), most));
    this.#unsentFrom = 0;
  }

  async #queue(bytes: Buffer): Promise<void> {
    if (this.#unsentLength + bytes.length > PUT_BYTES) await this.#put();
    this.#buffers.unsentPack.set(bytes, this.#unsentLength);
    this.#unsentLength += bytes.length;
  }

  /** Waits only while too many uploads are in flight. */
  async #put(): Promise<void> {
    if (this.#unsentLength === 0) return;
    while (this.#puts.size >= SNAPSHOT_WIRE_LIMITS.putsInFlight) await Promise.race(this.#puts);
    this.#throwIfFailed();
    const bytes = this.#buffers.unsentPack.subarray(0, this.#unsentLength);
    this.#track(this.#puts, this.#store.put(this.#number, this.#unsentFrom, bytes));
    this.#unsentFrom += this.#unsentLength;
    this.#unsentLength = 0;
  }

  /** A failure is reported at the next step, at the latest by `end`. */
  #track(group: Set<Promise<void>>, call: Promise<void>): void {
    const settled = call.catch((error: unknown) => {
      this.#failure ??= { error };
      this.#notifyProgress();
    });
    const counted = settled.finally(() => group.delete(counted));
    group.add(counted);
  }

  #throwIfFailed(): void {
    if (this.#failure !== null) throw this.#failure.error;
    if (this.#isClosed) throw new Error('the upload is closed');
  }
}
