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
  /** Null if the frame is damaged. */
  readonly raw: Uint8Array | null;
}

/** A thread that unpacks frames of a large restore. Answers come in the order of the requests. */
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

  /** The program is beside this one, with the same extension. */
  static start(): Unpacker {
    const kind = extname(import.meta.filename) === '.ts' ? '.ts' : '.cjs';
    const program = join(import.meta.dirname, `unpacker-thread${kind}`);
    const worker = new Worker(program, { resourceLimits: { maxYoungGenerationSizeMb: 4 } });
    worker.unref();
    return new Unpacker(worker);
  }

  /** The bytes of a frame after verifying all hashes. Null if it is damaged, or if the thread has exited. */
  unpack(request: UnpackerRequest): Promise<Buffer | null> {
    if (this.#isLost) return Promise.resolve(null);
    return new Promise((resolve) => {
      this.#waiting.push(resolve);
      // A view would be sent with its whole buffer.
      const { encoding, rawLength } = request;
      const [stored, table] = [new Uint8Array(request.stored), new Uint8Array(request.table)];
      const message: UnpackerRequest = { stored, encoding, rawLength, table };
      this.#worker.postMessage(message, [stored.buffer, table.buffer]);
    });
  }

  close(): void {
    void this.#worker.terminate();
  }
}
