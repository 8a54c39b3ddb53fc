import { extname, join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { HoldfastError } from '../../protocol/errors.ts';
import { type Frame, compressFrameInBackground } from '../../snapshot-format/frames.ts';
import {
  type CompressorAnswer,
  type CompressorOptions,
  type CompressorRequest,
  COUNTERS,
} from './compressor-messages.ts';
import { UploadBuffers } from './upload-buffers.ts';
import { compressInPlace } from './compress-in-place.ts';

interface Waiting {
  readonly raw: SharedArrayBuffer;
  readonly packed: PromiseWithResolvers<Packed>;
}

/** `stored` may be in the frame's memory. */
type Packed = Pick<Frame, 'encoding' | 'stored' | 'checksum'>;

/** The thread's program: beside this one, with the same extension. */
const PROGRAM = join(
  import.meta.dirname,
  `compressor-thread${extname(import.meta.filename) === '.ts' ? '.ts' : '.cjs'}`,
);
/**
 * Frames after which our own thread pays off: starting it takes as long as forty frames. Earlier frames go to Node's
 * thread pool, which starts a frame only when this thread yields.
 */
const FRAMES_BEFORE_THREAD = 12;
/** How many frames the thread pool compresses at once. */
const MAX_POOLED = 2;
/** Bytes queued for the thread while more is read. They need fresh memory. */
const BYTES_AHEAD = 3 * 2 ** 20;

/**
 * Compresses frames. Those of a large scan go to a thread beside the reading one. The reading thread compresses too
 * while the others are starting or have enough to do.
 */
export class Compressor {
  readonly #program: string;
  #worker: Worker | null = null;
  readonly #waiting: Waiting[] = [];
  readonly #buffers: UploadBuffers;
  readonly #counters = new Int32Array(new SharedArrayBuffer(8));
  /** Frames so far. */
  #frames = 0;
  /** Bytes passed to the thread. */
  #sentBytes = 0;
  /** Frames that Node's thread pool compresses now. */
  #pooled = 0;
  #failure: HoldfastError | null = null;

  /** `program`: the file of compressor-thread. */
  constructor(memory: UploadBuffers = new UploadBuffers(), program: string = PROGRAM) {
    this.#buffers = memory;
    this.#program = program;
  }

  /** `raw`: the start of a frame's memory. The result may be written there. */
  async compress(raw: Buffer): Promise<Packed> {
    if (this.#failure !== null) throw this.#failure;
    const memory = raw.buffer;
    if (!(memory instanceof SharedArrayBuffer)) throw new TypeError('not the memory of a frame');
    this.#frames += 1;
    if (this.#frames > FRAMES_BEFORE_THREAD) this.start();
    if (this.#worker === null && this.#pooled < MAX_POOLED) return await this.#compressInPool(raw);
    if (!this.#isThreadFree) return compressInPlace(raw);
    this.#sentBytes += raw.length;
    const packed = Promise.withResolvers<Packed>();
    this.#waiting.push({ raw: memory, packed });
    this.#worker?.postMessage({ raw: new Uint8Array(memory, 0, raw.length) } satisfies CompressorRequest);
    return await packed.promise;
  }

  /** Starts the thread early, when there will be much to compress. */
  start(): void {
    this.#worker ??= this.#startWorker();
  }

  close(): void {
    void this.#worker?.terminate();
  }

  /** The thread will finish before this one has read as much again. */
  get #isThreadFree(): boolean {
    // The thread's counter wraps at 32 bits.
    const left = (this.#sentBytes - Atomics.load(this.#counters, COUNTERS.doneBytes)) | 0;
    return Atomics.load(this.#counters, COUNTERS.running) === 1 && left < BYTES_AHEAD;
  }

  async #compressInPool(raw: Buffer): Promise<Packed> {
    this.#pooled += 1;
    try {
      const packed = await compressFrameInBackground(raw);
      if (packed.stored !== raw) this.#buffers.releaseFrame(raw.buffer);
      return packed;
    } finally {
      this.#pooled -= 1;
    }
  }

  #startWorker(): Worker {
    const worker = new Worker(this.#program, {
      workerData: { counters: this.#counters } satisfies CompressorOptions,
      resourceLimits: { maxYoungGenerationSizeMb: 4 },
    });
    worker.unref();
    worker.on('message', ({ length, encoding, checksum }: CompressorAnswer) => {
      const waiting = this.#waiting.shift();
      waiting?.packed.resolve({ stored: Buffer.from(waiting.raw, 0, length), encoding, checksum });
    });
    const lost = (cause: unknown): void => {
      const why = cause instanceof Error ? cause.message : 'the compressor thread exited';
      this.#failure = new HoldfastError('internal', 'The files could not be compressed', { why, cause });
      for (const { packed } of this.#waiting.splice(0)) packed.reject(this.#failure);
    };
    worker.on('error', lost);
    worker.on('exit', lost);
    return worker;
  }
}
