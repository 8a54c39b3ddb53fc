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

/** Answers arrive in the order of the requests. */
export type CheckAnswer =
  | { readonly tables: Uint8Array; readonly frames: number; readonly missing: Uint8Array }
  | { readonly failure: { readonly message: string; readonly data: ErrorData } };

/** Old-space limit of the thread in MiB: it holds the set of missing objects. */
const HEAP_MIB = 256;
const YOUNG_MIB = 4;
const PROGRAM = join(
  import.meta.dirname,
  `check-worker${extname(import.meta.filename) === '.ts' ? '.ts' : '.cjs'}`,
);

interface PendingCheck {
  readonly bytes: number;
  readonly answer: PromiseWithResolvers<CheckedPack>;
}

/**
 * Checks the packs of one snapshot in a worker thread, which starts when it is first needed. The owner calls `close`.
 */
export class CheckThread {
  readonly #program: string;
  #worker: Worker | null = null;
  readonly #pending: PendingCheck[] = [];
  #failure: HoldfastError | null = null;

  /** `program`: path of the check-worker program. */
  constructor(program: string = PROGRAM) {
    this.#program = program;
  }

  get isStarted(): boolean {
    return this.#worker !== null;
  }

  /** Starts the thread ahead of the first check, because starting takes as long as checking a few MiB. */
  start(): void {
    if (this.#failure === null) this.#worker ??= this.#startWorker();
  }

  /** See `PackChecker.check`. Errors also: `internal` when the thread has ended. */
  check(path: string, bytes: number): Promise<CheckedPack> {
    this.start();
    if (this.#failure !== null) return Promise.reject(this.#failure);
    const answer = Promise.withResolvers<CheckedPack>();
    this.#pending.push({ bytes, answer });
    this.#worker?.postMessage({ path, bytes } satisfies CheckRequest);
    return answer.promise;
  }

  /** Ends the thread; running checks are rejected. */
  async close(): Promise<void> {
    this.#failure ??= new HoldfastError('cancelled', 'The snapshot was not completed');
    await this.#worker?.terminate();
  }

  #startWorker(): Worker {
    const worker = new Worker(this.#program, {
      resourceLimits: { maxOldGenerationSizeMb: HEAP_MIB, maxYoungGenerationSizeMb: YOUNG_MIB },
      // The thread needs none of this process's flags and variables.
      execArgv: [],
      env: {},
    });
    worker.unref();
    worker.on('message', (answer: CheckAnswer) => this.#onAnswer(answer));
    const fail = (cause: unknown): void => {
      const why = cause instanceof Error ? cause.message : 'its thread ended';
      this.#failure ??= new HoldfastError('internal', 'The packs of a snapshot could not be checked', {
        why,
        cause,
      });
      for (const { answer } of this.#pending.splice(0)) answer.reject(this.#failure);
    };
    worker.on('error', fail);
    worker.on('exit', fail);
    return worker;
  }

  #onAnswer(message: CheckAnswer): void {
    const pending = this.#pending.shift();
    if (pending === undefined) return;
    const { bytes, answer } = pending;
    if ('failure' in message) {
      answer.reject(errorFromWire(message.failure.message, message.failure.data));
      return;
    }
    const { tables, frames, missing } = message;
    answer.resolve({
      index: PackIndex.fromCheckedTables(asBuffer(tables), frames, bytes),
      missing: MissingObjects.decode(asBuffer(missing)),
    });
  }
}

function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
