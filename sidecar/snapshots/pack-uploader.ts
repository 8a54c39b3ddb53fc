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
 * The store checks a pack when it is complete, while the next one comes. So the first ones and those at the end are short, that it
 * begins soon and has little left to do after the scan; in between they are a part of what was sent before, and none is very long.
 */
const PACK_BYTES = { least: 2 ** 20, most: PACK.targetBytes / 2 } as const;
const PART_OF_SENT = 1 / 4;
/** Packs that the store checks while more is read: so many, and so long together. */
const SEALS_AHEAD = { packs: 6, bytes: 2 * PACK_BYTES.most } as const;
/** Bytes of frames, uncompressed, that wait for their turn at most, and at which more are taken again. */
const IN_FLIGHT = { most: 6 * 2 ** 20, again: 4 * 2 ** 20 } as const;

/** Compresses frames beside the thread that reads, lays them out as packs in the order in which they come, and sends these. */
export class PackUploader {
  readonly #store: RemoteStore;
  readonly #memory: UploadBuffers;
  readonly #compressor: Pick<Compressor, 'pack' | 'close'>;
  /** In the order in which they were made. */
  readonly #frames: Promise<Frame>[] = [];
  /** Bytes of those, uncompressed, and of the one that is being appended. */
  #inFlight = 0;
  #running: Promise<void> | null = null;
  #stepped = Promise.withResolvers<undefined>();
  #pack = new PackWriter(PACK_BYTES.least);
  #number = 0;
  /** Bytes of the pack that were not sent yet, and where they begin. */
  #unsentLength = 0;
  #unsentFrom = 0;
  readonly #puts = new Set<Promise<void>>();
  readonly #seals = new Set<Promise<void>>();
  /** Bytes of the packs of `#seals`. */
  #sealing = 0;
  #isEnding = false;
  #isClosed = false;
  #failure: { readonly error: unknown } | null = null;
  /** Bytes of the packs that were sent. */
  newBytes = 0;

  /** `compressor`: closed with this. */
  constructor(store: RemoteStore, memory: UploadBuffers, compressor: Pick<Compressor, 'pack' | 'close'>) {
    this.#store = store;
    this.#compressor = compressor;
    this.#memory = memory;
  }

  /** True when `room` should be awaited before more is sent. */
  get isFull(): boolean {
    return this.#inFlight >= IN_FLIGHT.most;
  }

  /** Something goes on beside whoever calls. */
  get isWorking(): boolean {
    return this.#inFlight > 0;
  }

  /** Takes a frame over, with its memory. */
  send(frame: FrameBuilder): void {
    const compressed = this.#compress(frame);
    // Its failure is met when its turn comes.
    compressed.catch(() => undefined);
    this.#frames.push(compressed);
    this.#inFlight += frame.raw.length;
    this.#running ??= this.#run();
  }

  /** Resolves when more may be sent. */
  async waitForCapacity(): Promise<void> {
    while (this.#inFlight > IN_FLIGHT.again && this.#failure === null && !this.#isClosed) {
      await this.#stepped.promise;
    }
    this.#throwIfFailed();
  }

  /** Little more is to come. */
  expectEnd(): void {
    this.#isEnding = true;
  }

  /** Everything is in the store. */
  async end(): Promise<void> {
    await this.#running;
    this.#throwIfFailed();
    if (this.#pack.length > 0) await this.#seal();
    await Promise.all(this.#seals);
    this.#throwIfFailed();
  }

  /** Whatever became of it: the store is not called any more. */
  close(): void {
    this.#isClosed = true;
    this.#compressor.close();
    this.#step();
  }

  async #compress({ raw, records: objects }: FrameBuilder): Promise<Frame> {
    return { ...(await this.#compressor.pack(raw)), rawLength: raw.length, objects };
  }

  /** Never rejects. */
  async #run(): Promise<void> {
    try {
      for (let next = this.#frames.shift(); next !== undefined; next = this.#frames.shift()) {
        const frame = await next;
        if (this.#isClosed || this.#failure !== null) return;
        await this.#append(frame);
        this.#memory.releaseFrame(frame.stored.buffer);
        releaseBuffer(frame.stored);
        this.#inFlight -= frame.rawLength;
        this.#step();
      }
    } catch (error) {
      this.#failure ??= { error };
      this.#step();
    } finally {
      this.#running = null;
    }
  }

  #step(): void {
    this.#stepped.resolve(undefined);
    this.#stepped = Promise.withResolvers();
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
    this.#memory.unsentPack.set(bytes, this.#unsentLength);
    this.#unsentLength += bytes.length;
  }

  /** Waits only while too many are on their way. */
  async #put(): Promise<void> {
    if (this.#unsentLength === 0) return;
    while (this.#puts.size >= SNAPSHOT_WIRE_LIMITS.putsInFlight) await Promise.race(this.#puts);
    this.#throwIfFailed();
    const bytes = this.#memory.unsentPack.subarray(0, this.#unsentLength);
    this.#track(this.#puts, this.#store.put(this.#number, this.#unsentFrom, bytes));
    this.#unsentFrom += this.#unsentLength;
    this.#unsentLength = 0;
  }

  /** Its failure is met at the next step, at the latest at the end. */
  #track(group: Set<Promise<void>>, call: Promise<void>): void {
    const settled = call.catch((error: unknown) => {
      this.#failure ??= { error };
      this.#step();
    });
    const counted = settled.finally(() => group.delete(counted));
    group.add(counted);
  }

  #throwIfFailed(): void {
    if (this.#failure !== null) throw this.#failure.error;
    if (this.#isClosed) throw new Error('nothing is sent any more');
  }
}
