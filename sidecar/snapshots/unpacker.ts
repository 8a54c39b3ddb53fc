import { extname, join } from 'node:path';
import { Worker } from 'node:worker_threads';

export interface UnpackerRequest {
  readonly stored: Uint8Array;
  readonly encoding: number;
  readonly rawLength: number;
  /** See `encodeRecords`. */
  readonly table: Uint8Array;
}

export interface UnpackerAnswer {
  /** Null: it is damaged. */
  readonly raw: Uint8Array | null;
}

/** Another processor's share of a large restore. Answers come in the order of the requests. */
export class Unpacker {
  readonly #worker: Worker;
  readonly #waiting: ((raw: Buffer | null) => void)[] = [];
  #isLost = false;

  private constructor(worker: Worker) {
    this.#worker = worker;
    worker.on('message', ({ raw }: UnpackerAnswer) => {
      this.#waiting.shift()?.(raw === null ? null : Buffer.from(raw.buffer, raw.byteOffset, raw.byteLength));
    });
    const lost = (): void => {
      this.#isLost = true;
      for (const answer of this.#waiting.splice(0)) answer(null);
    };
    worker.on('error', lost);
    worker.on('exit', lost);
  }

  /** Beside this program, of the same kind. */
  static start(): Unpacker {
    const kind = extname(import.meta.filename) === '.ts' ? '.ts' : '.cjs';
    const program = join(import.meta.dirname, `unpacker-thread${kind}`);
    const worker = new Worker(program, { resourceLimits: { maxYoungGenerationSizeMb: 4 } });
    worker.unref();
    return new Unpacker(worker);
  }

  /** The bytes of a frame, with the hash of each object checked; null where it is damaged, or the thread is gone. */
  unpack(request: UnpackerRequest): Promise<Buffer | null> {
    if (this.#isLost) return Promise.resolve(null);
    return new Promise((resolve) => {
      this.#waiting.push(resolve);
      // A part of a larger piece of memory would be sent with all of it.
      const { encoding, rawLength } = request;
      const [stored, table] = [new Uint8Array(request.stored), new Uint8Array(request.table)];
      const own: UnpackerRequest = { stored, encoding, rawLength, table };
      this.#worker.postMessage(own, [stored.buffer, table.buffer]);
    });
  }

  close(): void {
    void this.#worker.terminate();
  }
}
