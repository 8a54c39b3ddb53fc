import { extname, join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { errorFromWire } from '../../../protocol/error-data.ts';
import { type ErrorData, HoldfastError } from '../../../protocol/errors.ts';
import { PackIndex } from '../../../snapshot-format/pack-index.ts';
import type { CheckedPack } from './check-pack.ts';
import { MissingObjects } from './missing-objects.ts';

/** A pack to be checked. */
export interface CheckRequest {
  readonly path: string;
  readonly bytes: number;
}

/** In the order of the requests. */
export type CheckAnswer =
  | { readonly tables: Uint8Array; readonly frames: number; readonly missing: Uint8Array }
  | { readonly failure: { readonly message: string; readonly data: ErrorData } };

/** Old space of the thread, MiB: what is named and has not come is kept there. */
const HEAP_MIB = 256;
const YOUNG_MIB = 4;
const PROGRAM = join(
  import.meta.dirname,
  `check-worker${extname(import.meta.filename) === '.ts' ? '.ts' : '.cjs'}`,
);

interface Waiting {
  readonly bytes: number;
  readonly answer: PromiseWithResolvers<CheckedPack>;
}

/** Checks the packs of one snapshot beside the thread that serves everybody. It starts when it is needed first; `close` it. */
export class CheckThread {
  readonly #program: string;
  #worker: Worker | null = null;
  readonly #waiting: Waiting[] = [];
  #failure: HoldfastError | null = null;

  /** `program`: the file of check-worker. */
  constructor(program: string = PROGRAM) {
    this.#program = program;
  }

  get isStarted(): boolean {
    return this.#worker !== null;
  }

  /** There will be something to check: starting takes as long as a few MiB. */
  start(): void {
    if (this.#failure === null) this.#worker ??= this.#begin();
  }

  /** See `PackChecker.check`. `internal` where the thread has ended. */
  check(path: string, bytes: number): Promise<CheckedPack> {
    this.start();
    if (this.#failure !== null) return Promise.reject(this.#failure);
    const answer = Promise.withResolvers<CheckedPack>();
    this.#waiting.push({ bytes, answer });
    this.#worker?.postMessage({ path, bytes } satisfies CheckRequest);
    return answer.promise;
  }

  /** What is being checked is not any more. */
  async close(): Promise<void> {
    this.#failure ??= new HoldfastError('cancelled', 'A snapshot was not taken to its end');
    await this.#worker?.terminate();
  }

  #begin(): Worker {
    const worker = new Worker(this.#program, {
      resourceLimits: { maxOldGenerationSizeMb: HEAP_MIB, maxYoungGenerationSizeMb: YOUNG_MIB },
      // It needs nothing of what this process was started with.
      execArgv: [],
      env: {},
    });
    worker.unref();
    worker.on('message', (answer: CheckAnswer) => this.#hear(answer));
    const lost = (cause: unknown): void => {
      const why = cause instanceof Error ? cause.message : 'its thread ended';
      this.#failure ??= new HoldfastError('internal', 'What came of a snapshot could not be checked', {
        why,
        cause,
      });
      for (const { answer } of this.#waiting.splice(0)) answer.reject(this.#failure);
    };
    worker.on('error', lost);
    worker.on('exit', lost);
    return worker;
  }

  #hear(heard: CheckAnswer): void {
    const waiting = this.#waiting.shift();
    if (waiting === undefined) return;
    const { bytes, answer } = waiting;
    if ('failure' in heard) {
      answer.reject(errorFromWire(heard.failure.message, heard.failure.data));
      return;
    }
    const { tables, frames, missing } = heard;
    answer.resolve({
      index: PackIndex.fromCheckedTables(asBuffer(tables), frames, bytes),
      missing: MissingObjects.decode(asBuffer(missing)),
    });
  }
}

function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
