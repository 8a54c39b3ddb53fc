import { extname, join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Frame } from '../../protocol/snapshots/frames.ts';
import {
  type CompressorAnswer,
  type CompressorPlaces,
  type CompressorRequest,
  SAID,
} from './compressor-messages.ts';
import { OutboxMemory } from './outbox-memory.ts';
import { packInPlace } from './pack-in-place.ts';

interface Waiting {
  readonly raw: SharedArrayBuffer;
  readonly packed: PromiseWithResolvers<Packed>;
}

/** `stored` is in memory from `room`. */
type Packed = Pick<Frame, 'encoding' | 'stored' | 'checksum'>;

/** Beside this program, of the same kind. */
const PROGRAM = join(
  import.meta.dirname,
  `compressor-thread${extname(import.meta.filename) === '.ts' ? '.ts' : '.cjs'}`,
);
/** Frames after which there is enough to do for a thread: it takes as long to start as ten of them. */
const FRAMES_ALONE = 3;
/** Frames for the thread to work on while more is read; each is memory that nobody has touched before. */
export const FRAMES_AHEAD = 6;
/**
 * Compresses frames, those of a large scan in a thread beside the one that reads, which compresses too while the other one has not
 * started or has enough to do. Answers come in the order of the requests.
 */
export class Compressor {
  readonly #program: string;
  #worker: Worker | null = null;
  readonly #waiting: Waiting[] = [];
  readonly #memory: OutboxMemory;
  readonly #said = new Int32Array(new SharedArrayBuffer(8));
  /** Frames that came, and those of them that went to the thread. */
  #packed = 0;
  #handedOver = 0;
  #failure: HoldfastError | null = null;

  /** `program`: the file of compressor-thread. */
  constructor(memory: OutboxMemory = new OutboxMemory(), program: string = PROGRAM) {
    this.#memory = memory;
    this.#program = program;
  }

  /** FRAME.mostBytes for one frame, to be handed to `pack`. */
  room(): Buffer {
    return Buffer.from(this.#memory.frame());
  }

  /** `raw`: the beginning of what `room` gave. `giveBack` what comes of it. */
  pack(raw: Buffer): Promise<Packed> {
    if (this.#failure !== null) return Promise.reject(this.#failure);
    const memory = raw.buffer;
    if (!(memory instanceof SharedArrayBuffer)) throw new TypeError('not from `room`');
    this.#packed += 1;
    if (this.#packed > FRAMES_ALONE) this.start();
    if (!this.#isFree) return Promise.resolve(packInPlace(raw));
    this.#handedOver += 1;
    const packed = Promise.withResolvers<Packed>();
    this.#waiting.push({ raw: memory, packed });
    this.#worker?.postMessage({ raw: new Uint8Array(memory, 0, raw.length) } satisfies CompressorRequest);
    return packed.promise;
  }

  /** There will be much to compress. */
  start(): void {
    this.#worker ??= this.#begin();
  }

  /** Nobody looks any more into what `room` gave. */
  giveBack({ buffer }: Buffer): void {
    if (buffer instanceof SharedArrayBuffer) this.#memory.giveBack(buffer);
  }

  close(): void {
    void this.#worker?.terminate();
  }

  /** The thread will be done before this one has read as much again. */
  get #isFree(): boolean {
    const left = this.#handedOver - Atomics.load(this.#said, SAID.done);
    return Atomics.load(this.#said, SAID.runs) === 1 && left < FRAMES_AHEAD;
  }

  #begin(): Worker {
    const worker = new Worker(this.#program, {
      workerData: { said: this.#said } satisfies CompressorPlaces,
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
