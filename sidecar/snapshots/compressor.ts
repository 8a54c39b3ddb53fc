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

/** `stored` may lie in the frame's memory. */
type Packed = Pick<Frame, 'encoding' | 'stored' | 'checksum'>;

/** Beside this program, of the same kind. */
const PROGRAM = join(
  import.meta.dirname,
  `compressor-thread${extname(import.meta.filename) === '.ts' ? '.ts' : '.cjs'}`,
);
/**
 * Frames after which there is enough to do for a thread of ours: it takes as long to start as forty of them. Those before are compressed by
 * Node's own ones, which are there, but take a frame only when this thread rests.
 */
const FRAMES_BEFORE_THREAD = 12;
/** Of those, how many at once. */
const MOST_BESIDE = 2;
/** Bytes for the thread to work on while more is read: memory that nobody has touched before. */
const BYTES_AHEAD = 3 * 2 ** 20;

/**
 * Compresses frames, those of a large scan in a thread beside the one that reads, which compresses too while the others have not
 * started or have enough to do.
 */
export class Compressor {
  readonly #program: string;
  #worker: Worker | null = null;
  readonly #waiting: Waiting[] = [];
  readonly #memory: UploadBuffers;
  readonly #said = new Int32Array(new SharedArrayBuffer(8));
  /** Frames that came. */
  #packed = 0;
  /** Bytes of those that went to the thread. */
  #handedOver = 0;
  /** Frames that Node's threads compress now. */
  #beside = 0;
  #failure: HoldfastError | null = null;

  /** `program`: the file of compressor-thread. */
  constructor(memory: UploadBuffers = new UploadBuffers(), program: string = PROGRAM) {
    this.#memory = memory;
    this.#program = program;
  }

  /** `raw`: the beginning of a frame's memory. What comes of it may lie there. */
  async pack(raw: Buffer): Promise<Packed> {
    if (this.#failure !== null) throw this.#failure;
    const memory = raw.buffer;
    if (!(memory instanceof SharedArrayBuffer)) throw new TypeError('not the memory of a frame');
    this.#packed += 1;
    if (this.#packed > FRAMES_BEFORE_THREAD) this.start();
    if (this.#worker === null && this.#beside < MOST_BESIDE) return await this.#packBeside(raw);
    if (!this.#isFree) return compressInPlace(raw);
    this.#handedOver += raw.length;
    const packed = Promise.withResolvers<Packed>();
    this.#waiting.push({ raw: memory, packed });
    this.#worker?.postMessage({ raw: new Uint8Array(memory, 0, raw.length) } satisfies CompressorRequest);
    return await packed.promise;
  }

  /** There will be much to compress. */
  start(): void {
    this.#worker ??= this.#begin();
  }

  close(): void {
    void this.#worker?.terminate();
  }

  /** The thread will be done before this one has read as much again. */
  get #isFree(): boolean {
    // The thread counts in 32 bits, over and over.
    const left = (this.#handedOver - Atomics.load(this.#said, COUNTERS.doneBytes)) | 0;
    return Atomics.load(this.#said, COUNTERS.running) === 1 && left < BYTES_AHEAD;
  }

  async #packBeside(raw: Buffer): Promise<Packed> {
    this.#beside += 1;
    try {
      const packed = await compressFrameInBackground(raw);
      if (packed.stored !== raw) this.#memory.releaseFrame(raw.buffer);
      return packed;
    } finally {
      this.#beside -= 1;
    }
  }

  #begin(): Worker {
    const worker = new Worker(this.#program, {
      workerData: { counters: this.#said } satisfies CompressorOptions,
      resourceLimits: { maxYoungGenerationSizeMb: 4 },
    });
    worker.unref();
    worker.on('message', ({ length, encoding, checksum }: CompressorAnswer) => {
      const waiting = this.#waiting.shift();
      waiting?.packed.resolve({ stored: Buffer.from(waiting.raw, 0, length), encoding, checksum });
    });
    const lost = (cause: unknown): void => {
      const why = cause instanceof Error ? cause.message : 'its thread ended';
      this.#failure = new HoldfastError('internal', 'What was read could not be compressed', { why, cause });
      for (const { packed } of this.#waiting.splice(0)) packed.reject(this.#failure);
    };
    worker.on('error', lost);
    worker.on('exit', lost);
    return worker;
  }
}
