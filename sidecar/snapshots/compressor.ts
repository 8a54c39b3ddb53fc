import { extname, join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { HoldfastError } from '../../protocol/errors.ts';
import { type Encoding, FRAME, type Frame } from '../../protocol/snapshots/frames.ts';

export interface CompressorRequest {
  readonly raw: Uint8Array<SharedArrayBuffer>;
}

/** What was made of it lies where it was. */
export interface CompressorAnswer {
  readonly length: number;
  readonly encoding: Encoding;
  readonly checksum: number;
}

interface Waiting {
  readonly raw: SharedArrayBuffer;
  readonly packed: PromiseWithResolvers<Packed>;
}

/** `stored` is in memory from `room`. */
type Packed = Pick<Frame, 'encoding' | 'stored' | 'checksum'>;

/** Another processor's share of a large scan. Answers come in the order of the requests. */
export class Compressor {
  readonly #worker: Worker;
  readonly #waiting: Waiting[] = [];
  /** Memory that both threads see: what is handed over would count as garbage that is to be collected, again and again. */
  readonly #free: SharedArrayBuffer[] = [];
  #isReady = false;
  #failure: HoldfastError | null = null;

  private constructor(worker: Worker) {
    this.#worker = worker;
    worker.on('message', ({ length, encoding, checksum }: CompressorAnswer) => {
      this.#isReady = true;
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
  }

  /** Beside this program, of the same kind. */
  static start(): Compressor {
    const program = join(
      import.meta.dirname,
      `compressor-thread${extname(import.meta.filename) === '.ts' ? '.ts' : '.cjs'}`,
    );
    const worker = new Worker(program, { resourceLimits: { maxYoungGenerationSizeMb: 4 } });
    worker.unref();
    return new Compressor(worker);
  }

  /** It has started: it has answered once. */
  get isReady(): boolean {
    return this.#isReady;
  }

  /** Frames that it has before it. */
  get waiting(): number {
    return this.#waiting.length;
  }

  /** Memory for one frame, to be handed to `pack`. */
  room(): Uint8Array<SharedArrayBuffer> {
    return new Uint8Array(this.#free.pop() ?? new SharedArrayBuffer(FRAME.mostBytes));
  }

  /** Nobody looks any more into what `room` gave. Other memory is left alone. */
  giveBack(bytes: Uint8Array): void {
    if (bytes.buffer instanceof SharedArrayBuffer) this.#free.push(bytes.buffer);
  }

  /** `raw`: the beginning of what `room` gave. */
  pack(raw: Uint8Array<SharedArrayBuffer>): Promise<Packed> {
    if (this.#failure !== null) return Promise.reject(this.#failure);
    const packed = Promise.withResolvers<Packed>();
    this.#waiting.push({ raw: raw.buffer, packed });
    this.#worker.postMessage({ raw } satisfies CompressorRequest);
    return packed.promise;
  }

  close(): void {
    void this.#worker.terminate();
  }
}
