import { extname, join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { HoldfastError } from '../../protocol/errors.ts';
import { type Encoding, FRAME, type Frame } from '../../protocol/snapshots/frames.ts';

export interface CompressorRequest {
  readonly raw: ArrayBuffer;
  readonly length: number;
}

export interface CompressorAnswer {
  /** The memory of the request, to be used again. */
  readonly raw: ArrayBuffer;
  readonly stored: Uint8Array;
  readonly encoding: Encoding;
  readonly checksum: number;
}

type Packed = Pick<Frame, 'encoding' | 'stored' | 'checksum'>;

/** Another processor's share of a large scan. Answers come in the order of the requests. */
export class Compressor {
  readonly #worker: Worker;
  readonly #waiting: PromiseWithResolvers<Packed>[] = [];
  readonly #free: ArrayBuffer[] = [];
  #failure: HoldfastError | null = null;

  private constructor(worker: Worker) {
    this.#worker = worker;
    worker.on('message', ({ raw, stored, encoding, checksum }: CompressorAnswer) => {
      this.#free.push(raw);
      const bytes = Buffer.from(stored.buffer, stored.byteOffset, stored.byteLength);
      this.#waiting.shift()?.resolve({ stored: bytes, encoding, checksum });
    });
    const lost = (cause: unknown): void => {
      const why = cause instanceof Error ? cause.message : 'its thread ended';
      this.#failure = new HoldfastError('internal', 'What was read could not be compressed', { why, cause });
      for (const waiting of this.#waiting.splice(0)) waiting.reject(this.#failure);
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

  /** Memory for one frame, to be handed to `pack`. */
  room(): Uint8Array {
    return new Uint8Array(this.#free.pop() ?? new ArrayBuffer(FRAME.mostBytes));
  }

  pack(raw: Uint8Array, length: number): Promise<Packed> {
    if (this.#failure !== null) return Promise.reject(this.#failure);
    const answer = Promise.withResolvers<Packed>();
    this.#waiting.push(answer);
    const request: CompressorRequest = { raw: raw.buffer as ArrayBuffer, length };
    this.#worker.postMessage(request, [request.raw]);
    return answer.promise;
  }

  close(): void {
    void this.#worker.terminate();
  }
}
